#include <hocket/training/reduction.hpp>

namespace hocket::training {

void AllReduce::begin(const BucketData& bucket, Communicator& comm, StreamRef stream) {
  check(hocketAllReduce(bucket.data, bucket.data, bucket.bucket->elements, bucket.bucket->dtype,
                        op_, comm.get(), stream.get()),
        "hocketAllReduce");
}

}  // namespace hocket::training

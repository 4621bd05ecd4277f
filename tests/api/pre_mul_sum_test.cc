// hocketRedOpCreatePreMulSum: what is refused, and that a call keeps the scalar of its operator.
// tests/matrix has the results of every type, collective and algorithm.
#include <hocket/hocket.h>

#include <functional>
#include <string>
#include <vector>

#include "matrix/ranks.h"

namespace {

using ranks::Rank;

template <typename T>
hocketRedOp_t scaling(T scalar, hocketDataType_t type, hocketComm_t comm) {
  hocketRedOp_t op = hocketSum;
  EXPECT_HOCKET(hocketRedOpCreatePreMulSum(&op, &scalar, type, hocketScalarHostImmediate, comm));
  return op;
}

struct Wrong {
  const char* what;
  std::string sentence;
  std::function<hocketResult_t(hocketComm_t)> call;
};

std::vector<Wrong> wrong_calls() {
  static hocketRedOp_t op = hocketSum;
  static float x[8] = {};
  static const float two = 2;
  const auto create = [](hocketRedOp_t* out, const void* scalar, int type, int residence) {
    return [=](hocketComm_t comm) {
      return hocketRedOpCreatePreMulSum(out, scalar, static_cast<hocketDataType_t>(type),
                                        static_cast<hocketScalarResidence_t>(residence), comm);
    };
  };
  const std::string name = "hocketRedOpCreatePreMulSum: ";
  constexpr int immediate = hocketScalarHostImmediate;
  return {
      {"no place", name + "op is NULL", create(nullptr, &two, hocketFloat32, immediate)},
      {"no scalar", name + "scalar is NULL", create(&op, nullptr, hocketFloat32, immediate)},
      {"a scalar on a device",
       name + "residence is hocketScalarDevice, but this version has no device memory: use "
              "hocketScalarHostImmediate, with which the call reads the scalar",
       create(&op, &two, hocketFloat32, hocketScalarDevice)},
      {"another residence", name + "residence 7 does not exist: use hocketScalarHostImmediate",
       create(&op, &two, hocketFloat32, 7)},
      {"no datatype", name + "datatype 12 does not exist: use a hocketDataType_t",
       create(&op, &two, 12, immediate)},
      {"no communicator", name + "the communicator is NULL",
       [](hocketComm_t) {
         return hocketRedOpCreatePreMulSum(&op, &two, hocketFloat32, hocketScalarHostImmediate,
                                           nullptr);
       }},
      {"a scalar of several elements", "has 3 elements, but the scalar is one: use float32",
       [](hocketComm_t comm) {
         hocketDataType_t three = hocketInt8;
         EXPECT_HOCKET(hocketTypeCreateContiguous(&three, 3, hocketFloat32));
         const hocketResult_t result =
             hocketRedOpCreatePreMulSum(&op, &two, three, hocketScalarHostImmediate, comm);
         EXPECT_HOCKET(hocketTypeDestroy(three));
         return result;
       }},
      {"elements of another type",
       "has a scalar of float32, but the elements are int32: hocketRedOpCreatePreMulSum makes an "
       "operator for that datatype",
       [](hocketComm_t comm) {
         return hocketAllReduce(x, x, 4, hocketInt32, scaling(2.0f, hocketFloat32, comm), comm,
                                nullptr);
       }},
      {"an operator that was destroyed", "was destroyed before",
       [](hocketComm_t comm) {
         const hocketRedOp_t gone = scaling(2.0f, hocketFloat32, comm);
         EXPECT_HOCKET(hocketRedOpDestroy(gone, comm));
         return hocketReduce(x, x, 4, hocketFloat32, gone, 0, comm, nullptr);
       }},
  };
}

TEST(PreMulSum, wrong_calls_are_named_and_change_nothing) {
  ranks::run_ranks(2, [](Rank& self) {
    if (self.rank == 0) {
      for (const Wrong& wrong : wrong_calls()) {
        EXPECT_EQ(hocketInvalidArgument, wrong.call(self.comm)) << wrong.what;
        const std::string text = hocketGetLastError(nullptr);
        EXPECT_NE(std::string::npos, text.find(wrong.sentence)) << wrong.what << ": " << text;
      }
    }
    int sum = 1;
    EXPECT_HOCKET(hocketAllReduce(&sum, &sum, 1, hocketInt32, hocketSum, self.comm, nullptr));
    EXPECT_EQ(2, sum);
  });
}

TEST(PreMulSum, operators_of_another_communicator_are_refused) {
  ranks::run_ranks(2, [](Rank& self) {
    hocketComm_t twin = nullptr;
    ASSERT_HOCKET(hocketCommDuplicate(self.comm, &twin, nullptr));
    const hocketRedOp_t op = scaling(3, hocketInt32, self.comm);
    std::int32_t x = 1;
    EXPECT_EQ(hocketInvalidArgument, hocketAllReduce(&x, &x, 1, hocketInt32, op, twin, nullptr));
    EXPECT_NE(std::string::npos, std::string(hocketGetLastError(nullptr))
                                     .find("was made for another communicator: make one for this"));
    EXPECT_EQ(hocketInvalidArgument, hocketRedOpDestroy(op, twin));
    EXPECT_HOCKET(hocketAllReduce(&x, &x, 1, hocketInt32, op, self.comm, nullptr));
    EXPECT_EQ(6, x);
    EXPECT_HOCKET(hocketCommDestroy(twin));
  });
}

/// Several operators in one group and on streams: each call has its own scalar, although the
/// operators end, and the memory of the scalar changes, before the calls run.
TEST(PreMulSum, each_call_keeps_the_scalar_of_its_operator) {
  for (const char* transport : {"shm", "tcp"}) {
    const ranks::Env env{{{"HOCKET_TRANSPORT", transport}}};
    ranks::run_ranks(3, [](Rank& self) {
      hocketStream_t stream = nullptr;
      ASSERT_HOCKET(hocketStreamCreate(&stream));
      constexpr int calls = 20;
      const auto factor = [&](int call, int rank) { return 10 * call + rank; };
      const auto sum = [&](int call) {
        return factor(call, 0) + factor(call, 1) + factor(call, 2);
      };
      std::vector<std::int64_t> data(calls, 1), plain(calls, 1);
      for (const bool grouped : {false, true}) {
        std::fill(data.begin(), data.end(), 1);
        if (grouped) {
          EXPECT_HOCKET(hocketGroupStart());
        }
        // An operation that waits for the other ranks comes before.
        EXPECT_HOCKET(hocketBarrier(self.comm, stream));
        for (int call = 0; call < calls; ++call) {
          const auto i = static_cast<std::size_t>(call);
          std::int64_t scalar = factor(call, self.rank);
          const hocketRedOp_t op = scaling(scalar, hocketInt64, self.comm);
          EXPECT_HOCKET(hocketAllReduce(&data[i], &data[i], 1, hocketInt64, op, self.comm, stream));
          EXPECT_HOCKET(hocketRedOpDestroy(op, self.comm));
          // Other operators between them keep nothing of a scalar.
          plain[i] = 1;
          EXPECT_HOCKET(
              hocketAllReduce(&plain[i], &plain[i], 1, hocketInt64, hocketSum, self.comm, stream));
        }
        if (grouped) {
          EXPECT_HOCKET(hocketGroupEnd());
        }
        EXPECT_HOCKET(hocketStreamSynchronize(stream));
        for (int call = 0; call < calls; ++call) {
          EXPECT_EQ(sum(call), data[static_cast<std::size_t>(call)]) << call;
          EXPECT_EQ(3, plain[static_cast<std::size_t>(call)]) << call;
        }
      }
      EXPECT_HOCKET(hocketStreamDestroy(stream));
    });
  }
}

TEST(PreMulSum, ranks_that_sum_otherwise_are_a_mismatch) {
  for (const char* transport : {"shm", "tcp"}) {
    const ranks::Env env{{{"HOCKET_TRANSPORT", transport}}};
    ranks::run_ranks(2, [](Rank& self) {
      const hocketRedOp_t op = self.rank == 0 ? scaling(2.0f, hocketFloat32, self.comm) : hocketSum;
      float x[4] = {};
      hocketResult_t result = hocketAllReduce(x, x, 4, hocketFloat32, op, self.comm, nullptr);
      if (result == hocketSuccess) result = hocketBarrier(self.comm, nullptr);
      EXPECT_EQ(hocketMismatch, result);
      const std::string text = hocketGetLastError(self.comm);
      for (const char* call :
           {"all-reduce of 4 float32, pre-multiplied sum", "of 4 float32, sum"}) {
        EXPECT_NE(std::string::npos, text.find(call)) << text;
      }
    });
  }
}

TEST(PreMulSum, works_on_the_elements_of_a_datatypes_base) {
  ranks::run_ranks(2, [](Rank& self) {
    hocketDataType_t three = hocketInt8;
    ASSERT_HOCKET(hocketTypeCreateContiguous(&three, 3, hocketFloat64));
    const hocketRedOp_t op = scaling(self.rank + 1.0, hocketFloat64, self.comm);
    double x[6] = {1, 2, 3, 4, 5, 6};
    EXPECT_HOCKET(hocketAllReduce(x, x, 2, three, op, self.comm, nullptr));
    for (int i = 0; i < 6; ++i) EXPECT_EQ(3.0 * (i + 1), x[i]);
    EXPECT_HOCKET(hocketTypeDestroy(three));
  });
}

}  // namespace

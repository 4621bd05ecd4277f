// The peer: PyTorch's own reducer of gradients, driven as PyTorch's DistributedDataParallel drives
// it, without Python in between. Gloo is the copy that libtorch contains; the wheel of libtorch has
// no headers of Gloo, so Debian's are used.
#include "modes.h"

#ifdef LAB_HAS_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

namespace lab {
namespace {

c10::intrusive_ptr<c10d::Store> make_store(hocket::Communicator& comm, const ModeOptions& options) {
  c10d::TCPStoreOptions store;
  store.isServer = comm.rank() == 0;
  store.port = 0;  // the server takes a free port
  store.numWorkers = comm.ranks();
  store.waitWorkers = false;
  c10::intrusive_ptr<c10d::TCPStore> made;
  std::vector<std::int32_t> port(1);
  if (store.isServer) {
    made = c10::make_intrusive<c10d::TCPStore>(options.address, store);
    port[0] = made->getPort();
  }
  comm.broadcast(port, 0);
  if (made) return made;
  store.port = static_cast<std::uint16_t>(port[0]);
  return c10::make_intrusive<c10d::TCPStore>(options.address, store);
}

class ReducerMode final : public Mode {
 public:
  ReducerMode(const Workload& workload, hocket::Communicator& comm, const ModeOptions& options)
      : Mode(workload) {
    const auto store = make_store(comm, options);
    auto gloo = c10d::ProcessGroupGloo::Options::create();
    gloo->devices.push_back(
        c10d::ProcessGroupGloo::createDeviceForInterface(options.interface_name));
    auto backend = c10::make_intrusive<c10d::ProcessGroupGloo>(store, comm.rank(), comm.ranks(),
                                                               std::move(gloo));
    group_ = c10::make_intrusive<c10d::ProcessGroup>(store, comm.rank(), comm.ranks());
    group_->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, backend);
    group_->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);

    std::vector<at::Tensor> parameters = model().parameters();
    std::unordered_map<std::size_t, std::string> names;
    for (const auto& named : model().named_parameters()) names.emplace(names.size(), named.key());
    const auto cap = static_cast<std::size_t>(options.bucket_mb * (1 << 20));
    const std::size_t first_cap = std::min<std::size_t>(1 << 20, cap);
    auto [buckets, caps] = c10d::compute_bucket_assignment_by_size(
        parameters, {first_cap, cap}, std::vector<bool>(parameters.size(), false), {}, {});
    std::reverse(buckets.begin(), buckets.end());
    const std::vector<std::int64_t> bucket_caps(caps.rbegin(), caps.rend());
    reducer_ = std::make_shared<c10d::Reducer>(
        parameters, buckets, group_, std::vector<bool>(parameters.size(), false),
        static_cast<std::int64_t>(cap),
        /*find_unused_parameters=*/false, /*gradient_as_bucket_view=*/true, names,
        static_cast<std::int64_t>(first_cap), /*skip_all_reduce_unused_params=*/false,
        /*use_python_reducer=*/false, bucket_caps);
    logger_ = std::make_shared<c10d::Logger>(reducer_);
    logger_->set_construction_data_and_log("lab", {}, -1, false, false, false);
    reducer_->set_logger(logger_);
  }
  at::Tensor forward(const Batch& batch) override {
    reducer_->rebuild_buckets();
    reducer_->prepare_for_forward();
    at::Tensor result = loss(batch);
    reducer_->prepare_for_backward({});
    return result;
  }
  /// Optimizer::zero_grad() of C++ refuses gradients that are views of the reducer's buckets.
  void zero_grad() override {
    for (const at::Tensor& parameter : model().parameters()) parameter.mutable_grad().reset();
  }
  void communicate() override {
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    for (const c10d::GradBucket& bucket : reducer_->get_grad_buckets()) {
      std::vector<at::Tensor> buffer{bucket.getBuffer()};
      works.push_back(group_->allreduce(buffer));
    }
    for (const auto& work : works) work->wait();
  }

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::shared_ptr<c10d::Reducer> reducer_;
  std::shared_ptr<c10d::Logger> logger_;
};

}  // namespace

std::unique_ptr<Mode> make_reducer(const Workload& workload, hocket::Communicator& comm,
                                   const ModeOptions& options) {
  return std::make_unique<ReducerMode>(workload, comm, options);
}

}  // namespace lab

#else

std::unique_ptr<lab::Mode> lab::make_reducer(const Workload&, hocket::Communicator&,
                                             const ModeOptions&) {
  return nullptr;
}

#endif

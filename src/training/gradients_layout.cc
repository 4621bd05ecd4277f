// The arguments of a reducer, and the places that it gives to gradients.
#include <fmt/format.h>

#include <algorithm>
#include <hocket/training/agreement.hpp>
#include <map>
#include <set>

#include "training/gradients_body.h"

namespace hocket::training {
namespace {

void require_valid(const std::vector<Parameter>& parameters) {
  std::set<std::string_view> names;
  for (const Parameter& parameter : parameters) {
    if (element_bytes(parameter.dtype) < 2) {
      throw InvalidArgument(
          reducer_operation,
          fmt::format("parameter '{}' has the datatype {}: gradients are float64, "
                      "float32, float16 or bfloat16",
                      parameter.name, static_cast<int>(parameter.dtype)));
    }
    if (!names.insert(parameter.name).second) {
      throw InvalidArgument(reducer_operation,
                            fmt::format("two parameters have the name '{}': checkpoints "
                                        "and errors could not tell them apart",
                                        parameter.name));
    }
  }
}

/// Null: the store reduces into shards.
std::shared_ptr<BucketReduction> chosen_reduction(const ReducerOptions& options) {
  if (options.reduction != nullptr && options.sharding == Sharding::zero2) {
    throw InvalidArgument(
        reducer_operation,
        "Sharding::zero2 reduces into shards, so it takes no BucketReduction: use "
        "Sharding::zero1, or leave the reduction out");
  }
  if (options.sharding != Sharding::none) return options.reduction;
  return options.reduction != nullptr ? options.reduction : std::make_shared<AllReduce>();
}

/// After the ranks have agreed that they have the same, valid parameters.
Communicator own_communicator(Communicator& comm, const std::vector<Parameter>& parameters) {
  run_on_all(comm, reducer_operation, [&] { require_valid(parameters); });
  require_same_parameters(comm, parameters);
  return comm.duplicate({.name = "gradients"});
}

}  // namespace

GradientReducer::Body::Body(Communicator& comm, std::vector<Parameter> all,
                            const ReducerOptions& given)
    : options(given),
      parameters(std::move(all)),
      communicator(own_communicator(comm, parameters)),
      layout(parameters, reverse_order(parameters.size()), options.limits),
      store(layout, options.sharding, options.cut, communicator.ranks(), communicator.rank()),
      reduction(chosen_reduction(given)),
      progress(parameters.size()),
      used(parameters.size(), 1) {
  order = StepOrder::of(comm);
  number = order->add(parameters);
  use_layout();
  // A pool has no places for all buckets at once, so it reduces them during backward.
  overlaps = store.pooled() || estimated_us() >= options.least_overlap_us;
  if (overlaps) second_lane.emplace(communicator.duplicate({.name = "gradients, second lane"}));
}

float GradientReducer::Body::estimated_us() {
  Group buckets;
  for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
    AllReduce().begin(data_of(b), communicator, caller_thread);
  }
  return buckets.simulate_end().value_or(0);
}

void GradientReducer::Body::use_layout() {
  incomplete.resize(layout.buckets().size());
  timings.buckets.resize(layout.buckets().size());
  if (reduction != nullptr) reduction->lay_out(parameters, layout);
}

/// Gives the parameters new places, in the order in which they became ready on rank 0.
void GradientReducer::Body::reorder() {
  reordered = true;
  std::vector<int> order = ready_order;  // those that did not become ready come last
  std::vector<char> in_order(parameters.size());
  for (const int parameter : order) in_order[static_cast<std::size_t>(parameter)] = 1;
  for (const int parameter : reverse_order(parameters.size())) {
    if (!in_order[static_cast<std::size_t>(parameter)]) order.push_back(parameter);
  }
  communicator.broadcast(order, 0);
  BucketLayout next(parameters, order, options.limits);

  // The arenas stay: their size does not depend on the order. Gradients that are still needed are
  // saved first.
  std::map<int, std::vector<std::byte>> saved;
  for (int parameter = 0; parameter < static_cast<int>(parameters.size()); ++parameter) {
    const bool needed = options.owner != nullptr ? options.owner->needs_gradient(parameter)
                                                 : of(parameter).unreduced;
    if (!needed) continue;
    const std::byte* const from = gradient(parameter);
    saved.emplace(parameter, std::vector<std::byte>(from, from + gradient_bytes(parameter)));
  }
  layout = std::move(next);
  store.lay_out(layout);
  use_layout();
  for (int parameter = 0; parameter < static_cast<int>(parameters.size()); ++parameter) {
    std::byte* const place = gradient(parameter);
    if (const auto found = saved.find(parameter); found != saved.end()) {
      std::copy(found->second.begin(), found->second.end(), place);
    }
    if (options.owner != nullptr) options.owner->moved(parameter, place);
  }
}

}  // namespace hocket::training

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <hocket/training/torch/sync_batch_norm.hpp>
#include <map>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace hocket::training {
namespace {

using ::torch::autograd::AutogradContext;
using ::torch::autograd::variable_list;

constexpr const char* norm_operation = "hocket::training::SyncBatchNorm";

/// The mean and the variance of each feature over the samples of all ranks.
struct Statistics final : ::torch::CustomClassHolder {
  std::shared_ptr<Communicator> comm;
  double epsilon = 0;
  std::string problem;  // why this rank's input cannot be normalised
  std::int64_t features = 0;
  // After the forward:
  double count = 0;  // values of each feature
  at::Tensor mean,
      variance;  // of `features` doubles; the variance is that of the values themselves
};

/// The type in which a tensor's values are summed up.
at::ScalarType wide(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}
/// All dimensions but that of the features.
std::vector<std::int64_t> sample_dimensions(const at::Tensor& input) {
  std::vector<std::int64_t> dimensions;
  for (std::int64_t d = 0; d < input.dim(); ++d) {
    if (d != 1) dimensions.push_back(d);
  }
  return dimensions;
}
/// A value for each feature, so that it broadcasts to the input.
at::Tensor for_features(const at::Tensor& values, const at::Tensor& input) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(input.dim()), 1);
  sizes[1] = values.numel();
  return values.to(wide(input)).view(sizes);
}
std::span<double> doubles(const at::Tensor& tensor) {
  return {tensor.mutable_data_ptr<double>(), static_cast<std::size_t>(tensor.numel())};
}

/// Throws on all ranks if a rank has a problem, or there is too little to normalise.
void require_all(const Statistics& statistics, std::span<const double> all, std::size_t part) {
  if (!statistics.problem.empty()) throw InvalidArgument(norm_operation, statistics.problem);
  double count = 0;
  for (std::size_t at = 0; at < all.size(); at += part) {
    if (all[at] < 0) {
      const int rank = static_cast<int>(at / part);
      throw InvalidArgument(norm_operation,
                            "the input of rank " + std::to_string(rank) +
                                " cannot be normalised (the error of that rank says why)",
                            rank);
    }
    count += all[at];
  }
  if (count < 2) {
    throw InvalidArgument(norm_operation,
                          "all ranks together have " + std::to_string(static_cast<int>(count)) +
                              " values for each feature: the variance needs at least 2");
  }
}

/// Fills count, mean and variance. All ranks compute them in the order of ranks: their bits are
/// equal.
void gather_statistics(Statistics& statistics, const at::Tensor& input) {
  const auto features = static_cast<std::size_t>(statistics.features);
  const std::size_t part = 1 + 2 * features;  // count, means, variances
  std::vector<double> mine(part), all(part * static_cast<std::size_t>(statistics.comm->ranks()));
  if (!statistics.problem.empty()) {
    mine[0] = -1;
  } else if (input.numel() > 0) {
    mine[0] = static_cast<double>(input.numel() / statistics.features);
    const auto [variance, mean] = at::var_mean(input.to(wide(input)), sample_dimensions(input), 0);
    const at::Tensor both = at::stack({mean, variance}).to(at::kDouble).contiguous();
    std::ranges::copy(doubles(both), mine.begin() + 1);
  }
  statistics.comm->all_gather(mine, all);
  require_all(statistics, all, part);

  statistics.mean = at::zeros({statistics.features}, at::kDouble);
  statistics.variance = at::zeros({statistics.features}, at::kDouble);
  const std::span<double> mean = doubles(statistics.mean), variance = doubles(statistics.variance);
  for (std::size_t at = 0; at < all.size(); at += part) statistics.count += all[at];
  for (std::size_t at = 0; at < all.size(); at += part) {
    for (std::size_t f = 0; f < features; ++f)
      mean[f] += all[at] / statistics.count * all[at + 1 + f];
  }
  for (std::size_t at = 0; at < all.size(); at += part) {
    for (std::size_t f = 0; f < features; ++f) {
      const double shift = all[at + 1 + f] - mean[f];
      variance[f] += all[at] / statistics.count * (all[at + 1 + features + f] + shift * shift);
    }
  }
}

class NormaliseFunction : public ::torch::autograd::Function<NormaliseFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const c10::intrusive_ptr<Statistics>& shared,
                            const at::Tensor& input, const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias);
  static variable_list backward(AutogradContext* context, variable_list gradients);
};

at::Tensor NormaliseFunction::forward(AutogradContext* context,
                                      const c10::intrusive_ptr<Statistics>& shared,
                                      const at::Tensor& input,
                                      const std::optional<at::Tensor>& weight,
                                      const std::optional<at::Tensor>& bias) {
  gather_statistics(*shared, input);
  context->saved_data["statistics"] = at::IValue::make_capsule(shared);
  context->save_for_backward({input, weight.value_or(at::Tensor())});
  at::Tensor factor = at::rsqrt(shared->variance + shared->epsilon);
  if (weight.has_value()) factor = factor * weight->to(at::kDouble);
  at::Tensor shift = -shared->mean * factor;
  if (bias.has_value()) shift = shift + bias->to(at::kDouble);
  const at::Tensor result =
      at::addcmul(for_features(shift, input), input.to(wide(input)), for_features(factor, input));
  return result.to(input.scalar_type());
}

variable_list NormaliseFunction::backward(AutogradContext* context, variable_list gradients) {
  TORCH_CHECK(!c10::GradMode::is_enabled(),
              "hocket: SyncBatchNorm has no second derivative: call backward without create_graph");
  const auto holder = context->saved_data.at("statistics").toCapsule();
  const Statistics& statistics = static_cast<const Statistics&>(*holder);
  const variable_list saved = context->get_saved_variables();
  const at::Tensor& input = saved[0];
  const at::Tensor& weight = saved[1];
  const auto dimensions = sample_dimensions(input);
  const at::Tensor gradient = gradients[0].to(wide(input));
  const at::Tensor centred = input.to(wide(input)) - for_features(statistics.mean, input);

  const at::Tensor sums =
      at::stack({gradient.sum(dimensions), (gradient * centred).sum(dimensions)})
          .to(at::kDouble)
          .contiguous();
  const at::Tensor scale = at::rsqrt(statistics.variance + statistics.epsilon);
  at::Tensor of_weight, of_bias;
  if (weight.defined()) {
    of_weight = (sums[1] * scale).to(weight.scalar_type());
    of_bias = sums[0].to(weight.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  }
  statistics.comm->all_reduce(doubles(sums), hocketSum);

  // y = (x - mean) scale weight + bias, where mean and scale depend on every x.
  at::Tensor factor = scale;
  if (weight.defined()) factor = factor * weight.to(at::kDouble);
  const at::Tensor through_mean = sums[0] / statistics.count;
  const at::Tensor through_scale = sums[1] * scale * scale / statistics.count;
  const at::Tensor of_input = (gradient - for_features(through_mean, input) -
                               centred * for_features(through_scale, input)) *
                              for_features(factor, input);
  return {at::Tensor(), of_input.to(input.scalar_type()), of_weight, of_bias};
}

/// Empty: the input can be normalised.
std::string problem_of(const at::Tensor& input, std::int64_t features) {
  if (!input.defined() || input.dim() < 2 || input.size(1) != features) {
    std::ostringstream sizes;
    if (input.defined()) sizes << input.sizes();
    return "the input has the sizes " + sizes.str() + ": samples x " + std::to_string(features) +
           " features x ... are needed";
  }
  if (!input.device().is_cpu() || !at::isFloatingType(input.scalar_type())) {
    return std::string("the input has the type ") + c10::toString(input.scalar_type()) +
           " on device " + input.device().str() +
           ": floating-point numbers in CPU memory are needed";
  }
  return "";
}

}  // namespace

SyncBatchNormImpl::SyncBatchNormImpl(const ::torch::nn::BatchNormOptions& options_,
                                     std::shared_ptr<Communicator> comm)
    : options(options_), comm_(std::move(comm)) {
  SyncBatchNormImpl::reset();
}

SyncBatchNormImpl::SyncBatchNormImpl(const ::torch::nn::BatchNormOptions& options_,
                                     std::shared_ptr<Communicator> comm, const at::Tensor& weight_,
                                     const at::Tensor& bias_, const at::Tensor& running_mean_,
                                     const at::Tensor& running_var_,
                                     const at::Tensor& num_batches_tracked_)
    : options(options_), comm_(std::move(comm)) {
  const bool trained = weight_.defined() && weight_.requires_grad();
  weight = register_parameter("weight", weight_, trained);
  bias = register_parameter("bias", bias_, trained);
  running_mean = register_buffer("running_mean", running_mean_);
  running_var = register_buffer("running_var", running_var_);
  num_batches_tracked = register_buffer("num_batches_tracked", num_batches_tracked_);
}

void SyncBatchNormImpl::reset() {
  const std::int64_t features = options.num_features();
  const bool affine = options.affine(), tracks = options.track_running_stats();
  weight = register_parameter("weight", affine ? at::ones({features}) : at::Tensor(), affine);
  bias = register_parameter("bias", affine ? at::zeros({features}) : at::Tensor(), affine);
  running_mean = register_buffer("running_mean", tracks ? at::zeros({features}) : at::Tensor());
  running_var = register_buffer("running_var", tracks ? at::ones({features}) : at::Tensor());
  num_batches_tracked =
      register_buffer("num_batches_tracked", tracks ? at::zeros({}, at::kLong) : at::Tensor());
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << "hocket::training::SyncBatchNorm(" << options.num_features()
         << ", eps=" << options.eps() << ", affine=" << options.affine()
         << ", track_running_stats=" << options.track_running_stats() << ")";
}

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& input) {
  if (is_training()) return normalise(input);
  if (const std::string problem = problem_of(input, options.num_features()); !problem.empty()) {
    throw InvalidArgument(norm_operation, problem);
  }
  const bool of_batch = !running_mean.defined();
  return at::batch_norm(input, weight, bias, running_mean, running_var, of_batch, 0, options.eps(),
                        false);
}

at::Tensor SyncBatchNormImpl::normalise(const at::Tensor& input) {
  const auto statistics = c10::make_intrusive<Statistics>();
  statistics->comm = comm_;
  statistics->epsilon = options.eps();
  statistics->features = options.num_features();
  statistics->problem = problem_of(input, options.num_features());
  const auto if_defined = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  at::Tensor result =
      NormaliseFunction::apply(statistics, input, if_defined(weight), if_defined(bias));
  update_statistics(statistics->mean, statistics->variance, statistics->count);
  return result;
}

void SyncBatchNormImpl::update_statistics(const at::Tensor& mean, const at::Tensor& variance,
                                          double count) {
  if (!running_mean.defined()) return;
  const c10::AutoGradMode no_grad(false);
  num_batches_tracked.add_(1);
  const double share = options.momentum().has_value()
                           ? *options.momentum()
                           : 1.0 / static_cast<double>(num_batches_tracked.item<std::int64_t>());
  const at::ScalarType type = running_mean.scalar_type();
  running_mean.mul_(1 - share).add_(mean.to(type), share);
  running_var.mul_(1 - share).add_((variance * (count / (count - 1))).to(type), share);
}

namespace {

/// The SyncBatchNorm of a BatchNorm; null: the module is none.
std::shared_ptr<SyncBatchNormImpl> converted(const ::torch::nn::Module& module,
                                             const std::shared_ptr<Communicator>& comm) {
  const auto from = [&](const auto* norm) {
    auto sync = std::make_shared<SyncBatchNormImpl>(norm->options, comm, norm->weight, norm->bias,
                                                    norm->running_mean, norm->running_var,
                                                    norm->num_batches_tracked);
    sync->train(norm->is_training());
    return sync;
  };
  if (const auto* one = module.as<::torch::nn::BatchNorm1dImpl>()) return from(one);
  if (const auto* two = module.as<::torch::nn::BatchNorm2dImpl>()) return from(two);
  if (const auto* three = module.as<::torch::nn::BatchNorm3dImpl>()) return from(three);
  return nullptr;
}

struct Replacement {
  ::torch::nn::SequentialImpl* sequential;
  std::size_t index;
  std::string name;
  std::shared_ptr<SyncBatchNormImpl> by;
};

/// Finds what to replace; changes nothing.
class Search {
 public:
  explicit Search(std::shared_ptr<Communicator> comm) : comm_(std::move(comm)) {}
  void visit(::torch::nn::Module& module, const std::string& path) {
    auto* const sequential = module.as<::torch::nn::SequentialImpl>();
    std::size_t index = 0;
    for (const auto& child : module.named_children()) {
      const std::string name = path.empty() ? child.key() : path + '.' + child.key();
      auto& known = made_[child.value().get()];  // a module may occur at several places
      if (known == nullptr) known = converted(*child.value(), comm_);
      if (known == nullptr) {
        visit(*child.value(), name);
      } else if (sequential != nullptr) {
        replacements.push_back({sequential, index, child.key(), known});
      } else {
        members.push_back(name);
      }
      ++index;
    }
  }
  std::vector<Replacement> replacements;
  std::vector<std::string> members;  // that cannot be replaced

 private:
  const std::shared_ptr<Communicator> comm_;
  std::map<const ::torch::nn::Module*, std::shared_ptr<SyncBatchNormImpl>> made_;
};

}  // namespace

int convert_sync_batchnorm(::torch::nn::Module& module, const std::shared_ptr<Communicator>& comm) {
  Search search(comm);
  search.visit(module, "");
  if (converted(module, comm) != nullptr) search.members.push_back("the module itself");
  if (!search.members.empty()) {
    std::string names;
    for (const std::string& name : search.members) names += (names.empty() ? "" : ", ") + name;
    throw InvalidArgument("hocket::training::convert_sync_batchnorm",
                          "the BatchNorm of " + names +
                              " cannot be replaced, because it is no element of a "
                              "torch::nn::Sequential: declare it as "
                              "hocket::training::SyncBatchNorm");
  }
  for (const Replacement& each : search.replacements) {
    *(each.sequential->begin() + static_cast<std::ptrdiff_t>(each.index)) =
        ::torch::nn::AnyModule(each.by);
    each.sequential->replace_module(each.name, each.by);
  }
  return static_cast<int>(search.replacements.size());
}

}  // namespace hocket::training

// The learners of hocket-train-gpt: models and steps that are of no use.
#include "learner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "agree.h"
#include "training/ranks.h"

namespace hocket::gpt {
namespace {

using tests::message_of;
using tests::run_ranks;

struct Training {
  const char* what;
  int ranks;
  Strategy strategy;
  bool torch_optimizer = false;
  double clip = 1;
};
constexpr Training trainings[] = {
    {"none", 2, Strategy::none},
    {"none without clipping", 1, Strategy::none, false, 0},
    {"dp", 1, Strategy::dp},
    {"ddp", 2, Strategy::ddp},
    {"ddp without clipping", 2, Strategy::ddp, false, 0},
    {"zero1", 2, Strategy::zero1},
    {"zero1 with an optimizer of libtorch", 2, Strategy::zero1, true},
    {"zero2", 2, Strategy::zero2},
};

Options options_of(const Training& training) {
  Options options;
  options.strategy = training.strategy;
  options.torch_optimizer = training.torch_optimizer;
  options.layers = 1;
  options.width = 8;
  options.heads = 2;
  options.sequence = 8;
  return options;
}

const std::vector<std::string_view>& windows() {
  static const std::vector<std::string_view> all = {"the quick", " brown fo", "x jumps o",
                                                    "ver the l"};
  return all;
}

/// What a checkpoint would have of this rank.
std::vector<std::byte> state_of(Learner& learner) {
  std::vector<std::byte> all;
  for (const training::TensorRange& range : learner.ranges()) {
    const auto* const begin = static_cast<const std::byte*>(range.data);
    all.insert(all.end(), begin,
               begin + range.elements * training::element_bytes(range.tensor.dtype));
  }
  return all;
}

TEST(Learner, refuses_a_step_with_gradients_that_are_not_finite_on_all_ranks_and_changes_nothing) {
  for (const Training& training : trainings) {
    SCOPED_TRACE(training.what);
    const Options options = options_of(training);
    run_ranks(training.ranks, [&](Communicator& comm) {
      const auto learner = make_learner(options, comm);
      training::StepRecorder recorder;
      recorder.begin(1);
      learner->learn(windows(), 1, true, recorder);
      const double norm = learner->step(1e-3, training.clip, recorder);
      EXPECT_TRUE(norm > 0 && std::isfinite(norm)) << norm;
      const std::vector<std::byte> before = state_of(*learner);
      // The gradients of one rank are infinite or NaN, those of the other are not.
      const bool last = comm.rank() + 1 == comm.ranks();
      learner->learn(windows(), last ? std::numeric_limits<double>::infinity() : 1, true, recorder);
      const std::string message =
          message_of<Refused>([&] { (void)learner->step(1e-3, training.clip, recorder); });
      EXPECT_EQ(message.find("step 2 is refused before it changes anything"), 0u) << message;
      EXPECT_NE(message.find("the gradient of parameter '"), std::string::npos) << message;
      const char* const ranks =
          training.ranks == 1 ? "NaN or infinite on rank 0" : "NaN or infinite on rank 1";
      EXPECT_NE(message.find(ranks), std::string::npos) << message;
      EXPECT_TRUE(before == state_of(*learner)) << "it changed the parameters or the optimizer";
      EXPECT_EQ(learner->steps(), 1);
    });
  }
}

TEST(Learner, says_what_of_the_model_is_not_finite) {
  run_ranks(1, [](Communicator& comm) {
    const Options options = options_of({"none", 1, Strategy::none});
    const auto learner = make_learner(options, comm);
    EXPECT_EQ(learner->non_finite(windows()), "");
    const training::TensorRange last = [&] {
      training::TensorRange range;
      for (const training::TensorRange& each : learner->ranges()) {
        if (each.tensor.name.starts_with("parameter/")) range = each;
      }
      return range;
    }();
    float& element = static_cast<float*>(last.data)[last.elements - 1];
    const float before = element;
    for (const float wrong : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
      element = wrong;
      const std::string text = learner->non_finite(windows());
      EXPECT_NE(text.find("parameter '" + last.tensor.name.substr(std::strlen("parameter/"))),
                std::string::npos)
          << text;
      EXPECT_NE(text.find("is NaN or infinite"), std::string::npos) << text;
    }
    element = before;
    EXPECT_EQ(learner->non_finite(windows()), "");
    // Each parameter is finite, but the loss is not.
    for (const training::TensorRange& each : learner->ranges()) {
      if (!each.tensor.name.starts_with("parameter/")) continue;
      std::fill_n(static_cast<float*>(each.data), each.elements, 1e30f);
    }
    EXPECT_NE(learner->non_finite(windows()).find("its loss is "), std::string::npos);
  });
}

}  // namespace
}  // namespace hocket::gpt

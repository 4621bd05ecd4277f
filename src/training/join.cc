#include <algorithm>
#include <exception>
#include <hocket/training/join.hpp>
#include <utility>

namespace hocket::training {
namespace {

constexpr const char* join_operation = "hocket::training::Join";

}  // namespace

using Turn = GradientReducer::Turn;

Join::Join(GradientReducer& reducer, JoinOptions options)
    : reducer_(&reducer), options_(std::move(options)) {
  if (reducer.uneven()) throw InvalidUsage(join_operation, "another Join of this reducer exists");
  if (reducer.sharded() && !options_.update) {
    throw InvalidUsage(join_operation,
                       "gradients are sharded, so ranks that have no more data must take part in "
                       "the optimizer's step: make it in JoinOptions::update, and call "
                       "Join::update() after each backward");
  }
  reducer.set_uneven(true, options_.divide_by_active);
}
Join::Join(Join&& other) noexcept
    : reducer_(std::exchange(other.reducer_, nullptr)), options_(std::move(other.options_)) {}

Join::~Join() {
  if (reducer_ != nullptr) reducer_->leave();
}

/// Runs what all ranks run after an announcement.
template <typename Action>
void Join::together(Action action) {
  try {
    action();
  } catch (const Aborted&) {
    std::rethrow_exception(reducer_->cause_of(std::current_exception()));
  }
}

void Join::run_update() {
  if (!options_.update) {
    throw InvalidUsage(join_operation,
                       "update() was called, but JoinOptions::update is empty on this rank");
  }
  together(options_.update);
}

void Join::update() {
  if (reducer_ == nullptr) throw InvalidUsage(join_operation, "update() was called after finish()");
  reducer_->announce(Turn::update);
  run_update();
}

void Join::finish() {
  if (reducer_ == nullptr) throw InvalidUsage(join_operation, "finish() was called before");
  for (;;) {
    const std::vector<Turn> turns = reducer_->announce(Turn::done);
    const auto active =
        std::find_if(turns.begin(), turns.end(), [](Turn turn) { return turn != Turn::done; });
    if (active == turns.end()) break;
    if (*active == Turn::backward) {
      reducer_->shadow();
      if (options_.reduced) options_.reduced();
    } else if (*active == Turn::update) {
      run_update();
    } else if (options_.other) {
      together([&] { options_.other(static_cast<int>(active - turns.begin())); });
    }
  }
  GradientReducer& reducer = *std::exchange(reducer_, nullptr);
  reducer.set_uneven(false);
  if (!options_.finished) return;
  options_.finished(reducer.last_active());
}

}  // namespace hocket::training

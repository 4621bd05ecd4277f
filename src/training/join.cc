#include <algorithm>
#include <hocket/training/join.hpp>
#include <utility>

namespace hocket::training {

using Turn = GradientReducer::Turn;

Join::Join(GradientReducer& reducer, JoinOptions options)
    : reducer_(&reducer), options_(std::move(options)) {
  if (reducer.uneven()) {
    throw InvalidUsage("hocket::training::Join", "another Join of this reducer exists");
  }
  reducer.set_uneven(true, options_.divide_by_active);
}
Join::Join(Join&& other) noexcept
    : reducer_(std::exchange(other.reducer_, nullptr)), options_(std::move(other.options_)) {}

Join::~Join() {
  if (reducer_ == nullptr) return;
  hocketCommAbort(reducer_->communicator().get());
  reducer_->set_uneven(false);
}

void Join::finish() {
  if (reducer_ == nullptr) {
    throw InvalidUsage("hocket::training::Join", "finish() was called before");
  }
  for (;;) {
    const std::vector<Turn> turns = reducer_->announce(Turn::done);
    const auto active =
        std::find_if(turns.begin(), turns.end(), [](Turn turn) { return turn != Turn::done; });
    if (active == turns.end()) break;
    if (*active == Turn::backward) {
      reducer_->shadow();
    } else if (options_.other) {
      options_.other(static_cast<int>(active - turns.begin()));
    }
  }
  GradientReducer& reducer = *std::exchange(reducer_, nullptr);
  reducer.set_uneven(false);
  if (!options_.finished) return;
  options_.finished(reducer.last_active());
}

}  // namespace hocket::training

// Ranks with different numbers of backwards: before each, every rank tells the others what it does
// next, so that ranks without data can take part with zeros.
#pragma once

#include <cstddef>
#include <hocket/hocket.hpp>
#include <hocket/training/gradients.hpp>
#include <vector>

namespace hocket::training {

class UnevenSteps {
 public:
  using Turn = GradientReducer::Turn;

  /// See GradientReducer::set_uneven().
  void set(bool uneven, bool divide_by_active, int ranks);
  [[nodiscard]] bool on() const { return uneven_; }

  /// Collective. What each rank does next.
  static std::vector<Turn> exchange(Communicator& comm, Turn mine);
  /// Notes what was exchanged. Throws Mismatch, on all ranks, if ranks that are not done do
  /// different things.
  void note(const std::vector<Turn>& turns);

  /// What the averages over all ranks are multiplied by.
  [[nodiscard]] double factor(int ranks) const;
  /// Whether ranks that are done make the calls of the other ranks too.
  [[nodiscard]] bool all_take_part() const { return !uneven_ || updates_; }
  /// The lowest rank that was not done, when there was any.
  [[nodiscard]] int last_active() const { return last_active_; }

 private:
  bool uneven_ = false, divide_by_active_ = false;
  bool updates_ = false;    // the last announcement was of an update
  std::size_t active_ = 0;  // how many ranks were not done in the last announcement
  int last_active_ = 0;
};

}  // namespace hocket::training

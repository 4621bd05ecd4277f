// Ranks with different numbers of backwards: before each, every rank tells the others what it does
// next, so that ranks without data can take part with zeros.
//
// The announcements have a communicator of their own, which a rank aborts that ends its Join with
// an exception. So an abort of this communicator names the rank that began, whereas each rank that
// gets an error aborts the communicators of its reducer.
#pragma once

#include <cstddef>
#include <exception>
#include <hocket/hocket.hpp>
#include <hocket/training/gradients.hpp>
#include <optional>
#include <vector>

namespace hocket::training {

class UnevenSteps {
 public:
  using Turn = GradientReducer::Turn;

  /// See GradientReducer::set_uneven(). Collective the first time: duplicates the communicator.
  void set(bool uneven, bool divide_by_active, Communicator& comm);
  [[nodiscard]] bool on() const { return uneven_; }

  /// Collective. What each rank does next. Throws RemoteError if a rank has ended its Join with an
  /// exception.
  std::vector<Turn> exchange(Turn mine);
  /// Notes what was exchanged. Throws Mismatch, on all ranks, if ranks that are not done do
  /// different things.
  void note(const std::vector<Turn>& turns);

  /// This rank ends its Join with an exception. Does nothing if the announcements have failed
  /// before: then another rank was the first.
  void leave() noexcept;
  /// Something has failed with this error. Returns the error that names the rank that ended its
  /// Join with an exception, if the error is an abort by another rank, and the announcements fail
  /// within a second; else the error. Throws nothing.
  std::exception_ptr cause_of(const std::exception_ptr& error) noexcept;

  /// What the averages over all ranks are multiplied by.
  [[nodiscard]] double factor(int ranks) const;
  /// Whether ranks that are done make the calls of the other ranks too.
  [[nodiscard]] bool all_take_part() const { return !uneven_ || updates_; }
  /// The lowest rank that was not done, when there was any.
  [[nodiscard]] int last_active() const { return last_active_; }

 private:
  std::optional<Communicator> announcements_;
  bool uneven_ = false, divide_by_active_ = false;
  bool updates_ = false;    // the last announcement was of an update
  std::size_t active_ = 0;  // how many ranks were not done in the last announcement
  int last_active_ = 0;
};

}  // namespace hocket::training

// Whether all ranks run the same backwards in the same order.
//
// Every reducer has communicators of its own. If two reducers run their backwards in another order
// on another rank, each rank waits for a reduction that the other does not begin. If only one rank
// runs a backward without synchronization, its next backward would be averaged with this backward
// of the others. So each rank tells the others of every backward before it waits for one: the
// reducer, and whether its gradients are reduced. The reducers that were made from one communicator
// share a StepOrder, which has a communicator of its own for that.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <hocket/hocket.hpp>
#include <hocket/training/parameter.hpp>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace hocket::training {

/// The errors of a reducer name this operation.
inline constexpr const char* reducer_operation = "hocket::training::GradientReducer";

class StepOrder {
 public:
  enum class Kind : std::int64_t {
    reduced = 1,  // the gradients are averaged over the ranks
    local = 2,    // in the scope of no_sync()
  };
  using Numbers = std::array<std::int64_t, 2>;

  /// Collective. That of the reducers that were made from this communicator before, or a new one.
  static std::shared_ptr<StepOrder> of(Communicator& comm);
  StepOrder(Communicator&& own, std::uint64_t id) : id_(id), communicator_(std::move(own)) {}
  ~StepOrder();
  StepOrder(const StepOrder&) = delete;
  StepOrder& operator=(const StepOrder&) = delete;

  /// All ranks add the same reducers in the same order. Returns the reducer's number.
  std::int64_t add(const std::vector<Parameter>& parameters);

  // All of these throw Mismatch if the ranks have announced different backwards, and from then on
  // always.

  /// Announces a backward, and does not wait for other ranks.
  void announce(std::int64_t reducer, Kind kind);
  /// Waits until all ranks have announced what this rank has.
  void wait();
  /// Looks at what all ranks have announced by now.
  void look();
  /// A reduction has failed with this error. A rank that finds a difference ends its communicators,
  /// so the error may follow from that. Returns the difference, if this rank finds one within a
  /// second, else the error. Throws nothing.
  std::exception_ptr cause_of(const std::exception_ptr& error) noexcept;
  /// Announces a backward, and waits for those of all ranks, in the calling thread. Returns the
  /// sums of the ranks' numbers.
  Numbers exchange(std::int64_t reducer, Kind kind, const Numbers& numbers);

 private:
  static constexpr std::size_t width = 4;  // reducer, kind, numbers
  struct Announcement {
    std::array<std::int64_t, width> own;
    std::vector<std::int64_t> all;
    Event ended = Event::create();
  };
  Announcement announcement(std::int64_t reducer, Kind kind, const Numbers& numbers) const;
  void require_same() const;
  void compare(const Announcement& announcement);
  void meet_before_the_error(const std::vector<std::int64_t>& all);

  const std::uint64_t id_;  // the same on all ranks
  Communicator communicator_;
  std::vector<std::string> reducers_;  // descriptions for messages, by the number of the reducer
  std::list<Announcement> announced_;  // not compared yet; the stream writes to them
  std::optional<Stream> stream_;       // destroyed before the members above, which it uses
  std::uint64_t compared_ = 0;
  std::exception_ptr failure_;
};

}  // namespace hocket::training

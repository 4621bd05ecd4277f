#include "training/step_order.h"

#include <fmt/format.h>

#include <chrono>
#include <hocket/training/agreement.hpp>
#include <map>
#include <mutex>
#include <random>
#include <thread>

namespace hocket::training {
namespace {

/// By the communicator from which the reducers were made. Ranks may be threads of one process.
struct Orders {
  std::mutex mutex;
  std::map<hocketComm_t, std::weak_ptr<StepOrder>> of;
};
Orders& orders() {
  static Orders all;
  return all;
}

std::shared_ptr<StepOrder> find(hocketComm_t comm) {
  const std::lock_guard lock(orders().mutex);
  const auto found = orders().of.find(comm);
  return found == orders().of.end() ? nullptr : found->second.lock();
}

void keep(hocketComm_t comm, const std::shared_ptr<StepOrder>& order) {
  const std::lock_guard lock(orders().mutex);
  std::erase_if(orders().of, [](const auto& each) { return each.second.expired(); });
  orders().of[comm] = order;
}

std::uint64_t random_id() {
  std::random_device random;
  return (static_cast<std::uint64_t>(random()) << 32 | random()) | 1;
}

}  // namespace

/// A communicator may have the address of an older one. So an order is shared only if all ranks
/// know the same, and have the same numbers in it.
std::shared_ptr<StepOrder> StepOrder::of(Communicator& comm) {
  std::shared_ptr<StepOrder> order = find(comm.get());
  const auto ranks = static_cast<std::uint64_t>(comm.ranks());
  std::uint64_t mine[3] = {0, 0, 0};
  if (order != nullptr) {
    mine[0] = order->id_;
    mine[1] = static_cast<std::uint64_t>(order->communicator_.ranks());
    mine[2] = static_cast<std::uint64_t>(order->communicator_.rank());
  }
  std::vector<std::uint64_t> all(3 * ranks);
  comm.all_gather(mine, all);
  bool same = all[0] != 0;
  for (std::uint64_t rank = 0; rank < ranks; ++rank) {
    const std::uint64_t* const its = all.data() + 3 * rank;
    same = same && its[0] == all[0] && its[1] == ranks && its[2] == rank;
  }
  if (same) return order;
  std::uint64_t id[1] = {random_id()};
  comm.broadcast(id, 0);
  order = std::make_shared<StepOrder>(comm.duplicate({.name = "order of backwards"}), id[0]);
  keep(comm.get(), order);
  return order;
}

/// An announcement that another rank never answers would keep the stream from its end.
StepOrder::~StepOrder() {
  for (const Announcement& each : announced_) {
    if (hocketEventQuery(each.ended.get()) != hocketSuccess) {
      hocketCommAbort(communicator_.get());
      return;
    }
  }
}

std::int64_t StepOrder::add(const std::vector<Parameter>& parameters) {
  const auto number = static_cast<std::int64_t>(reducers_.size());
  reducers_.push_back(fmt::format("reducer {} ({} parameters, the first is '{}')", number,
                                  parameters.size(),
                                  parameters.empty() ? "" : parameters.front().name));
  return number;
}

StepOrder::Announcement StepOrder::announcement(std::int64_t reducer, Kind kind,
                                                const Numbers& numbers) const {
  return {
      .own = {reducer, static_cast<std::int64_t>(kind), numbers[0], numbers[1]},
      .all = std::vector<std::int64_t>(width * static_cast<std::size_t>(communicator_.ranks()))};
}

void StepOrder::announce(std::int64_t reducer, Kind kind) {
  look();
  if (!stream_) stream_ = Stream::create();
  Announcement& mine = announced_.emplace_back(announcement(reducer, kind, {0, 0}));
  communicator_.all_gather(mine.own, mine.all, *stream_);
  mine.ended.record(*stream_);
}

void StepOrder::wait() {
  require_same();
  while (!announced_.empty()) {
    announced_.front().ended.wait();
    compare(announced_.front());
    announced_.pop_front();
  }
}

void StepOrder::look() {
  require_same();
  while (!announced_.empty() && announced_.front().ended.done()) {
    announced_.front().ended.wait();  // throws the error with which it has ended
    compare(announced_.front());
    announced_.pop_front();
  }
}

std::exception_ptr StepOrder::cause_of(const std::exception_ptr& error) noexcept {
  constexpr int most_looks = 200;
  try {
    for (int looks = 0; !announced_.empty() && looks < most_looks; ++looks) {
      look();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  } catch (...) {
    // The difference, or an error of the announcements themselves, which says no more.
  }
  return failure_ != nullptr ? failure_ : error;
}

StepOrder::Numbers StepOrder::exchange(std::int64_t reducer, Kind kind, const Numbers& numbers) {
  wait();  // if those before differ, some ranks have ended and announce nothing more
  Announcement mine = announcement(reducer, kind, numbers);
  communicator_.all_gather(mine.own, mine.all);
  compare(mine);
  Numbers sums = {0, 0};
  for (std::size_t i = 0; i < mine.all.size(); i += width) {
    sums[0] += mine.all[i + 2];
    sums[1] += mine.all[i + 3];
  }
  return sums;
}

void StepOrder::require_same() const {
  if (failure_ != nullptr) std::rethrow_exception(failure_);
}

/// The error ends the communicators of this rank's reducer. A rank that waits in its own backward
/// would get an error of those, if it did not see the difference before. It sees it before it waits
/// for a bucket. (A rank whose backward is local sees it in a later call, and is not waited for.)
void StepOrder::meet_before_the_error(const std::vector<std::int64_t>& all) {
  const auto reduces = [&](int rank) {
    return all[width * static_cast<std::size_t>(rank) + 1] ==
           static_cast<std::int64_t>(Kind::reduced);
  };
  const int mine = communicator_.rank();
  if (!reduces(mine)) return;
  const std::uint8_t sent[1] = {0};
  std::vector<std::array<std::uint8_t, 1>> received(
      static_cast<std::size_t>(communicator_.ranks()));
  try {
    group([&] {
      for (int rank = 0; rank < communicator_.ranks(); ++rank) {
        if (rank == mine || !reduces(rank)) continue;
        communicator_.send(sent, rank);
        communicator_.recv(received[static_cast<std::size_t>(rank)], rank);
      }
    });
  } catch (const Error&) {
    // A rank has died, or has left: the difference is the error to be told.
  }
}

void StepOrder::compare(const Announcement& announcement) {
  ++compared_;
  const std::vector<std::int64_t>& all = announcement.all;
  const auto is = [&](std::size_t rank, std::size_t other) {
    return all[width * rank] == all[width * other] &&
           all[width * rank + 1] == all[width * other + 1];
  };
  const std::size_t ranks = all.size() / width;
  std::size_t other = 1;
  while (other < ranks && is(other, 0)) ++other;
  if (other >= ranks) return;
  const auto which = [&](std::size_t rank) {
    std::vector<int> same;
    for (std::size_t each = 0; each < ranks; ++each) {
      if (is(each, rank)) same.push_back(static_cast<int>(each));
    }
    return same;
  };
  const auto what = [&](std::size_t rank) {
    return reducers_.at(static_cast<std::size_t>(all[width * rank])) +
           (all[width * rank + 1] == static_cast<std::int64_t>(Kind::local)
                ? " in the scope of no_sync(), begin(false)"
                : " that reduces gradients");
  };
  const std::vector<int> others = which(other);
  meet_before_the_error(all);
  try {
    throw Mismatch(
        reducer_operation,
        fmt::format("the ranks run different backwards. Their backward number {} is on {} one of "
                    "{}, and on {} one of {}. Run the same backwards in the same order on all "
                    "ranks, and use no_sync() on all ranks or on none. If ranks accumulate over "
                    "different numbers of backwards on purpose, set uneven_accumulation",
                    compared_, ranks_text(which(0)), what(0), ranks_text(others), what(other)),
        others.size() == 1 ? others.front() : -1);
  } catch (...) {
    failure_ = std::current_exception();
    throw;
  }
}

}  // namespace hocket::training

// All mutable state of the library that belongs to the process and to no communicator. What lies
// below gets the parts that it needs as arguments; only src/api asks for Process::current().
//
// Creation. The one object is made when the library is loaded. Making it allocates nothing.
//
// Fork. A child uses nothing of its parent: the object is made anew in the child, before fork()
// returns there. The new object knows only whether the parent was a rank. The child closes, unmaps
// and frees nothing to which the old object pointed, because threads of the parent may have been
// changing it. Handles of communicators remember the process that made them
// (hocketComm::fork_generation).
//
// Exit. The object is never destroyed: workers of streams may run until the process has ended. The
// monitor thread ends in an exit handler of its own.
//
// This mutable state is elsewhere, below src/api, each for the reason in its line:
//
//   Log                 all modules log, to one callback; process.cc unlocks it in a forked child
//   forks               (base/fork.cc) counts forks before any other object of the library exists
//   MonitorGlobals      (bootstrap/net/monitor_thread.cc) the monitor thread: handlers of fork and
//                       of exit, which have no argument, must find it
//   ReachedCoordinators (bootstrap/join/node_leader.cc) whether a coordinator that refuses a
//                       connection has existed: true for every later join, in a forked child too
//   process_number()    (bootstrap/join/join_role.cc) the random number of the process, by which
//                       ranks see that they are threads of one process
//   RecordDumps         (engine/record_dump.cc) the signals that ask for a dump and the thread that
//                       writes it: a signal has one action in a process, and a handler no argument
//   ProcessOffset       (engine/trace_clock.cc) one clock for the traces of all communicators, as a
//                       trace viewer shows the operations of a process on one time axis
//   threads_inside_user_operator  (reduce/user_fold.h) every call of the API reads it first
//
// The last error and the open group of a thread belong to the thread. Values that are computed once
// and never change (topology/machine.cc, loaded libraries, tables) are no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "api/handle.h"
#include "api/operators.h"
#include "engine/job.h"
#include "engine/shared_parts.h"

namespace hocket::internal::api {

/// The handles of one kind, streams or events. A handle is looked up here before its memory is
/// accessed. The memory of destroyed handles is kept for a while, because a new handle at the same
/// address would make the old handle valid again.
template <typename Handle>
class HandleTable {
 public:
  /// kind: "stream", for messages.
  explicit HandleTable(const char* kind) : kind_(kind) {}

  Handle* add(std::unique_ptr<Handle> handle) {
    Handle* const pointer = handle.get();
    List one;
    one.push_back(std::move(handle));
    const std::lock_guard lock(mutex_);
    known_.emplace(pointer, Known{one.begin()});
    live_.splice(live_.end(), one);
    return pointer;
  }
  /// Returns OK if it is a live handle of this process.
  Status check(const Handle* handle) {
    const std::lock_guard lock(mutex_);
    const auto found = known_.find(handle);
    if (found == known_.end()) {
      return invalid_argument(std::string("this pointer is no ") + kind_ + " of this process");
    }
    if (found->second.live) return {};
    return invalid_argument(std::string("this ") + kind_ + " was destroyed before");
  }
  void retire(Handle* handle) noexcept {  // allocates nothing
    const std::lock_guard lock(mutex_);
    const auto found = known_.find(handle);
    if (found == known_.end() || !found->second.live) return;  // another thread did it
    found->second.live = false;
    retired_.splice(retired_.end(), live_, found->second.place);
    if (retired_.size() <= most_retired) return;
    known_.erase(retired_.front().get());
    retired_.pop_front();
  }

 private:
  static constexpr std::size_t most_retired = 1024;
  using List = std::list<std::unique_ptr<Handle>>;
  struct Known {
    typename List::iterator place;
    bool live = true;
  };
  const char* const kind_;
  std::mutex mutex_;
  List live_, retired_;  // the oldest first
  std::map<const Handle*, Known> known_;
};

/// The memory of the handles of destroyed communicators, see hocketComm.
class RetiredComms {
 public:
  /// Takes the oldest handle, for a new communicator, if there are `most` of them; else null.
  hocketComm* take_oldest();
  void add(hocketComm* comm) noexcept;  // allocates nothing
  std::size_t count();

  static constexpr std::size_t most = 4096;

 private:
  std::mutex mutex_;
  hocketComm* oldest_ = nullptr;  // a list by hocketComm::retired_after
  hocketComm* newest_ = nullptr;
  std::size_t count_ = 0;
};

/// What a handle of hocketCommRegister points to.
struct Registration {
  const hocketComm* comm;
  std::uint64_t region;  // 0: registered without a descriptor
  std::size_t bytes;
};

/// The registrations that have not ended. A handle is looked up here before its memory is accessed.
class Registrations {
 public:
  explicit Registrations(Regions& regions) : regions_(regions) {}
  void* add(const hocketComm* comm, std::uint64_t region, std::size_t bytes);
  /// Ends a registration; returns an error if comm has no registration with that handle.
  Status end(const hocketComm* comm, void* handle);
  /// The bytes of all registrations of a communicator.
  std::uint64_t bytes_of(const hocketComm* comm);
  /// Ends all registrations of a communicator that is destroyed.
  void end_all(const hocketComm* comm);

 private:
  Regions& regions_;
  std::mutex mutex_;
  std::set<Registration*> live_;
};

class Process {
 public:
  /// The object of the calling process.
  static Process& current();

  explicit Process(bool parent_was_rank);
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  SharedParts shared;  // all communicators use it
  LaunchedJob launched_job;
  RetiredComms retired_comms;
  HandleTable<hocketStream> streams{"stream"};
  HandleTable<hocketEvent> events{"event"};
  Registrations registrations{shared.regions};
  Operators operators;
  Datatypes datatypes;
};

}  // namespace hocket::internal::api

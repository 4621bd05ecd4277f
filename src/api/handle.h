// The objects behind the C handles, and the checks that every entry point makes first.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "api/arguments.h"
#include "base/biased_lock.h"
#include "base/fork.h"
#include "base/status.h"
#include "engine/communicator.h"
#include "engine/error_cell.h"
#include "engine/stream.h"
#include "hocket/hocket.h"
#include "reduce/user_fold.h"

/// The handle of a communicator. The memory of a destroyed handle is kept, so that a call with it
/// is refused. After RetiredComms::most more handles have been destroyed, a new communicator uses
/// that memory. So at most RetiredComms::most destroyed handles are kept.
struct hocketComm {
  static constexpr std::uint32_t live = 0x434f4d4d, dead = 0xdeadc0de;
  std::atomic<std::uint32_t> state{live};
  std::uint64_t fork_generation = hocket::internal::fork_generation();
  bool blocking = true;
  std::atomic<bool> finalized{false};
  hocket::internal::ErrorCell errors;  // outlives the communicator
  std::unique_ptr<hocket::internal::Communicator> communicator;
  std::atomic<bool> ready{false};      // communicator may be used
  hocket::internal::StopRequest stop;  // stops the making of the communicator
  // blocking = 0: calls on the NULL stream and the making of the communicator run here.
  std::unique_ptr<hocket::internal::HostStream> own;
  // Of calls outside of groups. Only the thread that is inside the communicator uses the two.
  hocket::internal::api::LatestCalls latest;
  /// The blocks of the latest v-variant.
  std::shared_ptr<const hocket::internal::VaryingBlocks> latest_blocks;
  hocketComm* retired_after = nullptr;  // the next one that was destroyed
};

/// After the stream or event is destroyed, its handle stays for a while, empty: see HandleTable.
struct hocketStream {
  std::unique_ptr<hocket::internal::HostStream> stream =
      std::make_unique<hocket::internal::HostStream>();
};

struct hocketEvent {
  std::shared_ptr<hocket::internal::Event> event = std::make_shared<hocket::internal::Event>();
};

namespace hocket::internal::api {

/// Keeps an error as the last error of the thread and of the handle, under the name of the function
/// that the user called; returns its result code. Every error that the user gets passes through
/// this function. If there is no memory, it keeps less of the error.
hocketResult_t result(const char* function, const Status& status,
                      hocketComm* comm = nullptr) noexcept;
/// The calling thread's last status that was not OK.
Status last_error() noexcept;

/// Returns OK if comm is a live handle of this process whose communicator may be used.
Status check(hocketComm* comm);
/// The same test for every call, without a reason if it fails.
inline bool is_usable(const hocketComm* comm) {
  return comm != nullptr && comm->state.load(std::memory_order_relaxed) == hocketComm::live &&
         comm->fork_generation == fork_generation() &&
         comm->ready.load(std::memory_order_acquire) &&
         !comm->finalized.load(std::memory_order_relaxed) && !comm->errors.is_set();
}
/// Returns OK if comm is a live handle of this process; the communicator may be not ready,
/// finalized or in error.
Status check_handle(hocketComm* comm);
/// The error of the communicator or of its making; OK if there is none.
Status error_of(hocketComm* comm);

/// Keeps the memory of a destroyed handle.
void retire(hocketComm* comm) noexcept;
struct Retire {
  void operator()(hocketComm* comm) const { retire(comm); }
};
std::unique_ptr<hocketComm, Retire> make_handle();

/// Enters a communicator, and leaves it at the end of the scope. ok() is false if another thread is
/// inside the communicator.
class CommGuard {
 public:
  explicit CommGuard(Communicator& comm) : lock_(comm.order().caller()), hold_(lock_.try_lock()) {}
  ~CommGuard() { lock_.unlock(hold_); }
  CommGuard(const CommGuard&) = delete;
  CommGuard& operator=(const CommGuard&) = delete;
  bool ok() const { return hold_ != BiasedLock::Hold::none; }

 private:
  BiasedLock& lock_;
  BiasedLock::Hold hold_;
};

/// The error for a call of the API that a user operator makes.
Status called_by_operator();

/// No exception crosses the C ABI.
template <typename Body>
[[gnu::always_inline]] inline hocketResult_t guarded(const char* function, hocketComm* comm,
                                                     const Body& body) {
  if (inside_user_operator()) [[unlikely]]
    return result(function, called_by_operator());
  const Status status = status_of_call(body);
  return status.ok() ? hocketSuccess : result(function, status, comm);
}

/// For the outcome of a call inside a group: if it is an error, the end of the group will return it
/// too. Returns outcome.
hocketResult_t note_in_group(hocketResult_t outcome) noexcept;
/// guarded() for the calls that a group collects.
template <typename Body>
[[gnu::always_inline]] inline hocketResult_t guarded_in_group(const char* function,
                                                              hocketComm* comm, const Body& body) {
  const hocketResult_t outcome = guarded(function, comm, body);
  return outcome == hocketSuccess ? outcome : note_in_group(outcome);
}

/// Returns OK if stream is NULL or a live stream of this process.
Status check_stream(hocketStream_t stream);

/// True between hocketGroupStart and hocketGroupEnd of this thread.
bool in_group();

}  // namespace hocket::internal::api

#include "api/handle.h"

#include <pthread.h>

#include <new>

#include "api/process.h"
#include "base/log.h"

namespace hocket::internal::api {
namespace {

/// The last error of a thread. It is behind a pthread key: the first use of a thread_local with a
/// destructor ends the process if there is no memory.
struct ThreadError {
  Status last;
  Status shown;  // owns the text that hocketGetLastError returned last
  std::string text;

  /// Null before the thread's first error.
  static ThreadError* mine() noexcept {
    return has_key ? static_cast<ThreadError*>(::pthread_getspecific(key)) : nullptr;
  }
  /// Null if there is no memory for it; then the thread's error is out_of_memory().
  static ThreadError* make_mine() noexcept {
    ThreadError* const found = mine();
    if (!has_key || (found != nullptr && found != &exhausted)) return found;
    std::unique_ptr<ThreadError> made(new (std::nothrow) ThreadError);
    ThreadError* const kept = made != nullptr ? made.get() : &exhausted;
    if (::pthread_setspecific(key, kept) != 0 || made == nullptr) return nullptr;
    return made.release();
  }
  static void end(void* of_thread) {
    if (of_thread != &exhausted) delete static_cast<ThreadError*>(of_thread);
  }

  static ThreadError exhausted;  // in place of each one that could not be made
  static pthread_key_t key;
  static const bool has_key;
};
ThreadError ThreadError::exhausted;
pthread_key_t ThreadError::key;
const bool ThreadError::has_key = ::pthread_key_create(&key, ThreadError::end) == 0;

/// The text of an error, valid until the thread asks again.
const char* show(const Status& status) noexcept {
  ThreadError* mine = ThreadError::make_mine();
  if (mine == nullptr) return out_of_memory().message().c_str();
  mine->shown = status;
  const char* text = mine->shown.message().c_str();
  if (status.link().empty()) return text;
  best_effort([&] {
    mine->text = status.message() + " [" + status.link() + "]";
    text = mine->text.c_str();
  });
  return text;
}

}  // namespace

Status last_error() noexcept {
  const ThreadError* mine = ThreadError::mine();
  if (mine == &ThreadError::exhausted) return out_of_memory();
  return mine == nullptr ? Status() : mine->last;
}

hocketResult_t result(const char* function, const Status& cause, hocketComm* comm) noexcept {
  if (cause.ok()) [[likely]]
    return hocketSuccess;
  const Status status = cause.returned_by(function);
  if (ThreadError* mine = ThreadError::make_mine(); mine != nullptr) mine->last = status;
  const bool live =
      // end() deletes `mine` with the thread.
      // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks)
      comm != nullptr && comm->state.load(std::memory_order_relaxed) == hocketComm::live;
  if (live && cause.code() != Code::in_progress) comm->errors.note_returned(function, cause);
  return static_cast<hocketResult_t>(status.code());
}

Status check_handle(hocketComm* comm) {
  if (comm == nullptr) return invalid_argument("the communicator is NULL: make one first");
  const std::uint32_t state = comm->state.load(std::memory_order_relaxed);
  if (state == hocketComm::dead)
    return invalid_argument(
        "this communicator was destroyed before: no call may follow hocketCommDestroy");
  if (state != hocketComm::live)
    return invalid_argument(
        "this pointer is no communicator: use a hocketComm_t that hocket has made");
  if (comm->fork_generation != fork_generation()) {
    return invalid_usage(
        "this communicator belongs to the parent process: after fork() a child has none, and makes "
        "its own");
  }
  return {};
}

Status error_of(hocketComm* comm) {
  const bool ready = comm->ready.load(std::memory_order_acquire);
  return ready ? comm->communicator->error() : comm->errors.get();
}

Status called_by_operator() {
  return invalid_usage(
      "an operator of the program runs in this thread: it must not call hocket, and gets all that "
      "it needs by its context");
}

Status check(hocketComm* comm) {
  HOCKET_RETURN_IF_ERROR(check_handle(comm));
  if (!comm->ready.load(std::memory_order_acquire)) {
    HOCKET_RETURN_IF_ERROR(comm->errors.get());
    return {Code::in_progress,
            "the communicator is still joining: ask hocketCommGetAsyncError until it is done"};
  }
  HOCKET_RETURN_IF_ERROR(comm->communicator->error());
  if (comm->finalized.load(std::memory_order_relaxed)) {
    return invalid_usage("this communicator was finalized: destroy it, and make another one");
  }
  return {};
}

std::unique_ptr<hocketComm, Retire> make_handle() {
  std::unique_ptr<hocketComm, Retire> handle(Process::current().retired_comms.take_oldest());
  if (handle != nullptr) {
    std::destroy_at(handle.get());
    std::construct_at(handle.get());
  } else {
    handle.reset(new hocketComm);
  }
  return handle;
}

void retire(hocketComm* comm) noexcept {
  comm->state.store(hocketComm::dead);
  comm->errors.clear();
  Process::current().retired_comms.add(comm);
}

}  // namespace hocket::internal::api

using namespace hocket::internal;

hocketResult_t hocketGetVersion(int* version) {
  return api::guarded(__func__, nullptr, [&]() -> Status {
    if (version == nullptr) return invalid_argument("version is NULL");
    *version = HOCKET_VERSION_CODE;
    return {};
  });
}

const char* hocketGetErrorString(hocketResult_t result) {
  if (result == hocketUnhandledCudaError) return "unhandled CUDA error";
  return code_name(static_cast<Code>(static_cast<int>(result)));
}

const char* hocketGetLastError(hocketComm_t comm) {
  const auto error_of = [comm]() -> Status {
    if (comm == nullptr) return api::last_error();
    if (!api::check_handle(comm).ok()) return {};
    static_cast<void>(api::error_of(comm));  // a fault may be news
    return comm->errors.told();
  };
  const Status status = status_of_call(error_of);
  return status.ok() ? "" : api::show(status);
}

hocketResult_t hocketGetLastCulprit(int* rank) {
  if (rank == nullptr) return api::result(__func__, invalid_argument("rank is NULL"));
  *rank = api::last_error().culprit();
  return hocketSuccess;
}

hocketResult_t hocketSetLogCallback(hocketLogCallback_t callback, void* user) {
  set_log_sink(callback, user);
  return hocketSuccess;
}

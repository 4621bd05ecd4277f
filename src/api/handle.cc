#include "api/handle.h"

#include <pthread.h>

#include <deque>

#include "base/log.h"

namespace hocket::api {

std::atomic<unsigned> forks{0};

namespace {

void count_fork() { forks.fetch_add(1, std::memory_order_relaxed); }

struct Husks {
  std::mutex mutex;
  std::deque<hocketComm*> oldest_first;
  static Husks& instance() {
    static auto* husks = new Husks;
    return *husks;
  }
};

thread_local Status thread_error;
thread_local std::string shown;

}  // namespace

unsigned fork_generation() {
  [[maybe_unused]] static const int once = ::pthread_atfork(nullptr, nullptr, count_fork);
  return forks.load(std::memory_order_relaxed);
}

hocketResult_t result(const char* function, const Status& cause, hocketComm* comm) {
  if (cause.ok()) [[likely]]
    return hocketSuccess;
  const Status status = cause.returned_by(function);
  thread_error = status;
  const bool live =
      comm != nullptr && comm->state.load(std::memory_order_relaxed) == hocketComm::live;
  if (live && status.code() != Code::in_progress) {
    const bool poisoned =
        comm->ready.load(std::memory_order_acquire) && comm->communicator->has_error();
    std::lock_guard lock(comm->mutex);
    comm->call_error = status;
    if (poisoned && comm->poison.ok()) comm->poison = status;
  }
  return static_cast<hocketResult_t>(status.code());
}

const Status& last_error() { return thread_error; }

Status check_handle(hocketComm* comm) {
  if (comm == nullptr) return invalid_argument("the communicator is NULL");
  const std::uint32_t state = comm->state.load(std::memory_order_relaxed);
  if (state == hocketComm::dead) return invalid_argument("this communicator was destroyed before");
  if (state != hocketComm::live) return invalid_argument("this pointer is no communicator");
  if (comm->fork_generation != forks.load(std::memory_order_relaxed)) {
    return invalid_usage(
        "this communicator belongs to the parent process: after fork() a child has none, and makes "
        "its own");
  }
  return {};
}

Status check(hocketComm* comm) {
  HOCKET_RETURN_IF_ERROR(check_handle(comm));
  if (!comm->ready.load(std::memory_order_acquire)) {
    std::lock_guard lock(comm->mutex);
    if (!comm->init_error.ok()) return comm->init_error;
    return {Code::in_progress,
            "the communicator is still joining: ask hocketCommGetAsyncError until it is done"};
  }
  HOCKET_RETURN_IF_ERROR(comm->communicator->error());
  if (comm->finalized.load(std::memory_order_relaxed)) {
    return invalid_usage("this communicator was finalized: destroy it, and make another one");
  }
  return {};
}

std::unique_ptr<hocketComm, Bury> make_handle() {
  Husks& husks = Husks::instance();
  std::unique_ptr<hocketComm, Bury> handle;
  {
    std::lock_guard lock(husks.mutex);
    if (husks.oldest_first.size() >= most_husks) {
      handle.reset(husks.oldest_first.front());
      husks.oldest_first.pop_front();
    }
  }
  if (handle != nullptr) {
    std::destroy_at(handle.get());
    std::construct_at(handle.get());
  } else {
    handle.reset(new hocketComm);
  }
  handle->fork_generation = fork_generation();
  return handle;
}

void bury(hocketComm* comm) {
  comm->state.store(hocketComm::dead);
  {
    std::lock_guard lock(comm->mutex);
    comm->init_error = comm->call_error = {};
  }
  Husks& husks = Husks::instance();
  std::lock_guard lock(husks.mutex);
  husks.oldest_first.push_back(comm);
}

std::size_t husks() {
  Husks& husks = Husks::instance();
  std::lock_guard lock(husks.mutex);
  return husks.oldest_first.size();
}

}  // namespace hocket::api

using namespace hocket;

hocketResult_t hocketGetVersion(int* version) {
  if (version == nullptr) return api::result(__func__, invalid_argument("version is NULL"));
  *version = HOCKET_VERSION_CODE;
  return hocketSuccess;
}

const char* hocketGetErrorString(hocketResult_t result) {
  if (result == hocketUnhandledCudaError) return "unhandled CUDA error";
  return code_name(static_cast<Code>(static_cast<int>(result)));
}

const char* hocketGetLastError(hocketComm_t comm) {
  Status status;
  if (comm == nullptr) {
    status = api::thread_error;
  } else if (api::check_handle(comm).ok()) {
    if (comm->ready.load(std::memory_order_acquire)) status = comm->communicator->error();
    std::lock_guard lock(comm->mutex);
    if (!status.ok() && !comm->poison.ok()) status = comm->poison;
    if (status.ok()) status = comm->init_error;
    if (status.ok()) status = comm->call_error;
  }
  api::shown = status.ok() ? "" : status.message();
  if (!status.ok() && !status.link().empty()) api::shown += " [" + status.link() + "]";
  return api::shown.c_str();
}

hocketResult_t hocketGetLastCulprit(int* rank) {
  if (rank == nullptr) return api::result(__func__, invalid_argument("rank is NULL"));
  *rank = api::thread_error.culprit();
  return hocketSuccess;
}

hocketResult_t hocketSetLogCallback(hocketLogCallback_t callback, void* user) {
  set_log_sink(callback, user);
  return hocketSuccess;
}

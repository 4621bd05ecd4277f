#include "api/process.h"

#include <pthread.h>

#include <cstring>
#include <new>
#include <utility>

#include "base/log.h"
#include "heap/segments.h"

// Null in a process without libhocket_heap.so.
#pragma weak hocket_heap_segments
#pragma weak hocket_heap_has_private_pages

namespace hocket::internal::api {
namespace {

/// The objects of this process's parent, of its parent, and so on, as bytes. What they point to is
/// kept on purpose: these bytes show leak checkers that it is reachable.
class Parents {
 public:
  void keep(const Process& process) {
    std::memcpy(kept_[next_++ % most], static_cast<const void*>(&process), sizeof process);
  }

 private:
  static constexpr std::size_t most = 4;
  alignas(Process) std::byte kept_[most][sizeof(Process)];
  std::size_t next_;
};
Parents parents;

/// Never destroyed, and made anew in a forked child.
union Storage {
  Storage() : process(false) { ::pthread_atfork(nullptr, nullptr, renew_in_child); }
  ~Storage() {}
  static void renew_in_child();
  Process process;
};
Storage storage;

/// The child has one thread so far.
void Storage::renew_in_child() {
  const bool was_rank = storage.process.launched_job.joined();
  parents.keep(storage.process);
  new (&storage.process) Process(was_rank);
  renew_log_after_fork();
}

}  // namespace

Process::Process(bool parent_was_rank) : launched_job(parent_was_rank) {
  shared.regions.use_heap(hocket_heap_segments, hocket_heap_has_private_pages);
}

Process& Process::current() { return storage.process; }

hocketComm* RetiredComms::take_oldest() {
  const std::lock_guard lock(mutex_);
  if (count_ < most) return nullptr;
  --count_;
  return std::exchange(oldest_, oldest_->retired_after);
}

void RetiredComms::add(hocketComm* comm) noexcept {
  const std::lock_guard lock(mutex_);
  (count_++ == 0 ? oldest_ : newest_->retired_after) = comm;
  newest_ = comm;
}

std::size_t RetiredComms::count() {
  const std::lock_guard lock(mutex_);
  return count_;
}

void* Registrations::add(const hocketComm* comm, std::uint64_t region, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  auto made = std::make_unique<Registration>(Registration{comm, region, bytes});
  live_.insert(made.get());
  return made.release();
}

Status Registrations::end(const hocketComm* comm, void* handle) {
  std::unique_ptr<Registration> registration;
  {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(static_cast<Registration*>(handle));
    if (found == live_.end() || (*found)->comm != comm) {
      return invalid_argument(
          "this handle did not come from hocketCommRegister on this communicator, or was ended "
          "before");
    }
    registration.reset(live_.extract(found).value());
  }
  return registration->region == 0 ? Status() : regions_.remove(registration->region);
}

std::uint64_t Registrations::bytes_of(const hocketComm* comm) {
  const std::lock_guard lock(mutex_);
  std::uint64_t bytes = 0;
  for (const Registration* one : live_) {
    if (one->comm == comm) bytes += one->bytes;
  }
  return bytes;
}

void Registrations::end_all(const hocketComm* comm) {
  const std::lock_guard lock(mutex_);
  std::erase_if(live_, [&](Registration* one) {
    if (one->comm != comm) return false;
    if (one->region != 0) static_cast<void>(regions_.remove(one->region));
    delete one;
    return true;
  });
}

}  // namespace hocket::internal::api

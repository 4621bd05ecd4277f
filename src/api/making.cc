#include "api/making.h"

#include <utility>

#include "api/process.h"

namespace hocket::internal::api {
namespace {

using Handle = std::unique_ptr<hocketComm, Retire>;

Status still_joins() {
  return {Code::in_progress,
          "the communicator joins: ask hocketCommGetAsyncError until it is done"};
}

/// Makes the communicator of a handle on the handle's own stream. The handle keeps the error.
Status push(hocketComm* handle, const char* function, Make make) {
  handle->own = std::make_unique<HostStream>();
  SharedParts& shared = Process::current().shared;
  return handle->own->push([function, handle, &shared, make = std::move(make)] {
    const Status status = status_of_call([&] {
      return make({shared, handle->errors, &handle->stop}, &handle->communicator);
    });
    if (!status.ok()) {
      handle->errors.set(status);
      handle->errors.note_returned(function, status);
      return Status();
    }
    if (handle->communicator == nullptr) return Status();  // a split without a color
    handle->ready.store(true);
    if (handle->stop.stopped()) handle->communicator->abort();  // the stop came after make()
    return Status();
  });
}

Status make_now(const Making& making) {
  Make make;
  HOCKET_RETURN_IF_ERROR(making.begin(&make));
  Handle handle = make_handle();
  if (making.blocking) {
    SharedParts& shared = Process::current().shared;
    HOCKET_RETURN_IF_ERROR(make({shared, handle->errors}, &handle->communicator));
    if (making.out == nullptr) return {};
    handle->ready.store(true, std::memory_order_release);
    *making.out = handle.release();
    return {};
  }
  handle->blocking = false;
  HOCKET_RETURN_IF_ERROR(push(handle.get(), making.function, std::move(make)));
  *making.out = handle.release();
  return still_joins();
}

/// A communicator of a group while it is made.
struct Begun {
  const Making* making;
  Make make;
  Handle handle = nullptr;

  Status start() {
    handle = make_handle();
    handle->blocking = making->blocking;
    return push(handle.get(), making->function, std::move(make));
  }
  /// Waits until it is made.
  Status end() {
    static_cast<void>(handle->own->synchronize());
    const bool failed = !handle->ready.load() && handle->errors.is_set();
    if (!failed) handle->own.reset();
    return failed ? handle->errors.get() : Status();
  }
  void give() { *making->out = handle.release(); }
  /// Ends the making, and the communicator if there is one.
  void drop() {
    if (handle == nullptr) return;
    handle->own.reset();
    handle->communicator.reset();
    handle.reset();
  }
};

/// If the last one cannot start, all are dropped: the user gets none.
Status start_all(std::vector<Begun>& begun) {
  const Status started = status_of_call([&]() -> Status {
    for (Begun& one : begun) HOCKET_RETURN_IF_ERROR(one.start());
    return {};
  });
  if (started.ok()) return {};
  for (Begun& one : begun) {
    if (one.handle != nullptr) one.handle->stop.stop();
  }
  for (Begun& one : begun) one.drop();
  return started;
}

}  // namespace

Status make_or_collect(Making making) {
  if (in_group()) return collect(std::move(making));
  return make_now(making);
}

Status make_all(const std::vector<Making>& makings) {
  std::vector<Begun> begun;
  bool in_progress = false;
  for (const Making& making : makings) {
    begun.push_back({&making, {}});
    const Status status = making.begin(&begun.back().make);
    in_progress |= !making.blocking || status.code() == Code::in_progress;
    if (status.code() == Code::in_progress) {
      begun.pop_back();
    } else if (!status.ok()) {
      return status;
    }
  }
  HOCKET_RETURN_IF_ERROR(start_all(begun));
  Status first;
  for (Begun& one : begun) {
    if (!one.making->blocking) continue;
    const Status status = one.end();
    if (first.ok()) first = status;
  }
  for (Begun& one : begun) {
    const bool given = one.making->out != nullptr && (!one.making->blocking || first.ok());
    given ? one.give() : one.drop();
  }
  if (!first.ok()) return first;
  return in_progress ? still_joins() : Status();
}

}  // namespace hocket::internal::api

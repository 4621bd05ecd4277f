#include "api/handle.h"
#include "api/process.h"

using namespace hocket::internal;

namespace {

Status no(const char* what) { return invalid_argument(std::string("the ") + what + " is NULL"); }

Status check_event(hocketEvent_t event) {
  if (event == nullptr) return no("event");
  return api::Process::current().events.check(event);
}

/// The calls that a group has collected have not begun: nothing can wait for them yet.
Status not_in_group() {
  if (!api::in_group()) return {};
  return invalid_usage(
      "this call is not allowed inside a group, whose operations begin at hocketGroupEnd: call it "
      "before hocketGroupStart or after hocketGroupEnd");
}

Status check(hocketStream_t stream) {
  HOCKET_RETURN_IF_ERROR(api::check_stream(stream));
  return not_in_group();
}

Status check(hocketStream_t stream, hocketEvent_t event) {
  HOCKET_RETURN_IF_ERROR(check_event(event));
  return check(stream);
}

}  // namespace

Status api::check_stream(hocketStream_t stream) {
  if (stream == nullptr) return {};
  return Process::current().streams.check(stream);
}

hocketResult_t hocketStreamCreate(hocketStream_t* stream) {
  return api::guarded(__func__, nullptr, [&]() -> Status {
    if (stream == nullptr) return no("place for the stream");
    *stream = nullptr;
    *stream = api::Process::current().streams.add(std::make_unique<hocketStream>());
    return {};
  });
}

hocketResult_t hocketStreamSynchronize(hocketStream_t stream) {
  return api::guarded(__func__, nullptr, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(check(stream));
    if (stream == nullptr) return {};
    if (stream->stream->is_current_thread()) {
      return invalid_usage("a stream cannot wait for itself");
    }
    return stream->stream->synchronize();
  });
}

hocketResult_t hocketStreamQuery(hocketStream_t stream) {
  return api::guarded(__func__, nullptr, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(check(stream));
    return stream == nullptr ? Status() : stream->stream->query();
  });
}

hocketResult_t hocketStreamWaitEvent(hocketStream_t stream, hocketEvent_t event) {
  return api::guarded(__func__, nullptr, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(check(stream, event));
    const std::uint64_t number = event->event->recorded();
    if (stream == nullptr) {
      event->event->synchronize();
      return {};
    }
    return stream->stream->push_mark([shared = event->event, number] { shared->await(number); });
  });
}

hocketResult_t hocketLaunchHostFunc(hocketStream_t stream, void (*function)(void*), void* context) {
  return api::guarded(__func__, nullptr, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(check(stream));
    if (function == nullptr) return no("function");
    if (stream != nullptr) {
      return stream->stream->push_mark([function, context] { function(context); });
    }
    function(context);
    return {};
  });
}

hocketResult_t hocketStreamDestroy(hocketStream_t stream) {
  if (stream == nullptr) return hocketSuccess;
  return api::guarded(__func__, nullptr, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(check(stream));
    if (stream->stream->is_current_thread()) return invalid_usage("a stream cannot end itself");
    const Status status = stream->stream->synchronize();
    stream->stream.reset();
    api::Process::current().streams.retire(stream);
    return status;
  });
}

hocketResult_t hocketEventCreate(hocketEvent_t* event) {
  return api::guarded(__func__, nullptr, [&]() -> Status {
    if (event == nullptr) return no("place for the event");
    *event = nullptr;
    *event = api::Process::current().events.add(std::make_unique<hocketEvent>());
    return {};
  });
}

hocketResult_t hocketEventRecord(hocketEvent_t event, hocketStream_t stream) {
  return api::guarded(__func__, nullptr, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(check(stream, event));
    const std::uint64_t number =
        event->event->record(stream != nullptr ? stream->stream->waiters() : nullptr);
    if (stream == nullptr) {
      event->event->complete(number, {});
      return {};
    }
    HostStream& host = *stream->stream;
    const Status pushed = status_of_call([&] {
      return host.push_mark(
          [&host, shared = event->event, number] { shared->complete(number, host.last_result()); });
    });
    if (!pushed.ok()) event->event->complete(number, pushed);  // else a wait for it would not end
    return pushed;
  });
}

hocketResult_t hocketEventSynchronize(hocketEvent_t event) {
  return api::guarded(__func__, nullptr, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(check(nullptr, event));
    event->event->synchronize();
    return {};
  });
}

hocketResult_t hocketEventQuery(hocketEvent_t event) {
  return api::guarded(__func__, nullptr, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(check(nullptr, event));
    const Status result = event->event->result();
    return result.code() == Code::in_progress ? result : Status();
  });
}

hocketResult_t hocketEventGetResult(hocketEvent_t event) {
  return api::guarded(__func__, nullptr, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(check(nullptr, event));
    return event->event->result();
  });
}

hocketResult_t hocketEventDestroy(hocketEvent_t event) {
  if (event == nullptr) return hocketSuccess;
  return api::guarded(__func__, nullptr, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(check_event(event));
    api::Process::current().events.retire(event);
    return {};
  });
}

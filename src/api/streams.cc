#include "api/handle.h"

using namespace hocket;

namespace {

Status no(const char* what) { return invalid_argument(std::string("the ") + what + " is NULL"); }

using Streams = api::LiveHandles<hocketStream>;
using Events = api::LiveHandles<hocketEvent>;

Status check_event(hocketEvent_t event) {
  if (event == nullptr) return no("event");
  if (Events::instance().has(event)) return {};
  return invalid_argument("this event was destroyed before, or is none");
}

}  // namespace

Status api::check_stream(hocketStream_t stream) {
  if (stream == nullptr || Streams::instance().has(stream)) return {};
  return invalid_argument("this stream was destroyed before, or is none");
}

hocketResult_t hocketStreamCreate(hocketStream_t* stream) {
  if (stream == nullptr) return api::result(no("place for the stream"));
  *stream = nullptr;
  return api::guarded(nullptr, [&] {
    *stream = Streams::instance().add(std::make_unique<hocketStream>());
    return Status();
  });
}

hocketResult_t hocketStreamSynchronize(hocketStream_t stream) {
  if (stream == nullptr) return hocketSuccess;
  return api::guarded(nullptr, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(api::check_stream(stream));
    if (stream->stream.is_current_thread()) return invalid_usage("a stream cannot wait for itself");
    return stream->stream.synchronize();
  });
}

hocketResult_t hocketStreamQuery(hocketStream_t stream) {
  if (stream == nullptr) return hocketSuccess;
  return api::guarded(nullptr, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(api::check_stream(stream));
    return stream->stream.query();
  });
}

hocketResult_t hocketStreamWaitEvent(hocketStream_t stream, hocketEvent_t event) {
  return api::guarded(nullptr, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(check_event(event));
    HOCKET_RETURN_IF_ERROR(api::check_stream(stream));
    const std::uint64_t number = event->event->recorded();
    if (stream == nullptr) {
      event->event->await(number);
      return {};
    }
    return stream->stream.push([shared = event->event, number] {
      shared->await(number);
      return Status();
    });
  });
}

hocketResult_t hocketStreamDestroy(hocketStream_t stream) {
  if (stream == nullptr) return hocketSuccess;
  return api::guarded(nullptr, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(api::check_stream(stream));
    if (stream->stream.is_current_thread()) return invalid_usage("a stream cannot end itself");
    const Status status = stream->stream.synchronize();
    Streams::instance().remove(stream);
    return status;
  });
}

hocketResult_t hocketEventCreate(hocketEvent_t* event) {
  if (event == nullptr) return api::result(no("place for the event"));
  *event = nullptr;
  return api::guarded(nullptr, [&] {
    *event = Events::instance().add(std::make_unique<hocketEvent>());
    return Status();
  });
}

hocketResult_t hocketEventRecord(hocketEvent_t event, hocketStream_t stream) {
  return api::guarded(nullptr, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(check_event(event));
    HOCKET_RETURN_IF_ERROR(api::check_stream(stream));
    const std::uint64_t number = event->event->record();
    if (stream == nullptr) {
      event->event->complete(number, {});
      return {};
    }
    const HostStream& host = stream->stream;
    const Status pushed = stream->stream.push([&host, shared = event->event, number] {
      shared->complete(number, host.error());
      return Status();
    });
    if (!pushed.ok()) event->event->complete(number, pushed);  // or a wait for it would not end
    return pushed;
  });
}

hocketResult_t hocketEventSynchronize(hocketEvent_t event) {
  return api::guarded(nullptr, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(check_event(event));
    event->event->await(event->event->recorded());
    return {};
  });
}

hocketResult_t hocketEventQuery(hocketEvent_t event) {
  return api::guarded(nullptr, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(check_event(event));
    const Status result = event->event->result();
    return result.code() == Code::in_progress ? result : Status();
  });
}

hocketResult_t hocketEventGetResult(hocketEvent_t event) {
  return api::guarded(nullptr, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(check_event(event));
    return event->event->result();
  });
}

hocketResult_t hocketEventDestroy(hocketEvent_t event) {
  if (event == nullptr) return hocketSuccess;
  return api::guarded(nullptr, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(check_event(event));
    Events::instance().remove(event);
    return {};
  });
}

#include "api/handle.h"

using namespace hocket;

namespace {

Status no(const char* what) { return invalid_argument(std::string("the ") + what + " is NULL"); }

}  // namespace

hocketResult_t hocketStreamCreate(hocketStream_t* stream) {
  return api::guarded(nullptr, [&]() -> Status {
    if (stream == nullptr) return no("place for the stream");
    *stream = nullptr;
    *stream = new hocketStream;
    return {};
  });
}

hocketResult_t hocketStreamSynchronize(hocketStream_t stream) {
  if (stream == nullptr) return hocketSuccess;
  return api::guarded(nullptr, [&]() -> Status {
    if (stream->stream.is_current_thread()) return invalid_usage("a stream cannot wait for itself");
    return stream->stream.synchronize();
  });
}

hocketResult_t hocketStreamQuery(hocketStream_t stream) {
  if (stream == nullptr) return hocketSuccess;
  return api::guarded(nullptr, [&] { return stream->stream.query(); });
}

hocketResult_t hocketStreamWaitEvent(hocketStream_t stream, hocketEvent_t event) {
  return api::guarded(nullptr, [&]() -> Status {
    if (event == nullptr) return no("event");
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
    if (stream->stream.is_current_thread()) return invalid_usage("a stream cannot end itself");
    const Status status = stream->stream.synchronize();
    delete stream;
    return status;
  });
}

hocketResult_t hocketEventCreate(hocketEvent_t* event) {
  return api::guarded(nullptr, [&]() -> Status {
    if (event == nullptr) return no("place for the event");
    *event = nullptr;
    *event = new hocketEvent;
    return {};
  });
}

hocketResult_t hocketEventRecord(hocketEvent_t event, hocketStream_t stream) {
  return api::guarded(nullptr, [&]() -> Status {
    if (event == nullptr) return no("event");
    const std::uint64_t number = event->event->record();
    if (stream == nullptr) {
      event->event->complete(number);
      return {};
    }
    const Status pushed = stream->stream.push([shared = event->event, number] {
      shared->complete(number);
      return Status();
    });
    if (!pushed.ok()) event->event->complete(number);  // nobody may wait for what will not come
    return pushed;
  });
}

hocketResult_t hocketEventSynchronize(hocketEvent_t event) {
  return api::guarded(nullptr, [&]() -> Status {
    if (event == nullptr) return no("event");
    event->event->await(event->event->recorded());
    return {};
  });
}

hocketResult_t hocketEventQuery(hocketEvent_t event) {
  return api::guarded(nullptr, [&]() -> Status {
    if (event == nullptr) return no("event");
    if (event->event->reached(event->event->recorded())) return {};
    return {Code::in_progress, "the event has not been reached"};
  });
}

hocketResult_t hocketEventDestroy(hocketEvent_t event) {
  delete event;
  return hocketSuccess;
}

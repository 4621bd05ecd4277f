// Streams and events.
#pragma once

#include <hocket/cpp/error.hpp>
#include <hocket/cpp/owner.hpp>
#include <memory>
#include <utility>

namespace hocket {

class Event;
class StreamRef;

/// A host stream: its operations run in order on a worker thread of its own. A Stream that was
/// moved from has no stream: calls with it throw InvalidUsage.
class Stream {
 public:
  [[nodiscard]] static Stream create() {
    hocketStream_t handle = nullptr;
    check(hocketStreamCreate(&handle), "hocketStreamCreate");
    return Stream(handle);
  }
  /// The destructor waits until everything that was put on the stream has ended. An error that
  /// neither synchronize() nor done() has thrown is lost.
  ~Stream() = default;
  Stream(Stream&&) noexcept = default;
  Stream& operator=(Stream&&) noexcept = default;

  /// Waits until everything that was put on the stream has ended. Throws the first error of the
  /// operations of the stream that neither synchronize() nor done() has thrown before.
  void synchronize() { check(hocketStreamSynchronize(live()), "hocketStreamSynchronize"); }
  /// Whether everything that was put on the stream has ended; throws as synchronize().
  [[nodiscard]] bool done() {
    const hocketResult_t result = hocketStreamQuery(live());
    check(result, "hocketStreamQuery");
    return result == hocketSuccess;
  }
  /// What is put on the stream afterwards begins when the event has happened.
  void wait(const Event& event);
  /// Calls function() in the stream's worker when everything that was put on the stream before has
  /// ended, with or without an error (hocketLaunchHostFunc). It throws nothing and calls nothing of
  /// hocket. Streams copy it, and destroy the copy after the call.
  template <typename Function>
  void run(Function function) {
    auto copy = std::make_unique<Function>(std::move(function));
    const auto call = [](void* context) {
      const std::unique_ptr<Function> owner(static_cast<Function*>(context));
      (*owner)();
    };
    check(hocketLaunchHostFunc(live(), call, copy.get()), "hocketLaunchHostFunc");
    (void)copy.release();  // call frees it
  }
  /// A new event, which stands for everything that was put on the stream before.
  Event record();

  [[nodiscard]] hocketStream_t get() const noexcept { return owner_.get(); }

 private:
  friend StreamRef;
  explicit Stream(hocketStream_t handle) : owner_(handle) {}
  hocketStream_t live() const {
    if (get() == nullptr) throw InvalidUsage("hocket::Stream", "this Stream was moved from");
    return get();
  }

  detail::Owner<hocketStream_t, hocketStreamDestroy> owner_;
};

/// Stands for the calling thread, in place of a stream: the operation runs in that thread, and has
/// ended when the call returns.
struct CallerThread {
  explicit CallerThread() = default;
};
inline constexpr CallerThread caller_thread{};

/// Where an operation runs: a parameter type, made from a Stream or caller_thread.
class StreamRef {
 public:
  StreamRef(CallerThread) noexcept {}                          // NOLINT: implicit by intention
  StreamRef(const Stream& stream) : handle_(stream.live()) {}  // NOLINT
  [[nodiscard]] hocketStream_t get() const noexcept { return handle_; }

 private:
  hocketStream_t handle_ = nullptr;
};

/// A point in the order of a stream, and the future of the last operation that was put on the
/// stream before that point. An event that was never recorded counts as happened. It may outlive
/// its stream.
class Event {
 public:
  [[nodiscard]] static Event create() {
    hocketEvent_t handle = nullptr;
    check(hocketEventCreate(&handle), "hocketEventCreate");
    return Event(handle);
  }
  /// From now on the event stands for everything that was put on the stream before.
  void record(StreamRef stream) {
    check(hocketEventRecord(get(), stream.get()), "hocketEventRecord");
  }
  /// Whether the event has happened. Throws no operation's error: wait() does.
  [[nodiscard]] bool done() const {
    const hocketResult_t result = hocketEventQuery(get());
    check(result, "hocketEventQuery");
    return result == hocketSuccess;
  }
  /// Waits until the event has happened; throws the error of the operation before it. Each wait()
  /// throws this error again, and the stream also throws its first error.
  void wait() const {
    for (;;) {
      check(hocketEventSynchronize(get()), "hocketEventSynchronize");
      const hocketResult_t result = hocketEventGetResult(get());
      check(result, "hocketEventGetResult");
      if (result == hocketSuccess) return;  // else it was recorded anew meanwhile
    }
  }

  [[nodiscard]] hocketEvent_t get() const noexcept { return owner_.get(); }

 private:
  explicit Event(hocketEvent_t handle) : owner_(handle) {}

  detail::Owner<hocketEvent_t, hocketEventDestroy> owner_;
};

inline void Stream::wait(const Event& event) {
  check(hocketStreamWaitEvent(live(), event.get()), "hocketStreamWaitEvent");
}

inline Event Stream::record() {
  Event event = Event::create();
  event.record(*this);
  return event;
}

}  // namespace hocket

// Groups: calls that are collected and begun together.
#pragma once

#include <hocket/cpp/error.hpp>
#include <optional>
#include <utility>

namespace hocket {

/// Collects the operations that this thread calls while the Group lives; end() begins them. A
/// destructor without an end() before it, for example because of an exception, discards the
/// collected calls. Groups nest: the end() of the outermost group begins all calls. An inner group
/// that is discarded discards all calls and closes the outer groups too, so the exception must also
/// leave the outermost group.
class Group {
 public:
  Group() { check(hocketGroupStart(), "hocketGroupStart"); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group() {
    if (open_) hocketGroupCancel();
  }
  /// Ends the group without beginning its calls. Returns the time in microseconds that they would
  /// take, or nothing for an inner group.
  [[nodiscard]] std::optional<float> simulate_end() {
    if (!open_) throw InvalidUsage("hocketGroupSimulateEnd", "this Group has ended before");
    hocketSimInfo_t info = HOCKET_SIM_INFO_INITIALIZER;
    open_ = false;
    check(hocketGroupSimulateEnd(&info), "hocketGroupSimulateEnd");
    return info.estimatedTime < 0 ? std::nullopt : std::optional(info.estimatedTime);
  }
  void end() {
    if (!open_) throw InvalidUsage("hocketGroupEnd", "this Group has ended before");
    open_ = false;
    check(hocketGroupEnd(), "hocketGroupEnd");
  }

 private:
  bool open_ = true;
};

/// Runs body with an open group, and ends the group when body returns: then the calls begin. An
/// exception discards them.
///
///   hocket::group([&] {
///     comm.send(to_the_right, right);
///     comm.recv(from_the_left, left);
///   });
template <typename Body>
void group(Body&& body) {
  Group collected;
  std::forward<Body>(body)();
  collected.end();
}

namespace detail {

/// For calls that return a communicator: in a group it would exist only after the end of the group.
inline void refuse_in_group(const char* operation) {
  int depth = 0;
  check(hocketGroupDepth(&depth), "hocketGroupDepth");
  if (depth > 0) throw InvalidUsage(operation, "communicators are not made inside a group");
}

}  // namespace detail
}  // namespace hocket

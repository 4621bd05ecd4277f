// Groups: calls that are collected and begun together.
#pragma once

#include <hocket/cpp/error.hpp>
#include <utility>

namespace hocket {

/// Everything that this thread calls while it lives is collected; end() begins it. Without end(),
/// because of an exception, say, the collected calls are discarded. Groups nest: the end() of the
/// outermost one begins all calls, and an inner one without end() discards all calls and closes the
/// outer groups too, so let its exception leave the outermost one.
class Group {
 public:
  Group() { check(hocketGroupStart(), "hocketGroupStart"); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group() {
    if (open_) hocketGroupCancel();
  }
  void end() {
    if (!open_) throw InvalidUsage("hocketGroupEnd", "this Group has ended before");
    open_ = false;
    check(hocketGroupEnd(), "hocketGroupEnd");
  }

 private:
  bool open_ = true;
};

/// The calls of body as one group, which begins when body returns; an exception discards it.
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

}  // namespace hocket

// Reports to the coordinator that a rank has ended, on behalf of the launcher that started the
// rank. If the rank has not joined, the coordinator would wait for it until the join deadline. A
// state machine on the event loop.
#pragma once

#include <memory>
#include <string>

#include "base/address.h"
#include "bootstrap/auth/dialer.h"
#include "bootstrap/net/control_connection.h"
#include "bootstrap/net/control_messages.h"

namespace hocket::internal {

/// Connects as the rank that has ended, and reports a failure of the join. The coordinator's socket
/// listens already, but rank 0 may begin to accept connections at any later time, or never; so the
/// first connection waits without a limit. When a coordinator closes the connection, the next one
/// that listens on this socket gets the report. After the join, a coordinator ignores the report.
class EndReport {
 public:
  EndReport(EventLoop& loop, const Credentials& credentials, const Address& coordinator,
            Failure failure)
      : loop_(loop),
        credentials_(credentials),
        coordinator_(coordinator),
        failure_(std::move(failure)) {}
  EndReport(const EndReport&) = delete;
  EndReport& operator=(const EndReport&) = delete;
  void start();

 private:
  void reached(Dialer::Result result);

  EventLoop& loop_;
  const Credentials credentials_;
  const Address coordinator_;
  const Failure failure_;
  std::unique_ptr<Dialer> dialer_;
  std::unique_ptr<ControlConnection> conn_;
};

}  // namespace hocket::internal

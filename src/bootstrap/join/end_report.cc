#include "bootstrap/join/end_report.h"

#include <utility>

namespace hocket::internal {
namespace {
// How long the report tries to reach the host of rank 0.
constexpr std::int64_t reach_limit_ms = 60'000;
constexpr std::size_t most_bytes = 4096;  // of a message from the coordinator: `fail` or `done`
}  // namespace

void EndReport::start() {
  Dialer::Options options;
  options.endpoint.tcp = coordinator_;
  options.credentials = credentials_;
  options.claim = {Purpose::coordinator, failure_.culprit, -1, 0, 0};
  options.deadline = loop_.now() + reach_limit_ms * nanos_per_ms;
  options.accepted_late = true;
  options.name = "the coordinator at " + coordinator_.text();
  dialer_ = Dialer::start(loop_, std::move(options),
                          [this](Dialer::Result result) { reached(std::move(result)); });
}

/// Without a connection the report ends: rank 0's host has ended, or this host cannot reach it.
void EndReport::reached(Dialer::Result result) {
  dialer_.reset();
  if (!result.stream) return;
  conn_ = ControlConnection::open(
      loop_, std::move(result.stream), most_bytes, [](Message&) {}, [this](int) { start(); });
  conn_->send(MessageType::fail, encode(failure_));
}

}  // namespace hocket::internal

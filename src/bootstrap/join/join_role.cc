#include "bootstrap/join/join_role.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <mutex>

#include "base/fork.h"
#include "bootstrap/join/coordinator.h"

namespace hocket::internal {
namespace {
// At the deadline the coordinator sends an error that names the missing ranks. A rank waits for
// this time longer, so that the error can arrive.
constexpr std::int64_t grace_ms = 2000;

SharedFd open_own_pidfd() {
#ifdef SYS_pidfd_open
  const long fd = ::syscall(SYS_pidfd_open, ::getpid(), 0);
  if (fd >= 0) return std::make_shared<const UniqueFd>(static_cast<int>(fd));
#endif
  return nullptr;  // the leader then learns of this rank's end when its connection closes
}
}  // namespace

std::uint64_t process_number() {
  static std::mutex mutex;
  static std::uint64_t number = 0;
  static std::uint64_t generation = 0;
  std::lock_guard lock(mutex);
  if (generation != fork_generation()) {
    if (!random_bytes(&number, sizeof number).ok()) number = static_cast<std::uint64_t>(::getpid());
    generation = fork_generation();
  }
  return number;
}

JoinSetup::JoinSetup(const JoinOptions& options, const JoinRequest& self, Nanos now)
    : options(options),
      self(self),
      credentials{options.key, options.job_id, !options.has_key, options.tls},
      deadline(now + options.join_deadline_ms * nanos_per_ms) {
  if (!options.has_key) credentials.key = {};
  if (options.share_memory) own_pidfd = open_own_pidfd();
}

void JoinRole::start_deadline() {
  deadline_timer_ = loop_.at(setup_.deadline + grace_ms * nanos_per_ms, [this] {
    fail(Status(Code::timeout,
                fmt::format("the join deadline of {} ms passed, and {} has not said which ranks "
                            "are missing",
                            setup_.options.join_deadline_ms, awaited())));
  });
}

bool JoinRole::take_table(const Message& message) {
  if (!decode(message.body, ranks(), &joined_.table)) {
    give_up(internal_error("the table of members is damaged"));
    return false;
  }
  joined_.node = joined_.table.members[rank()].node;
  const JoinOptions& options = setup_.options;
  const Status status =
      handlers_.table_known(options.has_key ? options.key : joined_.table.session_key);
  if (!status.ok()) give_up(status);
  return status.ok();
}

void JoinRole::end() {
  set_ended();
  deadline_timer_.reset();
}

void JoinRole::finish() {
  if (ended()) return;
  end();
  handlers_.joined(std::move(joined_));
}

void JoinRole::fail(const Status& status) {
  if (ended()) return;
  end();
  best_effort([&] {
    pass_on_failure({status.code(), status.culprit(), status.message()});
    Coordinator::join_has_failed(loop_, setup_.credentials.job_id, rank());
  });
  handlers_.failed(status);
}

Status JoinRole::refusal(const Status& why) const {
  return {why.code(), fmt::format("{} cannot join: {}", who(setup_.self), why.message()), rank()};
}

Status JoinRole::stopped() const { return refusal({Code::aborted, "it aborted its join"}); }

void JoinRole::stop() {
  stop_asked_ = true;
  if (can_report()) stop_if_asked();
}

void JoinRole::stop_if_asked() {
  if (stop_asked_) give_up({Code::aborted, "it aborted its join"});
}

void JoinRole::give_up(const Status& why) {
  if (ended()) return;
  Status status = why;
  best_effort([&] {
    status = refusal(why);
    report_failure({status.code(), status.culprit(), status.message()});
  });
  fail(status);
}

std::string JoinRole::who(const JoinRequest& request) {
  return fmt::format("rank {} (process {} on {})", request.rank, request.pid, request.host);
}

}  // namespace hocket::internal

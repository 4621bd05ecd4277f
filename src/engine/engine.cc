#include "engine/engine.h"

#include <algorithm>

#include "base/assert.h"
#include "base/log.h"

namespace hocket::internal {
namespace {

Status revoked_output() {
  return {
      Code::remote_error,
      "the receive buffer shares a memory page with that of an operation that failed meanwhile, "
      "and that page was taken away from peers: what they wrote is lost. Give communicators that "
      "run at the same time receive buffers in different pages"};
}

}  // namespace

Engine::Engine(EngineHost& host, const EngineOptions& options, Links links,
               std::vector<Transport*> transports, std::unique_ptr<Selector> selector)
    : host_(host),
      options_(options),
      links_(std::move(links)),
      run_ahead_(*links_.board, options_.rank, links_.ranks_of_node),
      transports_(std::move(transports), links_),
      binder_(std::move(selector)),
      buffers_(*links_.regions, host_),
      recorder_(options_.recorded, options_.sink),
      faults_(host_, options_.rank),
      rings_(*links_.board, host_),
      messages_(options_.ranks) {
  links_.host = &host_;
  links_.run_ahead = &run_ahead_;
  HOCKET_ASSERT(links_.board != nullptr && links_.regions != nullptr, "an engine has its links");
  HOCKET_ASSERT(links_.transport_to.empty() ||
                    links_.transport_to.size() == static_cast<std::size_t>(options_.ranks),
                "there is a route to each rank, or none");
}

bool Engine::run_once(const std::optional<Nanos>& now) {
  const Exclusive::Scope round(round_);
  if (!faults_.unexplained().ok()) [[unlikely]] {
    await_explanation(now);
    return faults_.unexplained().ok();
  }
  recorder_.begin_round(now);
  bool moved = transports_.poll();
  // What has arrived may show that an operation before this one was another call: then this one
  // must not end as if all were well.
  if (transports_.failure() != nullptr && concerns_an_earlier(*transports_.failure())) [[unlikely]]
    fail(*transports_.failure());
  if (collectives_.running()) moved |= advance_collective();
  if (collectives_.next_is_due()) {
    begin_next();
    moved = true;
  }
  if (!messages_.empty()) moved |= advance_messages();
  if (transports_.failure() != nullptr) [[unlikely]]
    fail(*transports_.failure());
  if (moved) faults_.saw_move();
  if (faults_.is_pending()) [[unlikely]]
    moved |= look_at_faults(moved);
  if (now) check_times(*now);
  rings_.end_round(moved, collectives_.running());
  return moved;
}

void Engine::submit(const Call& call, Work* work) { begin_or_queue(call, work); }

bool Engine::run(const Call& call) {
  begin_or_queue(call, nullptr);
  return settle();
}

[[gnu::always_inline]] inline void Engine::begin_or_queue(const Call& call, Work* work) {
  if (faults_.is_pending()) [[unlikely]]
    look_at_faults_before_a_call();
  if (error_.is_set()) return fail_work(work);
  recorder_.begin_round({});
  if (is_p2p(call)) return begin_message(call, work);
  if (collectives_.empty()) {
    begin(call, work);
  } else {
    collectives_.add(call, work);
  }
}

bool Engine::concerns_an_earlier(const Status& failure) const {
  return failure.sequence() != 0 && failure.sequence() < begun();
}

void Engine::begin_next() {
  const CollectiveOperations::Queued next = collectives_.take();
  begin(next.call, next.work);
}

void Engine::end_call(Work* work) {
  if (work != nullptr && work->end_call()) work_has_ended_ = true;
}

void Engine::fail_work(Work* work) {
  if (work == nullptr) return;
  work->fail(error_.is_set() ? error_.status() : faults_.unexplained());
  work_has_ended_ = true;
}

/// Returns false if no algorithm can run the call: that ends the engine.
[[gnu::always_inline]] inline bool Engine::bind(const Call& call, BoundCall& bound) {
  const Status status = binder_.bind(call, bound);
  if (!status.ok()) [[unlikely]]
    fail(status);
  return status.ok();
}

void Engine::forget_bindings() {
  HOCKET_ASSERT(idle(), "no operation runs by what is forgotten");
  collectives_.current().bound.reusable = false;
  messages_.drop_spare();
}

/// What peers wait for comes first: the arrival of this rank. What only this rank and its observers
/// look at is written while the arrival travels.
[[gnu::always_inline]] inline void Engine::begin(const Call& call, Work* work) {
  const std::uint64_t sequence = collectives_.begin(work);
  Operation& current = collectives_.current();
  BoundCall& bound = current.bound;
  if (!bind(call, bound)) return;
  const Nanos when = recorder_.time();
  Binding& binding = bound.binding;
  const ProgramHeader& header = bound.program->header();
  binding.message_sequence = sequence;
  binding.mapped = 0;
  if (bound.sends_messages) transports_.announce(binding);
  if (header.maps_input || header.maps_output) {
    buffers_.find(binding);
  } else if (bound.sends_messages && bound.locates) {
    buffers_.find_sources(binding);
  }
  // The fingerprint covers all collectives up to this one.
  binding.fingerprint = fingerprint(bound.call_hash ^ binding.fingerprint, sequence);
  if (header.uses_node) ++binding.board_sequence;
  Execution& execution = current.execution;
  execution.start(*bound.program, bound.staged, binding, links_);
  if (!execution.done()) execution.advance();
  if (execution.done() && when == 0 && !execution.exports_output()) {
    HOCKET_ASSERT(!execution.failed(), "what has failed is not done");
    rings_.add(execution.take_published());
    recorder_.add_ended(current, -1, sequence);
    return complete(current);
  }
  recorder_.set_last_program(bound.program);
  recorder_.begin(current, -1, sequence, when);
  conclude_collective();
}

/// If a peer makes another call, it may be that neither sends a message that the other one looks
/// at: both may wait for messages (each is the root of its gather), or one of them waits on the
/// board. So a rank that has waited long for messages tells the ranks for which it waits which call
/// it is in, and one that has waited long on the board looks for messages too.
void Engine::look_for_other_calls(Nanos now) {
  Operation& current = collectives_.current();
  if (now - *current.started < Operation::between_looks) return;
  if (current.bound.sends_messages) {
    if (std::exchange(current.told, true)) return;
    transports_.tell_call(current);
    return;
  }
  transports_.announce(current.bound.binding);
  transports_.poll_all();
  if (transports_.failure() != nullptr) [[unlikely]]
    fail(*transports_.failure());
}

bool Engine::advance_collective() {
  const bool moved = collectives_.current().execution.advance();
  return conclude_collective() || moved;
}

/// Returns true if the operation has ended.
[[gnu::always_inline]] inline bool Engine::conclude_collective() {
  Operation& current = collectives_.current();
  Execution& execution = current.execution;
  rings_.add(execution.take_published());
  recorder_.look_at_admission(current);
  if (execution.failed()) [[unlikely]] {
    fail(execution.status());
    return true;
  }
  if (!execution.done()) return false;
  if (buffers_.output_was_revoked(execution)) [[unlikely]] {
    fail(revoked_output());
    return true;
  }
  recorder_.end(current, Code::ok);
  complete(current);
  return true;
}

/// The collective has ended without error, and the record says so.
[[gnu::always_inline]] inline void Engine::complete(Operation& current) {
  const Program* const program = &current.execution.program();
  recorder_.set_last_program(program);
  if (program != current.bound.program) [[unlikely]]
    binder_.fell_back(current.bound);
  collectives_.end();
  end_call(current.work);
}

void Engine::begin_message(const Call& call, Work* work) {
  const Collective direction = call.collective;
  Operation& message = messages_.next(direction);
  message.reset(work);
  if (!bind(call, message.bound)) return fail_work(work);
  const Nanos when = recorder_.time();
  Binding& binding = message.bound.binding;
  HOCKET_ASSERT(call.root >= 0 && call.root < options_.ranks, "a message has a peer");
  binding.message_sequence = messages_.next_number(direction, call.root);
  binding.mapped = 0;
  if (message.bound.locates && direction == Collective::send) buffers_.find_sources(binding);
  Execution& execution = message.execution;
  execution.start(*message.bound.program, nullptr, binding, links_);
  if (!execution.done()) execution.advance();
  if (execution.done() && when == 0) {
    recorder_.add_ended(message, call.root, binding.message_sequence);
    return end_call(work);
  }
  messages_.begin(direction);
  recorder_.begin(message, call.root, binding.message_sequence, when);
  if (!execution.done()) return;
  recorder_.look_at_admission(message);
  end_message(messages_.size() - 1);
}

bool Engine::await_message(unsigned polls) {
  const Exclusive::Scope round(round_);
  if (messages_.size() != 1 || !collectives_.empty() || !faults_.unexplained().ok()) return false;
  if (!messages_[0].execution.await_message(polls)) return false;
  recorder_.look_at_admission(messages_[0]);
  end_message(0);
  return settle();
}

bool Engine::advance_messages() {
  bool moved = false;
  for (std::size_t i = 0; i < messages_.size();) {
    Execution& execution = messages_[i].execution;
    moved |= execution.advance();
    recorder_.look_at_admission(messages_[i]);
    if (execution.failed()) {
      fail(execution.status());
      return true;
    }
    if (execution.done()) {
      end_message(i);
      moved = true;
    } else {
      ++i;
    }
  }
  return moved;
}

/// The message with this index has ended without error.
void Engine::end_message(std::size_t index) {
  const Operation& message = messages_[index];
  recorder_.end(message, Code::ok);
  end_call(message.work);
  messages_.remove(index);
}

void Engine::fail(const Status& status) {
  if (error_.is_set() || !faults_.unexplained().ok()) return;
  if (status.code() != Code::remote_error) return end(status, true);
  await_cause(status);
}

/// Perhaps the cause is known already.
void Engine::await_cause(const Status& status) {
  faults_.await_cause(status);
  await_explanation({});
}

void Engine::await_explanation(const std::optional<Nanos>& now) {
  if (const auto ending = faults_.explain(now)) end(ending->error, ending->tell_peers);
}

void Engine::end(const Status& error, bool tell_peers) {
  if (error_.is_set()) return;
  HOCKET_ASSERT(!error.ok(), "an engine ends by an error");
  const bool running = collectives_.running();
  Operation& current = collectives_.current();
  std::uint64_t operation = running ? begun() : begun() + 1;
  if (error.sequence() != 0) operation = std::min(operation, error.sequence());
  error_.set(error.sequence() != 0 || !running ? error : error.in_operation(begun()), operation,
             tell_peers);
  faults_.forget_unexplained();  // perhaps `error` itself
  // Each of these must happen, even if there is no memory for one of them.
  transports_.cancel(error_.status());
  if (running) best_effort([&] { buffers_.revoke_output(current.execution); });
  if (running) recorder_.end(current, error_.status().code());
  if (running) fail_work(current.work);
  for (const CollectiveOperations::Queued& queued : collectives_.queue()) fail_work(queued.work);
  for (std::size_t i = 0; i < messages_.size(); ++i) {
    recorder_.end(messages_[i], error_.status().code());
    fail_work(messages_[i].work);
  }
  collectives_.clear();
  messages_.clear();
  rings_.add(true);  // local peers that sleep learn of it from their monitors too; this is sooner
}

void Engine::report_failure() {
  if (!has_unreported_failure()) return;
  HOCKET_ASSERT(!round_.held(), "a report may wait, a round of the engine does not");
  error_.report(host_);
}

/// Returns true if a fault is new. A fault does not end an operation that still moves with messages
/// that have arrived, nor one that its rank had ended before it failed: the others can end it too.
bool Engine::look_at_faults(bool moved) {
  const FaultNews& news = faults_.news();
  const bool was_known = !news.error.ok();
  if (!faults_.take()) return false;
  if (!news.at_once) {
    if (!was_known) return true;
    if (moved || (collectives_.running() && begun() < news.operation)) return false;
  }
  end(news.error, false);
  return true;
}

/// Ends the engine if a known error ends the call that is about to begin. Without this, a small
/// call could still succeed, because the other ranks may have left all its data on the board. A
/// call that comes before the failed collective may begin: the other ranks have ended that call.
void Engine::look_at_faults_before_a_call() {
  if (error_.is_set() || !collectives_.empty() || !messages_.empty()) return;
  if (!faults_.take()) return;
  const FaultNews& news = faults_.news();
  if (news.at_once || news.operation <= begun() + 1) end(news.error, false);
}

std::string Engine::names(const std::vector<int>& ranks) const {
  std::string text;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i == 8) return text + " and " + std::to_string(ranks.size() - i) + " more";
    text += (i == 0 ? "" : ", ") + host_.name_of_rank(ranks[i]);
  }
  return ranks.empty() ? "nobody else" : text;
}

void Engine::check_times(Nanos now) {
  if (faults_.patience_ends(now)) return end(faults_.news().error, false);
  if (collectives_.running()) check_time(collectives_.current(), now);
  if (collectives_.running()) look_for_other_calls(now);
  for (std::size_t i = 0; i < messages_.size(); ++i) check_time(messages_[i], now);
}

/// ranks: those that the operation waits for here. Arrival lines show which local ranks have not
/// begun. A message that has not come shows less: its sender may wait for a third rank, so the
/// other ranks are asked which of them has not begun.
void Engine::miss_deadline(const Operation& operation, const std::vector<int>& ranks) {
  const std::string missed = describe(operation.bound.binding.signature) +
                             " did not end within its deadline of " +
                             std::to_string(options_.deadline / nanos_per_ms) + " ms";
  const Status status(Code::timeout,
                      missed + ": it still waits for " + names(ranks) +
                          "; find out what that rank does, or raise HOCKET_DEADLINE_MS",
                      ranks.empty() ? -1 : ranks.front());
  const bool seen = !operation.bound.sends_messages || options_.ranks == 2;
  if (operation.bound.binding.p2p || seen) {
    return fail(status);
  }
  if (error_.is_set() || !faults_.unexplained().ok()) return;
  best_effort([&] { host_.ask_for_late_ranks(begun(), missed); });
  await_cause(status.in_operation(begun()));
}

void Engine::check_time(Operation& operation, Nanos now) {
  if (!operation.started) {
    operation.next_late_log = now + options_.late_log;
    recorder_.note_start(operation, now);
  }
  recorder_.look_at_waits(operation, transports_, now);
  const Nanos waited = now - *operation.started;
  const bool gone = faults_.may_give_up(now);
  if (!gone && now < operation.next_late_log && waited < options_.deadline) return;
  const std::vector<int> ranks = transports_.ranks_awaited_by(operation);
  const std::string what = describe(operation.bound.binding.signature);
  for (int rank : ranks) {
    const FaultNews::Gone* const entry = gone ? faults_.given_up(rank, now) : nullptr;
    if (entry == nullptr) continue;
    const std::string text =
        entry->why.ok()
            ? what + " waits for " + host_.name_of_rank(rank) +
                  ", which has left: it destroyed its communicator or ended before this call"
            : entry->why.message() + "; " + what + " waits for that rank";
    return end({Code::remote_error, text, rank}, true);
  }
  if (waited >= options_.deadline) return miss_deadline(operation, ranks);
  if (now >= operation.next_late_log) {
    operation.next_late_log = now + options_.late_log;
    operation.told = false;  // it may wait for other ranks by now
    log_line(LogLevel::warn, host_.name_of_rank(options_.rank) + ": " + what + " has waited " +
                                 std::to_string(waited / nanos_per_s) + " s for " + names(ranks) +
                                 " (alive, but late)");
  }
}

}  // namespace hocket::internal

// The agent: the part of hocket-run that runs on every host, the host of the launcher included. It
// starts the ranks of its host, sends their output to the launcher, passes signals to them, and
// ends them when the launcher ends.
//
// On a host run two processes: a supervisor and its child, the agent. If either of them dies, even
// by kill -9, the other kills all processes that remain. If the agent dies, the kernel kills its
// ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "message.h"
#include "rank_process.h"
#include "stream.h"

namespace hocket::internal::launch {

/// `hocket-run --agent`: communicates with the launcher over standard input and output.
int agent_main();

class Agent {
 public:
  Agent(Stream launcher, UniqueFd signals, unsigned long file_limit);
  /// Returns when the launcher has ended, or when all ranks have ended and all messages are sent.
  void run();

 private:
  void greet();
  void wait_for_events();
  int poll_timeout_ms() const;
  void read_launcher();
  void handle(const Message& message);
  void count_parts(const Message& message);
  void listen(const Message& message);
  void start(const Message& message);
  Status start_ranks();
  void bind_ranks(const Cpus& allowed, std::vector<Binding>* bindings);
  void report_bindings(const Cpus& allowed, const std::vector<Binding>& bindings);
  void read_signals();
  void reap();
  void report_exit(RankProcess& rank, int wait_status);
  void read_output(RankProcess& rank, int which);
  void pass_on(const RankProcess& rank, int which, std::string_view bytes);
  void flush_held();
  void feed_input();
  void signal_ranks(int number);
  void end(std::uint32_t wait_ms);
  void end_ranks(Nanos term_after);
  void keep_time();
  void report_first_end(const Message& message);
  void refuse_latecomers();
  bool all_done();
  void finish();
  void note(const std::string& text);
  void fail(const Status& status);
  bool launcher_listens() const;

  Stream launcher_;
  UniqueFd signals_;
  unsigned long file_limit_;
  StartRequest request_;
  UniqueFd listener_;  // at which ranks join; rank 0 has it too
  std::vector<RankProcess> ranks_;
  std::optional<Exited> first_ended_;  // in the whole job; only rank 0's host is told
  bool rank_0_ended_ = false;          // false: it runs, or is not on this host
  std::string input_;                  // for rank 0, not yet written
  bool input_ended_ = false;
  bool launcher_gone_ = false;
  bool started_ = false;
  bool over_ = false;
  int running_ = 0;
  bool listener_needed_ = false;  // ranks of other hosts may still connect to listener_
  bool swept_ = false;            // processes that the ranks had started have been killed
  Nanos term_at_ = 0;             // when the ranks get SIGTERM; 0: never
  Nanos kill_at_ = 0;
};

}  // namespace hocket::internal::launch

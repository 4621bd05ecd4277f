// The part of hocket-run that runs on every host, this one included: it starts the host's ranks,
// passes their output up and signals down, and sees to it that they end when the launcher does.
//
// On a host there are two processes: a supervisor, and its child, the agent proper. Each kills all
// that is left when the other one dies, kill -9 included; a rank whose agent dies is killed by the
// kernel.
#pragma once

#include <deque>
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

/// `hocket-run --agent`: speaks with the launcher over standard input and output.
int agent_main();

class Agent {
 public:
  Agent(Stream launcher, UniqueFd signals, unsigned long file_limit);
  /// Until the launcher is gone or all ranks have ended and all is told.
  void run();

 private:
  void greet();
  void wait_for_events();
  int poll_timeout_ms() const;
  void read_launcher();
  void handle(const Message& message);
  void listen(const Message& message);
  void start(const Message& message);
  Status start_ranks(const StartRequest& request);
  std::vector<std::string> common_environment(const StartRequest& request) const;
  void read_signals();
  void reap();
  void report_exit(RankProcess& rank, int wait_status);
  void read_output(RankProcess& rank, int which);
  void pass_on(int which, std::string_view bytes);
  void flush_held();
  void feed_input();
  void signal_ranks(int number);
  void end(std::uint32_t wait_ms);
  void end_ranks(Nanos term_after);
  void keep_time();
  void refuse_latecomers();
  bool all_done();
  void finish();
  void fail(const Status& status);
  bool launcher_listens() const;

  Stream launcher_;
  UniqueFd signals_;
  unsigned long file_limit_;
  StartRequest request_;
  UniqueFd listener_;  // of the root: rank 0 has it too
  std::vector<RankProcess> ranks_;
  std::string root_end_;  // how rank 0 ended; empty: it is not here, or has not
  std::string input_;     // for rank 0, not yet written
  bool input_ended_ = false;
  bool launcher_gone_ = false;
  bool started_ = false;
  bool over_ = false;
  int running_ = 0;
  bool root_needed_ = false;  // ranks of other hosts may still come to the root's listener
  bool swept_ = false;        // what the ranks left running has been killed
  Nanos term_at_ = 0;         // 0: not to be ended
  Nanos kill_at_ = 0;
};

}  // namespace hocket::internal::launch

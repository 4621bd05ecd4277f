// The launcher: starts an agent on every host, which starts the ranks there. It passes output,
// input and signals between the user and the agents, and ends the job when a rank fails.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/settings.h"
#include "console.h"
#include "failures.h"
#include "host.h"
#include "options.h"
#include "output_files.h"

namespace hocket::internal::launch {

inline constexpr int cannot_start_status = 125;

class Launcher {
 public:
  Launcher(Options options, Settings settings);
  /// Returns the exit status of the job: 0 if all ranks ended with 0; 125 if the job could not be
  /// started; else that of the rank that failed first (see Failures), 128 + signal if a signal
  /// killed it.
  int run();

 private:
  Status prepare();
  Status start_agents();
  void wait_for_events();
  int poll_timeout_ms() const;
  void keep_time();
  void on_timeout();
  std::string missing_answers() const;
  void read_signals();
  void on_user_signal(int number);
  void suspend();
  void reap();
  void read_host(Host& host);
  void handle(Host& host, const Message& message);
  void on_hello(Host& host, const Message& message);
  void on_counted(Host& host, const Message& message);
  void place_on_counted_hosts();
  void begin();
  void request_listener();
  void start_ranks(const Address& coordinator);
  void on_output(const Host& host, const Message& message);
  void on_exit(Host& host, const Message& message);
  void on_lost(Host& host);
  Failure failure_of(const Host& host, const Exited& exited) const;
  void release_host_of_rank_0();
  void job_failed(Failure failure);
  void end_ranks(Nanos wait);
  bool any_rank_runs() const;
  Nanos output_deadline() const;
  void cannot_start(const std::string& text, int status = cannot_start_status);
  void read_input();
  bool may_read_input() const;
  void flush_all();
  bool over() const;
  void end_agents(std::span<Host> hosts);
  int finish();
  void empty_console();

  Options options_;
  Settings settings_;
  std::vector<std::string> ssh_;
  std::string executable_;
  std::string directory_;
  std::vector<Host> hosts_;
  Console console_;
  OutputFiles output_files_;
  UniqueFd signals_;
  bool begun_ = false;    // all agents have answered, and the ranks are placed
  bool started_ = false;  // the ranks were asked to start
  bool aborted_ = false;  // end without waiting for the agents
  Nanos start_deadline_ = 0;
  Nanos timeout_at_ = 0;  // when the time limit of the job passes; 0: never, or it has passed
  int status_ = 0;        // exit status if the job could not be started; else failures_ has it
  bool failed_ = false;
  bool first_exited_ = false;   // a rank has ended, and the agent of rank 0's host knows which
  bool output_failed_ = false;  // a file of --output-dir could not be written
  bool ending_ = false;         // the ranks were asked to end
  Nanos term_at_ = 0;           // when they get SIGTERM
  Failures failures_;
  int user_signal_ = 0;  // the last ending signal of the user that was passed to the ranks
  Nanos user_signal_at_ = 0;
  std::string end_reason_;  // the last signal by which the user asked for the end, or --timeout
  Nanos end_asked_at_ = 0;  // 0: never
  bool hangup_ignored_ = false;
  bool input_ended_ = false;
  std::uint32_t input_on_its_way_ = 0;
};

}  // namespace hocket::internal::launch

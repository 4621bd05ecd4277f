// The step report: where the time of a training step goes, and how much memory the process has.
//
//   StepRecorder recorder;
//   for (each step) {
//     recorder.begin(step);
//     recorder.enter(Phase::forward);
//     auto loss = ddp.run(...);
//     recorder.enter(Phase::backward);
//     loss.backward();
//     recorder.enter(Phase::optimizer);
//     optimizer.step();
//     const StepReport report = recorder.end();
//     if (comm.rank() == 0) std::puts(text_line(report).c_str());
//   }
#pragma once

#include <cstddef>
#include <cstdint>
#include <hocket/hocket.hpp>
#include <hocket/training/timing.hpp>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace hocket::training {

enum class Phase { other, forward, backward, optimizer };

/// Where the time of one step of this rank went. forward, backward, exposed, optimizer and other
/// add up to total.
struct StepReport {
  std::int64_t step = 0;
  double total_s = 0;
  double forward_s = 0;
  double backward_s = 0;   // computing
  double exposed_s = 0;    // waiting for communication, with nothing left to compute
  double optimizer_s = 0;  // computing
  double other_s = 0;
  double communication_s = 0;  // in which at least one bucket was communicated
  double overlap = 1;          // the part of communication_s in which this rank did not wait
  std::size_t bytes = 0;       // of the buckets communicated
  std::size_t peak_resident_bytes = 0;  // of the process, since it began
  std::size_t proportional_bytes = 0;   // pages of n processes count 1/n; 0: not asked for
};

/// "forward 12.1 ms, backward 30.2, exposed 1.3, optimizer 4.0, other 0.1; 92 % of 14.2 ms of
/// communication hidden; peak 210 MiB".
[[nodiscard]] std::string text_line(const StepReport& report);

/// One line of JSON: every field of the report under its name, and the program's own values.
/// Values that are not finite become null.
[[nodiscard]] std::string json_line(const StepReport& report,
                                    const std::map<std::string, double>& values = {});

/// Memory of this process, in bytes.
struct ProcessMemory {
  std::size_t resident = 0;       // VmRSS
  std::size_t peak_resident = 0;  // VmHWM
  std::size_t proportional = 0;   // PSS: a page that n processes share counts 1/n
};
/// Reads /proc/self. The proportional part takes the kernel about a millisecond a GiB, so it is
/// read only where asked for. What the kernel does not tell is 0.
[[nodiscard]] ProcessMemory process_memory(bool with_proportional);

/// Spans of all ranks, on the clock of rank 0, for a viewer of Chrome's trace format.
class StepTrace {
 public:
  /// Collective. Compares the clocks of the hosts. The communicator must outlive the trace.
  explicit StepTrace(Communicator& comm);
  /// A span of this rank. row: the spans of one row do not overlap, or lie inside one another.
  void add(const std::string& name, const std::string& row, double begin_s, double end_s,
           const std::map<std::string, double>& values = {});
  /// Collective. Gathers the spans of all ranks at rank 0, which writes them to the file. The file
  /// has the form that hocket-trace reads, so that it can be joined with those of HOCKET_TRACE.
  /// Throws SystemError on all ranks if rank 0 cannot write the file.
  void write(const std::string& path);
  /// At most so many spans are kept; the file says how many were left out after them.
  static constexpr std::size_t most_spans = 1'000'000;

 private:
  struct Span {
    std::string name, row, values;  // values: the inside of a JSON object
    double begin_s = 0, end_s = 0;
  };
  /// The clock of rank 0 minus the clock of this rank, when this rank's clock showed at_s.
  struct Offset {
    double at_s = 0, offset_s = 0, uncertainty_s = 0;
  };
  Offset compare_clocks();
  double common_us(double here_s, const Offset& last) const;
  std::string text(const Offset& last);

  Communicator& comm_;
  Offset first_;
  std::vector<Span> spans_;
  std::size_t left_out_ = 0;
};

/// Measures the steps of this rank. Used by one thread at a time.
class StepRecorder {
 public:
  struct Options {
    bool proportional_memory = false;  // see process_memory()
    StepTrace* trace = nullptr;  // receives every phase, wait and bucket; outlives the recorder
  };
  StepRecorder() = default;
  explicit StepRecorder(const Options& options) : options_(options) {}

  /// A step begins, in Phase::other.
  void begin(std::int64_t step);
  /// The phase before ends here. A phase may be entered several times in a step.
  void enter(Phase phase);
  /// The phase that runs; Phase::other between steps.
  [[nodiscard]] Phase phase() const { return phase_; }
  /// What was communicated in the phase that runs. The wait counts as exposed, not as that phase.
  void add(const CommunicationTimings& timings);
  [[nodiscard]] StepReport end();

 private:
  void leave_phase(double at_s);
  struct Interval {
    double begin_s = 0, end_s = 0;
  };

  Options options_;
  StepReport report_;
  Phase phase_ = Phase::other;
  double begin_s_ = 0;
  double phase_begin_s_ = 0;
  double waited_in_phase_s_ = 0;
  std::vector<Interval> communication_, waits_;
};

}  // namespace hocket::training

// The trace of one rank of a communicator: every operation that has ended, as an event in Chrome's
// trace format, on the clock of rank 0 (trace_clock.h). hocket-trace joins the files of all ranks.
//
// A file is a JSON array without its closing bracket, with one event per line, so that a process
// that is killed leaves a file that can still be read.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/clock_offset.h"
#include "engine/membership.h"
#include "engine/record.h"

namespace hocket::internal {

class TraceFile final : public RecordSink {
 public:
  using TransportsOf = std::function<std::string(const Program& program)>;

  /// Membership and transports_of outlive it. Before open() it records nothing.
  TraceFile(const std::string& folder, const Membership& membership, const std::string& name,
            TransportsOf transports_of);
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  /// Writes the head of the file. offset: of this rank's clock.
  Status open(const ClockOffset& offset);
  void ended(const RecordEntry& entry) override;
  /// Writes the events that are kept. The destructor does this too. The first error is logged, and
  /// ends the trace.
  void flush() noexcept;

 private:
  std::string head() const;
  void add(const RecordEntry& entry, std::string* text) const;
  void add_span(const std::string& name, const char* category, const RecordEntry& entry, Nanos end,
                const std::string& arguments, std::string* text) const;
  double shown_us(Nanos time) const { return static_cast<double>(time) / 1000 - offset_.offset_us; }

  const Membership& membership_;
  const std::string name_;
  const TransportsOf transports_of_;
  std::string path_;
  int process_ = 0;  // how the viewer numbers this rank, and the communicator within it
  std::uint32_t thread_ = 0;
  ClockOffset offset_;
  std::vector<RecordEntry> kept_;
  Nanos flushed_at_ = 0;
  bool is_open_ = false;
  bool failed_ = false;
};

}  // namespace hocket::internal

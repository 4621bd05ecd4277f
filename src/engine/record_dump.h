// Writes the records of operations of this process to a file or the log, at an error and at a
// signal. At a signal a separate thread writes, because the other threads may hang.
//
// A signal may wake the program from sleep(), and the program may then end before that thread has
// run. So whatever ends a communicator or the process in order waits for the thread.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"

namespace hocket::internal {

struct DumpTarget {
  std::string file;  // dumps are appended to it; empty: dumps go to the log
  int signal = 0;    // that asks for a dump; 0: none
};

/// A communicator whose record is dumped, as long as it lives.
class RecordDump {
 public:
  /// The record as lines; most_ended: how many operations that have ended, at most. Any thread
  /// calls it.
  using Lines = std::function<std::vector<std::string>(std::size_t most_ended)>;

  /// Fails if the signal needs a thread and none can be started.
  static Status start(DumpTarget target, Lines lines, std::unique_ptr<RecordDump>* out);
  /// Calls finish_requests() first.
  ~RecordDump();
  RecordDump(const RecordDump&) = delete;
  RecordDump& operator=(const RecordDump&) = delete;

  /// Waits until the dumps that signals have asked for are written: the process may end afterwards.
  /// Logs an error if a dump is not written within 5 s, for example because no process reads the
  /// pipe to which it goes.
  /// The exit of the process by exit() or a return from main waits in the same way.
  void finish_requests() const;
  /// At an error: all of the record into the file, and its latest entries to the log.
  void at_error() const;
  /// Appends all of the record to that file; empty: to the log.
  Status write(const std::string& file) const;

 private:
  RecordDump(DumpTarget target, Lines lines);
  friend struct RecordDumps;

  const DumpTarget target_;
  const Lines lines_;
};

}  // namespace hocket::internal

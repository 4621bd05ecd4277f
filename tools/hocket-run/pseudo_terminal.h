// The pseudo terminals of `hocket-run --pty`. A C library writes to a terminal line by line, and to
// a pipe in blocks of some KiB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"

namespace hocket::internal::launch {

struct TerminalSize {
  std::uint16_t rows = 0;  // 0: not known
  std::uint16_t columns = 0;
};

/// The size of the terminal of this process, if one of its standard descriptors is a terminal.
TerminalSize own_terminal_size();

struct PseudoTerminal {
  UniqueFd master;  // reads the output of the slave; EIO when no process has the slave open
  UniqueFd slave;   // for the rank: it can be written, but not read
};

/// Makes a pseudo terminal for each of count ranks, or none. None of them becomes the controlling
/// terminal of a process, so they send no signals. They do not change the bytes that are written.
Status make_pseudo_terminals(std::size_t count, const TerminalSize& size,
                             std::vector<PseudoTerminal>* terminals);

}  // namespace hocket::internal::launch

#include "pseudo_terminal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>

namespace hocket::internal::launch {
namespace {

/// Opens the slave of a master and sets its modes.
Status open_slave(const TerminalSize& size, PseudoTerminal* terminal) {
  char path[64];
  if (::unlockpt(terminal->master.get()) != 0 ||
      ::ptsname_r(terminal->master.get(), path, sizeof path) != 0) {
    return system_error("cannot find the path of a pseudo terminal");
  }
  // A rank that reads from its standard error gets an error: else it would wait for ever.
  terminal->slave = UniqueFd(::open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC));
  if (!terminal->slave)
    return system_error(fmt::format("cannot open the pseudo terminal {}", path));
  termios modes{};
  if (::tcgetattr(terminal->slave.get(), &modes) != 0) {
    return system_error(fmt::format("cannot read the modes of the pseudo terminal {}", path));
  }
  modes.c_oflag &= ~static_cast<tcflag_t>(OPOST);  // else \n would become \r\n
  winsize window{};
  window.ws_row = size.rows;
  window.ws_col = size.columns;
  if (::tcsetattr(terminal->slave.get(), TCSANOW, &modes) != 0 ||
      ::ioctl(terminal->slave.get(), TIOCSWINSZ, &window) != 0) {
    return system_error(fmt::format("cannot set the modes of the pseudo terminal {}", path));
  }
  return {};
}

Status too_few(std::size_t count, std::size_t made) {
  return Status(
      Code::system_error,
      fmt::format("--pty needs {} pseudo terminals here, and there are only {}: raise "
                  "/proc/sys/kernel/pty/max (or, in a container, the option max= with which "
                  "/dev/pts is mounted), use fewer ranks here, or leave out --pty",
                  count, made));
}

}  // namespace

TerminalSize own_terminal_size() {
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO, STDIN_FILENO}) {
    winsize window{};
    if (::ioctl(fd, TIOCGWINSZ, &window) == 0) return {window.ws_row, window.ws_col};
  }
  return {};
}

Status make_pseudo_terminals(std::size_t count, const TerminalSize& size,
                             std::vector<PseudoTerminal>* terminals) {
  terminals->clear();
  for (std::size_t made = 0; made < count; ++made) {
    PseudoTerminal& terminal = terminals->emplace_back();
    terminal.master = UniqueFd(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    if (!terminal.master && errno == ENOSPC) return too_few(count, made);
    if (!terminal.master) return system_error("cannot make a pseudo terminal for a rank");
    HOCKET_RETURN_IF_ERROR(open_slave(size, &terminal));
  }
  return {};
}

}  // namespace hocket::internal::launch

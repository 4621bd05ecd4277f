#include "bootstrap/launchers/pmi1.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "bootstrap/launchers/mpi_library.h"
#include "bootstrap/launchers/resolve.h"
#include "bootstrap/net/socket.h"

namespace hocket::internal {
namespace {

constexpr int answer_limit_ms = 1000;  // in a process that exits
constexpr const char* value_key = "hocket-rank-0";
constexpr const char* waiting = "waiting for the answer of the PMI server of the launcher";
constexpr const char* at_the_barrier =
    "waiting in the barrier of the launcher's PMI server, which ends when all ranks have called "
    "hocketCommInitFromEnv (PMI does not say which rank is missing: look at the output of the "
    "ranks)";

Status closed() {
  return {Code::remote_error,
          "the launcher's PMI server closed the connection: the launcher ends the job, or this "
          "process has used PMI before and ended that conversation"};
}

Status send_line(int fd, const std::string& text) {
  std::size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t done = ::send(fd, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0 && (errno == EPIPE || errno == ECONNRESET)) return closed();
    if (done <= 0) return system_error("cannot write to the PMI server of the launcher");
    sent += static_cast<std::size_t>(done);
  }
  return {};
}

// For Manners::introduce: Hydra counts a rank that ends without `finalize` as crashed.
int unfinished_fd = -1;
pid_t unfinished_process = 0;
void finalize_at_exit() {
  if (unfinished_process != ::getpid() || mpi_state() != MpiState::loaded) return;
  if (!send_line(unfinished_fd, pmi_text({"finalize", {}})).ok()) return;
  // Hydra ends the job with an error if it cannot deliver its answer.
  pollfd event{unfinished_fd, POLLIN, 0};
  char bytes[256];
  if (::poll(&event, 1, answer_limit_ms) == 1) {
    static_cast<void>(!::read(unfinished_fd, bytes, sizeof bytes));
  }
}

Status refused(const PmiLine& question, const PmiLine& answer) {
  return {Code::remote_error,
          fmt::format("the PMI server of the launcher answered `cmd={}` with `{}`: hocket needs "
                      "PMI-1. Use hocketCommInitRank with an id from hocketGetUniqueId, which the "
                      "program passes to all ranks (MPI_Bcast)",
                      question.command, pmi_text(answer).substr(0, 200))};
}

}  // namespace

bool is_open_socket(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode);
}

Status Pmi1::read_line(const JoinWait& wait, PmiLine* out) {
  while (true) {
    if (const std::size_t end = received_.find('\n'); end != std::string::npos) {
      const std::optional<PmiLine> line = parse_pmi_line(received_.substr(0, end));
      received_.erase(0, end + 1);
      if (!line) return {Code::remote_error, "the launcher's PMI server sent a line without cmd="};
      *out = *line;
      return {};
    }
    if (received_.size() > longest_pmi_line) {
      return {Code::remote_error, "the launcher's PMI server sent a line that does not end"};
    }
    HOCKET_RETURN_IF_ERROR(wait.until(fd_, POLLIN, waiting));
    char bytes[1024];
    const ssize_t got = ::read(fd_, bytes, sizeof bytes);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0 && errno != ECONNRESET)
      return system_error("cannot read from the launcher's PMI server");
    if (got <= 0) return closed();
    received_.append(bytes, static_cast<std::size_t>(got));
  }
}

Status Pmi1::ask(const PmiLine& question, const char* answer, const JoinWait& wait, PmiLine* out) {
  HOCKET_RETURN_IF_ERROR(send_line(fd_, pmi_text(question)));
  HOCKET_RETURN_IF_ERROR(read_line(wait, out));
  const bool failed = out->number("rc").value_or(0) != 0;
  return out->command == answer && !failed ? Status() : refused(question, *out);
}

Status Pmi1::connect(const Environment& environment, const JoinWait& wait) {
  const std::string where = environment.text("PMI_PORT");
  const std::size_t colon = where.rfind(':');
  Address address;
  if (colon == std::string::npos ||
      !resolve(where.substr(0, colon), where.substr(colon + 1), &address).ok()) {
    return invalid_usage(environment.quoted("PMI_PORT") + " is not HOST:PORT of a PMI server");
  }
  HOCKET_RETURN_IF_ERROR(connect_to(address, wait, "connecting to PMI_PORT", &own_));
  fd_ = own_.get();
  HOCKET_RETURN_IF_ERROR(
      send_line(fd_, pmi_text({"initack", {{"pmiid", environment.text("PMI_ID")}}})));
  PmiLine line;
  HOCKET_RETURN_IF_ERROR(read_line(wait, &line));
  if (line.command != "initack") return refused({"initack", {}}, line);
  for (int i = 0; i < 3; ++i) {  // size, rank and debug
    HOCKET_RETURN_IF_ERROR(read_line(wait, &line));
    if (line.command != "set") return refused({"initack", {}}, line);
    ranks_ = line.number("size").value_or(ranks_);
    rank_ = line.number("rank").value_or(rank_);
  }
  return {};
}

Status Pmi1::introduce(const JoinWait& wait) {
  PmiLine line;
  HOCKET_RETURN_IF_ERROR(ask({"init", {{"pmi_version", "1"}, {"pmi_subversion", "1"}}},
                             "response_to_init", wait, &line));
  if (manners_ != Manners::introduce || unfinished_process == ::getpid()) return {};
  unfinished_fd = fd_;
  unfinished_process = ::getpid();
  std::atexit(finalize_at_exit);
  return {};
}

Status Pmi1::open(const Environment& environment, Manners manners, const JoinWait& wait,
                  std::unique_ptr<Pmi1>* out) {
  std::unique_ptr<Pmi1> pmi(new Pmi1);
  pmi->manners_ = manners;
  if (const std::optional<int> fd = environment.number("PMI_FD")) {
    if (!is_open_socket(*fd)) {
      return invalid_usage(fmt::format(
          "{} is not an open connection to a PMI server: a program between the launcher and this "
          "process closed it, or the variable is left from a launcher around this one",
          environment.quoted("PMI_FD")));
    }
    pmi->fd_ = *fd;
    pmi->rank_ = environment.number("PMI_RANK").value_or(-1);
    pmi->ranks_ = environment.number("PMI_SIZE").value_or(0);
  } else if (manners != Manners::whole) {
    return invalid_usage(
        "the MPI library of this program connects to PMI_PORT, which takes one connection for each "
        "rank; call hocketCommInitFromEnv in a program without MPI, start mpirun without "
        "-pmi-port, or use "
        "hocketCommInitRank with an id from hocketGetUniqueId that MPI_Bcast passes to all ranks");
  } else {
    HOCKET_RETURN_IF_ERROR(pmi->connect(environment, wait));
  }
  if (manners != Manners::guest) HOCKET_RETURN_IF_ERROR(pmi->introduce(wait));
  *out = std::move(pmi);
  return {};
}

Status Pmi1::broadcast(const JoinWait& wait, std::string* text) {
  PmiLine line;
  HOCKET_RETURN_IF_ERROR(ask({"get_my_kvsname", {}}, "my_kvsname", wait, &line));
  const std::string space(line.get("kvsname").value_or(""));
  if (rank_ == 0) {
    HOCKET_RETURN_IF_ERROR(ask({"put", {{"kvsname", space}, {"key", value_key}, {"value", *text}}},
                               "put_result", wait, &line));
  }
  if (Status status = ask({"barrier_in", {}}, "barrier_out", wait, &line); !status.ok()) {
    if (status.code() != Code::timeout) return status;
    return wait.check(at_the_barrier);
  }
  if (rank_ == 0) return {};
  HOCKET_RETURN_IF_ERROR(
      ask({"get", {{"kvsname", space}, {"key", value_key}}}, "get_result", wait, &line));
  *text = std::string(line.get("value").value_or(""));
  return {};
}

Status Pmi1::close(const JoinWait& wait) {
  if (manners_ != Manners::whole) return {};
  PmiLine line;
  HOCKET_RETURN_IF_ERROR(ask({"finalize", {}}, "finalize_ack", wait, &line));
  own_.reset();
  return {};
}

}  // namespace hocket::internal

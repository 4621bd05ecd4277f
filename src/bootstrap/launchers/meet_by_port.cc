#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/log.h"
#include "bootstrap/auth/auth.h"
#include "bootstrap/launchers/meeting.h"
#include "bootstrap/launchers/munge.h"
#include "bootstrap/launchers/rank0_port.h"
#include "bootstrap/net/socket.h"

namespace hocket::internal {
namespace {

using KeyFrom = Rank0Answer::KeyFrom;

Status no_key(const Meeting& meeting) {
  return invalid_usage(fmt::format(
      "{} gives ranks on several hosts no secret by which they recognise one another. Put the "
      "output "
      "of `openssl rand -hex 32` into a file of mode 0600 on every host and set "
      "HOCKET_JOB_KEY_FILE to "
      "its path{}; or set HOCKET_TRUST_NETWORK=1 on all ranks, if every process that reaches these "
      "hosts over the network may join and read the data",
      meeting.launched.launcher,
      meeting.launched.in_slurm ? "; or start munged on every host" : ""));
}

/// The key that whoever knows the job's name can compute.
Status take_public_key(LaunchInfo* info) {
  log_line(
      LogLevel::warn,
      "HOCKET_TRUST_NETWORK=1: the job key is computed from public data, so that every process "
      "that reaches these hosts over the network may join the job and read its data");
  Digest digest{};
  const std::vector<std::uint8_t> id(info->job_id.begin(), info->job_id.end());
  if (!keyed_digest(Key{}, "hocket trusted network", id, &digest)) {
    return internal_error("HMAC-SHA256 is not available from OpenSSL");
  }
  info->key = digest;
  return {};
}

/// Rank 0 chooses how the ranks get the key.
Status choose_key(const Meeting& meeting, KeyFrom* from) {
  LaunchInfo& info = *meeting.info;
  if (!meeting.settings.job_key_file.empty()) {
    *from = KeyFrom::file;  // meet_by_port() has read it
    return {};
  }
  if (meeting.settings.trust_network) {
    *from = KeyFrom::network;
    return take_public_key(&info);
  }
  if (!meeting.launched.in_slurm) return no_key(meeting);
  *from = KeyFrom::munge;
  std::string credential;
  if (const Status status = seal_by_munge({0}, &credential); !status.ok()) {
    return invalid_usage(no_key(meeting).message() + " (" + status.message() + ")");
  }
  return random_bytes(info.key.data(), info.key.size());
}

/// Another rank takes the key in the way that rank 0 has chosen.
Status take_key(const Meeting& meeting, const Rank0Answer& answer) {
  LaunchInfo& info = *meeting.info;
  const KeyFrom own = !meeting.settings.job_key_file.empty() ? KeyFrom::file
                      : meeting.settings.trust_network       ? KeyFrom::network
                                                             : KeyFrom::munge;
  if (own != answer.key_from) {
    const auto name = [](KeyFrom from) {
      return from == KeyFrom::file      ? "HOCKET_JOB_KEY_FILE"
             : from == KeyFrom::network ? "HOCKET_TRUST_NETWORK=1"
                                        : "neither HOCKET_JOB_KEY_FILE nor HOCKET_TRUST_NETWORK=1";
    };
    return invalid_usage(
        fmt::format("rank 0 has {}, and this rank has {}: set the same on all ranks",
                    name(answer.key_from), name(own)));
  }
  if (own == KeyFrom::file) return {};  // meet_by_port() has read it
  if (own == KeyFrom::network) return take_public_key(&info);
  std::vector<std::uint8_t> key;
  HOCKET_RETURN_IF_ERROR(open_by_munge(answer.credential, &key));
  if (key.size() != info.key.size()) return internal_error("rank 0's credential has no key");
  std::copy(key.begin(), key.end(), info.key.begin());
  return {};
}

}  // namespace

Status open_listener(const Meeting& meeting) {
  Address address;
  HOCKET_RETURN_IF_ERROR(coordinator_address(meeting.interface, meeting.launched.one_host,
                                             meeting.launched.hosts, &address));
  address.port = 0;
  HOCKET_RETURN_IF_ERROR(listen_tcp(&address, &meeting.info->coordinator_listener));
  meeting.info->coordinator = address;
  return {};
}

Status meet_by_port(const Meeting& meeting) {
  LaunchInfo& info = *meeting.info;
  const LaunchedRank& launched = meeting.launched;
  HOCKET_RETURN_IF_ERROR(job_id_of(launched.job, &info.job_id));
  const bool keyed = !meeting.settings.job_key_file.empty() || meeting.settings.trust_network;
  if (launched.one_host && !keyed) {  // ranks of one user meet over Unix sockets
    info.has_key = false;
    return job_id_of(fmt::format("{} user {}", launched.job, ::geteuid()), &info.job_id);
  }
  if (!keyed && !launched.in_slurm) return no_key(meeting);
  if (const std::string& file = meeting.settings.job_key_file; !file.empty()) {
    HOCKET_RETURN_IF_ERROR(read_key_file(file, &info.key));  // before the search for rank 0
  }
  const std::uint16_t port = first_port(launched.job);
  Rank0Answer answer;
  if (info.rank != 0) {
    HOCKET_RETURN_IF_ERROR(find_rank0(launched.hosts, launched.host_variable, port, info.job_id,
                                      meeting.wait, &answer));
    info.coordinator = answer.coordinator;
    return take_key(meeting, answer);
  }
  HOCKET_RETURN_IF_ERROR(choose_key(meeting, &answer.key_from));
  HOCKET_RETURN_IF_ERROR(open_listener(meeting));
  answer.job_id = info.job_id;
  answer.coordinator = info.coordinator;
  std::shared_ptr<Rank0Server> server;
  HOCKET_RETURN_IF_ERROR(Rank0Server::start(info.coordinator, port, answer, info.key, &server));
  info.until_all_know = std::move(server);
  return {};
}

}  // namespace hocket::internal

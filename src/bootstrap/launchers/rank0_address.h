// Where rank 0 listens, if no launcher carries its address: a rank computes ports from the job's
// name, and asks there for the address of the coordinator.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/address.h"
#include "base/status.h"
#include "bootstrap/types.h"

namespace hocket::internal {

inline constexpr int ports_per_job = 4;

/// The first of the ports_per_job consecutive ports of a job, one of which rank 0 listens on: below
/// the ports that Linux gives to outgoing connections, and below the NodePorts of Kubernetes.
std::uint16_t first_port(std::string_view job);

/// A job id that all ranks compute from the job's name. Not a secret.
Status job_id_of(std::string_view job, JobId* out);

/// What rank 0 answers to each connection, before either side has proved anything: where the
/// coordinator is, and how the ranks get the key.
struct Rank0Answer {
  enum class KeyFrom : std::uint8_t { file = 1, munge = 2, network = 3 };
  JobId job_id{};
  KeyFrom key_from = KeyFrom::file;
  Address coordinator;
  std::string credential;  // KeyFrom::munge: contains the key
};

std::vector<std::uint8_t> encode(const Rank0Answer& answer);
/// False: the bytes are no whole answer.
bool decode(const std::vector<std::uint8_t>& bytes, Rank0Answer* out);
inline constexpr std::size_t longest_answer = 4096;

/// The address on which rank 0's coordinator listens: that of `interface`, if it is given; else
/// loopback, if all ranks are on this host; else the first own address of `hosts` that is not
/// loopback; else that of the default route; else the first one of this host that is not loopback.
Status coordinator_address(const std::string& interface, bool one_host,
                           const std::vector<std::string>& hosts, Address* out);

}  // namespace hocket::internal

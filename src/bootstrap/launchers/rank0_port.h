// The server by which rank 0 tells the other ranks where its coordinator is, and the search for it.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "bootstrap/launchers/join_wait.h"
#include "bootstrap/launchers/rank0_address.h"

namespace hocket::internal {

/// Answers every connection, on a thread of its own, until it is destroyed.
class Rank0Server {
 public:
  /// Listens on the first free port of the job. key: what a credential of MUNGE contains.
  static Status start(const Address& address, std::uint16_t first_port, const Rank0Answer& answer,
                      const Key& key, std::shared_ptr<Rank0Server>* out);
  Rank0Server(const Rank0Server&) = delete;
  Rank0Server& operator=(const Rank0Server&) = delete;
  ~Rank0Server();

 private:
  Rank0Server(UniqueFd listener, const Rank0Answer& answer, const Key& key);
  void serve();
  void answer_one(int connection) const;

  UniqueFd listener_;
  UniqueFd stop_;  // an eventfd
  Rank0Answer answer_;
  Key key_;
  std::thread thread_;
};

/// Another rank: tries the ports of the job on the hosts in turn until rank 0 answers.
/// host_variable: which variable named the hosts, for messages.
Status find_rank0(const std::vector<std::string>& hosts, const std::string& host_variable,
                  std::uint16_t first_port, const JobId& job_id, const JoinWait& wait,
                  Rank0Answer* out);

}  // namespace hocket::internal

#include "learner.h"

#include <fmt/format.h>

#include "agree.h"

namespace hocket::gpt {

std::unique_ptr<Learner> make_learner(const Options& options, Communicator& comm) {
  switch (options.strategy) {
    case Strategy::none:
      return make_local(options, 1, comm);
    case Strategy::dp:
      if (comm.ranks() > 1) {
        throw Refused(
            fmt::format("--strategy dp is one process with --replicas threads, but the job "
                        "has {} ranks: start it without hocket-run",
                        comm.ranks()),
            2);
      }
      return make_local(options, options.replicas, comm);
    default:
      return make_distributed(options, comm);
  }
}

}  // namespace hocket::gpt

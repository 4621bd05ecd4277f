#include "training/missing.h"

#include <fmt/format.h>

#include <hocket/training/agreement.hpp>

namespace hocket::training {
namespace {

/// The ranks that miss one parameter, by reason.
struct Missed {
  std::vector<int> absent, late, abandoned;
};

int single(const std::vector<int>& ranks) { return ranks.size() == 1 ? ranks.front() : -1; }

[[noreturn]] void throw_missed(const char* operation, const Parameter& parameter,
                               std::size_t further, const Missed& missed, std::size_t ranks) {
  if (!missed.abandoned.empty()) {
    throw RemoteError(operation,
                      fmt::format("backward failed on {}, with an exception that it shows there; "
                                  "the gradients of this step are void",
                                  ranks_text(missed.abandoned)),
                      single(missed.abandoned));
  }
  const std::string others =
      further == 0 ? "" : fmt::format(" ({} more parameters have a problem too)", further);
  if (!missed.late.empty()) {
    throw Mismatch(operation,
                   fmt::format("parameter {} received a gradient on {} after its bucket had been "
                               "reduced, because it became ready more often than in the first "
                               "backward{}. Use each parameter as often in every step",
                               describe(parameter), ranks_text(missed.late), others),
                   single(missed.late));
  }
  if (missed.absent.size() == ranks) {
    throw Mismatch(
        operation,
        fmt::format("parameter {} received no gradient in this backward on any rank{}: the loss "
                    "does not depend on it. Set find_unused_parameters, or do not train it",
                    describe(parameter), others));
  }
  throw Mismatch(operation,
                 fmt::format("parameter {} received no gradient in this backward on {}, but "
                             "received one on the other ranks{}. Use the same parameters on all "
                             "ranks, or set find_unused_parameters",
                             describe(parameter), ranks_text(missed.absent), others),
                 single(missed.absent));
}

}  // namespace

void report_missing(const char* operation, Communicator& comm,
                    const std::vector<Parameter>& parameters, const std::vector<Missing>& mine) {
  const auto ranks = static_cast<std::size_t>(comm.ranks());
  const std::size_t count = parameters.size();
  std::vector<std::uint8_t> codes(count), all(count * ranks);
  for (std::size_t i = 0; i < count; ++i) codes[i] = static_cast<std::uint8_t>(mine[i]);
  comm.all_gather(codes, all);
  std::size_t first = count, further = 0;  // parameters that a rank missed
  for (std::size_t i = 0; i < count; ++i) {
    bool missed = false;
    for (std::size_t rank = 0; rank < ranks; ++rank) missed = missed || all[rank * count + i] != 0;
    if (!missed) continue;
    if (first < count) ++further;
    first = std::min(first, i);
  }
  Missed missed;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto what = static_cast<Missing>(all[rank * count + first]);
    const int number = static_cast<int>(rank);
    if (what == Missing::absent) missed.absent.push_back(number);
    if (what == Missing::late) missed.late.push_back(number);
    if (what == Missing::abandoned) missed.abandoned.push_back(number);
  }
  throw_missed(operation, parameters[first], further, missed, ranks);
}

}  // namespace hocket::training

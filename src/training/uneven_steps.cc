#include "training/uneven_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <hocket/training/agreement.hpp>
#include <string>
#include <utility>

namespace hocket::training {

void UnevenSteps::set(bool uneven, bool divide_by_active, int ranks) {
  uneven_ = uneven;
  divide_by_active_ = divide_by_active;
  active_ = static_cast<std::size_t>(ranks);
  updates_ = false;
}

std::vector<UnevenSteps::Turn> UnevenSteps::exchange(Communicator& comm, Turn mine) {
  const std::uint8_t own[] = {static_cast<std::uint8_t>(mine)};
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(comm.ranks()));
  comm.all_gather(own, codes);
  std::vector<Turn> turns;
  for (const std::uint8_t code : codes) turns.push_back(static_cast<Turn>(code));
  return turns;
}

void UnevenSteps::note(const std::vector<Turn>& turns) {
  const auto ranks_with = [&](Turn turn) {
    std::vector<int> ranks;
    for (std::size_t rank = 0; rank < turns.size(); ++rank) {
      if (turns[rank] == turn) ranks.push_back(static_cast<int>(rank));
    }
    return ranks;
  };
  active_ = turns.size() - ranks_with(Turn::done).size();
  updates_ = !ranks_with(Turn::update).empty();
  const auto first =
      std::find_if(turns.begin(), turns.end(), [](Turn each) { return each != Turn::done; });
  if (first != turns.end()) last_active_ = static_cast<int>(first - turns.begin());
  std::vector<std::string> calls;
  for (const auto& [turn, what] :
       {std::pair(Turn::backward, "began a backward"),
        std::pair(Turn::other, "began a forward that broadcasts buffers"),
        std::pair(Turn::update, "called Join::update()")}) {
    const std::vector<int> ranks = ranks_with(turn);
    if (!ranks.empty()) calls.push_back(fmt::format("{} {}", ranks_text(ranks), what));
  }
  if (calls.size() < 2) return;
  throw Mismatch("hocket::training::GradientReducer",
                 fmt::format("{}: all ranks must make the same calls in the same order",
                             fmt::join(calls, " while ")));
}

double UnevenSteps::factor(int ranks) const {
  if (!uneven_ || !divide_by_active_ || active_ == 0) return 1;
  return static_cast<double>(ranks) / static_cast<double>(active_);
}

}  // namespace hocket::training

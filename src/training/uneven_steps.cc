#include "training/uneven_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <hocket/training/agreement.hpp>

namespace hocket::training {

void UnevenSteps::set(bool uneven, bool divide_by_active, int ranks) {
  uneven_ = uneven;
  divide_by_active_ = divide_by_active;
  active_ = static_cast<std::size_t>(ranks);
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
  std::vector<int> backward, other;
  for (std::size_t rank = 0; rank < turns.size(); ++rank) {
    if (turns[rank] == Turn::backward) backward.push_back(static_cast<int>(rank));
    if (turns[rank] == Turn::other) other.push_back(static_cast<int>(rank));
  }
  active_ = backward.size() + other.size();
  const auto first =
      std::find_if(turns.begin(), turns.end(), [](Turn each) { return each != Turn::done; });
  if (first != turns.end()) last_active_ = static_cast<int>(first - turns.begin());
  if (!backward.empty() && !other.empty()) {
    throw Mismatch("hocket::training::GradientReducer",
                   fmt::format("{} began a backward while {} began a forward that broadcasts "
                               "buffers: all ranks must make the same calls in the same order",
                               ranks_text(backward), ranks_text(other)));
  }
}

double UnevenSteps::factor(int ranks) const {
  if (!uneven_ || !divide_by_active_ || active_ == 0) return 1;
  return static_cast<double>(ranks) / static_cast<double>(active_);
}

}  // namespace hocket::training

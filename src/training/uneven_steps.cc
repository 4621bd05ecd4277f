#include "training/uneven_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <hocket/training/agreement.hpp>
#include <string>
#include <thread>
#include <utility>

namespace hocket::training {
namespace {

/// Runs a call of the announcements' communicator.
template <typename Call>
void announcing(Call call) {
  try {
    call();
  } catch (const Aborted& error) {
    throw RemoteError("hocket::training::Join",
                      fmt::format("{} ended its Join with an exception, which it shows there",
                                  ranks_text({error.culprit()})),
                      error.culprit());
  }
}

}  // namespace

void UnevenSteps::set(bool uneven, bool divide_by_active, Communicator& comm) {
  if (uneven && !announcements_) announcements_ = comm.duplicate({.name = "announcements"});
  uneven_ = uneven;
  divide_by_active_ = divide_by_active;
  active_ = static_cast<std::size_t>(comm.ranks());
  updates_ = false;
}

std::vector<UnevenSteps::Turn> UnevenSteps::exchange(Turn mine) {
  const std::uint8_t own[] = {static_cast<std::uint8_t>(mine)};
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(announcements_->ranks()));
  announcing([&] { announcements_->all_gather(own, codes); });
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
  try {
    // A rank that throws ends its Join. Another rank that still waits for the announcements would
    // get an error of that.
    announcements_->barrier();
  } catch (const Error&) {
    // A rank has left or died: the difference is the error to be told.
  }
  throw Mismatch("hocket::training::GradientReducer",
                 fmt::format("{}: all ranks must make the same calls in the same order",
                             fmt::join(calls, " while ")));
}

void UnevenSteps::leave() noexcept {
  hocketResult_t state = hocketSuccess;
  if (hocketCommGetAsyncError(announcements_->get(), &state) != hocketSuccess) return;
  if (state == hocketSuccess) hocketCommAbort(announcements_->get());
}

std::exception_ptr UnevenSteps::cause_of(const std::exception_ptr& error) noexcept {
  constexpr int most_looks = 200;
  try {
    std::rethrow_exception(error);
  } catch (const Aborted& aborted) {
    if (aborted.culprit() == announcements_->rank()) return error;
  } catch (...) {
    return error;
  }
  try {
    for (int looks = 0; looks < most_looks; ++looks) {
      announcing([&] { announcements_->wait(); });
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  } catch (...) {
    return std::current_exception();
  }
  return error;
}

double UnevenSteps::factor(int ranks) const {
  if (!uneven_ || !divide_by_active_ || active_ == 0) return 1;
  return static_cast<double>(ranks) / static_cast<double>(active_);
}

}  // namespace hocket::training

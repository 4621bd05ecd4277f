#include "failures.h"

#include <algorithm>
#include <utility>

#include "bootstrap/types.h"

namespace hocket::internal::launch {
namespace {

void say(const Failure& failure, Console* console) {
  if (!failure.is_news) return;
  console->say(failure.subject + (failure.subject.empty() ? "" : " ") + failure.how);
}

}  // namespace

void Failures::add(Failure failure, Nanos now) {
  if (list_.empty()) name_at_ = now + hold;
  if (!named_ && !list_.empty() && failure.origin > list_[first_].origin) first_ = list_.size();
  if (failure.origin == Origin::cause) name_at_ = std::min(name_at_, now);
  list_.push_back(std::move(failure));
}

void Failures::name_first(bool all, Console* console) {
  named_ = true;
  say(list_[first_], console);
  for (std::size_t i = 0; all && i < list_.size(); ++i) {
    if (i != first_) say(list_[i], console);
  }
}

void Failures::say_last(Console* console) const { say(list_.back(), console); }

std::string Failures::others() const {
  std::vector<std::pair<std::string, std::vector<int>>> by_how;  // in order of arrival
  for (std::size_t i = 0; i < list_.size(); ++i) {
    const Failure& failure = list_[i];
    if (i == first_ || !failure.is_news) continue;
    const auto same = [&](const auto& group) { return group.first == failure.how; };
    auto group = std::ranges::find_if(by_how, same);
    if (group == by_how.end()) group = by_how.insert(by_how.end(), {failure.how, {}});
    if (failure.rank >= 0) group->second.push_back(failure.rank);
  }
  std::string text;
  for (auto& [how, ranks] : by_how) {
    std::ranges::sort(ranks);
    text += text.empty() ? "" : "; ";
    if (!ranks.empty()) text += (ranks.size() == 1 ? "rank " : "ranks ") + ranks_text(ranks) + " ";
    text += ranks.size() > 1 && how.starts_with("was ") ? "were " + how.substr(4) : how;
  }
  return text;
}

}  // namespace hocket::internal::launch

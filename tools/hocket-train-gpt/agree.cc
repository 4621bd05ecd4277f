#include "agree.h"

#include <fmt/format.h>

#include <algorithm>
#include <hocket/training/agreement.hpp>
#include <vector>

namespace hocket::gpt {

void agree(Communicator& comm, const std::string& problem, int status) {
  const std::vector<std::string> texts = training::gather_bytes(comm, problem);
  const auto first = std::ranges::find_if(texts, [](const auto& text) { return !text.empty(); });
  if (first == texts.end()) return;
  const bool all_say_so =
      std::ranges::all_of(texts, [&](const auto& text) { return text == *first; });
  throw Refused(all_say_so ? *first : fmt::format("rank {}: {}", first - texts.begin(), *first),
                status);
}

void require_equal(Communicator& comm, const std::string& what, const std::string& text) {
  const std::vector<std::string> texts = training::gather_bytes(comm, text);
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    throw Refused(
        fmt::format("the {} of rank {} differs from that of rank 0, and must be the same on "
                    "all ranks. Rank 0: {}. Rank {}: {}",
                    what, rank, texts[0], rank, texts[rank]),
        2);
  }
}

}  // namespace hocket::gpt

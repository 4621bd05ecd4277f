#include "agree.h"

#include <fmt/format.h>

#include <algorithm>

namespace hocket::gpt {

std::vector<std::string> gather_texts(Communicator& comm, const std::string& mine) {
  const std::uint64_t length[1] = {mine.size()};
  std::vector<std::uint64_t> lengths(static_cast<std::size_t>(comm.ranks()));
  comm.all_gather(length, lengths);
  const std::vector<std::size_t> counts(lengths.begin(), lengths.end());
  std::size_t sum = 0;
  for (const std::size_t count : counts) sum += count;
  std::string all(sum, ' ');
  check(hocketAllGatherV(mine.data(), mine.size(), all.data(), counts.data(), nullptr, hocketUint8,
                         comm.get(), nullptr),
        "hocketAllGatherV");
  std::vector<std::string> texts;
  std::size_t begin = 0;
  for (const std::size_t count : counts) {
    texts.push_back(all.substr(begin, count));
    begin += count;
  }
  return texts;
}

void agree(Communicator& comm, const std::string& problem, int status) {
  const std::vector<std::string> texts = gather_texts(comm, problem);
  const auto first = std::ranges::find_if(texts, [](const auto& text) { return !text.empty(); });
  if (first == texts.end()) return;
  const bool all_say_so =
      std::ranges::all_of(texts, [&](const auto& text) { return text == *first; });
  throw Refused(all_say_so ? *first : fmt::format("rank {}: {}", first - texts.begin(), *first),
                status);
}

void require_equal(Communicator& comm, const std::string& what, const std::string& text) {
  const std::vector<std::string> texts = gather_texts(comm, text);
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

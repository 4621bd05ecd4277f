#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <hocket/training/agreement.hpp>
#include <numeric>

#include "training/storage_failure.h"
#include "training/text_hash.h"

namespace hocket::training {
namespace {

constexpr const char* operation = "hocket::training";

/// Everything that must be equal, as text.
std::string full_text(const Parameter& parameter) {
  std::string text = describe(parameter);
  if (!parameter.strides.empty()) {
    text += fmt::format(", strides {}", fmt::join(parameter.strides, " x "));
  }
  return text;
}

/// The ranks whose value is not that of rank 0.
template <typename Range>
std::vector<int> other_ranks(const Range& of_ranks) {
  std::vector<int> others;
  for (std::size_t rank = 1; rank < of_ranks.size(); ++rank) {
    if (of_ranks[rank] != of_ranks[0]) others.push_back(static_cast<int>(rank));
  }
  return others;
}

[[noreturn]] void differ(const std::vector<int>& others, const std::string& sentence) {
  throw Mismatch(operation,
                 sentence +
                     ". All ranks must build the same model, with parameters of the same "
                     "names, types and sizes in the same order",
                 others.size() == 1 ? others.front() : -1);
}

}  // namespace

std::string ranks_text(const std::vector<int>& ranks) {
  std::vector<std::string> runs;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - i <= 2) {
      end = i + 1;
      runs.push_back(std::to_string(ranks[i]));
    } else {
      runs.push_back(fmt::format("{} to {}", ranks[i], ranks[end - 1]));
    }
    i = end;
  }
  if (runs.size() == 1) return (ranks.size() == 1 ? "rank " : "ranks ") + runs[0];
  const std::string last = runs.back();
  runs.pop_back();
  return fmt::format("ranks {} and {}", fmt::join(runs, ", "), last);
}

void run_on_all(Communicator& comm, const char* operation, const std::string& note,
                const std::function<void()>& action) {
  const storage::Outcome mine = storage::outcome_of(action);
  std::vector<std::int32_t> codes(static_cast<std::size_t>(comm.ranks()));
  const std::int32_t own_code[] = {static_cast<std::int32_t>(mine.code)};
  comm.all_gather(own_code, codes);
  std::vector<int> failed;
  for (std::size_t rank = 0; rank < codes.size(); ++rank) {
    if (codes[rank] != hocketSuccess) failed.push_back(static_cast<int>(rank));
  }
  if (failed.empty()) return;
  const int first = failed.front();
  std::string sentence =
      fmt::format("rank {}: {}", first, broadcast_bytes(comm, mine.sentence, first));
  failed.erase(failed.begin());
  if (!failed.empty()) sentence += fmt::format(" ({} failed too)", ranks_text(failed));
  if (!note.empty()) sentence += ". " + note;
  hocket::detail::throw_error(static_cast<hocketResult_t>(codes[static_cast<std::size_t>(first)]),
                              operation, sentence, first);
}

std::vector<std::string> gather_bytes(Communicator& comm, const std::string& own) {
  std::vector<std::size_t> lengths(static_cast<std::size_t>(comm.ranks()));
  const std::size_t own_length[] = {own.size()};
  comm.all_gather(own_length, lengths);
  std::string together(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}), '\0');
  comm.all_gather(own, together, Blocks(lengths));
  std::vector<std::string> all;
  std::size_t begin = 0;
  for (const std::size_t length : lengths) {
    all.push_back(together.substr(begin, length));
    begin += length;
  }
  return all;
}

std::string broadcast_bytes(Communicator& comm, const std::string& own, int root) {
  std::size_t length[] = {own.size()};
  comm.broadcast(length, root);
  std::string bytes = own;
  bytes.resize(length[0]);
  if (!bytes.empty()) comm.broadcast(bytes, root);
  return bytes;
}

void require_same_parameters(Communicator& comm, const std::vector<Parameter>& parameters) {
  std::vector<std::string> lines;
  for (const Parameter& parameter : parameters) lines.push_back(full_text(parameter));
  require_same_lines(comm, "parameter", lines);
}

void require_same_lines(Communicator& comm, const char* what,
                        const std::vector<std::string>& lines) {
  std::vector<std::uint64_t> hashes;
  std::string all_lines;
  for (const std::string& line : lines) {
    hashes.push_back(text_hash(line));
    all_lines += line + '\n';
  }
  const std::uint64_t mine[] = {lines.size(), text_hash(all_lines)};
  std::vector<std::uint64_t> all(2 * static_cast<std::size_t>(comm.ranks()));
  comm.all_gather(mine, all);
  std::vector<std::uint64_t> counts, models;
  for (std::size_t i = 0; i < all.size(); i += 2) {
    counts.push_back(all[i]);
    models.push_back(all[i + 1]);
  }
  if (other_ranks(models).empty() && other_ranks(counts).empty()) return;

  // The first line that differs; a model with fewer lines differs where they end.
  hashes.resize(*std::max_element(counts.begin(), counts.end()));
  std::vector<std::uint64_t> least = hashes, most = hashes;
  comm.all_reduce(least, hocketMin);
  comm.all_reduce(most, hocketMax);
  const auto first = static_cast<std::size_t>(
      std::mismatch(least.begin(), least.end(), most.begin()).first - least.begin());
  const std::vector<std::string> texts =
      gather_bytes(comm, first < lines.size() ? lines[first] : "");
  const std::vector<int> others = other_ranks(texts);
  const std::string where = fmt::format("the models of the ranks differ at {} {}", what, first);
  if (others.empty()) differ({}, where);
  const auto shown = [&](const std::string& text) {
    return text.empty() ? fmt::format("no {}", what) : text;
  };
  const auto other = static_cast<std::size_t>(others.front());
  differ(others,
         fmt::format("{}: rank 0 has {} there (of {}), {} {} {} (of {})", where, shown(texts[0]),
                     counts[0], ranks_text(others), others.size() == 1 ? "has" : "have",
                     shown(texts[other]), counts[other]));
}

}  // namespace hocket::training

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <hocket/training/agreement.hpp>

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

/// FNV-1a, 64 bits: equal on all ranks for equal texts.
std::uint64_t hash(const std::string& text) {
  std::uint64_t value = 0xcbf29ce484222325;
  for (const char c : text) {
    value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return value;
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

/// The texts of all ranks about one parameter, cut to a fixed length.
std::vector<std::string> texts_of_ranks(Communicator& comm, const std::string& own) {
  constexpr std::size_t length = 1000;
  std::vector<char> mine(length), all(length * static_cast<std::size_t>(comm.ranks()));
  std::copy_n(own.begin(), std::min(own.size(), length - 1), mine.begin());
  comm.all_gather(mine, all);
  std::vector<std::string> texts;
  for (auto at = all.begin(); at != all.end(); at += length) texts.emplace_back(&*at);
  return texts;
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

void run_on_all(Communicator& comm, const char* operation, const std::function<void()>& action) {
  std::exception_ptr own;
  std::string text;
  int code[] = {hocketSuccess};
  try {
    action();
  } catch (const Error& error) {
    own = std::current_exception();
    code[0] = error.code();
    text = error.what();
  } catch (const std::exception& error) {
    own = std::current_exception();
    code[0] = hocketInternalError;
    text = error.what();
  }
  std::vector<int> codes(static_cast<std::size_t>(comm.ranks()));
  comm.all_gather(code, codes);
  const auto failed =
      std::find_if(codes.begin(), codes.end(), [](int each) { return each != hocketSuccess; });
  if (failed == codes.end()) return;
  const std::vector<std::string> texts = texts_of_ranks(comm, text);
  if (own != nullptr) std::rethrow_exception(own);
  const auto rank = failed - codes.begin();
  const std::string sentence =
      fmt::format("rank {} failed: {}", rank, texts[static_cast<std::size_t>(rank)]);
  if (*failed == hocketInternalError) {
    throw Error(hocketRemoteError, operation, sentence, static_cast<int>(rank));
  }
  detail::throw_error(static_cast<hocketResult_t>(*failed), operation, sentence,
                      static_cast<int>(rank));
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
    hashes.push_back(hash(line));
    all_lines += line + '\n';
  }
  const std::uint64_t mine[] = {lines.size(), hash(all_lines)};
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
      texts_of_ranks(comm, first < lines.size() ? lines[first] : "");
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

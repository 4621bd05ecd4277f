// Every fuzz target over its corpus, and over mutations of it that follow from the seed: for a
// second, with LONG_TESTS for ten, and in any case over a least number of them, so that a slow
// machine does not test less. What a target finds is written to the folder of the program, for
// ./dev fuzz and for the corpus.
#include "fuzz/fuzz.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "base/clock.h"
#include "sanitized.h"
#include "seed.h"

namespace hocket::fuzz {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t longest = 4096;  // bytes of a mutation
constexpr int least_mutations = tests::sanitized ? 600 : 3000;

/// How long a target runs.
internal::Nanos budget() {
  return (std::getenv("LONG_TESTS") != nullptr ? 10 : 1) * internal::nanos_per_s;
}

std::vector<Bytes> corpus_of(const std::string& target) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry :
       std::filesystem::directory_iterator(HOCKET_FUZZ_CORPUS + ("/" + target))) {
    paths.push_back(entry.path());
  }
  std::ranges::sort(paths);  // the order of the folder is not the same everywhere
  std::vector<Bytes> corpus;
  for (const std::filesystem::path& path : paths) {
    std::stringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    const std::string bytes = text.str();
    corpus.emplace_back(bytes.begin(), bytes.end());
  }
  return corpus;
}

class Mutator {
 public:
  Mutator(const std::vector<Bytes>& corpus, std::uint64_t seed) : corpus_(corpus), random_(seed) {}

  Bytes next() {
    Bytes bytes = any();
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) change(&bytes);
    if (bytes.size() > longest) bytes.resize(longest);
    return bytes;
  }

 private:
  std::size_t below(std::size_t limit) { return random_() % limit; }
  const Bytes& any() { return corpus_[below(corpus_.size())]; }
  auto at(Bytes* bytes, std::size_t place) {
    return bytes->begin() + static_cast<std::ptrdiff_t>(place);
  }

  void change(Bytes* bytes) {
    static constexpr std::uint8_t special[] = {0, 1, 0x7f, 0x80, 0xff, '\n', ' ', '0', '9'};
    const std::size_t size = bytes->size();
    if (size == 0) return bytes->push_back(static_cast<std::uint8_t>(random_()));
    const std::size_t from = below(size);
    const std::size_t length = 1 + below(std::min<std::size_t>(size - from, 64));
    switch (below(7)) {
      case 0:
        (*bytes)[from] ^= static_cast<std::uint8_t>(1 << below(8));
        break;
      case 1:
        (*bytes)[from] = special[below(std::size(special))];
        break;
      case 2:
        (*bytes)[from] = static_cast<std::uint8_t>(random_());
        break;
      case 3:
        bytes->resize(from);
        break;
      case 4:  // leave a part out
        bytes->erase(at(bytes, from), at(bytes, from + length));
        break;
      case 5: {  // repeat a part
        const Bytes part(at(bytes, from), at(bytes, from + length));
        bytes->insert(at(bytes, below(size)), part.begin(), part.end());
        break;
      }
      default: {  // go on as another input
        const Bytes& other = any();
        bytes->resize(from);
        const std::size_t begin = other.empty() ? 0 : below(other.size());
        bytes->insert(bytes->end(), other.begin() + static_cast<std::ptrdiff_t>(begin),
                      other.end());
      }
    }
  }

  const std::vector<Bytes>& corpus_;
  std::mt19937_64 random_;
};

class EveryTarget : public testing::TestWithParam<Target> {
 protected:
  void run(const Bytes& input) {
    try {
      // A copy of exactly this size: the address sanitizer sees accesses behind its end.
      GetParam().run(Input(Bytes(input)));
    } catch (const Broken& found) {
      const std::string path = std::string("found-") + GetParam().name;
      std::ofstream(path, std::ios::binary)
          .write(reinterpret_cast<const char*>(input.data()),
                 static_cast<std::streamsize>(input.size()));
      FAIL() << found.what << "\nthe input is in the file " << path;
    }
  }
};

TEST_P(EveryTarget, holds_for_its_corpus_and_for_mutations_of_it) {
  const std::vector<Bytes> corpus = corpus_of(GetParam().name);
  ASSERT_FALSE(corpus.empty());
  run({});
  for (const Bytes& input : corpus) run(input);
  Mutator mutator(corpus, tests::seed());
  const internal::Nanos end = internal::monotonic_now() + budget();
  for (int i = 0; i < least_mutations || internal::monotonic_now() < end; ++i) {
    run(mutator.next());
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Fuzz, EveryTarget, testing::ValuesIn(targets()),
                         [](const auto& target) { return std::string(target.param.name); });

}  // namespace
}  // namespace hocket::fuzz

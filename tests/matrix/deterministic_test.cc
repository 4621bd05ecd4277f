// HOCKET_DETERMINISTIC=1: an element's bits follow from the ranks' inputs and from how many ranks
// there are; not from where it lies, in how large a message, nor from what carries it.
#include "matrix/ranks.h"
#include "matrix/reference.h"

namespace {

using ranks::Env;
using ranks::Rank;
using reference::Bytes;

// One line, one staging area, several chunks.
constexpr std::size_t counts[] = {13, 1031, 300'001};

/// Sums whose last bits depend on the order in which they are made.
Bytes input_of(hocketDataType_t type, int rank) {
  constexpr std::size_t most = counts[std::size(counts) - 1];
  Bytes input(most * reference::size_of(type));
  reference::fill(reference::Data::small, type, most, 900 + static_cast<std::uint64_t>(rank),
                  input.data());
  return input;
}

/// Rank 0's result of every count.
std::vector<Bytes> results_of(int n, const char* transport, bool alloc, hocketDataType_t type) {
  const Env env({{"HOCKET_TRANSPORT", transport}, {"HOCKET_DETERMINISTIC", "1"}});
  std::vector<Bytes> results;
  ranks::run_ranks(n, [&](Rank& self) {
    const Bytes input = input_of(type, self.rank);
    for (const std::size_t count : counts) {
      const std::size_t bytes = count * reference::size_of(type);
      Bytes plain(bytes);
      void* memory = plain.data();
      if (alloc) {
        ASSERT_HOCKET(hocketMemAlloc(&memory, bytes));
      }
      std::memcpy(memory, input.data(), bytes);
      EXPECT_HOCKET(hocketAllReduce(memory, memory, count, type, hocketSum, self.comm, nullptr));
      if (self.rank == 0) {
        const auto* const at = static_cast<const std::uint8_t*>(memory);
        results.emplace_back(at, at + bytes);
      }
      if (alloc) {
        EXPECT_HOCKET(hocketMemFree(memory));
      }
    }
  });
  return results;
}

TEST(Deterministic, bits_do_not_depend_on_size_memory_or_transport) {
  for (const int n : {3, 5}) {
    for (const hocketDataType_t type : {hocketFloat32, hocketBfloat16}) {
      SCOPED_TRACE(std::to_string(n) + " ranks, " + reference::name_of(type));
      const std::vector<Bytes> first = results_of(n, "", false, type);
      ASSERT_EQ(first.size(), std::size(counts));
      const Bytes& longest = first.back();
      for (const auto& [transport, alloc] : {std::pair{"", false}, {"", true}, {"tcp", false}}) {
        const std::vector<Bytes> results = results_of(n, transport, alloc, type);
        ASSERT_EQ(results.size(), std::size(counts));
        for (const Bytes& result : results) {
          EXPECT_TRUE(std::equal(result.begin(), result.end(), longest.begin()))
              << result.size() << " bytes over '" << transport << "'" << (alloc ? ", alloc" : "");
        }
      }
    }
  }
}

}  // namespace

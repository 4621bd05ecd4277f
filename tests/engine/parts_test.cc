// Parts of a communicator by themselves, each against a peer that the test plays.
#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "engine/calibration.h"
#include "engine/peer_memory.h"
#include "two_ranks.h"

namespace hocket::internal {
namespace {

TEST(Calibration, gives_all_ranks_the_figures_of_rank_0) {
  std::promise<std::vector<std::byte>> told;  // what rank 0 broadcasts
  std::promise<Figures> of_rank_0;
  run_two(false, [&](int rank, const std::shared_ptr<Session>& session) {
    const Membership membership(*session, {0, 1}, 1 << 16, "two");
    // Nothing is moved but the broadcast; each rank measures what its own clock says of that.
    const Calibration::Run run = [&](std::span<const Call> calls) -> Status {
      const Call& call = calls.front();
      if (call.collective != Collective::broadcast) return {};
      EXPECT_EQ(0, call.root);
      auto* const bytes = static_cast<std::byte*>(call.output);
      if (rank == 0) {
        told.set_value({bytes, bytes + call.count});
      } else {
        const std::vector<std::byte> came = told.get_future().get();
        EXPECT_EQ(came.size(), call.count);
        std::memcpy(bytes, came.data(), came.size());
      }
      return {};
    };
    const Board none;
    const CommConfig config;
    Figures figures;
    Calibration calibration(*session, membership, none, config, run);
    const Status status = calibration.agree(&figures);
    EXPECT_TRUE(status.ok()) << status.message();
    if (rank == 0) return of_rank_0.set_value(figures);
    const Figures expected = of_rank_0.get_future().get();
    EXPECT_EQ(0, std::memcmp(&expected, &figures, sizeof figures));
    EXPECT_NE(Figures().touch_ns_per_byte, expected.touch_ns_per_byte) << "measured, not assumed";
  });
}

TEST(PeerMemory, of_a_peer_that_names_more_than_it_has_is_an_error) {
  constexpr std::size_t bytes = 8192;
  constexpr std::uint64_t region = 1;  // of a number that no region of this process has
  std::promise<void> done;
  run_two(true, [&](int rank, const std::shared_ptr<Session>& session) {
    const Membership membership(*session, {0, 1}, 1 << 16, "two");
    if (rank == 1) {
      UniqueFd fd;
      ASSERT_TRUE(make_memfd("peer", bytes, &fd).ok());
      ASSERT_TRUE(session->offer({DescriptorName::memory_space, region}, fd.get()).ok());
      return done.get_future().wait();
    }
    std::vector<std::byte> memory(Board::bytes(2) + 4096);
    const auto at = reinterpret_cast<std::uintptr_t>(memory.data());
    const Board board(memory.data() + (4096 - at % 4096), 2, 0);
    Doorbells doorbells(*session, membership);
    PeerMemory peers(*session, membership, doorbells);
    const auto map = [&](std::uint64_t offset, std::size_t size) {
      std::byte* out = nullptr;
      Status status;
      do {
        status = peers.map_remote(1, {region, offset}, size, 1, &out);
      } while (status.code() == Code::in_progress);
      EXPECT_EQ(status.ok(), out != nullptr);
      return status;
    };
    EXPECT_TRUE(doorbells.open(board).ok());
    EXPECT_TRUE(map(0, bytes).ok());
    EXPECT_TRUE(map(bytes - 8, 8).ok());
    for (const auto& [offset, size] : {std::pair<std::uint64_t, std::size_t>{bytes - 8, 9},
                                       {0, bytes + 1},
                                       {bytes + 1, 0},
                                       {~0ull - 3, 8}}) {
      const Status status = map(offset, size);
      EXPECT_EQ(Code::remote_error, status.code()) << offset << ", " << size;
      EXPECT_EQ(1, status.culprit());
    }
    doorbells.forget_fetches();
    done.set_value();
  });
}

}  // namespace
}  // namespace hocket::internal

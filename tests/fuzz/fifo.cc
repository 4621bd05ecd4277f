// A fifo in memory that the peer writes too: whatever numbers it stores, reader and writer stay
// within the ring, or say that the fifo is broken.
#include <cstring>

#include "fuzz/fuzz.h"
#include "transport/shm/connection.h"

namespace hocket::internal {
namespace {

constexpr std::size_t ring_bytes = 8 * 64;
constexpr std::size_t memory_bytes = Fifo::offset_of_ring(0) + ring_bytes;

FUZZ_TARGET(fifo, input) {
  alignas(128) std::byte memory[memory_bytes] = {};
  // The reader's two positions, and the words of the cells.
  const auto word = [&](std::size_t index) -> std::atomic<std::uint64_t>& {
    const std::size_t at = index < 2 ? Fifo::line_bytes + 8 * index
                                     : 2 * Fifo::line_bytes + Fifo::unit_bytes * (index - 2);
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(memory + at);
  };
  FifoWriter writer(memory, memory_bytes);
  FifoReader reader(memory, memory_bytes);
  std::byte copy[ring_bytes];
  bool reads = false;  // the reader is within a record
  while (input.left() > 0) {
    const std::uint8_t what = input.byte();
    const std::size_t wanted = input.below(ring_bytes + 1);
    const std::size_t index = input.below(2 + Fifo::least_cells);
    switch (what % 8) {
      case 0:
        word(index).store(input.number<std::uint64_t>());
        break;
      case 1:
        word(index).fetch_add(wanted);
        break;
      case 2:
        std::memset(writer.lead(), what, Fifo::lead_bytes);
        std::memcpy(copy, reader.lead(), Fifo::lead_bytes);
        break;
      case 3:
      case 4: {
        const std::size_t room = writer.room(wanted);
        FUZZ_CHECK(room <= ring_bytes && (!writer.broken() || room == 0));
        writer.put(copy, std::min(room, wanted));
        if (what % 8 == 4 && room > 0) writer.publish(what);
        break;
      }
      case 5:
        FUZZ_CHECK(!reader.broken() || !reader.ready());
        reader.writer_may_go_on();
        break;
      default: {
        reads = reads || reader.ready();
        if (!reads) break;
        FUZZ_CHECK(reader.left() <= ring_bytes && !reader.broken());
        reader.get(copy, std::min(reader.left(), wanted));
        if (what % 8 == 6) break;
        reader.release();
        reads = false;
      }
    }
  }
}

}  // namespace
}  // namespace hocket::internal

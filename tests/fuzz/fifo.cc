// A fifo in memory that the peer writes too: whatever positions it stores, reader and writer stay
// within the ring, or say that the fifo is broken.
#include "fuzz/fuzz.h"
#include "transport/shm/connection.h"

namespace hocket::internal {
namespace {

constexpr std::size_t ring_bytes = 8 * 64;
constexpr std::size_t memory_bytes = 2 * Fifo::line_bytes + ring_bytes;

FUZZ_TARGET(fifo, input) {
  alignas(64) std::byte memory[memory_bytes] = {};
  auto* const written = reinterpret_cast<std::atomic<std::uint64_t>*>(memory);
  auto* const read = reinterpret_cast<std::atomic<std::uint64_t>*>(memory + Fifo::line_bytes);
  FifoWriter writer(memory, memory_bytes);
  FifoReader reader(memory, memory_bytes);
  std::byte copy[ring_bytes];
  while (input.left() > 0) {
    const std::uint8_t what = input.byte();
    const std::size_t wanted = input.below(ring_bytes + 1);
    switch (what % 8) {
      case 0:
        written->store(input.number<std::uint64_t>());
        break;
      case 1:
        read->store(input.number<std::uint64_t>());
        break;
      case 2:
        written->fetch_add(wanted);
        break;
      case 3:
        read->fetch_add(wanted);
        break;
      case 4:
      case 5: {
        const std::size_t room = writer.room(wanted);
        FUZZ_CHECK(room <= ring_bytes && (!writer.broken() || room == 0));
        writer.put(copy, std::min(room, wanted));
        if (what % 8 == 5) writer.publish();
        break;
      }
      default: {
        const std::size_t ready = reader.ready();
        FUZZ_CHECK(ready <= ring_bytes && (!reader.broken() || ready == 0));
        reader.get(copy, std::min(ready, wanted));
        if (what % 8 == 7) reader.release();
      }
    }
  }
}

}  // namespace
}  // namespace hocket::internal

// The fifo, and how shm wakes sleeping ranks.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "base/checked.h"
#include "fabric.h"

namespace hocket::internal::testing {
namespace {

struct alignas(128) Area {
  std::byte bytes[8192] = {};
};
constexpr std::size_t ring_bytes = sizeof(Area) - Fifo::offset_of_ring(sizeof(Area));

/// Some bytes in the lead of a record, and some in the ring.
struct Record {
  std::uint8_t kind;
  std::vector<std::byte> lead, in_ring;
  void write(FifoWriter& writer) const {
    std::copy(lead.begin(), lead.end(), writer.lead());
    writer.put(in_ring.data(), in_ring.size());
    writer.publish(kind);
  }
  void read(FifoReader& reader) const {
    ASSERT_TRUE(reader.ready());
    ASSERT_EQ(kind, reader.kind());
    ASSERT_TRUE(std::equal(lead.begin(), lead.end(), reader.lead()));
    ASSERT_EQ(in_ring.size(), reader.left());
    std::vector<std::byte> got(in_ring.size());
    const std::size_t half = got.size() / 2;
    reader.get(got.data(), half);
    ASSERT_EQ(got.size() - half, reader.left());
    reader.get(got.data() + half, got.size() - half);
    reader.release();
    ASSERT_EQ(in_ring, got);
  }
};

TEST(Fifo, records_of_any_size_survive_wrapping_around) {
  for (const std::size_t most : {1500, 100, 1}) {  // with 1, the cells are full before the ring
    auto area = std::make_unique<Area>();
    FifoWriter writer(area->bytes, sizeof area->bytes);
    FifoReader reader(area->bytes, sizeof area->bytes);
    std::mt19937_64 random(1);
    std::deque<Record> under_way;
    for (int i = 0; i < 20'000; ++i) {
      Record record{static_cast<std::uint8_t>(random()), std::vector<std::byte>(random() % 57),
                    std::vector<std::byte>(random() % most)};
      for (std::byte& byte : record.lead) byte = static_cast<std::byte>(random());
      for (std::byte& byte : record.in_ring) byte = static_cast<std::byte>(random());
      const std::size_t wanted = std::max<std::size_t>(1, record.in_ring.size());
      while (writer.room(wanted) < wanted) {
        ASSERT_FALSE(under_way.empty());
        under_way.front().read(reader);
        ASSERT_FALSE(HasFatalFailure());
        under_way.pop_front();
      }
      record.write(writer);
      under_way.push_back(std::move(record));
      ASSERT_LE(under_way.size(), Fifo::cells_of(sizeof(Area)));
    }
    EXPECT_FALSE(writer.broken() || reader.broken());
  }
}

/// A fifo after a record of 128 bytes was written, read and released.
struct UsedFifo {
  UsedFifo() {
    record.write(writer);
    record.read(reader);
    EXPECT_GT(writer.room(std::size_t{1} << 40), 0u);  // looks at the reader's position
    EXPECT_FALSE(writer.broken() || reader.broken());
  }
  std::atomic<std::uint64_t>& word_at(std::size_t offset) const {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(area->bytes + offset);
  }
  const Record record{0, {}, std::vector<std::byte>(128)};
  std::unique_ptr<Area> area = std::make_unique<Area>();
  FifoWriter writer{area->bytes, sizeof area->bytes};
  FifoReader reader{area->bytes, sizeof area->bytes};
  std::atomic<std::uint64_t>& read_records = word_at(Fifo::line_bytes);
  std::atomic<std::uint64_t>& read_bytes = word_at(Fifo::line_bytes + 8);
  std::atomic<std::uint64_t>& second_cell = word_at(2 * Fifo::line_bytes + Fifo::unit_bytes);
};

TEST(Fifo, refuses_positions_that_cannot_be) {
  const auto is_refused = [](UsedFifo& fifo) {
    return fifo.writer.room(std::size_t{1} << 40) == 0 && fifo.writer.broken();
  };
  for (const std::uint64_t position : {64ull, 192ull, 1ull << 40, ~0ull}) {
    UsedFifo fifo;
    fifo.read_bytes.store(position);
    EXPECT_TRUE(is_refused(fifo)) << position;
  }
  for (const std::uint64_t position : {0ull, 2ull, 1ull << 40, ~0ull}) {
    UsedFifo fifo;
    fifo.read_records.store(position);
    EXPECT_TRUE(is_refused(fifo)) << position;
  }
  UsedFifo within_a_unit;
  within_a_unit.record.write(within_a_unit.writer);
  within_a_unit.read_bytes.store(129);
  EXPECT_TRUE(is_refused(within_a_unit));
}

TEST(Fifo, refuses_words_of_cells_that_cannot_be) {
  const std::vector<std::uint64_t> words = {2, 64, ~std::uint64_t{0}, 1 | (ring_bytes + 1) << 40,
                                            1 | std::uint64_t{0xffffff} << 40};
  for (const std::uint64_t word : words) {
    UsedFifo fifo;
    fifo.second_cell.store(word);
    EXPECT_FALSE(fifo.reader.ready()) << word;
    EXPECT_TRUE(fifo.reader.broken()) << word;
    fifo.second_cell.store(1);
    EXPECT_FALSE(fifo.reader.ready()) << "a broken fifo stays broken";
  }
  UsedFifo full;
  full.second_cell.store(1 | ring_bytes << 40);
  ASSERT_TRUE(full.reader.ready());
  EXPECT_EQ(ring_bytes, full.reader.left());
  UsedFifo empty;  // the lower half decides: the rest is of the record before
  empty.second_cell.store(0xffffffff00000000);
  EXPECT_FALSE(empty.reader.ready() || empty.reader.broken());
}

TEST(Fifo, a_reader_that_drains_a_full_fifo_says_when_the_writer_may_go_on) {
  // Whatever the size of the records, and however much was read before.
  for (const std::size_t size : {0, 64, 192, 448, 960}) {
    for (int before = 0; before < 70; ++before) {
      UsedFifo fifo;
      const Record record{0, {}, std::vector<std::byte>(size)};
      for (int i = 0; i < before; ++i) {
        ASSERT_GT(fifo.writer.room(size), 0u);
        record.write(fifo.writer);
        record.read(fifo.reader);
        fifo.reader.writer_may_go_on();
      }
      const std::size_t wanted = ring_bytes / 4;
      int records = 0;
      for (; fifo.writer.room(wanted) >= wanted; ++records) record.write(fifo.writer);
      ASSERT_GT(records, 0);
      bool has_room = false;
      for (; records > 0; --records) {
        record.read(fifo.reader);
        if (fifo.reader.writer_may_go_on()) has_room |= fifo.writer.room(wanted) >= wanted;
      }
      EXPECT_TRUE(has_room) << size << ", " << before;
    }
  }
}

struct Pair {
  explicit Pair(std::function<void(int)> wake) {
    area.resize(Board::bytes(2) + 4096);
    auto* base =
        reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::uintptr_t>(area.data()), 4096));
    for (int rank = 0; rank < 2; ++rank) {
      boards[rank] = Board(base, 2, rank);
      transports[rank] = std::make_unique<ShmTransport>(boards[rank], std::vector<int>{0, 1},
                                                        comm_id, wake, ShmOptions{});
    }
  }
  std::vector<std::byte> area;
  Board boards[2];
  std::unique_ptr<ShmTransport> transports[2];
};

/// The two numbers are in the cell, and a payload of at most 40 bytes too. Anything else that
/// differs from the header of the frame before needs a header of its own.
TEST(Shm, a_message_like_the_one_before_is_in_its_cell) {
  ShmFabric fabric({});
  std::deque<Message> messages;
  std::uint64_t sequence = 0;
  const auto bytes_in_ring = [&](std::size_t bytes, const std::function<void(Message&)>& change) {
    const MessageKey key{.sequence = ++sequence, .p2p = true};
    Message& send = messages.emplace_back(1, key, bytes);
    Message& recv = messages.emplace_back(0, key, bytes);
    send.fill(sequence);
    for (Message* const message : {&send, &recv}) change(*message);
    const std::uint64_t before = fabric.read_of_ring(0, 1);
    fabric.at(0).post_send(send.transfer);
    fabric.at(1).post_recv(recv.transfer);
    EXPECT_TRUE(send.transfer.done && recv.transfer.done);
    EXPECT_TRUE(send.transfer.status.ok()) << send.transfer.status.message();
    EXPECT_EQ(send.memory, recv.memory);
    return fabric.read_of_ring(0, 1) - before;
  };
  const auto as_it_is = [](Message&) {};
  for (const std::size_t bytes : {0, 1, 8, 39, 40, 41, 64, 65, 3000}) {
    SCOPED_TRACE(bytes);
    const std::size_t alone = round_up(bytes, 64);
    EXPECT_EQ(round_up(112 + bytes, 64), bytes_in_ring(bytes, as_it_is));
    for (int i = 0; i < 70; ++i) {
      ASSERT_EQ(bytes <= 40 ? 0 : alone, bytes_in_ring(bytes, as_it_is));
    }
    sequence += 5;
    EXPECT_EQ(bytes <= 40 ? 0 : alone, bytes_in_ring(bytes, as_it_is));
  }
  const std::vector<std::function<void(Message&)>> changes = {
      [](Message& message) { message.transfer.key.index = 1; },
      [](Message& message) { message.transfer.key.tag = 1; },
      [](Message& message) { message.transfer.key.p2p = false; },
      [](Message& message) { message.signature.count = 7; },
      [](Message& message) { message.signature.dtype = Dtype::float64; },
      [](Message& message) { message.signature.root = 1; },
      [](Message& message) { message.signature.unit = 3; },
      [](Message& message) { message.signature.operator_name.text[17] = 'x'; }};
  for (const auto& change : changes) {
    EXPECT_EQ(128u, bytes_in_ring(8, as_it_is));
    EXPECT_EQ(128u, bytes_in_ring(8, change));
    EXPECT_EQ(0u, bytes_in_ring(8, change));
    EXPECT_EQ(128u, bytes_in_ring(12, change)) << "of another length";
  }
}

TEST(Shm, a_mismatch_is_found_in_a_message_like_the_one_before) {
  ShmFabric fabric({});
  std::deque<Message> messages;
  for (std::uint64_t sequence = 1; sequence <= 3; ++sequence) {
    const MessageKey key{.sequence = sequence, .p2p = true};
    Message& send = messages.emplace_back(1, key, 8);
    Message& recv = messages.emplace_back(0, key, 8);
    if (sequence == 3) recv.signature.dtype = Dtype::float64;
    fabric.at(0).post_send(send.transfer);
    fabric.at(1).post_recv(recv.transfer);
    EXPECT_EQ(sequence == 3 ? Code::mismatch : Code::ok, recv.transfer.status.code());
  }
}

TEST(Shm, a_receiver_asleep_in_poll_is_woken_by_a_message) {
  std::vector<int> woken;
  Pair pair([&](int rank) { woken.push_back(rank); });
  Message first(1, {.sequence = 1}, 8), second(1, {.sequence = 2}, 8);
  pair.transports[0]->post_send(first.transfer);
  EXPECT_TRUE(woken.empty());
  pair.boards[1].announce_sleep(Board::asleep_in_poll);
  pair.transports[0]->post_send(second.transfer);
  EXPECT_EQ(woken, std::vector<int>{1});
}

TEST(Shm, a_sender_that_sleeps_because_the_fifo_is_full_is_woken_by_room) {
  int woken = 0;
  Pair pair([&](int rank) { woken += rank == 0; });
  Message send(1, {.sequence = 1}, 4 << 20), recv(0, {.sequence = 1}, 4 << 20);
  pair.transports[0]->post_send(send.transfer);
  pair.transports[1]->post_recv(recv.transfer);
  for (int rounds = 0; !recv.transfer.done; ++rounds) {
    ASSERT_LT(rounds, 1000);
    while (pair.transports[0]->poll()) {
    }
    if (send.transfer.done) break;
    pair.boards[0].announce_sleep(Board::asleep_in_poll);
    ASSERT_FALSE(pair.transports[0]->poll());
    woken = 0;
    pair.transports[1]->poll();
    ASSERT_GT(woken, 0);
    pair.boards[0].announce_awake();
  }
  for (auto& transport : pair.transports) transport->cancel({Code::aborted, "enough"});
}

TEST(Shm, a_sleeping_sender_wakes_whatever_the_reader_had_seen_of_the_fifo) {
  // Two threads, each asleep in the futex whenever it finds nothing to do: a lost wake-up hangs.
  Pair pair(nullptr);
  Message send(1, {.sequence = 1}, 16 << 20), recv(0, {.sequence = 1}, 16 << 20);
  send.fill(1);
  const auto run = [&](int rank, Transfer& transfer) {
    const Board& board = pair.boards[rank];
    ShmTransport& transport = *pair.transports[rank];
    while (!transfer.done) {
      if (transport.poll()) continue;
      board.announce_sleep(Board::asleep_in_futex);
      if (transport.poll()) {
        board.announce_awake();
        continue;
      }
      board.sleep(60'000'000'000);
    }
  };
  pair.transports[0]->post_send(send.transfer);
  pair.transports[1]->post_recv(recv.transfer);
  std::thread receiver([&] { run(1, recv.transfer); });
  run(0, send.transfer);
  receiver.join();
  EXPECT_TRUE(send.memory == recv.memory);
}

struct alignas(128) Line {
  std::atomic<int> value{0};
};

/// Two processes that do something at about the same moment, again and again, each on a core of its
/// own where there are two.
class Race {
 public:
  static constexpr int rounds = 100'000;

  void run(int process, const std::function<void(int round)>& prepare,
           const std::function<void(int round)>& act) {
    run_on_core_of(process);
    for (int round = 1; round <= rounds; ++round) {
      prepare(round);
      meet(process, 2 * round);
      const int delay = round % 300 * (process == 0 ? 7919 : 104'729) % 300;
      for (int i = 0; i < delay; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
      act(round);
      meet(process, 2 * round + 1);
    }
  }

 private:
  static void run_on_core_of(int process) {
    cpu_set_t allowed, one;
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    for (int core = 0, seen = 0; core < CPU_SETSIZE; ++core) {
      if (!CPU_ISSET(core, &allowed) || seen++ < process) continue;
      CPU_ZERO(&one);
      CPU_SET(core, &one);
      ::sched_setaffinity(0, sizeof one, &one);
      return;
    }
  }
  void meet(int process, int number) {
    reached_[process].value.store(number);
    for (int polls = 0; reached_[1 - process].value.load() < number; ++polls) {
      if (polls > 20'000) std::this_thread::yield();
    }
  }
  Line reached_[2];
};

/// What the two processes share.
struct SleepAndRing {
  Line payload[12], published;
  char rang[Race::rounds + 1], saw[Race::rounds + 1];
  Race race;
};

/// One rank falls asleep while its peer publishes and rings. makes_barrier: the rank makes a
/// barrier before each sleep, where the kernel has membarrier, so that the peer executes no fence.
void expect_no_lost_ring(bool makes_barrier) {
  const std::size_t board_bytes = Board::bytes(2);
  void* const memory = ::mmap(nullptr, board_bytes + sizeof(SleepAndRing), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(MAP_FAILED, memory);
  auto* const base = static_cast<std::byte*>(memory);
  SleepAndRing& shared = *new (base + board_bytes) SleepAndRing;
  const Board sleeper(base, 2, 0), ringer(base, 2, 1);
  if (makes_barrier) sleeper.take_barriers();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (makes_barrier) ringer.take_barriers();
    shared.race.run(
        1, [&](int) { ringer.doorbell(0).asleep.load(); },
        [&](int round) {
          for (Line& line : shared.payload) line.value.store(round, std::memory_order_relaxed);
          shared.published.value.store(round, std::memory_order_release);
          shared.rang[round] = ringer.ring(0);
        });
    ::_exit(0);
  }
  std::thread sleeps([&] {
    shared.race.run(
        0,
        [&](int round) {
          sleeper.announce_awake();
          if (makes_barrier) sleeper.make_barrier();
          // The ringer's core must take these lines away again before it can write them.
          for (const Line& line : shared.payload) EXPECT_EQ(round - 1, line.value.load());
          EXPECT_EQ(round - 1, shared.published.value.load());
        },
        [&](int round) {
          sleeper.announce_sleep(Board::asleep_in_poll);
          shared.saw[round] = shared.published.value.load(std::memory_order_acquire) == round;
        });
  });
  sleeps.join();
  int status = -1;
  EXPECT_EQ(child, ::waitpid(child, &status, 0));
  EXPECT_EQ(0, status);
  for (int round = 1; round <= Race::rounds; ++round) {
    ASSERT_TRUE(shared.rang[round] || shared.saw[round]) << "neither of the two in round " << round;
  }
  ::munmap(memory, board_bytes + sizeof(SleepAndRing));
}

TEST(Board, a_rank_that_falls_asleep_and_its_ringer_never_miss_each_other) {
  // Without a fence a processor reads the doorbell before what was written earlier has left its
  // store buffer. Some of these rounds hit that moment.
  expect_no_lost_ring(false);
}

TEST(Board, a_rank_that_makes_a_barrier_and_a_ringer_without_a_fence_never_miss_each_other) {
  expect_no_lost_ring(true);
}

TEST(Board, a_rank_makes_a_barrier_only_if_it_reaches_all_peers) {
  std::vector<std::byte> memory(Board::bytes(2) + 4096);
  auto* const base =
      memory.data() + (4096 - reinterpret_cast<std::uintptr_t>(memory.data()) % 4096);
  const Board a(base, 2, 0), b(base, 2, 1);
  EXPECT_TRUE(b.may_sleep(0)) << "without a fence nobody knows";
  a.doorbell(0).takes_barriers = 1;
  a.make_barrier();
  EXPECT_TRUE(b.may_sleep(0)) << "a barrier would not reach rank 1";
  b.doorbell(1).takes_barriers = 1;
  a.make_barrier();
  EXPECT_FALSE(b.may_sleep(0));
  EXPECT_TRUE(a.may_sleep(1)) << "that is the other rank's word";
  const std::uint32_t sleeps = a.sleeps();
  a.announce_sleep(Board::asleep_in_poll);
  EXPECT_EQ(sleeps + 1, a.sleeps());
  EXPECT_TRUE(b.ring(0));
  a.announce_awake();
  EXPECT_TRUE(b.may_sleep(0)) << "the word held until that sleep";
}

TEST(Board, tells_ranks_that_wait_on_one_core) {
  std::vector<std::byte> memory(Board::bytes(3) + 4096);
  auto* const base =
      memory.data() + (4096 - reinterpret_cast<std::uintptr_t>(memory.data()) % 4096);
  const Board a(base, 3, 0), b(base, 3, 1), c(base, 3, 2);
  EXPECT_FALSE(a.shares_core(0)) << "nobody else has said anything";
  EXPECT_FALSE(b.shares_core(1));
  EXPECT_TRUE(c.shares_core(0));
  EXPECT_TRUE(a.shares_core(0));
  EXPECT_FALSE(c.shares_core(2)) << "it has moved";
  EXPECT_FALSE(a.shares_core(0));
}

/// What no receive waits for stays in the fifo, so that its receive takes it without a copy.
TEST(Shm, a_receive_takes_its_message_out_of_the_fifo) {
  auto fabric = make_fabric("shm", {});
  Transport& transport = fabric->at(1);
  std::deque<Message> sends, recvs;
  for (std::uint64_t sequence = 1; sequence <= 4; ++sequence) {
    Message& send = sends.emplace_back(1, MessageKey{.sequence = sequence}, 1000);
    send.fill(sequence);
    fabric->at(0).post_send(send.transfer);
    EXPECT_TRUE(send.transfer.done);
    recvs.emplace_back(0, MessageKey{.sequence = sequence}, 1000);
  }
  const auto received = [&](int i) {
    return recvs[i].transfer.done && recvs[i].memory == sends[i].memory;
  };
  transport.post_recv(recvs[0].transfer);
  EXPECT_TRUE(received(0)) << "without a poll";
  // A poll takes one message that nobody waits for: were it none, a sender could wait for ever.
  EXPECT_TRUE(transport.poll());
  transport.post_recv(recvs[2].transfer);
  EXPECT_TRUE(received(2)) << "the second message is not in its way";
  EXPECT_TRUE(transport.poll());
  EXPECT_FALSE(transport.poll()) << "the fifo is empty";
  for (const int i : {3, 1}) transport.post_recv(recvs[i].transfer);
  EXPECT_TRUE(received(1) && received(3));
}

/// A message that its receiver copies from the memory of its sender.
struct LocatedMessage {
  explicit LocatedMessage(const FabricOptions& options)
      : fabric(std::make_unique<ShmFabric>(options)) {
    send.fill(1);
  }
  void post(bool send_first) {
    if (send_first) fabric->at(0).post_send(send.transfer);
    if (send_first) settle(fabric->at(1));
    fabric->at(1).post_recv(recv.transfer);
    if (!send_first) settle(fabric->at(0));
    if (!send_first) fabric->at(0).post_send(send.transfer);
  }
  /// To the end of the message, which arrives.
  void finish() {
    poll_until_done(fabric->all(), {&send.transfer, &recv.transfer});
    EXPECT_TRUE(send.transfer.status.ok() && recv.transfer.status.ok());
    EXPECT_EQ(send.memory, recv.memory);
    for (int rank = 0; rank < 2; ++rank) settle(fabric->at(rank));
    for (int rank = 0; rank < 2; ++rank) EXPECT_FALSE(fabric->at(rank).active());
  }
  /// The bytes of the ring from the sender that were read.
  std::uint64_t written() const { return fabric->read_of_ring(0, 1); }
  Message send{1, {.sequence = 1}, 3'000'000}, recv{0, {.sequence = 1}, 3'000'000};
  std::unique_ptr<ShmFabric> fabric;  // ends first, and with it the transfers
};
struct MappedMessage : LocatedMessage {
  MappedMessage() : LocatedMessage({.mapped = true}) {}
};
struct ReadMessage : LocatedMessage {
  ReadMessage() : LocatedMessage({.read = true}) {}
};

TEST(Shm, a_message_in_mapped_memory_is_copied_once_whichever_side_posts_first) {
  for (const bool send_first : {true, false}) {
    MappedMessage m;
    m.post(send_first);
    m.finish();
    EXPECT_GT(m.fabric->mapped.load(), 0);
    EXPECT_LT(m.written(), 1000u) << "the payload went through the fifo too";
  }
}

/// If the receive ended before, the receiver could leave its operation while there is no room for
/// the FIN. Then the sender would wait until the receiver's next operation.
TEST(Shm, a_receive_from_mapped_memory_ends_when_its_fin_is_in_the_fifo) {
  MappedMessage m;
  std::deque<Message> sends, recvs;
  do {  // until the fifo from rank 1 to rank 0 is full
    const MessageKey key{.sequence = 1, .index = static_cast<std::uint32_t>(1 + sends.size())};
    sends.emplace_back(0, key, 60'000);
    recvs.emplace_back(1, key, 60'000);
    m.fabric->at(1).post_send(sends.back().transfer);
  } while (sends.back().transfer.done);
  m.fabric->at(0).post_send(m.send.transfer);
  m.fabric->at(1).post_recv(m.recv.transfer);
  settle(m.fabric->at(1));
  EXPECT_EQ(m.send.memory, m.recv.memory);
  EXPECT_FALSE(m.recv.transfer.done) << "rank 0 cannot know that the message was copied";
  for (Message& recv : recvs) m.fabric->at(0).post_recv(recv.transfer);
  poll_until_done(m.fabric->all(), {&m.recv.transfer, &sends.back().transfer, &m.send.transfer,
                                    &recvs.back().transfer});
  EXPECT_TRUE(m.send.transfer.status.ok() && m.recv.transfer.status.ok());
}

TEST(Shm, memory_that_cannot_be_mapped_is_an_error_and_that_is_not_mapped_yet_is_awaited) {
  MappedMessage m;
  m.fabric->map_result = {Code::in_progress, "not mapped yet"};
  m.fabric->at(0).post_send(m.send.transfer);
  m.fabric->at(1).post_recv(m.recv.transfer);
  settle(m.fabric->at(1));
  EXPECT_FALSE(m.recv.transfer.done);
  m.fabric->map_result = {Code::system_error, "there is no address space"};
  settle(m.fabric->at(1));
  ASSERT_TRUE(m.recv.transfer.done);
  EXPECT_EQ(Code::system_error, m.recv.transfer.status.code());
}

/// The owner of the memory may write to it as soon as its transfer has ended with an error.
TEST(Shm, a_receive_is_no_success_if_the_sender_has_ended_before_its_memory_was_copied) {
  MappedMessage m;
  m.fabric->map_result = {Code::in_progress, "not mapped yet"};
  m.fabric->at(1).post_recv(m.recv.transfer);
  m.fabric->at(0).post_send(m.send.transfer);
  settle(m.fabric->at(1));
  m.fabric->at(0).cancel({Code::aborted, "enough"});
  EXPECT_TRUE(m.send.transfer.done);
  m.send.fill(2);
  m.fabric->map_result = {};
  settle(m.fabric->at(1));
  ASSERT_TRUE(m.recv.transfer.done);
  EXPECT_EQ(Code::remote_error, m.recv.transfer.status.code());
  EXPECT_EQ(0, m.recv.transfer.status.culprit());
}

/// The same if a frame of the peer ends the link: no call of cancel() says so.
TEST(Shm, a_sender_whose_link_has_ended_says_so_before_its_owner_learns_of_it) {
  MappedMessage m;
  m.fabric->map_result = {Code::in_progress, "not mapped yet"};
  m.fabric->at(1).post_recv(m.recv.transfer);
  m.fabric->at(0).post_send(m.send.transfer);
  settle(m.fabric->at(1));
  const std::atomic<std::uint64_t>& closed =
      *reinterpret_cast<std::atomic<std::uint64_t>*>(m.fabric->fifo(0, 1));
  // Rank 1 sends a message of another length than rank 0 receives.
  Message other(0, {.sequence = 2}, 8), expected(1, {.sequence = 2}, 4);
  m.fabric->at(1).post_send(other.transfer);
  EXPECT_EQ(0u, closed.load());
  m.fabric->at(0).post_recv(expected.transfer);
  settle(m.fabric->at(0));
  ASSERT_TRUE(m.send.transfer.done);
  EXPECT_EQ(Code::mismatch, m.send.transfer.status.code());
  EXPECT_NE(0u, closed.load());
}

TEST(Shm, the_kernel_copies_a_large_message_whichever_side_posts_first) {
  for (const bool send_first : {true, false}) {
    ReadMessage m;
    m.post(send_first);
    m.finish();
    EXPECT_EQ(3, m.fabric->reads.load()) << "1 MiB each";
    EXPECT_LT(m.written(), 1000u) << "the payload went through the fifo too";
  }
}

/// In a process of its own: rank 0, whose memory has other bytes than that of the test. It sends a
/// message to the test, and goes on until the message has ended.
class SenderProcess {
 public:
  SenderProcess()
      : memory_(::mmap(nullptr, board_bytes + sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    posted_ = new (static_cast<std::byte*>(memory_) + board_bytes) std::atomic<int>(0);
    pid_ = ::fork();
    if (pid_ != 0) return;
    const std::unique_ptr<ShmTransport> transport = make(0, ::getpid());
    Message send(1, {.sequence = 1}, bytes);
    send.fill(1);
    transport->post_send(send.transfer);
    posted_->store(1);
    poll_until_done({transport.get()}, {&send.transfer});
    settle(*transport);
    ::_exit(send.transfer.status.ok() ? 0 : 1);
  }
  ~SenderProcess() { ::munmap(memory_, board_bytes + sizeof(std::atomic<int>)); }
  SenderProcess(const SenderProcess&) = delete;

  std::unique_ptr<ShmTransport> make(int rank, pid_t of_peer) {
    ShmOptions options;
    options.read = [of_peer](int, std::uint64_t address, std::size_t most, std::byte* to) {
      return read_process(of_peer, address, most, to);
    };
    auto transport =
        std::make_unique<ShmTransport>(Board(static_cast<std::byte*>(memory_), 2, rank),
                                       std::vector<int>{0, 1}, comm_id, nullptr, options);
    transport->use_kernel_copies(true);
    return transport;
  }
  void await_send() const {
    while (posted_->load() == 0) ::usleep(300);
  }
  void kill() const { ::kill(pid_, SIGKILL); }
  int wait() const {
    int status = -1;
    EXPECT_EQ(pid_, ::waitpid(pid_, &status, 0));
    return status;
  }
  pid_t pid() const { return pid_; }
  static constexpr std::size_t bytes = 3'000'000;

 private:
  static inline const std::size_t board_bytes = Board::bytes(2);
  void* memory_;
  std::atomic<int>* posted_;
  pid_t pid_;
};

TEST(Shm, the_kernel_copies_a_message_of_another_process) {
  SenderProcess sender;
  ASSERT_GT(sender.pid(), 0);
  const std::unique_ptr<ShmTransport> transport = sender.make(1, sender.pid());
  Message sent(1, {.sequence = 1}, sender.bytes), recv(0, {.sequence = 1}, sender.bytes);
  sent.fill(1);
  transport->post_recv(recv.transfer);
  poll_until_done({transport.get()}, {&recv.transfer});
  EXPECT_EQ(0, sender.wait());
  EXPECT_TRUE(recv.transfer.status.ok());
  EXPECT_EQ(sent.memory, recv.memory);
}

TEST(Shm, the_kernel_copies_no_message_of_a_process_that_was_killed) {
  SenderProcess sender;
  ASSERT_GT(sender.pid(), 0);
  const std::unique_ptr<ShmTransport> transport = sender.make(1, sender.pid());
  Message recv(0, {.sequence = 1}, sender.bytes);
  sender.await_send();
  sender.kill();
  EXPECT_TRUE(WIFSIGNALED(sender.wait()));
  transport->post_recv(recv.transfer);
  settle(*transport);
  EXPECT_FALSE(recv.transfer.done) << "the session tells of the end of a process";
  EXPECT_EQ(0u, recv.transfer.moved);
  transport->cancel({Code::remote_error, "rank 0 is dead", 0});
  EXPECT_EQ(0, recv.transfer.status.culprit());
}

TEST(Shm, the_kernel_copies_no_short_message_and_none_unless_the_figures_say_so) {
  ReadMessage m;
  const std::size_t longest = shm_eager_bytes;
  Message send(1, {.sequence = 2}, longest), recv(0, {.sequence = 2}, longest);
  m.fabric->at(0).post_send(send.transfer);
  m.fabric->at(1).post_recv(recv.transfer);
  poll_until_done(m.fabric->all(), {&send.transfer, &recv.transfer});
  m.fabric->at(0).use_kernel_copies(false);
  m.fabric->at(0).post_send(m.send.transfer);
  m.fabric->at(1).post_recv(m.recv.transfer);
  poll_until_done(m.fabric->all(), {&m.send.transfer, &m.recv.transfer});
  EXPECT_EQ(m.send.memory, m.recv.memory);
  EXPECT_EQ(0, m.fabric->reads.load());
}

TEST(Shm, the_kernel_copies_no_mapped_memory) {
  LocatedMessage m({.mapped = true, .read = true});
  m.post(true);
  m.finish();
  EXPECT_EQ(0, m.fabric->reads.load());
  EXPECT_GT(m.fabric->mapped.load(), 0);
}

/// The second of three reads is refused: what the first has copied is sent again.
TEST(Shm, the_payload_is_sent_if_the_kernel_refuses_to_copy_it) {
  for (const bool send_first : {true, false}) {
    ReadMessage m;
    m.fabric->refuses = [](int n) { return n == 2; };
    m.post(send_first);
    m.finish();
    EXPECT_EQ(3'000'000u, m.recv.transfer.moved);
    EXPECT_EQ(2, m.fabric->reads.load());
  }
}

/// Whether the kernel copied the memory or refused: its owner may have freed it.
TEST(Shm, a_receive_is_no_success_if_the_sender_has_ended_before_the_kernel_copied) {
  for (const bool refuses : {false, true}) {
    ReadMessage m;
    m.fabric->refuses = [refuses](int) { return refuses; };
    m.fabric->at(1).post_recv(m.recv.transfer);
    m.fabric->at(0).post_send(m.send.transfer);
    m.fabric->at(0).cancel({Code::aborted, "enough"});
    EXPECT_TRUE(m.send.transfer.done);
    settle(m.fabric->at(1));
    EXPECT_EQ(1, m.fabric->reads.load());
    ASSERT_TRUE(m.recv.transfer.done);
    EXPECT_EQ(Code::remote_error, m.recv.transfer.status.code());
    EXPECT_EQ(0, m.recv.transfer.status.culprit());
  }
}

TEST(Shm, ranks_beyond_the_node_are_out_of_reach) {
  std::vector<std::byte> area(Board::bytes(2) + 4096);
  auto* base =
      reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::uintptr_t>(area.data()), 4096));
  ShmTransport transport(Board(base, 2, 1), {3, 5}, comm_id, nullptr, {});
  for (int rank = 0; rank < 8; ++rank) EXPECT_EQ(transport.reaches(rank), rank == 3);
}

}  // namespace
}  // namespace hocket::internal::testing

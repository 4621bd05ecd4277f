// Elements that are no base type of hocket: calls that only move data take them as they are.
#include <array>
#include <complex>
#include <cstdint>
#include <optional>

#include "hpp/job.h"

namespace {

using hocket::Communicator;

/// It ends with three bytes of padding.
struct Particle {
  float x, y;
  int owner;
  char kind;
  bool operator==(const Particle&) const = default;
};
/// A size that no base type of hocket has.
struct Colour {
  std::uint8_t red, green, blue;
  bool operator==(const Colour&) const = default;
};

Particle particle(int owner, int number) {
  return {1.5F * static_cast<float>(number), -1, owner, static_cast<char>('a' + number)};
}
/// Particles 0 to count - 1 of a rank.
std::vector<Particle> particles(int owner, std::size_t count) {
  std::vector<Particle> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(particle(owner, static_cast<int>(i)));
  return all;
}
std::vector<Particle> joined(const std::vector<std::vector<Particle>>& parts) {
  std::vector<Particle> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

TEST(CppStructs, are_broadcast_and_gathered_and_scattered) {
  job::run(3, [](Communicator& comm) {
    const int rank = comm.rank(), root = 1;
    const bool is_root = rank == root;
    hocket::Stream stream = hocket::Stream::create();
    const auto mine = particles(rank, 2);
    const auto all = joined({particles(0, 2), particles(1, 2), particles(2, 2)});
    std::vector<Particle> out(2), data = mine, streamed = mine;
    comm.broadcast(mine, out, root);
    comm.broadcast(data, root);
    comm.broadcast(streamed, root, stream);
    stream.synchronize();
    for (const auto& got : {out, data, streamed}) EXPECT_EQ(particles(root, 2), got);

    std::vector<Particle> gathered(6), placed(6), streamed_all(6);
    comm.all_gather(mine, gathered);
    std::copy(mine.begin(), mine.end(), placed.begin() + 2 * rank);
    comm.all_gather(placed);
    comm.all_gather(mine, streamed_all, stream);
    stream.synchronize();
    for (const auto& got : {gathered, placed, streamed_all}) EXPECT_EQ(all, got);

    std::vector<Particle> at_root(is_root ? 6 : 0), in_place = is_root ? placed : mine;
    comm.gather(mine, at_root, root);
    comm.gather(in_place, root);
    EXPECT_EQ(is_root ? all : std::vector<Particle>(), at_root);
    EXPECT_EQ(is_root ? all : mine, in_place);
    std::vector<Particle> back(2), back_in_place = is_root ? all : std::vector<Particle>(2);
    comm.scatter(at_root, back, root);
    comm.scatter(back_in_place, root);
    EXPECT_EQ(mine, back);
    EXPECT_EQ(is_root ? all : mine, back_in_place);
  });
}

TEST(CppStructs, are_exchanged_and_sent) {
  job::run(3, [](Communicator& comm) {
    const int rank = comm.rank(), next = (rank + 1) % 3, previous = (rank + 2) % 3;
    hocket::Stream stream = hocket::Stream::create();
    const auto mine = particles(rank, 3);
    const std::vector<Particle> turned{particle(0, rank), particle(1, rank), particle(2, rank)};
    std::vector<Particle> out(3), grouped(3);
    comm.all_to_all(mine, out);
    hocket::group([&] { comm.all_to_all(mine, grouped, stream); });
    stream.synchronize();
    for (const auto& got : {out, grouped}) EXPECT_EQ(turned, got);

    std::vector<Particle> swapped(3), got(3), streamed(3);
    comm.sendrecv(mine, next, swapped, previous);
    hocket::group([&] {
      comm.send(mine, next);
      comm.recv(got, previous);
      comm.send(mine, next, stream);
      comm.recv(streamed, previous, stream);
    });
    stream.synchronize();
    for (const auto& from : {swapped, got, streamed}) EXPECT_EQ(particles(previous, 3), from);
  });
}

TEST(CppStructs, have_blocks_that_count_elements) {
  job::run(3, [](Communicator& comm) {
    const int rank = comm.rank(), root = 2;
    const bool is_root = rank == root;
    const std::vector<std::size_t> counts{1, 2, 3}, places{5, 3, 0};
    const std::size_t own = counts[static_cast<std::size_t>(rank)];
    const auto mine = particles(rank, own);
    const auto all = joined({particles(0, 1), particles(1, 2), particles(2, 3)});
    const auto spread = joined({particles(2, 3), particles(1, 2), particles(0, 1)});
    std::vector<Particle> gathered(6), placed(6), in_place(6), at_root(is_root ? 6 : 0);
    comm.all_gather(mine, gathered, counts);
    comm.all_gather(mine, placed, {counts, places});
    std::copy(
        mine.begin(), mine.end(),
        in_place.begin() + static_cast<std::ptrdiff_t>(places[static_cast<std::size_t>(rank)]));
    comm.all_gather(in_place, {counts, places});
    EXPECT_EQ(all, gathered);
    for (const auto& got : {placed, in_place}) EXPECT_EQ(spread, got);

    comm.gather(mine, at_root, counts, root);
    EXPECT_EQ(is_root ? all : std::vector<Particle>(), at_root);
    auto data = is_root ? all : mine;
    comm.gather(data, hocket::Blocks(counts), root);
    EXPECT_EQ(is_root ? all : mine, data);
    std::vector<Particle> back(own), whole = is_root ? all : back;
    comm.scatter(at_root, counts, back, root);
    comm.scatter(whole, hocket::Blocks(counts), root);
    EXPECT_EQ(mine, back);
    EXPECT_EQ(is_root ? all : mine, whole);

    // To each rank r: r + 1 particles.
    const std::vector<std::size_t> from(3, own);
    const auto sent = joined({particles(rank, 1), particles(rank, 2), particles(rank, 3)});
    std::vector<Particle> received(3 * own);
    comm.all_to_all(sent, counts, received, from);
    EXPECT_EQ(joined({particles(0, own), particles(1, own), particles(2, own)}), received);
  });
}

/// The elements of rank 0, broadcast.
template <typename T>
std::vector<T> broadcast(Communicator& comm, std::vector<T> of_rank_0) {
  std::vector<T> data = comm.rank() == 0 ? of_rank_0 : std::vector<T>(of_rank_0.size());
  comm.broadcast(data, 0);
  return data;
}

TEST(CppStructs, may_be_any_type_that_is_trivially_copyable) {
  job::run(2, [](Communicator& comm) {
    const std::vector<Colour> colours{{1, 2, 3}, {4, 5, 6}, {7, 8, 9}};
    EXPECT_EQ(colours, broadcast(comm, colours));
    const std::vector<std::complex<double>> numbers{{1, 2}, {3, 4}};
    EXPECT_EQ(numbers, broadcast(comm, numbers));
    const std::vector<std::array<float, 3>> points{{1, 2, 3}, {4, 5, 6}};
    EXPECT_EQ(points, broadcast(comm, points));
    const std::vector<std::optional<int>> some{5, std::nullopt};
    EXPECT_EQ(some, broadcast(comm, some));
    const std::u16string text = u"hello";
    std::u16string heard = comm.rank() == 0 ? text : u"-----";
    comm.broadcast(heard, 0);
    EXPECT_EQ(text, heard);
    enum class Phase : std::int16_t { begin = -3, end = 300 };
    EXPECT_EQ(Phase::end, broadcast(comm, std::vector{Phase::begin, Phase::end})[1]);
    bool flags[3] = {comm.rank() == 0, false, comm.rank() == 0};
    comm.broadcast(flags, 0);
    EXPECT_TRUE(flags[0] && !flags[1] && flags[2]);
    float rows[2][3] = {};
    if (comm.rank() == 0) rows[1][2] = 7;
    comm.broadcast(rows, 0);
    EXPECT_EQ(7, rows[1][2]);
    hocket::Memory<Particle> memory(1000);
    if (comm.rank() == 0) memory[999] = particle(0, 9);
    comm.broadcast(memory, 0);
    EXPECT_EQ(particle(0, 9), memory[999]);
    Particle one = particle(comm.rank(), 1);
    comm.broadcast(std::span(&one, 1), 0);
    EXPECT_EQ(particle(0, 1), one);
  });
  static_assert(hocket::Movable<Particle> && !hocket::Element<Particle>);
  static_assert(!hocket::Movable<int*> && !hocket::Movable<std::string_view>);
  static_assert(!hocket::Movable<std::string> && !hocket::Movable<std::span<int>>);
}

TEST(CppStructs, of_other_sizes_or_counts_are_mismatches) {
  for (const bool counts_differ : {false, true}) {
    job::run(2, [=](Communicator& comm) {
      std::vector<Particle> three(3), four(4);
      std::vector<Colour> small(3);
      const auto error = job::thrown_by<hocket::Mismatch>([&] {
        if (comm.rank() == 0) {
          comm.broadcast(three, 0);
        } else if (counts_differ) {
          comm.broadcast(four, 0);
        } else {
          comm.broadcast(small, 0);
        }
        comm.barrier();  // the root of a small broadcast may hear of the error in its next call
      });
      EXPECT_EQ(1 - comm.rank(), error.culprit());
      for (const char* bytes : {"48", counts_differ ? "64" : "9"}) {
        EXPECT_TRUE(job::has(error, bytes)) << bytes << " is not in: " << error.what();
      }
    });
  }
  job::run(2, [](Communicator& comm) {
    std::vector<Particle> three(3), four(4);
    job::thrown_by<hocket::Mismatch>([&] {
      if (comm.rank() == 0) {
        comm.send(three, 1);
        comm.barrier();  // the error of a send may come later
      } else {
        comm.recv(four, 0);
      }
    });
  });
}

TEST(CppStructs, of_wrong_sizes_on_this_rank_are_named_in_elements) {
  job::run(2, [](Communicator& comm) {
    std::vector<Particle> three(3), seven(7);
    const auto error =
        job::thrown_by<hocket::InvalidArgument>([&] { comm.all_gather(three, seven); });
    EXPECT_TRUE(job::has(error, "3 elements") && job::has(error, "7 elements")) << error.what();
    comm.barrier();
  });
}

TEST(CppLibrary, says_its_version_and_the_sizes_of_datatypes) {
  EXPECT_EQ(HOCKET_VERSION_CODE, hocket::version());
  EXPECT_EQ(8U, hocket::type_size(hocketFloat64));
  const hocket::ContiguousType points(3, hocketFloat32);
  EXPECT_EQ(12U, hocket::type_size(points.get()));
  const auto none = job::thrown_by<hocket::InvalidArgument>(
      [] { static_cast<void>(hocket::type_size(static_cast<hocketDataType_t>(123456789))); });
  EXPECT_STREQ("hocketTypeSize", none.operation());
}

}  // namespace

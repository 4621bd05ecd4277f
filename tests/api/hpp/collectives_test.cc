// The collectives and messages of hocket.hpp, called as users call them.
#include <array>
#include <numeric>
#include <span>
#include <string>

#include "hpp/job.h"

namespace {

using hocket::Communicator;
using Ints = std::vector<int>;

TEST(Cpp, all_reduce_is_out_of_place_and_in_place_on_a_stream_and_not) {
  job::run(3, [](Communicator& comm) {
    hocket::Stream stream = hocket::Stream::create();
    const Ints in{comm.rank(), 10};
    Ints out(2), data = in, streamed = in, streamed_out(2);
    comm.all_reduce(in, out, hocketSum);
    comm.all_reduce(data, hocketMax);
    comm.all_reduce(in, streamed_out, hocketSum, stream);
    comm.all_reduce(streamed, hocketMin, stream);
    stream.synchronize();
    EXPECT_EQ(out, (Ints{3, 30}));
    EXPECT_EQ(data, (Ints{2, 10}));
    EXPECT_EQ(streamed_out, (Ints{3, 30}));
    EXPECT_EQ(streamed, (Ints{0, 10}));
    comm.all_reduce(in, out, hocketProd, hocket::caller_thread);
    EXPECT_EQ(out, (Ints{0, 1000}));
  });
}

TEST(Cpp, all_reduce_of_a_value_returns_the_result) {
  job::run(3, [](Communicator& comm) {
    const int rank = comm.rank();
    EXPECT_EQ(3, comm.all_reduce(rank, hocketSum));
    EXPECT_EQ(1.0, comm.all_reduce(static_cast<double>(rank), hocketAvg));
    EXPECT_EQ(2L, comm.all_reduce(static_cast<long>(rank), hocketMax));
    EXPECT_EQ(8, comm.all_reduce(2, hocketProd));
  });
}

TEST(Cpp, broadcast_is_out_of_place_and_in_place_on_a_stream_and_not) {
  job::run(3, [](Communicator& comm) {
    hocket::Stream stream = hocket::Stream::create();
    const int root = 1;
    const Ints mine{comm.rank(), 7};
    Ints out(2), data = mine, streamed = mine, streamed_out(2);
    comm.broadcast(mine, out, root);
    comm.broadcast(data, root);
    comm.broadcast(mine, streamed_out, root, stream);
    comm.broadcast(streamed, root, stream);
    stream.synchronize();
    for (const Ints& got : {out, data, streamed, streamed_out}) EXPECT_EQ(got, (Ints{1, 7}));
    // Only root's input counts: the others may have none.
    Ints none;
    comm.broadcast(comm.rank() == root ? mine : none, out, root);
    EXPECT_EQ(out, (Ints{1, 7}));
  });
}

TEST(Cpp, all_gather_is_out_of_place_and_in_place_on_a_stream_and_not) {
  job::run(3, [](Communicator& comm) {
    hocket::Stream stream = hocket::Stream::create();
    const Ints in{comm.rank(), -comm.rank()}, all{0, 0, 1, -1, 2, -2};
    Ints place(6, 99);
    std::copy(in.begin(), in.end(), place.begin() + 2 * comm.rank());
    Ints out(6), data = place, streamed = place, streamed_out(6);
    comm.all_gather(in, out);
    comm.all_gather(data);
    comm.all_gather(in, streamed_out, stream);
    comm.all_gather(streamed, stream);
    stream.synchronize();
    for (const Ints& got : {out, data, streamed, streamed_out}) EXPECT_EQ(got, all);
  });
}

TEST(Cpp, reduce_scatter_is_out_of_place_and_in_place_on_a_stream_and_not) {
  job::run(3, [](Communicator& comm) {
    hocket::Stream stream = hocket::Stream::create();
    const Ints in{1, 2, 3, 4, 5, 6};
    const Ints mine{3 * in[2 * comm.rank()], 3 * in[2 * comm.rank() + 1]};
    Ints out(2), data = in, streamed = in, streamed_out(2);
    comm.reduce_scatter(in, out, hocketSum);
    comm.reduce_scatter(data, hocketSum);
    comm.reduce_scatter(in, streamed_out, hocketSum, stream);
    comm.reduce_scatter(streamed, hocketSum, stream);
    stream.synchronize();
    EXPECT_EQ(out, mine);
    EXPECT_EQ(streamed_out, mine);
    for (const Ints& got : {data, streamed}) {
      const auto part = got.begin() + 2 * comm.rank();
      EXPECT_EQ(Ints(part, part + 2), mine);
    }
  });
}

TEST(Cpp, reduce_is_out_of_place_and_in_place_on_a_stream_and_not) {
  job::run(3, [](Communicator& comm) {
    hocket::Stream stream = hocket::Stream::create();
    const int root = 1;
    const bool is_root = comm.rank() == root;
    const Ints in{comm.rank(), 10}, sum{3, 30};
    Ints out(2), data = in, streamed = in, streamed_out(2);
    Ints none;  // only root's output counts: the others may have none
    comm.reduce(in, is_root ? out : none, hocketSum, root);
    comm.reduce(data, hocketSum, root);
    comm.reduce(in, is_root ? streamed_out : none, hocketSum, root, stream);
    comm.reduce(streamed, hocketSum, root, stream);
    stream.synchronize();
    for (const Ints& got : {out, streamed_out}) EXPECT_EQ(got, is_root ? sum : Ints(2));
    for (const Ints& got : {data, streamed}) EXPECT_EQ(got, is_root ? sum : in);
  });
}

TEST(Cpp, gather_and_scatter_go_to_root_and_back_on_a_stream_and_not) {
  job::run(3, [](Communicator& comm) {
    hocket::Stream stream = hocket::Stream::create();
    const int root = 2;
    const bool is_root = comm.rank() == root;
    const Ints in{comm.rank(), -comm.rank()}, all{0, 0, 1, -1, 2, -2};
    Ints gathered(is_root ? 6 : 0), streamed(is_root ? 6 : 0), back(2), streamed_back(2);
    comm.gather(in, gathered, root);
    comm.gather(in, streamed, root, stream);
    comm.scatter(gathered, back, root, stream);
    comm.scatter(streamed, streamed_back, root, stream);
    stream.synchronize();
    for (const Ints& got : {gathered, streamed}) EXPECT_EQ(got, is_root ? all : Ints());
    EXPECT_EQ(in, back);
    comm.scatter(gathered, streamed_back, root);
    EXPECT_EQ(in, streamed_back);
  });
}

TEST(Cpp, gather_and_scatter_are_in_place_on_a_stream_and_not) {
  job::run(3, [](Communicator& comm) {
    hocket::Stream stream = hocket::Stream::create();
    const int root = 2;
    const bool is_root = comm.rank() == root;
    const Ints mine{comm.rank(), -comm.rank()}, all{0, 0, 1, -1, 2, -2};
    const Ints begun = is_root ? Ints{9, 9, 9, 9, 2, -2} : mine;
    Ints gathered = begun, streamed = begun;
    comm.gather(gathered, root);
    comm.gather(streamed, root, stream);
    stream.synchronize();
    for (const Ints& got : {gathered, streamed}) EXPECT_EQ(is_root ? all : mine, got);
    Ints back = is_root ? all : Ints(2), streamed_back = back;
    comm.scatter(back, root);
    comm.scatter(streamed_back, root, stream);
    stream.synchronize();
    for (const Ints& got : {back, streamed_back}) EXPECT_EQ(is_root ? all : mine, got);
  });
}

TEST(Cpp, all_to_all_turns_parts_round_on_a_stream_and_not) {
  job::run(3, [](Communicator& comm) {
    hocket::Stream stream = hocket::Stream::create();
    const int rank = comm.rank();
    const Ints in{10 * rank, 10 * rank + 1, 10 * rank + 2}, turned{rank, 10 + rank, 20 + rank};
    Ints out(3), streamed(3), grouped(3);
    comm.all_to_all(in, out);
    comm.all_to_all(in, streamed, stream);
    hocket::group([&] { comm.all_to_all(in, grouped, stream); });
    stream.synchronize();
    for (const Ints& got : {out, streamed, grouped}) EXPECT_EQ(got, turned);
  });
}

/// Of rank r: r + 1 elements of value r.
Ints some_of(int rank) { return Ints(static_cast<std::size_t>(rank) + 1, rank); }

TEST(Cpp, blocks_of_different_counts_are_gathered_and_scattered) {
  job::run(3, [](Communicator& comm) {
    hocket::Stream stream = hocket::Stream::create();
    const int root = 1;
    const bool is_root = comm.rank() == root;
    const Ints mine = some_of(comm.rank()), all{0, 1, 1, 2, 2, 2}, spread{2, 2, 2, 9, 1, 1, 9, 0};
    Ints none, gathered(6), placed(8, 9), rooted(is_root ? 6 : 0), back(mine.size()),
        again(mine.size());
    {
      // The arrays end before the streamed calls run.
      const std::vector<std::size_t> counts{1, 2, 3};
      const std::array<std::size_t, 3> places{7, 4, 0};
      comm.all_gather(mine, gathered, counts);
      comm.all_gather(mine, placed, {counts, places}, stream);
      comm.gather(mine, rooted, counts, root, stream);
      comm.scatter(rooted, counts, back, root, stream);
      comm.scatter(is_root ? placed : none,
                   is_root ? hocket::Blocks(counts, places) : hocket::Blocks(), again, root,
                   stream);
    }
    stream.synchronize();
    EXPECT_EQ(all, gathered);
    EXPECT_EQ(spread, placed);
    EXPECT_EQ(is_root ? all : Ints(), rooted);
    EXPECT_EQ(mine, back);
    EXPECT_EQ(mine, again);
  });
}

TEST(Cpp, blocks_of_different_counts_are_reduced_and_exchanged) {
  job::run(3, [](Communicator& comm) {
    const int rank = comm.rank();
    const auto own = static_cast<std::size_t>(rank);
    const std::size_t counts[] = {1, 2, 3};
    Ints part(own + 1);
    const Ints whole{1, 2, 2, 3, 3, 3};
    comm.reduce_scatter(whole, part, counts, hocketSum);
    EXPECT_EQ(part, Ints(own + 1, 3 * (rank + 1)));
    // To each rank r: r + 1 elements, of the sender's value; so from each rank rank + 1 elements.
    const std::vector<std::size_t> from(3, own + 1);
    const Ints in(6, rank);
    Ints out(3 * (own + 1));
    comm.all_to_all(in, counts, out, from);
    Ints expected;
    for (int sender = 0; sender < 3; ++sender) expected.insert(expected.end(), own + 1, sender);
    EXPECT_EQ(expected, out);
  });
}

TEST(Cpp, blocks_of_different_counts_are_gathered_and_scattered_in_place) {
  job::run(3, [](Communicator& comm) {
    hocket::Stream stream = hocket::Stream::create();
    const int root = 1, rank = comm.rank();
    const bool is_root = rank == root;
    const std::vector<std::size_t> counts{1, 2, 3}, places{7, 4, 0};
    const Ints mine = some_of(rank), all{0, 1, 1, 2, 2, 2}, spread{2, 2, 2, 9, 1, 1, 9, 0};
    const auto only_block = [](Ints whole, std::size_t begin, std::size_t count) {
      for (std::size_t i = 0; i < whole.size(); ++i) {
        if (i < begin || i >= begin + count) whole[i] = 9;
      }
      return whole;
    };
    const auto own = static_cast<std::size_t>(rank);
    const Ints packed = only_block(all, own * (own + 1) / 2, own + 1);
    const Ints apart = only_block(spread, places[own], own + 1);
    Ints gathered = packed, placed = apart, at_root = is_root ? packed : mine,
         placed_at_root = is_root ? apart : mine;
    comm.all_gather(gathered, hocket::Blocks(counts));
    comm.all_gather(placed, {counts, places}, stream);
    comm.gather(at_root, hocket::Blocks(counts), root);
    comm.gather(placed_at_root, {counts, places}, root, stream);
    stream.synchronize();
    EXPECT_EQ(all, gathered);
    EXPECT_EQ(spread, placed);
    EXPECT_EQ(is_root ? all : mine, at_root);
    EXPECT_EQ(is_root ? spread : mine, placed_at_root);
    Ints back = is_root ? all : Ints(mine.size()), back_again = is_root ? spread : back;
    comm.scatter(back, is_root ? hocket::Blocks(counts) : hocket::Blocks(), root);
    comm.scatter(back_again, {counts, places}, root, stream);
    stream.synchronize();
    EXPECT_EQ(is_root ? all : mine, back);
    EXPECT_EQ(is_root ? spread : mine, back_again);
    Ints reduced{1, 2, 2, 3, 3, 3}, streamed = reduced;
    comm.reduce_scatter(reduced, hocket::Blocks(counts), hocketSum);
    comm.reduce_scatter(streamed, hocket::Blocks(counts), hocketSum, stream);
    stream.synchronize();
    for (const Ints& got : {reduced, streamed}) {
      const auto block = got.begin() + static_cast<std::ptrdiff_t>(own * (own + 1) / 2);
      EXPECT_EQ(Ints(own + 1, 3 * (rank + 1)), Ints(block, block + rank + 1));
    }
  });
}

TEST(Cpp, messages_go_round_by_send_and_recv_and_by_sendrecv) {
  job::run(3, [](Communicator& comm) {
    hocket::Stream stream = hocket::Stream::create();
    const int next = (comm.rank() + 1) % 3, previous = (comm.rank() + 2) % 3;
    const Ints mine{comm.rank(), 5};
    Ints got(2), swapped(2), streamed(2), grouped(2);
    if (comm.rank() == 0) {
      comm.send(mine, next);
      comm.recv(got, previous);
    } else {
      comm.recv(got, previous);
      comm.send(mine, next);
    }
    comm.sendrecv(mine, next, swapped, previous);
    comm.sendrecv(mine, next, streamed, previous, stream);
    hocket::group([&] {
      comm.send(mine, next, stream);
      comm.recv(grouped, previous, stream);
    });
    comm.barrier(stream);
    stream.synchronize();
    comm.barrier();
    for (const Ints& value : {got, swapped, streamed, grouped})
      EXPECT_EQ(value, (Ints{previous, 5}));
  });
}

TEST(Cpp, every_kind_of_contiguous_range_is_a_buffer) {
  job::run(2, [](Communicator& comm) {
    std::vector<float> vector(4, 1);
    std::array<float, 4> array{1, 1, 1, 1};
    float plain[4] = {1, 1, 1, 1};
    std::vector<float> under(8, 1);
    const std::span<float> span(under.data(), 4);
    const std::span<float, 4> fixed(under.data() + 4, 4);
    hocket::Memory<float> memory(4);
    std::fill(memory.begin(), memory.end(), 1.0f);
    const auto twice = [&comm](auto&& data) {
      comm.all_reduce(data, hocketSum);
      for (const float x : data) EXPECT_EQ(2, x);
    };
    twice(vector), twice(array), twice(plain), twice(span), twice(fixed), twice(memory);
    comm.all_reduce(std::span(under), hocketSum);  // a view need not have a name
    EXPECT_EQ(std::vector<float>(8, 4), under);

    // Any kind of input, const too, with any kind of output.
    const std::vector<float>& const_vector = vector;
    const std::span<const float> const_span(vector);
    const std::array<float, 4> const_array = array;
    const hocket::Memory<float>& const_memory = memory;
    const auto into = [&](auto&& out) {
      comm.all_reduce(const_vector, out, hocketMax);
      comm.all_reduce(const_span, out, hocketMax);
      comm.all_reduce(const_array, out, hocketMax);
      comm.all_reduce(const_memory, out, hocketMax);
      comm.all_reduce(std::span(vector), out, hocketMax);
      for (const float x : out) EXPECT_EQ(2, x);
    };
    float out[4];
    into(out), into(std::span(out)), into(std::span<float, 4>(out)), into(array), into(memory);

    std::string text = comm.rank() == 0 ? "hello" : "-----";
    comm.broadcast(text, 0);
    EXPECT_EQ("hello", text);
  });
}

/// Moves elements of a type in every way.
template <typename T>
void move(Communicator& comm) {
  const T mine[2] = {static_cast<T>(comm.rank() + 1), static_cast<T>(7)};
  T all[4] = {}, got[2] = {};
  comm.all_gather(mine, all);
  EXPECT_TRUE(all[0] == static_cast<T>(1) && all[2] == static_cast<T>(2) &&
              all[3] == static_cast<T>(7));
  comm.broadcast(all, 0);
  comm.broadcast(mine, got, 1);
  EXPECT_TRUE(got[0] == static_cast<T>(2));
  comm.sendrecv(mine, 1 - comm.rank(), got, 1 - comm.rank());
  EXPECT_TRUE(got[0] == static_cast<T>(2 - comm.rank()));
}

/// Reduces them too.
template <typename T>
void reduce(Communicator& comm) {
  move<T>(comm);
  const T mine[2] = {static_cast<T>(comm.rank() + 1), static_cast<T>(7)};
  T out[2] = {}, part[1] = {};
  comm.all_reduce(mine, out, hocketMax);
  EXPECT_TRUE(out[0] == static_cast<T>(2) && out[1] == static_cast<T>(7));
  comm.reduce_scatter(mine, part, hocketMin);
  EXPECT_TRUE(part[0] == static_cast<T>(comm.rank() == 0 ? 1 : 7));
  EXPECT_TRUE(comm.all_reduce(mine[0], hocketMax) == static_cast<T>(2));
}

TEST(Cpp, every_element_type_is_moved_and_reduced) {
  job::run(2, [](Communicator& comm) {
    reduce<char>(comm), reduce<signed char>(comm), reduce<unsigned char>(comm);
    reduce<int>(comm), reduce<unsigned>(comm), reduce<long>(comm), reduce<unsigned long>(comm);
    reduce<long long>(comm), reduce<unsigned long long>(comm);
    reduce<std::int8_t>(comm), reduce<std::uint8_t>(comm), reduce<std::int32_t>(comm);
    reduce<std::uint32_t>(comm), reduce<std::int64_t>(comm), reduce<std::uint64_t>(comm);
    reduce<short>(comm), reduce<std::uint16_t>(comm);
    reduce<float>(comm), reduce<double>(comm);
    // Small positive numbers are ordered as their bits are.
    reduce<hocket::Float16>(comm), reduce<hocket::Bfloat16>(comm);
    reduce<hocket::Float8e4m3>(comm), reduce<hocket::Float8e5m2>(comm);
    move<std::byte>(comm);
#ifdef HOCKET_HAS_FLOAT16
    reduce<_Float16>(comm);
#endif
#ifdef HOCKET_HAS_BFLOAT16
    reduce<__bf16>(comm);
#endif
#ifdef __STDCPP_FLOAT16_T__
    reduce<std::float16_t>(comm);
#endif
#ifdef __STDCPP_BFLOAT16_T__
    reduce<std::bfloat16_t>(comm);
#endif
  });
  static_assert(hocket::datatype_of<std::byte> == hocketUint8);
  static_assert(hocket::datatype_of<const long long> == hocketInt64);
  static_assert(!hocket::Reducible<std::byte> && hocket::Element<std::byte>);
  static_assert(!hocket::Element<bool> && !hocket::Element<int*> && !hocket::Element<wchar_t> &&
                !hocket::Element<long double>);
}

/// bfloat16 of a program's own: the upper half of a float.
struct Brain {
  std::uint16_t bits;
};

}  // namespace

template <>
struct hocket::DatatypeOf<Brain> {
  static constexpr hocketDataType_t value = hocketBfloat16;
};

namespace {

TEST(Cpp, a_programs_own_type_takes_part) {
  job::run(2, [](Communicator& comm) {
    std::vector<Brain> data(3, Brain{0x3f80});  // 1.0
    comm.all_reduce(data, hocketSum);
    for (const Brain& x : data) EXPECT_EQ(0x4000, x.bits);  // 2.0
    EXPECT_EQ(0x4000, comm.all_reduce(Brain{0x3f80}, hocketSum).bits);
  });
}

TEST(Cpp, wrong_sizes_are_named_and_nothing_happens) {
  job::run(2, [](Communicator& comm) {
    const Ints three(3), five(5);
    Ints four(4), seven(7), also_seven(7);
    using hocket::InvalidArgument;
    const auto says = [](const char* operation, const char* one, const char* other, auto body) {
      const auto error = job::thrown_by<InvalidArgument>(body);
      EXPECT_STREQ(operation, error.operation());
      EXPECT_EQ(hocketInvalidArgument, error.code());
      EXPECT_EQ(-1, error.culprit());
      for (const char* words : {operation, one, other}) {
        EXPECT_TRUE(job::has(error, words)) << words << " is not in: " << error.what();
      }
    };
    says("hocketAllReduce", "3 elements", "4 elements",
         [&] { comm.all_reduce(three, four, hocketSum); });
    says("hocketAllGather", "3 elements", "4 elements", [&] { comm.all_gather(three, four); });
    says("hocketAllGather", "3 elements", "7 elements", [&] { comm.all_gather(three, seven); });
    says("hocketAllGather", "7 elements", "of 2", [&] { comm.all_gather(seven); });
    says("hocketReduceScatter", "5 elements", "4 elements",
         [&] { comm.reduce_scatter(five, four, hocketSum); });
    says("hocketReduceScatter", "7 elements", "of 2",
         [&] { comm.reduce_scatter(seven, hocketSum); });
    says("hocketAlltoAll", "3 elements", "4 elements", [&] { comm.all_to_all(three, four); });
    says("hocketAlltoAll", "7 elements", "of 2", [&] { comm.all_to_all(also_seven, seven); });
    const std::vector<std::size_t> counts{3, 3}, one{3}, twos{2, 2};
    says("hocketAllGatherV", "4 elements", "block 1",
         [&] { comm.all_gather(three, four, counts); });
    says("hocketAllGatherV", "1 counts", "2 blocks", [&] { comm.all_gather(three, four, one); });
    says("hocketAllGatherV", "1 displacements", "2 blocks", [&] {
      comm.all_gather(three, seven, {counts, one});
    });
    says("hocketReduceScatterV", "displacements", "follow one another", [&] {
      comm.reduce_scatter(five, four, {twos, twos}, hocketSum);
    });
    says("hocketReduceScatterV", "2 elements", "4 elements",
         [&] { comm.reduce_scatter(five, four, twos, hocketSum); });
    says("hocketAlltoAllV", "5 elements", "the input",
         [&] { comm.all_to_all(five, counts, seven, twos); });
    says("hocketAlltoAllV", "4 elements", "the output",
         [&] { comm.all_to_all(five, twos, four, counts); });
    says("hocketAllGatherV", "the data has 4", "block 1",
         [&] { comm.all_gather(four, hocket::Blocks(counts)); });
    says("hocketReduceScatterV", "the data has 4", "block 1",
         [&] { comm.reduce_scatter(four, hocket::Blocks(counts), hocketSum); });
    says("hocketReduceScatterV", "displacements", "follow one another", [&] {
      comm.reduce_scatter(four, {twos, twos}, hocketSum);
    });
    const int self = comm.rank();
    says("hocketGather", "7 elements", "of 2", [&] { comm.gather(seven, self); });
    says("hocketScatter", "7 elements", "of 2", [&] { comm.scatter(seven, self); });
    says("hocketGatherV", "the data has 4", "block 1",
         [&] { comm.gather(four, hocket::Blocks(counts), self); });
    says("hocketScatterV", "the data has 4", "block 1",
         [&] { comm.scatter(four, hocket::Blocks(counts), self); });
    says("hocketReduce", "3 elements", "4 elements",
         [&] { comm.reduce(three, four, hocketSum, self); });
    says("hocketGather", "3 elements", "4 elements", [&] { comm.gather(three, four, self); });
    says("hocketGatherV", "4 elements", "block 1", [&] { comm.gather(three, four, counts, self); });
    says("hocketScatter", "5 elements", "4 elements", [&] { comm.scatter(five, four, self); });
    says("hocketScatterV", "5 elements", "block 1",
         [&] { comm.scatter(five, counts, four, self); });
    if (comm.rank() == 1) {
      says("hocketBroadcast", "3 elements", "4 elements", [&] { comm.broadcast(three, four, 1); });
    }
    EXPECT_EQ(2, comm.all_reduce(1, hocketSum));
  });
}

}  // namespace

// The streams and events of hocket.hpp.
#include <latch>
#include <memory>

#include "hpp/job.h"

namespace {

using hocket::caller_thread;
using hocket::Communicator;
using hocket::Event;
using hocket::Stream;
using Ints = std::vector<int>;

TEST(CppStream, an_event_is_the_future_of_what_was_put_on_the_stream_before) {
  std::latch submitted(1);
  job::run(2, [&](Communicator& comm) {
    Stream stream = Stream::create();
    EXPECT_TRUE(stream.done());
    Ints data(4, 1);
    if (comm.rank() == 1) submitted.wait();  // rank 0 has asked whether it is done
    comm.all_reduce(data, hocketSum, stream);
    const Event reduced = stream.record();
    if (comm.rank() == 0) {
      EXPECT_FALSE(reduced.done());
      EXPECT_FALSE(stream.done());
      submitted.count_down();
    }
    reduced.wait();
    EXPECT_TRUE(reduced.done());
    EXPECT_EQ(Ints(4, 2), data);
  });
}

TEST(CppStream, runs_a_function_between_its_operations) {
  job::run(2, [](Communicator& comm) {
    Stream stream = Stream::create();
    Ints data(4, 1), seen;
    comm.all_reduce(data, hocketSum, stream);
    stream.run([&data, &seen, keep = std::make_unique<int>(10)] {
      for (int& each : data) seen.push_back(each++ + *keep);
    });
    comm.all_reduce(data, hocketSum, stream);
    stream.synchronize();
    EXPECT_EQ(Ints(4, 12), seen);
    EXPECT_EQ(Ints(4, 6), data);
  });
}

TEST(CppStream, waits_for_another_streams_event) {
  job::run(2, [](Communicator& comm) {
    Communicator other = comm.split(0);
    Stream first = Stream::create(), second = Stream::create();
    Event event = Event::create();
    EXPECT_TRUE(event.done()) << "never recorded";
    event.wait();
    Ints data(10'000, 1);
    for (int step = 0; step < 8; ++step) {  // sums and products of 2 ranks: x -> 2 x, x -> x * x
      Stream& mine = step % 2 == 0 ? first : second;
      (step % 2 == 0 ? comm : other).all_reduce(data, step % 2 == 0 ? hocketSum : hocketMax, mine);
      event.record(mine);
      (step % 2 == 0 ? second : first).wait(event);
    }
    event.wait();
    EXPECT_EQ(Ints(10'000, 16), data);
    event.record(caller_thread);
    EXPECT_TRUE(event.done());
  });
}

TEST(CppStream, that_was_moved_from_is_refused) {
  job::run(2, [](Communicator& comm) {
    Stream stream = Stream::create();
    Stream moved = std::move(stream);
    Ints data(4, 1);
    // NOLINTBEGIN: what a move leaves is promised
    job::thrown_by<hocket::InvalidUsage>([&] { comm.all_reduce(data, hocketSum, stream); });
    job::thrown_by<hocket::InvalidUsage>([&] { stream.synchronize(); });
    job::thrown_by<hocket::InvalidUsage>([&] { stream.record(); });
    job::thrown_by<hocket::InvalidUsage>([&] { stream.wait(Event::create()); });
    job::thrown_by<hocket::InvalidUsage>([&] { EXPECT_TRUE(stream.done()); });
    // NOLINTEND
    comm.all_reduce(data, hocketSum, moved);
    stream = std::move(moved);
    stream.synchronize();
    EXPECT_EQ(Ints(4, 2), data);

    Event event = stream.record();
    const Event kept = std::move(event);
    kept.wait();
    job::thrown_by<hocket::InvalidArgument>([&] { event.wait(); });  // NOLINT
  });
  static_assert(!std::is_default_constructible_v<Stream>, "the caller's thread, or a new one?");
  static_assert(!std::is_convertible_v<std::nullptr_t, hocket::StreamRef>);
}

TEST(CppStream, events_outlive_their_stream) {
  job::run(2, [](Communicator& comm) {
    Ints data(4, 1);
    const Event reduced = [&] {
      Stream stream = Stream::create();
      comm.all_reduce(data, hocketSum, stream);
      return stream.record();
    }();
    reduced.wait();
    EXPECT_EQ(Ints(4, 2), data);
  });
}

}  // namespace

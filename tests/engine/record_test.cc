// The record of operations: what it keeps, and that a reader beside the writer sees whole entries.
#include "engine/record.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/limits.h"
#include "sanitized.h"

namespace hocket::internal {
namespace {

Signature call_of(std::uint64_t number) {
  Signature signature;
  signature.count = 3 * number;
  signature.sequence = number;
  signature.root = static_cast<std::int32_t>(number % 1000);
  signature.collective = Collective::broadcast;
  signature.dtype = Dtype::float16;
  signature.op = Op::max;
  signature.flags = 1;
  return signature;
}

const Program first_program, other_program;

OperationRecord::Id begin(OperationRecord& record, std::uint64_t number, Nanos when = 0) {
  return record.begin(call_of(number), -1, number + 5, &first_program, when);
}

TEST(Record, keeps_the_latest_operations) {
  OperationRecord record(3, nullptr);  // rounded up to 4
  EXPECT_TRUE(record.entries().empty());
  for (std::uint64_t number = 1; number <= 10; ++number) {
    record.end(begin(record, number), Code::ok, &first_program, 0);
  }
  const std::vector<RecordEntry> entries = record.entries();
  ASSERT_EQ(entries.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(entries[i].id, 7 + i);
    EXPECT_EQ(entries[i].signature, call_of(7 + i));
    EXPECT_EQ(entries[i].sequence, 12 + i);
    EXPECT_EQ(entries[i].program, &first_program);
    EXPECT_EQ(entries[i].peer, -1);
    EXPECT_TRUE(entries[i].ended);
  }
}

TEST(Record, of_no_operations_keeps_none) {
  OperationRecord record(0, nullptr);
  const OperationRecord::Id id = begin(record, 1);
  record.began(id, 1);
  record.waits(id, {}, 2);
  record.end(id, Code::ok, &first_program, 3);
  EXPECT_TRUE(record.entries().empty());
}

TEST(Record, has_the_times_that_are_known_and_no_time_of_an_earlier_operation) {
  OperationRecord record(1, nullptr);
  const OperationRecord::Id timed = begin(record, 1);
  EXPECT_EQ(record.entries()[0].begin, 0);
  record.began(timed, 100);
  record.began(timed, 150);  // the first time counts
  record.admitted(timed, 200);
  EXPECT_FALSE(record.entries()[0].ended);
  record.end(timed, Code::timeout, &other_program, 300);
  RecordEntry entry = record.entries()[0];
  EXPECT_EQ(entry.begin, 100);
  EXPECT_EQ(entry.admitted, 200);
  EXPECT_EQ(entry.end, 300);
  EXPECT_EQ(entry.code, Code::timeout);
  EXPECT_EQ(entry.program, &other_program);

  const OperationRecord::Id later = begin(record, 2);
  record.end(timed, Code::aborted, &other_program, 400);  // its slot is taken: changes nothing
  entry = record.entries()[0];
  EXPECT_EQ(entry.id, later);
  EXPECT_FALSE(entry.ended);
  EXPECT_EQ(entry.begin, 0);
  EXPECT_EQ(entry.admitted, 0);
  EXPECT_EQ(entry.end, 0);
  EXPECT_EQ(entry.code, Code::ok);

  record.began(later, 500);
  record.add_ended(call_of(3), -1, 8, &other_program);
  entry = record.entries()[0];
  EXPECT_EQ(entry.id, later + 1);
  EXPECT_EQ(entry.signature, call_of(3));
  EXPECT_EQ(entry.sequence, 8U);
  EXPECT_EQ(entry.program, &other_program);
  EXPECT_EQ(entry.peer, -1);
  EXPECT_TRUE(entry.ended);
  EXPECT_EQ(entry.begin, 0);
  EXPECT_EQ(entry.end, 0);
}

TEST(Record, names_the_ranks_that_an_operation_waits_for) {
  OperationRecord record(2, nullptr);
  const OperationRecord::Id id =
      record.begin({.count = 1, .collective = Collective::send, .operator_name = {}}, max_ranks - 1,
                   1, &first_program, 10);
  EXPECT_EQ(record.entries()[0].peer, max_ranks - 1);
  EXPECT_EQ(record.entries()[0].looked, 0);
  const std::vector<int> ranks = {9, 1, 8, 2, max_ranks - 1, 3, 6, 4, 5, 0};
  record.waits(id, ranks, 20);
  RecordEntry entry = record.entries()[0];
  EXPECT_EQ(entry.looked, 20);
  EXPECT_EQ(entry.waiting, ranks.size());
  for (std::size_t i = 0; i < entry.waits_for.size(); ++i) EXPECT_EQ(entry.waits_for[i], ranks[i]);
  record.waits(id, std::vector<int>{7}, 30);
  entry = record.entries()[0];
  EXPECT_EQ(entry.looked, 30);
  EXPECT_EQ(entry.waiting, 1U);
  EXPECT_EQ(entry.waits_for[0], 7);
}

TEST(Record, is_read_whole_beside_its_writer) {
  OperationRecord record(2, nullptr);
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::uint64_t number = 1; !stop.load(std::memory_order_relaxed); ++number) {
      const auto when = static_cast<Nanos>(number);
      const OperationRecord::Id id = begin(record, number, when);
      record.admitted(id, when + 1);
      for (Nanos look = 0; look < 3; ++look) {
        const auto rank = static_cast<int>(number % 1000 + static_cast<std::uint64_t>(look));
        record.waits(id, std::vector<int>(number % 9, rank), when + look);
      }
      record.end(id, Code::ok, &first_program, when + 2);
    }
  });
  std::uint64_t changes = 0, newest = 0;  // the readings that found another entry
  while (changes < (tests::sanitized ? 500 : 2'000)) {
    std::uint64_t before = 0;
    for (const RecordEntry& entry : record.entries()) {
      ASSERT_GT(entry.id, before);
      before = entry.id;
      ASSERT_EQ(entry.signature, call_of(entry.id));
      ASSERT_EQ(entry.sequence, entry.id + 5);
      const auto when = static_cast<Nanos>(entry.id);
      ASSERT_EQ(entry.begin, when);
      ASSERT_TRUE(entry.admitted == 0 || entry.admitted == when + 1) << entry.admitted;
      ASSERT_TRUE(entry.end == 0 || entry.end == when + 2) << entry.end;
      if (entry.looked != 0) {
        ASSERT_GE(entry.looked, when);
        ASSERT_LE(entry.looked, when + 2);
        ASSERT_EQ(entry.waiting, entry.id % 9);
        for (std::size_t i = 0; i < std::min<std::size_t>(entry.waiting, 8); ++i) {
          ASSERT_EQ(entry.waits_for[i] - (entry.looked - when), entry.id % 1000);
        }
      }
    }
    changes += before > newest;
    newest = std::max(before, newest);
  }
  stop = true;
  writer.join();
}

}  // namespace
}  // namespace hocket::internal

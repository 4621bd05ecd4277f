// Operators and datatypes of the program: what is refused, and what lives how long.
#include <hocket/hocket.h>

#include <functional>
#include <numeric>

#include "matrix/ranks.h"

namespace {

using ranks::Rank;

void add(void* context, const void* in, void* inout, size_t count, hocketDataType_t) {
  ++*static_cast<int*>(context);
  const auto* a = static_cast<const std::int32_t*>(in);
  auto* b = static_cast<std::int32_t*>(inout);
  for (size_t i = 0; i < count; ++i) b[i] += a[i];
}

void add_fours(void* context, const void* in, void* inout, size_t count, hocketDataType_t type) {
  add(context, in, inout, 4 * count, type);
}

int calls = 0;
std::int32_t x[64];

hocketRedOp_t made(hocketComm_t comm, int* context = &calls) {
  hocketRedOp_t op = hocketSum;
  EXPECT_HOCKET(hocketRedOpCreateUser(&op, add, context, 1, "add", comm));
  return op;
}

hocketDataType_t contiguous(int n, hocketDataType_t base) {
  hocketDataType_t type = hocketInt8;
  EXPECT_HOCKET(hocketTypeCreateContiguous(&type, n, base));
  return type;
}

struct WrongOperator {
  const char* what;
  hocketResult_t expected;
  const char* named;  // words of the sentence
  std::function<hocketResult_t(hocketComm_t)> call;
};
constexpr hocketResult_t invalid = hocketInvalidArgument;

std::vector<WrongOperator> wrong_operators() {
  static hocketRedOp_t op = hocketSum;
  const auto create = [](hocketRedOp_t* out, hocketUserFunction_t fn, const char* name) {
    return [=](hocketComm_t c) { return hocketRedOpCreateUser(out, fn, nullptr, 1, name, c); };
  };
  return {
      {"no place for an operator", invalid, "hocketRedOpCreateUser: op is NULL",
       create(nullptr, add, "a")},
      {"no function", invalid, "hocketRedOpCreateUser: fn is NULL", create(&op, nullptr, "a")},
      {"no name", invalid, "name is NULL", create(&op, add, nullptr)},
      {"an empty name", invalid, "name is empty", create(&op, add, "")},
      {"a long name", invalid, "name has more than 18 characters",
       create(&op, add, "a name of 19 chars.")},
      {"a name that is not printable", invalid, "not printable ASCII", create(&op, add, "a\n")},
      {"an operator of no communicator", invalid, "the communicator is NULL",
       [](hocketComm_t) { return hocketRedOpCreateUser(&op, add, nullptr, 1, "a", nullptr); }},
      {"an operator that was destroyed", invalid, "was destroyed before",
       [](hocketComm_t c) {
         const hocketRedOp_t gone = made(c);
         EXPECT_HOCKET(hocketRedOpDestroy(gone, c));
         return hocketAllReduce(x, x, 1, hocketInt32, gone, c, nullptr);
       }},
      {"an operator that is destroyed twice", invalid, "was destroyed before",
       [](hocketComm_t c) {
         const hocketRedOp_t gone = made(c);
         EXPECT_HOCKET(hocketRedOpDestroy(gone, c));
         return hocketRedOpDestroy(gone, c);
       }},
      {"an operator that was never made", invalid, "hocketReduce: operator 123456789 does not",
       [](hocketComm_t c) {
         return hocketReduce(x, x, 1, hocketInt32, static_cast<hocketRedOp_t>(123456789), 0, c,
                             nullptr);
       }},
      {"the end of an operator of hocket", invalid, "operator 0 was not made by",
       [](hocketComm_t c) { return hocketRedOpDestroy(hocketSum, c); }},
      {"the end of no operator", invalid, "operator 2147483647 does not exist",
       [](hocketComm_t c) { return hocketRedOpDestroy(hocketMaxRedOp, c); }},
  };
}

std::vector<WrongOperator> wrong_datatypes() {
  static hocketDataType_t type = hocketInt8;
  const auto create = [](hocketDataType_t* out, int n, int base) {
    return [=](hocketComm_t) {
      return hocketTypeCreateContiguous(out, n, static_cast<hocketDataType_t>(base));
    };
  };
  return {
      {"no place for a datatype", invalid, "hocketTypeCreateContiguous: type is NULL",
       create(nullptr, 1, hocketInt8)},
      {"no elements", invalid, "n is 0", create(&type, 0, hocketInt8)},
      {"fewer than no elements", invalid, "n is -1", create(&type, -1, hocketInt8)},
      {"a base that does not exist", invalid, "datatype 12 does not exist", create(&type, 1, 12)},
      {"an element of 2 GiB", invalid, "more than 2147483647 bytes",
       create(&type, 1 << 29, hocketInt32)},
      {"an element of elements of 2 GiB", invalid, "more than 2147483647 bytes",
       [](hocketComm_t) {
         return hocketTypeCreateContiguous(&type, 1 << 20, contiguous(1 << 20, hocketFloat64));
       }},
      {"a datatype that was destroyed", invalid, "was destroyed before",
       [](hocketComm_t c) {
         const hocketDataType_t gone = contiguous(3, hocketInt32);
         EXPECT_HOCKET(hocketTypeDestroy(gone));
         EXPECT_EQ(invalid, hocketTypeDestroy(gone));
         return hocketBroadcast(x, x, 1, gone, 0, c, nullptr);
       }},
      {"the end of a datatype of hocket", invalid, "datatype 100 was not made by",
       [](hocketComm_t) { return hocketTypeDestroy(hocketInt16); }},
      {"the size of no datatype", invalid, "hocketTypeSize: datatype 2147483647 does not exist",
       [](hocketComm_t) {
         size_t bytes = 0;
         return hocketTypeSize(hocketMaxDataType, &bytes);
       }},
      {"no place for a size", invalid, "bytes is NULL",
       [](hocketComm_t) { return hocketTypeSize(hocketInt8, nullptr); }},
      {"elements beyond memory", invalid, "count is 4611686018427387904: so many elements",
       [](hocketComm_t c) {
         return hocketAllReduce(x, x, std::size_t{1} << 62, contiguous(4, hocketInt8), hocketSum, c,
                                nullptr);
       }},
      {"no buffer for elements", invalid, "recvbuff is NULL, but count is 2",
       [](hocketComm_t c) {
         return hocketAllReduce(x, nullptr, 2, contiguous(3, hocketInt32), hocketSum, c, nullptr);
       }},
      {"a bitwise operator of elements of floats", invalid, "and is bitwise: float32",
       [](hocketComm_t c) {
         return hocketAllReduce(x, x, 2, contiguous(3, hocketFloat32), hocketAnd, c, nullptr);
       }},
      {"blocks of elements that overlap", invalid, "overlap in recvbuff",
       [](hocketComm_t c) {
         const std::size_t counts[] = {2, 2}, displs[] = {0, 1};
         return hocketAllGatherV(x + 32, 2, x, counts, displs, contiguous(3, hocketInt32), c,
                                 nullptr);
       }},
      {"blocks of elements beyond memory", invalid, "so many elements have more bytes",
       [](hocketComm_t c) {
         const std::size_t counts[] = {1, 1}, displs[] = {0, std::size_t{1} << 62};
         return hocketAllGatherV(x + 32, 1, x, counts, displs, contiguous(4, hocketInt32), c,
                                 nullptr);
       }},
  };
}

TEST(Operators, and_datatypes_that_are_wrong_are_named_and_change_nothing) {
  ranks::run_ranks(2, [](Rank& self) {
    if (self.rank == 0) {
      for (const auto& table : {wrong_operators(), wrong_datatypes()}) {
        for (const WrongOperator& wrong : table) {
          EXPECT_EQ(wrong.expected, wrong.call(self.comm)) << wrong.what;
          const std::string text = hocketGetLastError(nullptr);
          EXPECT_NE(std::string::npos, text.find(wrong.named)) << wrong.what << ": " << text;
        }
      }
    }
    int sum = 1;
    EXPECT_HOCKET(hocketAllReduce(&sum, &sum, 1, hocketInt32, hocketSum, self.comm, nullptr));
    EXPECT_EQ(2, sum);
  });
}

TEST(Operators, belong_to_one_communicator_and_end_with_it) {
  ranks::run_ranks(2, [](Rank& self) {
    hocketComm_t part = nullptr;
    ASSERT_HOCKET(hocketCommSplit(self.comm, 0, 0, &part, nullptr));
    int mine = 0;
    const hocketRedOp_t op = made(part, &mine);
    std::int32_t one = 1;
    EXPECT_EQ(invalid, hocketAllReduce(&one, &one, 1, hocketInt32, op, self.comm, nullptr));
    EXPECT_NE(std::string::npos,
              std::string(hocketGetLastError(nullptr)).find("was made for another communicator"));
    EXPECT_EQ(invalid, hocketRedOpDestroy(op, self.comm));
    EXPECT_HOCKET(hocketAllReduce(&one, &one, 1, hocketInt32, op, part, nullptr));
    EXPECT_EQ(2, one);
    EXPECT_HOCKET(hocketCommDestroy(part));
    EXPECT_EQ(invalid, hocketAllReduce(&one, &one, 1, hocketInt32, op, self.comm, nullptr));
    EXPECT_NE(std::string::npos,
              std::string(hocketGetLastError(nullptr)).find("was destroyed before"));
  });
}

TEST(Operators, and_datatypes_outlive_their_handles_while_operations_use_them) {
  ranks::run_ranks(2, [](Rank& self) {
    hocketStream_t stream = nullptr;
    ASSERT_HOCKET(hocketStreamCreate(&stream));
    int mine = 0;
    hocketRedOp_t op = hocketSum;
    EXPECT_HOCKET(hocketRedOpCreateUser(&op, add_fours, &mine, 0, "add fours", self.comm));
    const hocketDataType_t type = contiguous(4, hocketInt32);
    std::vector<std::int32_t> data(400, self.rank + 1);
    // An operation that waits for the other rank comes before.
    EXPECT_HOCKET(hocketBarrier(self.comm, stream));
    EXPECT_HOCKET(hocketAllReduce(data.data(), data.data(), 100, type, op, self.comm, stream));
    EXPECT_HOCKET(hocketRedOpDestroy(op, self.comm));
    EXPECT_HOCKET(hocketTypeDestroy(type));
    EXPECT_HOCKET(hocketStreamSynchronize(stream));
    EXPECT_EQ(std::vector<std::int32_t>(400, 3), data);
    EXPECT_HOCKET(hocketStreamDestroy(stream));
  });
}

struct Nested {
  hocketComm_t comm, other;
  int refused = 0;
};

void call_hocket(void* context, const void*, void* inout, size_t, hocketDataType_t) {
  auto* const nested = static_cast<Nested*>(context);
  void* memory = nullptr;
  hocketStream_t stream = nullptr;
  for (const hocketResult_t result :
       {hocketAllReduce(inout, inout, 1, hocketInt32, hocketSum, nested->comm, nullptr),
        hocketAllReduce(inout, inout, 1, hocketInt32, hocketSum, nested->other, nullptr),
        hocketGroupStart(), hocketMemAlloc(&memory, 8), hocketStreamCreate(&stream),
        hocketCommAbort(nested->comm), hocketCommDestroy(nested->other)}) {
    const std::string text = hocketGetLastError(nullptr);
    nested->refused += result == hocketInvalidUsage &&
                       text.find("an operator of the program runs") != std::string::npos;
  }
}

TEST(Operators, that_call_hocket_are_refused_and_nothing_changes) {
  ranks::run_ranks(2, [](Rank& self) {
    Nested nested{self.comm, nullptr};
    ASSERT_HOCKET(hocketCommSplit(self.comm, 0, 0, &nested.other, nullptr));
    hocketStream_t stream = nullptr;
    ASSERT_HOCKET(hocketStreamCreate(&stream));
    hocketRedOp_t op = hocketSum;
    EXPECT_HOCKET(hocketRedOpCreateUser(&op, call_hocket, &nested, 1, "nested", self.comm));
    for (hocketStream_t on : {hocketStream_t{}, stream}) {
      nested.refused = 0;
      std::int32_t value = self.rank;
      EXPECT_HOCKET(hocketAllReduce(&value, &value, 1, hocketInt32, op, self.comm, on));
      EXPECT_HOCKET(hocketStreamSynchronize(on));
      std::int32_t most = nested.refused;
      EXPECT_HOCKET(hocketAllReduce(&most, &most, 1, hocketInt32, hocketMax, self.comm, nullptr));
      EXPECT_EQ(7, most) << "of the rank that folded";
    }
    EXPECT_HOCKET(hocketBarrier(nested.other, nullptr));
    EXPECT_HOCKET(hocketCommDestroy(nested.other));
    EXPECT_HOCKET(hocketStreamDestroy(stream));
  });
}

TEST(Operators, of_hocket_work_on_the_elements_of_a_datatypes_base) {
  ranks::run_ranks(3, [](Rank& self) {
    const hocketDataType_t three = contiguous(3, hocketInt32), six = contiguous(2, three);
    size_t bytes = 0;
    EXPECT_HOCKET(hocketTypeSize(six, &bytes));
    EXPECT_EQ(24u, bytes);
    EXPECT_HOCKET(hocketTypeSize(hocketUint16, &bytes));
    EXPECT_EQ(2u, bytes);
    std::vector<std::int32_t> data(12);
    std::iota(data.begin(), data.end(), self.rank);
    // Two ranks with the datatype, and one that gives its elements, make the same call.
    EXPECT_HOCKET(hocketAllReduce(data.data(), data.data(), self.rank == 1 ? 12 : 2,
                                  self.rank == 1 ? hocketInt32 : six, hocketSum, self.comm,
                                  nullptr));
    for (int i = 0; i < 12; ++i) EXPECT_EQ(3 * i + 3, data[static_cast<std::size_t>(i)]);
    EXPECT_HOCKET(hocketTypeDestroy(six));
    EXPECT_HOCKET(hocketTypeDestroy(three));
  });
}

TEST(Datatypes, are_moved_whole_by_collectives_and_messages) {
  ranks::run_ranks(2, [](Rank& self) {
    const hocketDataType_t type = contiguous(5, hocketInt16);
    const int rank = self.rank;
    std::vector<std::int16_t> own(10), all(30), expected;
    std::iota(own.begin(), own.end(), static_cast<std::int16_t>(100 * rank));
    EXPECT_HOCKET(hocketAllGather(own.data(), all.data(), 2, type, self.comm, nullptr));
    EXPECT_EQ(3, all[3]);
    EXPECT_EQ(103, all[13]);
    // Rank 0 has one element, rank 1 two, and their blocks lie in the other order, with a gap.
    const std::size_t counts[] = {1, 2}, displs[] = {5, 1};
    std::fill(all.begin(), all.end(), std::int16_t{-1});
    EXPECT_HOCKET(hocketAllGatherV(own.data(), counts[rank], all.data(), counts, displs, type,
                                   self.comm, nullptr));
    expected.assign(30, -1);
    for (int i = 0; i < 5; ++i)
      expected[static_cast<std::size_t>(25 + i)] = static_cast<std::int16_t>(i);
    for (int i = 0; i < 10; ++i)
      expected[static_cast<std::size_t>(5 + i)] = static_cast<std::int16_t>(100 + i);
    EXPECT_EQ(expected, all);
    std::vector<std::int16_t> got(10);
    EXPECT_HOCKET(hocketGroupStart());
    EXPECT_HOCKET(hocketSend(own.data(), 2, type, 1 - rank, self.comm, nullptr));
    EXPECT_HOCKET(hocketRecv(got.data(), 2, type, 1 - rank, self.comm, nullptr));
    EXPECT_HOCKET(hocketGroupEnd());
    EXPECT_EQ(100 * (1 - rank) + 9, got[9]);
    EXPECT_HOCKET(hocketTypeDestroy(type));
  });
}

}  // namespace

// The messages between hocket-run and its agents.
#include "message.h"

#include <gtest/gtest.h>

#include <functional>

namespace hocket::internal::launch_test {
namespace {

using launch::Counted;
using launch::CountRequest;
using launch::Part;
using launch::StartRequest;

StartRequest example() {
  StartRequest request;
  request.here = {0, 2, 5};
  request.ranks = 6;
  request.tag_output = true;
  request.pty = true;
  request.terminal_size = {24, 300};
  request.binding = {Part::core, Part::l3cache, 3, 2};
  request.show_placement = true;
  request.directory = "/tmp";
  request.programs = {{1, {"a", ""}}, {2, {"b"}}};
  request.environment = {"X=1"};
  return request;
}

TEST(StartRequest, arrives_as_it_was_sent) {
  const StartRequest sent = example();
  StartRequest got;
  ASSERT_TRUE(got.decode(sent.encode()));
  EXPECT_EQ(got.here, sent.here);
  EXPECT_EQ(got.ranks, 6);
  EXPECT_TRUE(got.pty);
  EXPECT_EQ(got.terminal_size.rows, 24);
  EXPECT_EQ(got.terminal_size.columns, 300);
  EXPECT_EQ(got.binding.to, Part::core);
  EXPECT_EQ(got.binding.spread, Part::l3cache);
  EXPECT_EQ(got.binding.cores_per_rank, 3);
  EXPECT_EQ(got.binding.ranks_per_part, 2);
  EXPECT_FALSE(got.report_bindings);
  EXPECT_TRUE(got.show_placement);
  EXPECT_EQ(got.programs[0].arguments, sent.programs[0].arguments);
  EXPECT_EQ(got.encode(), sent.encode());
}

TEST(StartRequest, that_cannot_be_is_refused) {
  const std::pair<const char*, std::function<void(StartRequest&)>> changes[] = {
      {"no rank", [](StartRequest& r) { r.here.clear(), r.programs.clear(); }},
      {"a rank twice",
       [](StartRequest& r) {
         r.here = {0, 2, 2};
       }},
      {"not in order",
       [](StartRequest& r) {
         r.here = {2, 0, 5};
       }},
      {"a negative rank", [](StartRequest& r) { r.here[0] = -1; }},
      {"a rank that the job does not have", [](StartRequest& r) { r.ranks = 5; }},
      {"ranks without a program", [](StartRequest& r) { r.programs.pop_back(); }},
      {"a program without arguments", [](StartRequest& r) { r.programs[0].arguments.clear(); }},
      {"a program without ranks", [](StartRequest& r) { r.programs[0].ranks = 0; }},
      {"an unknown part", [](StartRequest& r) { r.binding.to = static_cast<Part>(5); }},
      {"another", [](StartRequest& r) { r.binding.spread = static_cast<Part>(5); }},
      {"no core for a rank", [](StartRequest& r) { r.binding.cores_per_rank = 0; }},
      {"a negative number of ranks", [](StartRequest& r) { r.binding.ranks_per_part = -1; }},
  };
  for (const auto& [what, change] : changes) {
    StartRequest request = example();
    change(request);
    StartRequest got;
    EXPECT_FALSE(got.decode(request.encode())) << what;
  }
  const std::string whole = example().encode();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    StartRequest got;
    EXPECT_FALSE(got.decode(whole.substr(0, size))) << size;
  }
}

TEST(CountRequest, names_a_part_of_a_host) {
  CountRequest got;
  for (const Part part : {Part::core, Part::numa, Part::socket, Part::l3cache}) {
    ASSERT_TRUE(got.decode(CountRequest{part}.encode()));
    EXPECT_EQ(got.part, part);
  }
  for (const Part part : {Part::none, static_cast<Part>(5)}) {
    EXPECT_FALSE(got.decode(CountRequest{part}.encode())) << static_cast<int>(part);
  }
  EXPECT_FALSE(got.decode(""));
  EXPECT_FALSE(got.decode(CountRequest().encode() + "x"));
}

TEST(Counted, has_at_least_one_part) {
  Counted got;
  ASSERT_TRUE(got.decode(Counted{8}.encode()));
  EXPECT_EQ(got.parts, 8);
  for (const int parts : {0, -1}) EXPECT_FALSE(got.decode(Counted{parts}.encode())) << parts;
  EXPECT_FALSE(got.decode("abc"));
  EXPECT_FALSE(got.decode(Counted{8}.encode() + "x"));
}

}  // namespace
}  // namespace hocket::internal::launch_test

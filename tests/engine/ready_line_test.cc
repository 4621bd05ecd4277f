// The log line of a communicator that has been made: the figures that were measured for it.
#include "matrix/ranks.h"

namespace {

using ranks::Env;
using ranks::Rank;

/// What rank 0 of 2 logs when the communicator is made.
std::string ready_line(const char* transport) {
  const Env env{{{"HOCKET_TRANSPORT", transport}}};
  std::string found;
  const auto keep = [](int, const char* line, void* user) {
    const std::string text = line;
    if (text.find("is ready: rank 0") != text.npos) *static_cast<std::string*>(user) += text;
  };
  EXPECT_HOCKET(hocketSetLogCallback(keep, &found));
  ranks::run_ranks(2, [](Rank&) {});
  EXPECT_HOCKET(hocketSetLogCallback(nullptr, nullptr));
  return found;
}

bool names(const std::string& line, const std::string& figure) {
  return line.find("; " + figure + " ") != line.npos;
}

TEST(ReadyLine, names_each_figure_that_was_measured_and_no_other) {
  const std::string on_one_node = ready_line("shm");
  for (const char* figure :
       {"figures: caches", "memory", "operation", "flags", "peer's caches", "past peer's caches",
        "message latency", "message work", "link", "port"}) {
    EXPECT_TRUE(names(on_one_node, figure)) << figure << ": " << on_one_node;
  }
  const std::string on_two_nodes = ready_line("tcp");
  for (const char* figure :
       {"figures: caches", "memory", "message latency", "message work", "link", "port"}) {
    EXPECT_TRUE(names(on_two_nodes, figure)) << figure << ": " << on_two_nodes;
  }
  for (const char* figure : {"operation", "flags", "peer's caches"}) {
    EXPECT_FALSE(names(on_two_nodes, figure)) << figure << ": " << on_two_nodes;
  }
}

}  // namespace

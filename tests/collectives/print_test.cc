#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "plans.h"

namespace hocket::internal {
namespace {

// UPDATE_GOLDEN=1 writes the files anew; git diff shows the changes.
TEST(Print, pictures_of_four_ranks_are_as_reviewed) {
  const std::filesystem::path folder = std::filesystem::path(__FILE__).parent_path() / "golden";
  const auto compare = [&](const std::string& name, const std::vector<Plan>& plans) {
    std::string text;
    for (const Plan& plan : plans) text += print(plan) + "\n";
    const std::filesystem::path file = folder / (name + ".txt");
    if (std::getenv("UPDATE_GOLDEN") != nullptr) std::ofstream(file) << text;
    std::stringstream golden;
    golden << std::ifstream(file).rdbuf();
    EXPECT_EQ(text, golden.str()) << file;
  };
  for (const Builder& builder : group_builders()) {
    compare(name_of(builder), plans_of(builder, 4, true, 1));
  }
  compare("message", message_plans());
}

TEST(Print, shows_what_a_step_would_otherwise_hide) {
  Step step;
  step.kind = StepKind::fold;
  step.srcs = {{.buffer = Buffer::scratch, .wide = true, .block = 2, .length_block = 5},
               {.buffer = Buffer::line, .rank = 3}};
  step.dsts = {{.buffer = Buffer::output, .block = 5}};
  EXPECT_EQ(print(step), "fold s[2]w:5 + line[0]@3 -> out[5]");
  step = {};
  step.kind = StepKind::await;
  step.flag = 1;
  step.ordinal = 2;
  step.lag = 4;
  EXPECT_EQ(print(step), "await 1 #2 (4 back)");
  step = {};
  step.kind = StepKind::send;
  step.peer = 3;
  EXPECT_EQ(print(step), "send nothing -> 3");
}

}  // namespace
}  // namespace hocket::internal

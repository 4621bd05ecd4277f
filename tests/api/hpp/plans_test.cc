// Communicator::load_plan.
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>

#include "hpp/job.h"

namespace {

using hocket::Communicator;

std::string example(const std::string& name) {
  std::stringstream text;
  text << std::ifstream(std::string(SOURCE_ROOT) + "/examples/plans/" + name + ".json").rdbuf();
  return text.str();
}

/// Without HOCKET_ALGORITHM, which wins over forced plans.
class CppPlans : public testing::Test {
 protected:
  void SetUp() override {
    const char* const set = std::getenv("HOCKET_ALGORITHM");
    if (set != nullptr) before_ = set;
    ::unsetenv("HOCKET_ALGORITHM");
  }
  void TearDown() override {
    if (before_) ::setenv("HOCKET_ALGORITHM", before_->c_str(), 1);
  }

 private:
  std::optional<std::string> before_;
};

TEST_F(CppPlans, are_loaded_and_refused_by_name) {
  job::run(4, [](Communicator& comm) {
    comm.load_plan(example("cube"), true);
    std::vector<int> data(1000, comm.rank());
    comm.all_reduce(data, hocketSum);
    EXPECT_EQ(std::vector<int>(1000, 6), data);
    EXPECT_EQ("cube", comm.last_algorithm().algorithm);
    const auto error =
        job::thrown_by<hocket::InvalidArgument>([&] { comm.load_plan(example("cube")); });
    EXPECT_STREQ("hocketCommLoadPlan", error.operation());
    EXPECT_TRUE(job::has(error, "is loaded already, from a text that was given before"))
        << error.what();
    const std::string text = comm.rank() == 1 ? "{" : example("chain");
    if (comm.rank() == 1) {
      job::thrown_by<hocket::InvalidArgument>([&] { comm.load_plan(text); });
    } else {
      EXPECT_EQ(1, job::thrown_by<hocket::Mismatch>([&] { comm.load_plan(text); }).culprit());
    }
    comm.barrier();
  });
}

}  // namespace

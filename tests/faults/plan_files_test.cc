// HOCKET_PLAN_FILES: wrong files, and ranks with different files. Each rank is a process, since the
// processes have different settings.
#include <filesystem>
#include <fstream>

#include "faults/processes.h"
#include "matrix/cases.h"

namespace {

using faults::Job;
using faults::Process;
using matrix::example_plan;

std::string with_change(const std::string& name, const std::string& from, const std::string& to) {
  std::stringstream text;
  text << std::ifstream(example_plan(name)).rdbuf();
  std::string changed = text.str();
  const std::size_t at = changed.find(from);
  EXPECT_NE(std::string::npos, at) << from;
  return changed.replace(at, from.size(), to);
}

class PlanFolder {
 public:
  PlanFolder() {
    char made[] = "/tmp/hocket-plans-XXXXXX";
    EXPECT_NE(nullptr, ::mkdtemp(made));
    folder_ = made;
  }
  ~PlanFolder() { std::filesystem::remove_all(folder_); }
  PlanFolder(const PlanFolder&) = delete;
  PlanFolder& operator=(const PlanFolder&) = delete;

  std::string write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = folder_ / name;
    std::ofstream(path) << text;
    return path.string();
  }

 private:
  std::filesystem::path folder_;
};

/// The ranks join once more, each with these files, and make a call; each reports the first error.
/// A rank whose plans are those of rank 0 may have joined before it learns of one that has others.
void join_again(Job& job, const std::function<std::string(int rank)>& files_of) {
  job.start(ranks::patient_config(), [&](Process& self) {
    const hocketUniqueId id = faults::share_new_id(self);
    const ranks::Env env({{"HOCKET_PLAN_FILES", files_of(self.rank)}});
    hocketConfig_t config = ranks::patient_config();
    hocketComm_t comm = nullptr;
    hocketResult_t result = hocketCommInitRankConfig(&comm, self.ranks, id, self.rank, &config);
    if (result == hocketSuccess) result = hocketBarrier(comm, nullptr);
    self.report().result = result;
    std::snprintf(self.report().text, sizeof self.report().text, "%s", hocketGetLastError(nullptr));
    self.report().culprit = -1;
    EXPECT_HOCKET(hocketCommGetCulprit(nullptr, &self.report().culprit));
    EXPECT_HOCKET(hocketCommDestroy(comm));
    EXPECT_HOCKET(hocketBarrier(self.comm, nullptr));
  });
  job.finish();
}

void expect_text(Job& job, int rank, const std::string& part) {
  EXPECT_NE(std::string::npos, std::string(job.report(rank).text).find(part))
      << "rank " << rank << ": " << part << " in: " << job.report(rank).text;
}

class PlanFilesOfRanks : public testing::TestWithParam<const char*> {
  ranks::Env env_{{{"HOCKET_TRANSPORT", GetParam()}}};
};

TEST_P(PlanFilesOfRanks, that_are_equal_are_loaded_whatever_their_white_space) {
  const PlanFolder folder;
  const std::string spaced = folder.write("cube.json", with_change("cube", "{", "{\n\n  "));
  Job job(4);
  join_again(job, [&](int rank) { return rank == 2 ? spaced : example_plan("cube"); });
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(hocketSuccess, job.report(rank).result);
}

TEST_P(PlanFilesOfRanks, that_differ_are_an_error_that_names_hashes_and_rank) {
  const PlanFolder folder;
  const std::string other = folder.write("other.json", with_change("cube", "exchange", "change"));
  Job job(4);
  join_again(job, [&](int rank) { return rank == 2 ? other : example_plan("cube"); });
  for (int rank = 0; rank < 4; ++rank) EXPECT_NE(hocketSuccess, job.report(rank).result) << rank;
  EXPECT_EQ(hocketMismatch, job.report(2).result);
  EXPECT_EQ(2, job.report(2).culprit);
  expect_text(job, 2, "rank 0 and rank 2 have different plans of HOCKET_PLAN_FILES ('cube' ");
  expect_text(job, 2, "; and 'cube' ");
  for (const int rank : {0, 1, 3}) expect_text(job, rank, "rank 2");
}

TEST_P(PlanFilesOfRanks, that_only_some_have_are_an_error) {
  Job job(4);
  join_again(job, [&](int rank) { return rank == 0 ? "" : example_plan("chain"); });
  for (int rank = 1; rank < 4; ++rank) EXPECT_NE(hocketSuccess, job.report(rank).result) << rank;
  expect_text(job, 1, "(none; and 'chain' ");
}

TEST_P(PlanFilesOfRanks, that_serve_another_number_of_ranks_do_not_matter) {
  Job job(3);
  join_again(job, [&](int rank) { return rank == 0 ? "" : example_plan("cube"); });
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(hocketSuccess, job.report(rank).result) << job.report(rank).text;
  }
}

TEST_P(PlanFilesOfRanks, that_are_wrong_are_refused_by_step_and_the_other_ranks_are_told) {
  const PlanFolder folder;
  const std::string wrong =
      folder.write("wrong.json", with_change("cube", "{\"await\": \"send input\"},\n", ""));
  Job job(4);
  join_again(job, [&](int rank) { return rank == 1 ? wrong : example_plan("cube"); });
  EXPECT_EQ(hocketInvalidUsage, job.report(1).result);
  expect_text(job, 1, "HOCKET_PLAN_FILES: " + wrong + ": plan 'cube': the plan is wrong");
  expect_text(job, 1, "lane 'second', step 2 (finish s[1] + s[2] -> out[0]");
  for (const int rank : {0, 2, 3}) {
    EXPECT_NE(hocketSuccess, job.report(rank).result) << rank;
    expect_text(job, rank, "rank 1");
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, PlanFilesOfRanks, testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

/// hocketCommInitFromEnv of this process alone.
std::string join_alone(const ranks::Env::List& settings) {
  const ranks::Env env(settings);
  hocketComm_t comm = nullptr;
  if (hocketCommInitFromEnv(&comm, nullptr) == hocketSuccess) {
    EXPECT_HOCKET(hocketCommDestroy(comm));
    return "";
  }
  return hocketGetLastError(nullptr);
}

void expect_refusals_alone() {
  const PlanFolder folder;
  const auto refusal = [&](const std::string& path, const char* algorithm = "") {
    return join_alone({{"HOCKET_PLAN_FILES", path}, {"HOCKET_ALGORITHM", algorithm}});
  };
  const auto expect_part = [](const std::string& text, const std::string& part) {
    EXPECT_NE(std::string::npos, text.find(part)) << part << " in: " << text;
  };
  EXPECT_EQ("", refusal(example_plan("cube") + "::" + example_plan("chain")));
  expect_part(refusal(example_plan("none")), "cannot open");
  expect_part(refusal("/dev/zero"), "/dev/zero is no regular file");
  expect_part(refusal(folder.write("bad.json", "{\n  \"name\": }")),
              "bad.json: parse error at line 2");
  expect_part(refusal(folder.write("large.json", std::string(2 << 20, ' '))), "at most 1048576");
  EXPECT_EQ("", refusal(example_plan("cube"), "cube"));
  EXPECT_EQ("", refusal(example_plan("cube"), "ring"));
  expect_part(refusal(example_plan("cube"), "cub"),
              "HOCKET_ALGORITHM=cub is neither a built-in algorithm nor a plan");
  expect_part(refusal("", "cube"), "HOCKET_ALGORITHM=cube is not allowed");
}

TEST(PlanFilesOfRanks, that_cannot_be_read_are_refused_before_the_join) {
  Job job(1);
  job.start(ranks::patient_config(), [](Process&) { expect_refusals_alone(); });
  job.finish();
}

TEST(PlanFilesOfRanks, serve_split_communicators_too) {
  const ranks::Env env({{"HOCKET_PLAN_FILES", example_plan("cube")}, {"HOCKET_ALGORITHM", "cube"}});
  Job job(5);
  job.start(ranks::patient_config(), [&](Process& self) {
    hocketComm_t part = nullptr;
    ASSERT_HOCKET(hocketCommSplit(self.comm, self.rank < 4 ? 0 : 1, 0, &part, nullptr));
    for (hocketComm_t comm : {self.comm, part}) {
      int x = 1, count = 0;
      const char *algorithm = "", *transport = "";
      EXPECT_HOCKET(hocketCommCount(comm, &count));
      EXPECT_HOCKET(hocketAllReduce(&x, &x, 1, hocketInt32, hocketSum, comm, nullptr));
      EXPECT_EQ(count, x);
      EXPECT_HOCKET(hocketCommLastAlgorithm(comm, &algorithm, &transport));
      EXPECT_EQ(count == 4, std::string(algorithm) == "cube") << count;
    }
    EXPECT_HOCKET(hocketCommDestroy(part));
    EXPECT_HOCKET(hocketBarrier(self.comm, nullptr));
  });
  job.finish();
}

}  // namespace

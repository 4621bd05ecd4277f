// hocket-run --output-dir.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "launcher/job.h"

namespace hocket::internal::launch_test {
namespace {

using Words = std::vector<std::string>;

class OutputFiles : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/hocket-test-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    directory_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  Words with(const Words& rest) const {
    Words words = {"--output-dir", directory_};
    words.insert(words.end(), rest.begin(), rest.end());
    return words;
  }
  std::string text(const std::string& file) const { return slurp(directory_ + "/" + file); }
  Words names() const {
    Words found;
    for (const auto& entry : std::filesystem::directory_iterator(directory_))
      found.push_back(entry.path().filename().string());
    std::ranges::sort(found);
    return found;
  }

  std::string directory_;
};

TEST_F(OutputFiles, have_the_two_streams_of_each_rank) {
  const Result result = run(with({"-n", "2", "sh", "-c",
                                  "echo out $HOCKET_RANK; echo err $HOCKET_RANK >&2; "
                                  "printf 'no end'"}));
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out + result.err, "");
  EXPECT_EQ(names(), (Words{"rank.0.err", "rank.0.out", "rank.1.err", "rank.1.out"}));
  EXPECT_EQ(text("rank.0.out"), "out 0\nno end");
  EXPECT_EQ(text("rank.1.out"), "out 1\nno end");
  EXPECT_EQ(text("rank.0.err"), "err 0\n");
  EXPECT_EQ(text("rank.1.err"), "err 1\n");
}

TEST_F(OutputFiles, of_ranks_with_pseudo_terminals_have_both_streams_in_one) {
  const Result result =
      run(with({"-n", "2", "--pty", "sh", "-c", "echo out; echo err $HOCKET_RANK >&2; echo end"}));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(text("rank.0.out"), "out\nerr 0\nend\n");
  EXPECT_EQ(text("rank.1.out"), "out\nerr 1\nend\n");
  EXPECT_EQ(text("rank.0.err") + text("rank.1.err"), "");
}

TEST_F(OutputFiles, are_as_many_as_the_ranks_that_the_parts_of_the_host_get) {
  const Result result = run(with({"--map-by", "ppr:1:socket", "--bind-to", "none", "echo", "x"}),
                            {"HWLOC_SYNTHETIC=package:2 core:2 pu:1"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(names(), (Words{"rank.0.err", "rank.0.out", "rank.1.err", "rank.1.out"}));
  EXPECT_EQ(text("rank.1.out"), "x\n");
}

TEST_F(OutputFiles, of_ranks_on_other_hosts_are_here_too) {
  const Result result =
      run(with({"--interface", "lo", "--hosts", "localhost,127.0.0.1", "--tag-output", "sh", "-c",
                "head -c 300000 /dev/zero | tr '\\0' x; echo; echo end $HOCKET_LOCAL_RANK"}));
  EXPECT_EQ(result.status, 0) << result.err;
  for (const char* rank : {"0", "1"}) {
    const std::string all = text("rank." + std::string(rank) + ".out");
    EXPECT_EQ(std::ranges::count(all, 'x'), 300000);
    EXPECT_NE(all.find("[" + std::string(rank) + "] end 0\n"), std::string::npos);
  }
}

TEST_F(OutputFiles, go_to_a_directory_that_is_made_if_need_be) {
  directory_ += "/a/b";
  EXPECT_EQ(run(with({"-n", "1", "echo", "x"})).status, 0);
  EXPECT_EQ(text("rank.0.out"), "x\n");
  directory_ = directory_.substr(0, directory_.size() - 4);
}

TEST_F(OutputFiles, of_another_job_are_never_mixed_with) {
  ASSERT_EQ(run(with({"-n", "2", "echo", "first"})).status, 0);
  for (const char* gone : {"rank.0.out", "rank.0.err", "rank.1.err"})
    std::filesystem::remove(directory_ + "/" + gone);
  const Result second = run(with({"-n", "1", "echo", "second"}));
  EXPECT_EQ(second.status, 125);
  EXPECT_NE(second.err.find(directory_ + " has the output of another job (rank.1.out); name "
                                         "another directory, or remove rank.*.out"),
            std::string::npos)
      << second.err;
  EXPECT_EQ(names(), Words{"rank.1.out"});
  EXPECT_EQ(text("rank.1.out"), "first\n");
}

TEST_F(OutputFiles, of_a_job_that_failed_without_output_are_removed) {
  std::ofstream(directory_ + "/rank.x.out") << "not a rank's";
  EXPECT_EQ(run(with({"-n", "2", "no-such-program"})).status, 127);
  EXPECT_EQ(run(with({"-n", "2", "--ssh", "false", "--hosts", "far:2", "true"})).status, 125);
  EXPECT_EQ(names(), Words{"rank.x.out"});
  EXPECT_EQ(run(with({"-n", "1", "sh", "-c", "echo why >&2; exit 3"})).status, 3);
  EXPECT_EQ(text("rank.0.err"), "why\n");
}

TEST_F(OutputFiles, that_cannot_be_made_keep_the_job_from_starting) {
  const std::string file = directory_ + "/file";
  std::ofstream(file) << "x";
  for (const std::string& directory : {file, file + "/below", std::string("/proc/none")}) {
    const Result result = run({"-n", "1", "--output-dir", directory, "echo", "started"});
    EXPECT_EQ(result.status, 125);
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find("--output-dir: cannot use " + directory + ": "), std::string::npos)
        << result.err;
  }
}

TEST_F(OutputFiles, that_cannot_be_written_end_the_job) {
  Job job(with({"-n", "2", "sh", "-c", "read go; echo x; exec sleep 1000"}));
  ASSERT_TRUE(eventually([&] { return names().size() == 4; }));
  for (const char* rank : {"0", "1"}) {
    const std::string path = directory_ + "/rank." + rank + ".out";
    std::filesystem::remove(path);
    std::filesystem::create_symlink("/dev/full", path);
  }
  job.write_input("go\n");
  job.finish();
  EXPECT_EQ(job.status, 141);
  EXPECT_NE(job.err.find("cannot write " + directory_ + "/rank."), std::string::npos) << job.err;
  EXPECT_NE(job.err.find("No space left on device"), std::string::npos) << job.err;
  EXPECT_TRUE(job.all_gone());
}

}  // namespace
}  // namespace hocket::internal::launch_test

// The step report: times that add up, communication that is hidden or exposed, and the trace of all
// ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <hocket/training/gradients.hpp>
#include <hocket/training/report.hpp>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "training/ranks.h"

namespace hocket::training {
namespace {

using nlohmann::json;
using tests::message_of;
using tests::run_ranks;

/// Computes until that much time has passed. Returns when it began.
double compute(double seconds) {
  const double begin_s = now_s();
  while (now_s() < begin_s + seconds) {
  }
  return begin_s;
}

double sum(const StepReport& r) {
  return r.forward_s + r.backward_s + r.exposed_s + r.optimizer_s + r.other_s;
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string path = std::filesystem::temp_directory_path() / "hocket-report-XXXXXX";
    path_ = ::mkdtemp(path.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

TEST(StepReport, divides_the_time_of_a_step_among_its_phases) {
  StepRecorder recorder;
  recorder.begin(7);
  compute(0.001);
  for (int part = 0; part < 2; ++part) {
    recorder.enter(Phase::forward);
    compute(0.002);
    recorder.enter(Phase::backward);
    compute(0.003);
  }
  recorder.enter(Phase::optimizer);
  compute(0.004);
  const StepReport report = recorder.end();
  EXPECT_EQ(7, report.step);
  EXPECT_GE(report.other_s, 0.001);
  EXPECT_GE(report.forward_s, 0.004);
  EXPECT_GE(report.backward_s, 0.006);
  EXPECT_GE(report.optimizer_s, 0.004);
  EXPECT_EQ(0, report.exposed_s);
  EXPECT_NEAR(report.total_s, sum(report), 1e-9);

  recorder.begin(8);
  EXPECT_LT(recorder.end().forward_s, 1e-9) << "a step begins without the times of the last";
}

struct Communicated {
  const char* what;
  std::vector<BucketTiming> buckets;  // begin and end from the begin of the phase
  double wait_begin_s, wait_end_s;
  double communication_s, exposed_s, overlap;
};

TEST(StepReport, says_which_part_of_the_communication_was_hidden) {
  const Communicated cases[] = {
      {"nothing communicated", {}, 0, 0, 0, 0, 1},
      {"all hidden", {{0, 8, 0.001, 0.003}}, 0.008, 0.008, 0.002, 0, 1},
      {"all exposed", {{0, 8, 0.005, 0.010}}, 0.005, 0.010, 0.005, 0.005, 0},
      {"buckets that overlap count once",
       {{0, 8, 0.000, 0.005}, {1, 16, 0.003, 0.010}},
       0.006,
       0.010,
       0.010,
       0.004,
       0.6},
      {"buckets with a pause between them",
       {{0, 8, 0.000, 0.002}, {1, 8, 0.006, 0.010}},
       0.008,
       0.010,
       0.006,
       0.002,
       2.0 / 3},
      {"waiting for more than the buckets",
       {{0, 8, 0.000, 0.004}},
       0.003,
       0.009,
       0.004,
       0.006,
       0.75},
  };
  for (const Communicated& test : cases) {
    StepRecorder recorder;
    recorder.begin(1);
    recorder.enter(Phase::backward);
    const double begin_s = compute(0.011);
    CommunicationTimings timings;
    std::size_t bytes = 0;
    for (BucketTiming bucket : test.buckets) {
      bucket.begin_s += begin_s;
      bucket.end_s += begin_s;
      bytes += bucket.bytes;
      timings.buckets.push_back(bucket);
    }
    timings.wait_begin_s = begin_s + test.wait_begin_s;
    timings.wait_end_s = begin_s + test.wait_end_s;
    recorder.add(timings);
    const StepReport report = recorder.end();
    EXPECT_NEAR(test.communication_s, report.communication_s, 1e-9) << test.what;
    EXPECT_NEAR(test.exposed_s, report.exposed_s, 1e-9) << test.what;
    EXPECT_NEAR(test.overlap, report.overlap, 1e-5) << test.what;
    EXPECT_EQ(bytes, report.bytes) << test.what;
    EXPECT_NEAR(report.total_s, sum(report), 1e-9) << test.what;
    EXPECT_GE(report.backward_s, 0.011 - test.exposed_s - 1e-9) << test.what;
  }
}

/// Counts the calls of end(). The reducer asks for a parameter without a gradient in end() only.
class CountsEnds : public GradientOwner {
 public:
  explicit CountsEnds(std::atomic<int>& ends) : ends_(ends) {}
  bool needs_gradient(int /*parameter*/) override {
    ++ends_;
    return false;
  }
  void moved(int /*parameter*/, void* /*place*/) override {}

 private:
  std::atomic<int>& ends_;
};

/// Rank 0 has no gradient for parameter 0. Rank 1 begins its backward when rank 0 is in end().
void wait_for_a_late_rank(Communicator& comm, Sharding sharding, bool overlaps,
                          std::atomic<int>& ends, std::atomic<double>& late_s) {
  const bool late = comm.rank() == 1;
  CountsEnds owner(ends);
  GradientReducer reducer(
      comm, {{"first", hocketFloat32, {64}, {}}, {"second", hocketFloat32, {64}, {}}},
      {.limits = {.first_bytes = 1, .bytes = 1},
       .sharding = sharding,
       .find_unused_parameters = true,
       .reorder = false,
       .least_overlap_us = overlaps ? 0 : std::numeric_limits<float>::infinity(),
       .owner = late ? nullptr : &owner});
  StepRecorder recorder;
  for (int step = 1; step <= 2; ++step) {
    recorder.begin(step);
    recorder.enter(Phase::backward);
    reducer.begin();
    while (late && ends < step) std::this_thread::yield();
    if (late) late_s = now_s();
    for (int p = 1; p >= (late ? 0 : 1); --p) {
      std::fill_n(static_cast<float*>(reducer.gradient(p)), 64, 1.0f);
      reducer.ready(p);
    }
    const double end_s = now_s();
    reducer.end();
    reducer.discard();
    if (late) continue;
    const CommunicationTimings timings = reducer.last_timings();
    recorder.add(timings);
    const StepReport report = recorder.end();
    EXPECT_LE(end_s, timings.wait_begin_s);
    EXPECT_LE(timings.wait_begin_s, late_s) << "the wait begins with end()";
    double in_end_s = 0;
    for (const BucketTiming& bucket : timings.buckets) {
      EXPECT_LE(late_s, bucket.end_s) << "bucket " << bucket.bucket << " needs the late rank";
      EXPECT_LE(bucket.end_s, timings.wait_end_s);
      if (overlaps) continue;
      EXPECT_LE(timings.wait_begin_s, bucket.begin_s);
      in_end_s += bucket.end_s - bucket.begin_s;
    }
    EXPECT_GE(report.exposed_s, timings.wait_end_s - late_s);
    EXPECT_GE(report.exposed_s, in_end_s);
    if (overlaps) continue;
    EXPECT_NEAR(0, report.overlap, 1e-9) << "nothing was hidden";
  }
}

TEST(StepReport, counts_what_end_reduces_as_exposed_if_a_rank_is_late) {
  for (const Sharding sharding : {Sharding::none, Sharding::zero1, Sharding::zero2}) {
    for (const bool overlaps : {false, true}) {
      if (sharding == Sharding::zero2 && !overlaps) continue;  // a pool always overlaps
      SCOPED_TRACE(::testing::Message()
                   << "sharding " << static_cast<int>(sharding) << ", overlaps " << overlaps);
      std::atomic<int> ends = 0;
      std::atomic<double> late_s = 0;
      run_ranks(2, [&](Communicator& comm) {
        wait_for_a_late_rank(comm, sharding, overlaps, ends, late_s);
      });
    }
  }
}

TEST(StepReport, is_a_line_for_a_reader_or_of_json) {
  StepReport report;
  report.step = 3;
  report.forward_s = 0.0121;
  report.backward_s = 0.0302;
  report.exposed_s = 0.0013;
  report.optimizer_s = 0.004;
  report.communication_s = 0.0142;
  report.overlap = 0.92;
  report.peak_resident_bytes = std::size_t{210} << 20;
  EXPECT_EQ(
      "forward 12.1 ms, backward 30.2, exposed 1.3, optimizer 4.0, other 0.0; 92 % of 14.2 ms of "
      "communication hidden; peak 210 MiB",
      text_line(report));
  const std::string line = json_line(report, {{"loss", 2.5}, {"norm", NAN}});
  EXPECT_EQ(std::string::npos, line.find('\n'));
  const json parsed = json::parse(line);
  EXPECT_EQ(3, parsed["step"]);
  EXPECT_EQ(0.0302, parsed["backward_s"]);
  EXPECT_EQ(0.92, parsed["overlap"]);
  EXPECT_EQ(2.5, parsed["loss"]);
  EXPECT_TRUE(parsed["norm"].is_null());
}

TEST(StepReport, has_the_memory_of_the_process) {
  const ProcessMemory before = process_memory(false);
  EXPECT_EQ(0u, before.proportional);
  {
    const std::vector<char> pages(std::size_t{64} << 20, 1);
    const ProcessMemory with_pages = process_memory(true);
    EXPECT_EQ(1, pages[pages.size() / 2]);
    EXPECT_GE(with_pages.resident, std::size_t{64} << 20);
    EXPECT_GE(with_pages.peak_resident, with_pages.resident);
    EXPECT_GE(with_pages.proportional, std::size_t{64} << 20);
  }
  EXPECT_GE(process_memory(false).peak_resident, std::size_t{64} << 20) << "the peak stays";
}

TEST(StepTrace, has_the_spans_of_all_ranks_on_one_clock) {
  const TemporaryFolder folder;
  const std::string path = folder.file("trace.json");
  run_ranks(3, [&](Communicator& comm) {
    StepTrace trace(comm);
    StepRecorder recorder({.trace = &trace});
    // Rank 0 computes before the barrier, the others after it.
    recorder.begin(1);
    recorder.enter(Phase::forward);
    if (comm.rank() == 0) compute(0.001);
    recorder.enter(Phase::other);
    comm.barrier();
    recorder.enter(Phase::backward);
    const double begin_s = compute(0.001);
    recorder.add({{{0, 64, begin_s, begin_s + 0.0005}}, begin_s + 0.0005, begin_s + 0.001});
    (void)recorder.end();
    trace.write(path);
  });
  std::ifstream file(path);
  const json events = json::parse(file);
  double forward_end_us = 0;
  std::vector<double> backwards_us(3);
  std::map<std::string, int> seen;
  for (const json& event : events) {
    if (event["ph"] != "X") continue;
    const std::string name = event["name"];
    ++seen[name];
    const int rank = event["pid"];
    if (name == "forward" && rank == 0) {
      forward_end_us = event["ts"].get<double>() + event["dur"].get<double>();
    }
    if (name == "backward") backwards_us.at(static_cast<std::size_t>(rank)) = event["ts"];
    if (name == "bucket 0") {
      EXPECT_EQ(64, event["args"]["bytes"]);
      EXPECT_NEAR(500, event["dur"].get<double>(), 0.5);
    }
  }
  for (const char* name : {"forward", "backward", "bucket 0", "wait for communication"}) {
    EXPECT_EQ(3, seen[name]) << name;
  }
  for (const double begin_us : backwards_us) EXPECT_GT(begin_us, forward_end_us);
}

TEST(StepTrace, that_cannot_be_written_is_the_same_error_on_all_ranks) {
  const TemporaryFolder folder;
  run_ranks(2, [&](Communicator& comm) {
    StepTrace trace(comm);
    trace.add("span", "row", 1, 2);
    const std::string path = folder.file("missing/trace.json");
    const std::string message = message_of<SystemError>([&] { trace.write(path); });
    EXPECT_NE(std::string::npos, message.find("rank 0 cannot write the trace to " + path))
        << message;
    EXPECT_NE(std::string::npos, message.find("No such file or directory")) << message;
    trace.write(folder.file("trace.json"));  // it may be written again
  });
}

}  // namespace
}  // namespace hocket::training

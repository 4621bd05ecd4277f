// Damaged checkpoints: each damage is an error, or the load gives the right values all the same.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <hocket/training/checkpoint.hpp>
#include <random>

#include "sanitized.h"
#include "seed.h"
#include "training/checkpoint_manifest.h"
#include "training/checkpoint_model.h"
#include "training/crc32c.h"
#include "training/ranks.h"

namespace hocket::training {
namespace {

using tests::Cut;
using tests::Folder;
using tests::hold;
using tests::Holding;
using tests::run_ranks;
using tests::slurp;
using tests::small_tensors;
using tests::spill;

constexpr int times = tests::sanitized ? 1500 : 6000;
const Metadata saved_metadata = {{"epoch", "3"}, {"step", "17"}};

/// A small checkpoint that two ranks saved, and one of another step with the same names.
class Damaged : public testing::Test {
 protected:
  Damaged() {
    for (const int step : {1, 2}) {
      std::vector<Holding> held = hold(small_tensors(), 2, Cut::equal, 1);
      run_ranks(2, [&](Communicator& comm) {
        Holding& own = held[static_cast<std::size_t>(comm.rank())];
        own.fill(step);
        save_checkpoint(comm, folder_.path(), own.ranges(), saved_metadata, {.label = "c"});
      });
    }
    for (const char* name : {"manifest", "rank-00000", "rank-00001"}) {
      names_.emplace_back(name);
      good_.push_back(slurp(folder_ / "000001-c/" + name));
      other_.push_back(slurp(folder_ / "000002-c/" + name));
    }
  }

  std::string path(std::size_t file) const { return folder_ / "000001-c/" + names_[file]; }
  void repair(std::size_t file) const { spill(path(file), good_[file]); }

  /// Loads with one rank. The message of the error; empty: the load gave the values of the step.
  std::string load(Communicator& comm) const {
    Holding own = std::move(hold(small_tensors(), 1, Cut::whole, 1)[0]);
    own.clear();
    try {
      const LoadedCheckpoint loaded = load_checkpoint(comm, folder_ / "000001-c", own.ranges());
      EXPECT_EQ(own.wrong(1), 0u);
      EXPECT_EQ(loaded.metadata, (std::vector<Metadata>{saved_metadata, saved_metadata}));
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == hocketSystemError || error.code() == hocketMismatch)
          << error.what();
      EXPECT_TRUE(own.is_clear()) << error.what();
      return error.what();
    }
    return "";
  }

  const Folder folder_;
  std::vector<std::string> names_, good_, other_;
};

/// A random change of some bytes.
std::string damage(std::string bytes, const std::string& other, std::mt19937_64& random) {
  const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(random() % bound); };
  const std::size_t at = below(bytes.size());
  switch (random() % 8) {
    case 0:
    case 1:
      bytes[at] = static_cast<char>(bytes[at] ^ 1 << below(8));
      return bytes;
    case 2:
      bytes.resize(at);
      return bytes;
    case 3:
      return bytes + std::string(1 + below(100), static_cast<char>(random()));
    case 4:  // a number of 8 bytes becomes a very large or a very small one
      for (std::size_t i = at; i < std::min(at + 8, bytes.size()); ++i) {
        bytes[i] = static_cast<char>(random() % 3 == 0 ? 0 : 0xff);
      }
      return bytes;
    case 5:
      std::swap_ranges(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(at / 2),
                       bytes.begin() + static_cast<std::ptrdiff_t>(at / 2));
      return bytes;
    case 6:
      bytes.erase(at, 1 + below(16));
      return bytes;
    default:
      return bytes.substr(0, at) + other.substr(std::min(at, other.size()));
  }
}

TEST_F(Damaged, checkpoints_are_an_error_or_give_the_right_values) {
  std::mt19937_64 random(tests::seed());
  run_ranks(1, [&](Communicator& comm) {
    ASSERT_EQ(load(comm), "");
    int errors = 0;
    for (int i = 0; i < times; ++i) {
      const std::size_t file = random() % names_.size();
      const std::string bytes = damage(good_[file], other_[file], random);
      spill(path(file), bytes);
      const std::string message = load(comm);
      errors += !message.empty();
      // Only the bytes between pieces do not matter.
      EXPECT_FALSE(file == 0 && bytes != good_[file] && message.empty());
      repair(file);
      ASSERT_FALSE(HasFailure()) << "damage " << i;
    }
    EXPECT_GT(errors, times / 2);
    EXPECT_EQ(load(comm), "");
  });
}

/// Damage that the checksum does not find, because it is made for the damaged bytes.
TEST_F(Damaged, manifests_with_a_right_checksum_are_not_trusted) {
  std::mt19937_64 random(tests::seed());
  const auto seal = [](std::string* bytes) {
    const std::uint32_t crc = storage::crc32c(bytes->data(), bytes->size() - 4);
    std::memcpy(bytes->data() + bytes->size() - 4, &crc, 4);
  };
  int errors = 0;
  for (int i = 0; i < 3 * times; ++i) {
    std::string bytes = damage(good_[0], other_[0], random);
    if (random() % 2 == 0) bytes = damage(std::max(bytes, std::string("x")), other_[0], random);
    if (bytes.size() > 12) {
      const std::uint64_t length = bytes.size();  // or every shorter file would end at this check
      if (bytes.size() > 32 && random() % 2 == 0) std::memcpy(bytes.data() + 24, &length, 8);
      seal(&bytes);
    }
    spill(path(0), bytes);
    Holding own = std::move(hold(small_tensors(), 1, Cut::whole, 1)[0]);
    try {
      CheckpointReader reader(folder_ / "000001-c");
      for (const TensorRange& range : own.ranges()) reader.read(range);
    } catch (const Error& error) {
      ++errors;
      ASSERT_TRUE(error.code() == hocketSystemError || error.code() == hocketMismatch)
          << error.what();
    }
  }
  EXPECT_GT(errors, 0);
}

TEST_F(Damaged, files_are_named_on_all_ranks) {
  const auto exchange = [&](std::size_t file) { spill(path(file), other_[file]); };
  const struct {
    std::size_t file;
    std::function<void(std::string*)> change;
    const char* part;
  } cases[] = {
      {2, [](auto* bytes) { bytes->resize(70); },
       "rank-00001' is damaged: it has 70 bytes instead"},
      {2, [](auto* bytes) { bytes->back() ^= 1; }, "the checksum of elements ["},
      {2, [](auto* bytes) { bytes->back() ^= 1; }, "of tensor 'parameter/weight' is wrong"},
      {2, [](auto* bytes) { (*bytes)[20] ^= 1; }, "is not the file of rank 1 of this checkpoint"},
      {2, [](auto* bytes) { (*bytes)[0] = 'X'; }, "does not begin as a file of a checkpoint"},
      {2, [](auto* bytes) { (*bytes)[8] = 9; }, "has version 9 of the format"},
      {0, [](auto* bytes) { (*bytes)[8] = 7; }, "has version 7 of the format"},
      {0, [](auto* bytes) { (*bytes)[60] ^= 4; }, "manifest' is damaged: its checksum is wrong"},
      {0, [](auto* bytes) { bytes->resize(30); }, "manifest' is damaged: it ends too early"},
      {0, [](auto* bytes) { bytes->clear(); }, "does not begin as a file of a checkpoint"},
      {1, [&](auto* bytes) { *bytes = other_[1]; }, "is not the file of rank 0"},
      {1, nullptr, "rank-00000': No such file or directory"},
      {0, nullptr, "has neither 'latest' nor a manifest"},
  };
  exchange(2);
  for (const auto& test : cases) {
    repair(2);
    std::string bytes = good_[test.file];
    if (test.change) test.change(&bytes);
    spill(path(test.file), bytes);
    if (!test.change) std::filesystem::remove(path(test.file));
    run_ranks(3, [&](Communicator& comm) {
      // Only rank 1 asks for the tensors.
      Holding own = std::move(hold(small_tensors(), 1, Cut::whole, 1)[0]);
      const std::string message = tests::message_of<Error>([&] {
        load_checkpoint(comm, folder_ / "000001-c",
                        comm.rank() == 1 ? own.ranges() : std::vector<TensorRange>{});
      });
      EXPECT_NE(message.find(test.part), message.npos) << comm.rank() << message << test.part;
      EXPECT_TRUE(test.file == 0 || message.find("rank 1: ") != message.npos) << message;
    });
    repair(test.file);
  }
}

TEST_F(Damaged, latest_is_no_path) {
  run_ranks(1, [&](Communicator& comm) {
    for (const char* text : {"", "../000001-c\n", "/etc", "000001-c/../000002-c", "x",
                             "000003-gone\n", "9999999999999-x"}) {
      spill(folder_ / "latest", text);
      const std::string message =
          tests::message_of<SystemError>([&] { load_checkpoint(comm, folder_.path(), {}); });
      EXPECT_NE(message, "") << text;
    }
    spill(folder_ / "latest", "000001-c");
    EXPECT_EQ(load_checkpoint(comm, folder_.path(), {}).name, "000001-c");
  });
}

/// Without verify_first, the message says that memory may have changed.
TEST_F(Damaged, files_are_read_once_if_the_program_says_so) {
  run_ranks(2, [&](Communicator& comm) {
    Holding own =
        std::move(hold(small_tensors(), 2, Cut::equal, 1)[static_cast<std::size_t>(comm.rank())]);
    const LoadOptions once{.verify_first = false};
    load_checkpoint(comm, folder_ / "000001-c", own.ranges(), once);
    EXPECT_EQ(own.wrong(1), 0u);
    comm.barrier();
    std::string bytes = good_[2];
    bytes.back() ^= 1;
    if (comm.rank() == 0) spill(path(2), bytes);
    comm.barrier();
    const std::string message = tests::message_of<SystemError>(
        [&] { load_checkpoint(comm, folder_ / "000001-c", own.ranges(), once); });
    EXPECT_NE(message.find("may have changed"), message.npos) << message;
  });
}

}  // namespace
}  // namespace hocket::training

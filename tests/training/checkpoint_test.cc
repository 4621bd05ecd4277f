// Checkpoints: what is saved by some ranks is loaded by others, and what cannot be saved or loaded
// is an error on all ranks.
#include <gtest/gtest.h>

#include <filesystem>
#include <hocket/training/checkpoint.hpp>
#include <numeric>

#include "sanitized.h"
#include "seed.h"
#include "training/checkpoint_directory.h"
#include "training/checkpoint_manifest.h"
#include "training/checkpoint_model.h"
#include "training/checkpoint_plan.h"
#include "training/crc32c.h"
#include "training/ranks.h"
#include "training/storage_failure.h"

namespace hocket::training {
namespace {

using tests::Cut;
using tests::Folder;
using tests::hold;
using tests::Holding;
using tests::message_of;
using tests::mixed_model;
using tests::names_in;
using tests::run_ranks;
using tests::slurp;
using tests::small_tensors;
using tests::spill;

std::size_t index(const Communicator& comm) { return static_cast<std::size_t>(comm.rank()); }

/// Saves a step with these ranks, and returns the checkpoint's name.
std::string save(const std::string& directory, const std::vector<Parameter>& model, int ranks,
                 Cut cut, int step, const SaveOptions& options = {}) {
  std::vector<Holding> held = hold(model, static_cast<std::size_t>(ranks), cut, 7);
  std::string name;
  run_ranks(ranks, [&](Communicator& comm) {
    Holding& own = held[index(comm)];
    own.fill(step);
    const std::string its = save_checkpoint(
        comm, directory, own.ranges(),
        {{"step", std::to_string(step)}, {"rank", std::to_string(comm.rank())}}, options);
    if (comm.rank() == 0) name = its;
  });
  return name;
}

void expect_step(const std::string& directory, const std::vector<Parameter>& model, int ranks,
                 Cut cut, int step, int savers) {
  std::vector<Holding> held =
      hold(model, static_cast<std::size_t>(ranks), cut, static_cast<std::uint64_t>(step));
  run_ranks(ranks, [&](Communicator& comm) {
    Holding& own = held[index(comm)];
    own.clear();
    const LoadedCheckpoint loaded = load_checkpoint(comm, directory, own.ranges());
    EXPECT_EQ(own.wrong(step), 0u) << "rank " << comm.rank() << " of " << ranks;
    ASSERT_EQ(loaded.metadata.size(), static_cast<std::size_t>(savers));
    for (std::size_t r = 0; r < loaded.metadata.size(); ++r) {
      EXPECT_EQ(loaded.metadata[r].at("step"), std::to_string(step));
      EXPECT_EQ(loaded.metadata[r].at("rank"), std::to_string(r));
    }
  });
}

/// The messages of all ranks, which all name the same error and culprit.
template <typename Expected, typename Action>
std::string error_of_all(int ranks, int culprit, Action action) {
  std::vector<std::string> messages(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](Communicator& comm) {
    try {
      action(comm);
    } catch (const Expected& error) {
      messages[index(comm)] = error.what();
      EXPECT_EQ(error.culprit(), culprit);
    }
    comm.barrier();  // the communicator still works
  });
  for (const std::string& message : messages) EXPECT_EQ(message, messages[0]);
  return messages[0];
}

bool has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return true;
  ADD_FAILURE() << "'" << part << "' is not in: " << text;
  return false;
}

TEST(Checkpoints, are_loaded_by_any_number_of_ranks_in_any_cut) {
  const std::vector<std::pair<int, Cut>> jobs = {{1, Cut::whole},  {2, Cut::equal},
                                                 {3, Cut::random}, {3, Cut::whole},
                                                 {5, Cut::equal},  {4, Cut::striped}};
  int step = 0;
  for (const auto& [savers, saved_as] : jobs) {
    const Folder folder;
    EXPECT_EQ(save(folder.path(), mixed_model(), savers, saved_as, ++step, {.label = "s"}),
              "000001-s");
    // The sanitizers, with which this takes the longest, see three of the six jobs load.
    int job = 0;
    for (const auto& [loaders, loaded_as] : jobs) {
      if (tests::sanitized && (++job + step) % 2 == 0) continue;
      expect_step(folder.path(), mixed_model(), loaders, loaded_as, step, savers);
    }
  }
}

TEST(Checkpoints, write_each_element_once_and_each_rank_writes_a_fair_part) {
  const struct {
    int ranks;
    Cut cut;
  } cases[] = {{2, Cut::whole}, {5, Cut::whole}, {3, Cut::equal}};
  for (const auto& test : cases) {
    const Folder folder;
    const std::string name = save(folder.path(), mixed_model(), test.ranks, test.cut, 1);
    std::size_t bytes = 0;
    for (const Parameter& tensor : mixed_model()) {
      bytes += tensor.elements() * storage::type_bytes(tensor.dtype);
    }
    const double fair = static_cast<double>(bytes) / test.ranks;
    for (int rank = 0; rank < test.ranks; ++rank) {
      const auto size = static_cast<double>(std::filesystem::file_size(
          folder / name + "/" + storage::data_file_name(static_cast<std::uint32_t>(rank))));
      EXPECT_NEAR(size, fair, 64.0 * static_cast<double>(mixed_model().size() + 2)) << rank;
    }
  }
}

TEST(Checkpoints, of_ranks_that_hold_alone_and_together_are_divided_evenly) {
  const Parameter alone{"a", hocketFloat32, {1000}, {}}, shared{"b", hocketFloat32, {2000}, {}};
  const std::vector<std::vector<TensorRange>> ranges = {
      {{alone, 0, 1000, nullptr}, {shared, 0, 2000, nullptr}},
      {{shared, 0, 2000, nullptr}},
      {{shared, 0, 2000, nullptr}}};
  const storage::SavePlan plan = storage::plan_save(ranges);
  EXPECT_EQ(plan.file_bytes, (std::vector<std::uint64_t>{64 + 4000, 64 + 4000, 64 + 4000}));
}

TEST(Checkpoints, are_numbered_and_the_last_ones_are_kept) {
  const Folder folder;
  for (int step = 1; step <= 4; ++step) {
    save(folder.path(), small_tensors(), 2, Cut::equal, step,
         {.label = "step-" + std::to_string(step), .keep = 2});
  }
  EXPECT_EQ(names_in(folder.path()),
            (std::vector<std::string>{"000003-step-3", "000004-step-4", "latest"}));
  EXPECT_EQ(slurp(folder / "latest"), "000004-step-4\n");
  EXPECT_EQ(newest_checkpoint(folder.path()), folder / "000004-step-4");
  // An older checkpoint by its own path, or by `latest`.
  expect_step(folder / "000003-step-3", small_tensors(), 1, Cut::whole, 3, 2);
  spill(folder / "latest", "000003-step-3\n");
  expect_step(folder.path(), small_tensors(), 1, Cut::whole, 3, 2);
  // After going back, the new checkpoint is still the newest.
  EXPECT_EQ(save(folder.path(), small_tensors(), 1, Cut::whole, 9, {.label = "x", .keep = 1}),
            "000005-x");
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"000005-x", "latest"}));
  // A save that ended between its two renames left no `latest`.
  std::filesystem::remove(folder / "latest");
  expect_step(folder.path(), small_tensors(), 1, Cut::whole, 9, 1);
}

TEST(Checkpoints, newest_of_a_directory_without_any_is_empty) {
  const Folder folder;
  EXPECT_EQ(newest_checkpoint(folder.path()), "");
  EXPECT_EQ(newest_checkpoint(folder / "none"), "");
  const std::string message = error_of_all<SystemError>(
      2, 0, [&](Communicator& comm) { load_checkpoint(comm, folder.path(), {}); });
  EXPECT_TRUE(has(message, "has no checkpoint"));
}

TEST(Checkpoints, without_tensors_have_metadata) {
  const Folder folder;
  run_ranks(2, [&](Communicator& comm) {
    const std::string binary("\0\xff text", 7);
    save_checkpoint(comm, folder.path(), {}, {{"", ""}, {binary, binary}});
    const LoadedCheckpoint loaded = load_checkpoint(comm, folder.path(), {});
    EXPECT_EQ(loaded.metadata[1], (Metadata{{"", ""}, {binary, binary}}));
  });
}

TEST(Checkpoints, may_have_kinds_that_no_rank_asks_for) {
  const Folder folder;
  save(folder.path(), mixed_model(), 2, Cut::equal, 1);
  const auto load = [&](std::vector<Parameter> model, Unasked unasked) {
    return error_of_all<Mismatch>(2, -1, [&](Communicator& comm) {
      Holding own = std::move(hold(model, 2, Cut::striped, 1)[index(comm)]);
      load_checkpoint(comm, folder.path(), own.ranges(), {.unasked = unasked});
      EXPECT_EQ(own.wrong(1), 0u);
    });
  };
  std::vector<Parameter> parameters, most;
  for (const Parameter& tensor : mixed_model()) {
    if (tensor.name.starts_with("parameter/")) parameters.push_back(tensor);
    if (tensor.name != "buffer/mask") most.push_back(tensor);
  }
  EXPECT_EQ(load(parameters, Unasked::other_kinds), "");
  EXPECT_EQ(load(most, Unasked::allowed), "");
  EXPECT_TRUE(has(load(most, Unasked::other_kinds), "'buffer/mask' (uint8, 3 x 3 x 3, strides"));
  EXPECT_TRUE(has(load(parameters, Unasked::refused), "no rank asks for it"));
}

TEST(Checkpoints, of_another_model_are_refused_on_all_ranks_with_both_descriptions) {
  const Folder folder;
  save(folder.path(), small_tensors(), 2, Cut::equal, 1);
  const struct {
    Parameter asked;
    std::vector<std::string> parts;
  } cases[] = {
      {{"parameter/weight", hocketFloat32, {5, 6}, {}},
       {"rank 1: tensor 'parameter/weight' is (float32, 5 x 6) in this job, and (float32, 6 x 5)"}},
      {{"parameter/weight", hocketFloat16, {6, 5}, {}}, {"(float16, 6 x 5)", "(float32, 6 x 5)"}},
      {{"parameter/weight", hocketFloat32, {6, 5}, {1, 6}}, {"(float32, 6 x 5, strides 1 x 6)"}},
      {{"parameter/other", hocketFloat32, {6, 5}, {}},
       {"'parameter/other' (float32, 6 x 5) is asked for", "does not have it"}},
  };
  for (const auto& test : cases) {
    const std::string message = error_of_all<Mismatch>(3, 1, [&](Communicator& comm) {
      std::vector<Parameter> model = small_tensors();
      if (comm.rank() == 1) model[0] = test.asked;
      Holding own = std::move(hold(model, 1, Cut::whole, 1)[0]);
      own.clear();
      try {
        load_checkpoint(comm, folder.path(), own.ranges());
      } catch (...) {
        EXPECT_TRUE(own.is_clear());
        throw;
      }
    });
    for (const std::string& part : test.parts) EXPECT_TRUE(has(message, part));
  }
  // Row-major strides, and strides of dimensions with one element, do not matter.
  std::vector<Parameter> same = small_tensors();
  same[0].strides = {5, 1};
  expect_step(folder.path(), same, 2, Cut::equal, 1, 2);
}

TEST(Checkpoints, with_wrong_arguments_are_refused_on_all_ranks) {
  const Folder folder;
  const Parameter good{"parameter/a", hocketFloat32, {4, 3}, {}};
  const auto with = [&](auto change) {
    Parameter tensor = good;
    change(tensor);
    return tensor;
  };
  float memory[12] = {};
  const struct {
    TensorRange range;
    SaveOptions options;
    std::string part;
  } cases[] = {
      {{good, 4, 9, memory}, {}, "[4, 4 + 9) are not in tensor 'parameter/a' (float32, 4 x 3)"},
      {{good, ~std::size_t{0}, 2, memory}, {}, "are not in tensor"},
      {{good, 0, 12, nullptr}, {}, "has no memory"},
      {{with([](auto& t) {
          t.strides = {6, 2};
        }),
        0, 12, memory},
       {},
       "not dense"},
      {{with([](auto& t) {
          t.strides = {0, 1};
        }),
        0, 12, memory},
       {},
       "not dense"},
      {{with([](auto& t) { t.strides = {1}; }), 0, 12, memory}, {}, "a stride for each size"},
      {{with([](auto& t) {
          t.sizes = {-4, 3};
        }),
        0, 12, memory},
       {},
       "negative size"},
      {{with([](auto& t) {
          t.sizes = {1 << 30, 1 << 30, 4};
        }),
        0, 12, memory},
       {},
       "2^62"},
      {{with([](auto& t) { t.name = ""; }), 0, 12, memory}, {}, "name of a tensor has 0 bytes"},
      {{good, 0, 12, memory}, {.label = "a/b"}, "'a/b' cannot be the label"},
      {{good, 0, 12, memory}, {.label = ""}, "cannot be the label"},
      {{good, 0, 12, memory}, {.keep = -1}, "keep is -1"},
  };
  for (const auto& test : cases) {
    const std::string message = error_of_all<InvalidArgument>(2, 1, [&](Communicator& comm) {
      const bool is_wrong = comm.rank() == 1;
      const TensorRange range = is_wrong ? test.range : TensorRange{good, 0, 12, memory};
      save_checkpoint(comm, folder.path(), {&range, 1}, {},
                      is_wrong ? test.options : SaveOptions{});
    });
    EXPECT_TRUE(has(message, test.part));
    EXPECT_TRUE(has(message, "rank 1: "));
  }
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{});
}

TEST(Checkpoints, of_ranks_that_disagree_or_leave_a_hole_are_refused) {
  const Folder folder;
  float memory[12] = {};
  const auto save_as = [&](const TensorRange& first, const TensorRange& second) {
    return [&folder, first, second](Communicator& comm) {
      const TensorRange range = comm.rank() == 0 ? first : second;
      save_checkpoint(comm, folder.path(), {&range, 1}, {});
    };
  };
  const Parameter a{"a", hocketFloat32, {12}, {}}, b{"a", hocketFloat32, {3, 4}, {}};
  EXPECT_TRUE(has(error_of_all<Mismatch>(2, 1, save_as({a, 0, 6, memory}, {b, 6, 6, memory})),
                  "tensor 'a' is (float32, 12) on rank 0, and (float32, 3 x 4) on rank 1"));
  EXPECT_TRUE(
      has(error_of_all<InvalidArgument>(2, -1, save_as({a, 0, 5, memory}, {a, 6, 6, memory})),
          "no rank holds elements [5, 6) of tensor 'a' (float32, 12)"));
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{});
}

TEST(Checkpoints, that_cannot_be_written_are_an_error_on_all_ranks) {
  const Folder folder;
  const auto save_to = [](const std::string& directory) {
    return [directory](Communicator& comm) {
      Holding own = std::move(hold(small_tensors(), 1, Cut::whole, 1)[0]);
      save_checkpoint(comm, directory, own.ranges(), {});
    };
  };
  std::string message = error_of_all<SystemError>(3, 0, save_to(folder / "missing"));
  EXPECT_TRUE(has(message, "rank 0: cannot read directory '" + (folder / "missing")));
  EXPECT_TRUE(has(message, "No such file or directory"));
  spill(folder / "file", "text");
  EXPECT_TRUE(has(error_of_all<SystemError>(2, 0, save_to(folder / "file")), "Not a directory"));

  // Rank 1 does not see the directory of rank 0.
  const Folder other;
  message = error_of_all<SystemError>(2, 1, [&](Communicator& comm) {
    save_to(comm.rank() == 0 ? folder.path() : other.path())(comm);
  });
  EXPECT_TRUE(has(message, "rank 1: cannot create '" + (other / ".saving-000001-checkpoint")));
  EXPECT_TRUE(has(message, "earlier checkpoints are unchanged"));
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"file"});

  // `latest` cannot be replaced.
  std::filesystem::create_directory(folder / "latest");
  spill(folder / "latest/x", "");
  EXPECT_TRUE(has(error_of_all<SystemError>(2, 0, save_to(folder.path())), "cannot rename"));
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"file", "latest"}));
}

TEST(Checkpoints, latest_is_written_last) {
  const Folder folder;
  const std::string name = storage::begin_checkpoint(folder.path(), "s");
  std::filesystem::create_directories(folder / (name + "/in-the-way"));
  EXPECT_THROW(storage::commit_checkpoint(folder.path(), name), storage::Failure);
  EXPECT_FALSE(std::filesystem::exists(folder / "latest"));
}

TEST(Checkpoints, remove_what_a_save_left_that_did_not_end) {
  const Folder folder;
  std::filesystem::create_directories(folder / ".saving-000001-x/rank-00000");
  std::filesystem::create_directories(folder / ".removing-000001-x");
  spill(folder / ".latest-new", "text");
  spill(folder / "notes", "of somebody");
  save(folder.path(), small_tensors(), 2, Cut::equal, 1, {.keep = 1});
  EXPECT_EQ(names_in(folder.path()),
            (std::vector<std::string>{"000001-checkpoint", "latest", "notes"}));
}

TEST(Crc32c, is_that_of_the_standard_and_can_be_continued) {
  EXPECT_EQ(storage::crc32c("123456789", 9), 0xe3069283u);
  EXPECT_EQ(storage::crc32c_by_table("123456789", 9), 0xe3069283u);
  std::vector<unsigned char> bytes(3001);
  std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(1));
  for (const std::size_t cut : {0, 1, 7, 8, 64, 2999, 3001}) {
    const std::uint32_t whole = storage::crc32c(bytes.data(), bytes.size());
    EXPECT_EQ(whole, storage::crc32c(bytes.data() + cut, bytes.size() - cut,
                                     storage::crc32c(bytes.data(), cut)));
    EXPECT_EQ(storage::crc32c(bytes.data(), cut), storage::crc32c_by_table(bytes.data(), cut));
  }
}

}  // namespace
}  // namespace hocket::training

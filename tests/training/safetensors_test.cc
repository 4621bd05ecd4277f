// Files in the safetensors format: what is written is read again, and what breaks a rule of the
// format is refused.
#include <gtest/gtest.h>

#include <cstring>
#include <hocket/training/safetensors.hpp>
#include <numeric>
#include <random>

#include "sanitized.h"
#include "seed.h"
#include "training/checkpoint_model.h"
#include "training/ranks.h"

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
using tests::spill;

std::string file_of(const std::string& json, std::size_t data_bytes) {
  const std::uint64_t length = json.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + json + std::string(data_bytes, 'd');
}

TEST(Safetensors, of_a_checkpoint_have_its_tensors_without_kinds) {
  const Folder folder;
  std::vector<Holding> held = hold(mixed_model(), 3, Cut::random, 5);
  run_ranks(3, [&](Communicator& comm) {
    Holding& own = held[static_cast<std::size_t>(comm.rank())];
    own.fill(1);
    save_checkpoint(comm, folder.path(), own.ranges(), {});
  });
  export_safetensors(folder.path(), folder / "model", {.metadata = {{"format", "pt"}}});

  // The optimizer's tensor of the same name is of another kind.
  std::vector<Parameter> exported = mixed_model();
  exported.pop_back();
  for (const int ranks : {1, 4}) {
    for (Holding& own : hold(exported, static_cast<std::size_t>(ranks), Cut::random, 9)) {
      own.clear();
      EXPECT_EQ(import_safetensors(folder / "model", own.ranges()), (Metadata{{"format", "pt"}}));
      EXPECT_EQ(own.wrong(1), 0u);
    }
  }
  const SafetensorsContents contents = read_safetensors(folder / "model");
  EXPECT_EQ(contents.tensors.size(), exported.size());
  EXPECT_EQ(contents.metadata.at("format"), "pt");
  EXPECT_EQ(contents.tensors[0], (Parameter{"columns", hocketFloat64, {30, 20}, {}}));

  export_safetensors(folder.path(), folder / "optimizer", {.kinds = {"optimizer.exp_avg"}});
  EXPECT_EQ(read_safetensors(folder / "optimizer").tensors.size(), 1u);
  EXPECT_NE(message_of<InvalidArgument>([&] {
              export_safetensors(folder.path(), folder / "x",
                                 {.kinds = {"parameter", "optimizer.exp_avg"}});
            }).find("both have the name 'big'"),
            std::string::npos);
  EXPECT_NE(message_of<InvalidArgument>([&] {
              export_safetensors(folder.path(), folder / "x", {.kinds = {"none"}});
            }).find("no tensor of these kinds"),
            std::string::npos);
  EXPECT_EQ(names_in(folder.path()),
            (std::vector<std::string>{"000001-checkpoint", "latest", "model", "optimizer"}));
}

TEST(Safetensors, have_the_bytes_that_the_format_asks_for) {
  const Folder folder;
  std::vector<float> weight = {1, 4, 2, 5, 3, 6};  // columns of 2 x 3
  std::vector<std::uint8_t> mask = {1, 0, 1};
  const std::vector<TensorRange> tensors = {
      {{"buffer/mask", hocketUint8, {3}, {}}, 0, 3, mask.data()},
      {{"parameter/weight", hocketFloat32, {2, 3}, {1, 2}}, 0, 6, weight.data()}};
  write_safetensors(folder / "model", tensors, {{"a", "b"}});
  const std::string json =
      R"({"__metadata__":{"a":"b"},"mask":{"data_offsets":[24,27],"dtype":"U8","shape":[3]},)"
      R"("weight":{"data_offsets":[0,24],"dtype":"F32","shape":[2,3]}})";
  std::string expected = file_of(json + std::string((8 - json.size() % 8) % 8, ' '), 0);
  const float row_major[] = {1, 2, 3, 4, 5, 6};
  expected.append(reinterpret_cast<const char*>(row_major), sizeof row_major);
  expected.append("\1\0\1", 3);
  EXPECT_EQ(slurp(folder / "model"), expected);

  // A range of the tensor with columns.
  std::vector<float> part(3);
  const TensorRange range{tensors[1].tensor, 2, 3, part.data()};
  import_safetensors(folder / "model", {&range, 1});
  EXPECT_EQ(part, (std::vector<float>{2, 5, 3}));
}

TEST(Safetensors, that_break_a_rule_of_the_format_are_refused) {
  const Folder folder;
  const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const struct {
    std::string bytes;
    const char* part;
  } cases[] = {
      {"", "shorter than 8 bytes"},
      {"1234567", "shorter than 8 bytes"},
      {std::string(8, '\xff'), "its header has 18446744073709551615 bytes"},
      {std::string("\x05\0\0\0\0\0\0\0{}", 10), "its header has 5 bytes"},
      {file_of("", 0), "does not begin with {"},
      {file_of(" {}", 0), "does not begin with {"},
      {file_of("{]", 0), "is no JSON"},
      {file_of("{} {}", 0), "is no JSON"},
      {file_of("{\"\xff\":1}", 0), "is no JSON"},
      {file_of("{" + a + "}", 7), "its tensors have 8 bytes, and 7 bytes follow"},
      {file_of("{" + a + "}", 9), "its tensors have 8 bytes, and 9 bytes follow"},
      {file_of("{" + a + "," + a + "}", 8), "has 'a' twice"},
      {file_of(R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8),
       "has 'dtype' twice"},
      {file_of("{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", 8),
       "tensor 'b' begins at byte 4 of the data, and the tensor before it ends at byte 8"},
      {file_of("{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[9,13]}})", 13),
       "tensor 'b' begins at byte 9 of the data, and the tensor before it ends at byte 8"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4), "not as far apart"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8), "not as far apart"},
      {file_of(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8), "-2 instead of"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8), "2.0 instead of"},
      {file_of(R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", 8), "shape that is no"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", 8), "two data_offsets"},
      {file_of(R"({"a":{"dtype":7,"shape":[2],"data_offsets":[0,8]}})", 8),
       "dtype that is no text"},
      {file_of(R"({"a":{"dtype":"C64","shape":[1],"data_offsets":[0,8]}})", 8), "has type C64"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2]}})", 8), "other keys"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", 8), "other keys"},
      {file_of(R"({"a":[]})", 0), "other keys"},
      {file_of(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})", 8),
       "2^62"},
      {file_of(R"({"a":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]}})", 8),
       "2^62"},
      {file_of(R"({"__metadata__":{"a":1}})", 0), "metadata 'a' is no text"},
      {file_of(R"({"__metadata__":"a"})", 0), "is no object"},
      {file_of("{\"a\":" + std::string(100'000, '['), 0), "too deep"},
  };
  for (const auto& test : cases) {
    spill(folder / "model", test.bytes);
    const std::string message =
        message_of<Error>([&] { (void)read_safetensors(folder / "model"); });
    EXPECT_NE(message.find(test.part), message.npos) << message << "\n" << test.part;
    EXPECT_NE(message.find("model'"), message.npos) << message;
  }
}

TEST(Safetensors, of_another_model_are_refused_before_memory_changes) {
  const Folder folder;
  const std::vector<Parameter> model = {{"parameter/a", hocketFloat32, {2, 3}, {}},
                                        {"parameter/b", hocketInt64, {}, {}}};
  Holding saved = std::move(hold(model, 1, Cut::whole, 1)[0]);
  saved.fill(1);
  write_safetensors(folder / "model", saved.ranges());
  const struct {
    Parameter second;
    const char* part;
  } cases[] = {
      {{"parameter/b", hocketInt32, {}, {}}, "(int32, scalar) in this program, and (int64"},
      {{"parameter/b", hocketInt64, {1}, {}}, "(int64, 1) in this program"},
      {{"parameter/c", hocketInt64, {}, {}}, "has no tensor 'c'"}};
  for (const auto& test : cases) {
    Holding own = std::move(hold({model[0], test.second}, 1, Cut::whole, 1)[0]);
    own.clear();
    const std::string message =
        message_of<Mismatch>([&] { import_safetensors(folder / "model", own.ranges()); });
    EXPECT_NE(message.find(test.part), message.npos) << message;
    EXPECT_TRUE(own.is_clear());
  }
  float value = 0;
  const TensorRange part{{"a", hocketFloat32, {2}, {}}, 0, 1, &value};
  EXPECT_NE(message_of<InvalidArgument>([&] { write_safetensors(folder / "x", {&part, 1}); }), "");
  EXPECT_NE(message_of<SystemError>([&] { import_safetensors(folder / "none", {}); }), "");
  const TensorRange whole{{"\xff", hocketFloat32, {1}, {}}, 0, 1, &value};
  EXPECT_NE(message_of<InvalidArgument>([&] {
              write_safetensors(folder / "x", {&whole, 1});
            }).find("UTF-8"),
            std::string::npos);
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"model"});
}

TEST(Safetensors, with_random_damage_are_an_error_or_well_formed) {
  std::mt19937_64 random(tests::seed());
  const Folder folder;
  Holding saved = std::move(hold(tests::small_tensors(), 1, Cut::whole, 1)[0]);
  write_safetensors(folder / "model", saved.ranges(), {{"a", "b"}});
  const std::string good = slurp(folder / "model");
  int errors = 0;
  for (int i = 0; i < (tests::sanitized ? 2000 : 10'000); ++i) {
    std::string bytes = good;
    for (std::uint64_t n = 1 + random() % 3; n > 0; --n) {
      bytes[random() % bytes.size()] = static_cast<char>(random() % 2 == 0 ? random() : '0');
    }
    if (random() % 8 == 0) bytes.resize(random() % bytes.size());
    spill(folder / "model", bytes);
    Holding own = std::move(hold(tests::small_tensors(), 1, Cut::whole, 1)[0]);
    try {
      import_safetensors(folder / "model", own.ranges());
    } catch (const Error& error) {
      ++errors;
      EXPECT_TRUE(error.code() == hocketSystemError || error.code() == hocketMismatch)
          << error.what();
    }
  }
  EXPECT_GT(errors, 100);
}

}  // namespace
}  // namespace hocket::training

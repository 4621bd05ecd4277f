// Checkpoints of modules, files of torch::save, and the random generator.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <hocket/training/safetensors.hpp>
#include <hocket/training/torch/checkpoint.hpp>
#include <hocket/training/torch/ddp.hpp>

#include "training/folder.h"
#include "training/ranks.h"

namespace hocket::training {
namespace {

using tests::Folder;
using tests::message_of;
using tests::run_ranks;

/// Convolutions in channels-last order, running statistics, a counter, a mask, tied weights.
struct Net : torch::nn::Module {
  explicit Net(int width = 4) {
    convolution = register_module(
        "convolution", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, width, 3).bias(false)));
    convolution->to(torch::kDouble);
    convolution->weight.set_data(convolution->weight.contiguous(at::MemoryFormat::ChannelsLast));
    norm = register_module("norm", torch::nn::BatchNorm2d(width));
    embedding = register_module("embedding", torch::nn::Embedding(10, width));
    head = register_parameter("head", embedding->weight);
    relu = register_module(
        "relu", torch::nn::Sequential(torch::nn::Functional(torch::relu), torch::nn::Linear(2, 2)));
    mask = register_buffer("mask", torch::zeros({5}, torch::kBool));
    scale = register_parameter("scale", torch::zeros({}, torch::kBFloat16));
  }
  torch::nn::Conv2d convolution{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Embedding embedding{nullptr};
  torch::nn::Sequential relu;
  at::Tensor head, mask, scale;
};

std::vector<at::Tensor> tensors_of(const Net& net) {
  std::vector<at::Tensor> all;
  for (const auto& each : net.named_parameters()) all.push_back(each.value());
  for (const auto& each : net.named_buffers()) all.push_back(each.value());
  return all;
}

void randomize(Net& net) {
  const torch::NoGradGuard no_grad;
  for (at::Tensor& each : tensors_of(net)) {
    each.copy_(each.scalar_type() == torch::kBool || each.scalar_type() == torch::kLong
                   ? torch::randint(0, 2, each.sizes())
                   : torch::randn(each.sizes()));
  }
}

void expect_equal(const Net& a, const Net& b) {
  const std::vector<at::Tensor> of_a = tensors_of(a), of_b = tensors_of(b);
  ASSERT_EQ(of_a.size(), of_b.size());
  for (std::size_t i = 0; i < of_a.size(); ++i) EXPECT_TRUE(torch::equal(of_a[i], of_b[i])) << i;
}

/// Two ranks save the module.
void save(const std::string& directory, const Net& net) {
  run_ranks(2, [&](Communicator& comm) {
    save_checkpoint(comm, directory, module_ranges(net), {{"step", "3"}});
  });
}

TEST(TorchCheckpoints, of_modules_are_loaded_by_other_numbers_of_ranks) {
  const Folder folder;
  auto saved = std::make_shared<Net>();
  randomize(*saved);
  save(folder.path(), *saved);
  run_ranks(3, [&](Communicator& comm) {
    Net net;
    const LoadedCheckpoint loaded = load_checkpoint(comm, folder.path(), module_ranges(net));
    expect_equal(net, *saved);
    EXPECT_EQ(loaded.metadata[0].at("step"), "3");
    EXPECT_EQ(net.head.data_ptr(), net.embedding->weight.data_ptr());
  });
  Net other(8);
  run_ranks(1, [&](Communicator& comm) {
    EXPECT_NE(
        message_of<Mismatch>([&] { load_checkpoint(comm, folder.path(), module_ranges(other)); })
            .find("'parameter/head' is (float32, 10 x 8) in this job, and "
                  "(float32, 10 x 4) in checkpoint"),
        std::string::npos);
  });
}

TEST(TorchCheckpoints, name_what_they_cannot_have) {
  const auto message_with = [](const at::Tensor& buffer) {
    torch::nn::Module module;
    module.register_buffer("odd", buffer);
    return message_of<InvalidArgument>([&] { (void)module_ranges(module); });
  };
  const struct {
    at::Tensor tensor;
    const char* part;
  } cases[] = {
      {torch::zeros({3}).expand({2, 3}), "'buffer/odd' has gaps or overlaps"},
      {torch::zeros({4, 4}).slice(1, 0, 2), "'buffer/odd' has gaps or overlaps"},
      {torch::zeros({4}, torch::kComplexFloat), "'buffer/odd' has type ComplexFloat"},
      {torch::eye(3).to_sparse(), "'buffer/odd' is sparse"},
  };
  for (const auto& test : cases) {
    const std::string message = message_with(test.tensor);
    EXPECT_NE(message.find(test.part), message.npos) << message;
  }
  EXPECT_EQ(message_with(torch::zeros({4, 2}).t()), "");
}

TEST(TorchCheckpoints, are_exported_to_files_that_torch_load_reads) {
  const Folder folder;
  auto saved = std::make_shared<Net>(), module = std::make_shared<Net>();
  randomize(*saved);
  randomize(*module);
  save(folder.path(), *saved);
  std::vector<at::Tensor> before;
  std::vector<const void*> places;
  for (const at::Tensor& each : tensors_of(*module)) {
    before.push_back(each.detach().clone());
    places.push_back(each.data_ptr());
  }
  export_torch(folder.path(), *module, folder / "net.pt");
  const std::vector<at::Tensor> after = tensors_of(*module);
  for (std::size_t i = 0; i < after.size(); ++i) {
    EXPECT_TRUE(torch::equal(after[i], before[i]));
    EXPECT_EQ(after[i].data_ptr(), places[i]);
  }
  auto loaded = std::make_shared<Net>();
  torch::load(loaded, folder / "net.pt");
  expect_equal(*loaded, *saved);
  Net imported;
  import_torch(folder / "net.pt", imported);
  expect_equal(imported, *saved);

  // The same by way of safetensors, for example to and from Python.
  export_safetensors(folder.path(), folder / "net.safetensors");
  Net from_safetensors;
  import_safetensors(folder / "net.safetensors", module_ranges(from_safetensors));
  expect_equal(from_safetensors, *saved);

  Net other(8);
  EXPECT_NE(message_of<Mismatch>([&] { export_torch(folder.path(), other, folder / "x"); }), "");
  EXPECT_NE(message_of<SystemError>([&] {
              export_torch(folder.path(), *module, folder / "none/net.pt");
            }).find("No such file or directory"),
            std::string::npos);
  EXPECT_EQ(tests::names_in(folder.path()),
            (std::vector<std::string>{"000001-checkpoint", "latest", "net.pt", "net.safetensors"}));
}

TEST(TorchCheckpoints, of_files_of_another_module_are_refused_and_change_nothing) {
  const Folder folder;
  torch::save(std::make_shared<Net>(8), folder / "wide.pt");
  torch::save(torch::nn::Linear(2, 2), folder / "linear.pt");
  tests::spill(folder / "text.pt", "no archive");
  struct Biased : Net {
    Biased() { register_parameter("bias", torch::zeros({2})); }
  };
  torch::save(std::make_shared<Biased>(), folder / "biased.pt");
  const struct {
    const char *file, *part;
  } cases[] = {{"wide.pt", "'head' is (float32, 10 x 4) in this module, and (float32, 10 x 8) in"},
               {"linear.pt", "is in this module, and not in"},
               {"biased.pt", "'bias' is in '"},
               {"text.pt", "libtorch cannot read it"},
               {"none.pt", "No such file or directory"}};
  for (const auto& test : cases) {
    auto net = std::make_shared<Net>(), copy = std::make_shared<Net>();
    randomize(*net);
    {
      const torch::NoGradGuard no_grad;
      for (std::size_t i = 0; i < tensors_of(*net).size(); ++i) {
        tensors_of(*copy)[i].copy_(tensors_of(*net)[i]);
      }
    }
    const std::string message = message_of<Error>([&] { import_torch(folder / test.file, *net); });
    EXPECT_NE(message.find(test.part), message.npos) << message;
    expect_equal(*net, *copy);
  }
}

TEST(TorchCheckpoints, have_the_state_of_the_random_generator) {
  torch::manual_seed(3);
  (void)torch::randn({3});
  const std::string state = cpu_generator_state();
  const at::Tensor first = torch::randn({20});
  (void)torch::randn({7});
  set_cpu_generator_state(state);
  EXPECT_TRUE(torch::equal(torch::randn({20}), first));
  for (const std::string& text :
       {std::string(), std::string("00"), state.substr(1), std::string(state.size(), 'x')}) {
    EXPECT_NE(message_of<InvalidArgument>([&] { set_cpu_generator_state(text); }), "");
  }
}

/// Training goes on after a checkpoint as without it, with DDP too.
TEST(TorchCheckpoints, of_training_with_ddp_go_on_to_the_same_bits) {
  const Folder folder;
  run_ranks(2, [&](Communicator& comm) {
    torch::nn::Linear net(6, 6), resumed(6, 6);
    const auto step = [&](torch::nn::Linear& module, DistributedDataParallel& ddp, int number) {
      const at::Tensor data = torch::sin(torch::arange(12.0).view({2, 6}) + number + comm.rank());
      module->zero_grad();
      ddp.run([&] { return module->forward(data); }).square().sum().backward();
      const torch::NoGradGuard no_grad;
      for (at::Tensor& p : module->parameters()) p.sub_(p.grad(), 0.01);
    };
    DistributedDataParallel ddp(*net, comm);
    for (int i = 0; i < 3; ++i) step(net, ddp, i);
    save_checkpoint(comm, folder.path(), module_ranges(*net), {});
    for (int i = 3; i < 6; ++i) step(net, ddp, i);
    load_checkpoint(comm, folder.path(), module_ranges(*resumed));
    DistributedDataParallel resumed_ddp(*resumed, comm);
    for (int i = 3; i < 6; ++i) step(resumed, resumed_ddp, i);
    EXPECT_TRUE(torch::equal(net->weight, resumed->weight));
    EXPECT_TRUE(torch::equal(net->bias, resumed->bias));
  });
}

}  // namespace
}  // namespace hocket::training

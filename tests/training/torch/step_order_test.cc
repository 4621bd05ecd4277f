// Two modules of one process, and backwards that differ between ranks.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <hocket/training/groups.hpp>
#include <hocket/training/torch/ddp.hpp>
#include <optional>
#include <vector>

#include "training/ranks.h"
#include "training/torch/models.h"

namespace hocket::training {
namespace {

using tests::batch_of;
using tests::message_of;
using tests::Mlp;
using tests::run_ranks;

void backward(DistributedDataParallel& ddp, Mlp& net, int rank) {
  ddp(&net, batch_of(rank, 0)).square().sum().backward();
}

TEST(Ddp, two_modules_whose_backwards_have_another_order_are_an_error_on_all_ranks) {
  for (const int ranks : {2, 3}) {
    run_ranks(ranks, [&](Communicator& comm) {
      Mlp first, second;
      DistributedDataParallel of_first(first, comm), of_second(second, comm);
      backward(of_first, first, comm.rank());
      backward(of_second, second, comm.rank());
      const std::string message = message_of<Mismatch>([&] {
        if (comm.rank() + 1 == ranks) {
          backward(of_second, second, comm.rank());
          backward(of_first, first, comm.rank());
        } else {
          backward(of_first, first, comm.rank());
          backward(of_second, second, comm.rank());
        }
      });
      EXPECT_NE(message.find("the ranks run different backwards"), std::string::npos) << message;
      EXPECT_NE(message.find("on rank " + std::to_string(ranks - 1) + " one of reducer 1"),
                std::string::npos)
          << message;
    });
  }
}

using Forward = std::function<at::Tensor(const at::Tensor&)>;

/// A step in which the backwards of two models are under way.
struct Interleaved {
  const char* what;
  void (*run)(const Forward& rows, const Forward& columns, const at::Tensor& x);
};

const Interleaved interleaved[] = {
    {"forwards first, then backwards in the other order",
     [](const Forward& rows, const Forward& columns, const at::Tensor& x) {
       const at::Tensor of_rows = rows(x).square().sum(), of_columns = columns(x).square().sum();
       of_columns.backward();
       of_rows.backward();
     }},
    {"one backward through both",
     [](const Forward& rows, const Forward& columns, const at::Tensor& x) {
       columns(rows(x)).square().sum().backward();
     }},
    {"a forward of one between forward and backward of the other, several backwards",
     [](const Forward& rows, const Forward& columns, const at::Tensor& x) {
       const at::Tensor of_rows = rows(x).square().sum();
       columns(2 * x).square().sum().backward();
       of_rows.backward();
       columns(x).square().sum().backward();
     }},
};

/// The mean over some ranks of the gradients of one of the two models (0: rows), without hocket.
std::vector<at::Tensor> means_over(const std::vector<int>& ranks, const Mlp& model,
                                   const Interleaved& each, int which, int step) {
  std::vector<at::Tensor> means;
  for (const int rank : ranks) {
    Mlp nets[2];
    for (Mlp& net : nets) tests::copy_model(model, net);
    each.run([&](const at::Tensor& x) { return nets[0].forward(x); },
             [&](const at::Tensor& x) { return nets[1].forward(x); }, batch_of(rank, step));
    const auto parameters = nets[which].parameters();
    means.resize(parameters.size());
    for (std::size_t p = 0; p < means.size(); ++p) {
      const at::Tensor part = parameters[p].grad() / static_cast<double>(ranks.size());
      means[p] = means[p].defined() ? means[p] + part : part;
    }
  }
  return means;
}

TEST(Ddp, two_modules_over_two_dimensions_of_a_mesh_average_over_the_ranks_of_their_own) {
  Mlp model;
  for (const Interleaved& each : interleaved) {
    SCOPED_TRACE(each.what);
    run_ranks(4, [&](Communicator& comm) {
      Mesh mesh(comm, {{"column", 2}, {"row", 2}});
      Mlp nets[2];
      for (Mlp& net : nets) tests::copy_model(model, net);
      const BucketLimits limits = {.first_bytes = 1, .bytes = 2048};
      DistributedDataParallel rows(nets[0], mesh.along("row"), {.limits = limits});
      DistributedDataParallel columns(nets[1], mesh.along("column"), {.limits = limits});
      const int rank = comm.rank();
      const std::vector<int> members[2] = {{rank & 2, (rank & 2) + 1}, {rank & 1, (rank & 1) + 2}};
      for (int step = 0; step < 3; ++step) {
        for (Mlp& net : nets) net.zero_grad();
        each.run([&](const at::Tensor& x) { return rows(&nets[0], x); },
                 [&](const at::Tensor& x) { return columns(&nets[1], x); }, batch_of(rank, step));
        for (const int which : {0, 1}) {
          const auto means = means_over(members[which], model, each, which, step);
          const auto parameters = nets[which].parameters();
          for (std::size_t p = 0; p < means.size(); ++p) {
            EXPECT_TRUE(torch::allclose(parameters[p].grad(), means[p], 1e-5, 1e-6))
                << "rank " << rank << ", model " << which << ", parameter " << p << ", step "
                << step;
          }
        }
      }
    });
  }
}

TEST(Ddp, no_sync_on_some_ranks_only_is_an_error_on_all) {
  for (const Sharding sharding : {Sharding::none, Sharding::zero1, Sharding::zero2}) {
    run_ranks(3, [&](Communicator& comm) {
      Mlp net;
      DistributedDataParallel ddp(net, comm, {.sharding = sharding});
      (void)ddp.parameters();  // else the next forward misses an optimizer
      backward(ddp, net, comm.rank());
      const std::string message = message_of<Mismatch>([&] {
        {
          std::optional<DistributedDataParallel::NoSync> alone;
          if (comm.rank() == 1) alone.emplace(ddp.no_sync());
          backward(ddp, net, comm.rank());
        }
        backward(ddp, net, comm.rank());
      });
      EXPECT_NE(message.find("on rank 1 one of reducer 0 (6 parameters, the first is "
                             "'layer0.weight') in the scope of no_sync()"),
                std::string::npos)
          << message;
    });
  }
}

}  // namespace
}  // namespace hocket::training

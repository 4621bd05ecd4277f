// Modules whose backwards differ between ranks.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <hocket/training/torch/ddp.hpp>
#include <optional>

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

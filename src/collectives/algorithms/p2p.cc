// message: a send to another rank, or a recv from it; shape.root is the other rank, which may be
// this rank. The plan has one lane of one step. The transport cuts a long message into frames, and
// decides whether a message is eager or has a rendezvous (docs/protocol/frames.md).
//
//   rank 0                rank 1        rank 2                rank 3
//   send input -> 2                     recv 0 -> output
//
// Source: Gropp, Lusk, Doss and Skjellum, "A high-performance, portable implementation of the MPI
// message passing interface standard" (Parallel Computing 1996): eager and rendezvous messages.
#include "collectives/algorithms/algorithms.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

void message(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Index peer = fixed(shape.root), tag = fixed(0), whole = fixed(0);
  plan.single_chunk = true;
  if (shape.collective == Collective::send) {
    plan.lanes = {
        one_block("send", Buffer::input, whole, {send(peer, tag, whole, r.input(whole))})};
  } else {
    plan.lanes = {
        one_block("receive", Buffer::output, whole, {recv(peer, tag, whole, r.output(whole))})};
  }
}

}  // namespace hocket::internal::algorithms

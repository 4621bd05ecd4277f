// message: one rank's send to another, or its recv; shape.root is the other one. Everything that
// moves a byte is a plan, so this is one too: one lane, one step. The transport cuts a long
// message.
//
//   rank 0                rank 1        rank 2                rank 3
//   send input -> 2                     recv 0 -> output
#include "collectives/algorithms/algorithms.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

void message(Plan& plan, const Shape& shape) {
  const bool sends = shape.collective == Collective::send;
  plan.input_blocks = sends ? 1 : 0;
  plan.output_blocks = sends ? 0 : 1;
  plan.single_chunk = true;
  plan.lanes = {{sends ? send(shape.root, 0, input(0)) : recv(shape.root, 0, output(0))}};
}

}  // namespace hocket::internal::algorithms

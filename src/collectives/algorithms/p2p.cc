// message: a send to another rank, or a recv from it; shape.root is the other rank. The plan has
// one lane of one step. The transport cuts a long message into frames.
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

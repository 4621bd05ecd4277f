// k-nomial: a tree in which a rank has up to k - 1 = 3 children for each digit; for small messages
// between many nodes.
//
// With v = rank - root (mod p), written in digits of radix 4, the parent of v is v with its last
// digit that is not 0 set to 0. A message passes through ceil(log4 p) ranks instead of ceil(log2 p)
// as in the tree of radix 2 (tree.cc), and a rank sends up to three messages for each digit, which
// are under way at the same time. So it is better where the way of a message takes much longer than
// the work for sending it.
//
//        0          broadcast: down. A rank receives into its output and sends from there, chunk by
//      / | \        chunk; the larger subtree comes first.
//     1  2  3
//                   reduce: up. A rank folds its input and its children's partial results, in that
//                   order, in one step. The root is shape.root.
//
//   rank 0            rank 1            rank 2            rank 3            a reduce with root 0
//   receives b        b > 0                                                 receive up / send up
//   receives c                          c > 0                               receive up / send up
//   receives d                                            d > 0             receive up / send up
//   folds a+b+c+d                                                           fold
//
// The tree is that of the k-nomial algorithms of MPICH and Open MPI; Chan, Heimlich, Purkayastha
// and van de Geijn, "Collective communication: theory, practice, and experience" (CCPE 2007)
// describe the tree of radix 2.
#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/trees.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

namespace {

constexpr std::uint32_t radix = 4;

TreePlace place_of(const Shape& shape) {
  return nomial_place(shape, static_cast<std::uint32_t>(shape.root), radix);
}
TreePart whole_message(const Shape& shape) {
  return {.block = steps::fixed(0), .most_children = most_nomial_children(shape, radix)};
}

}  // namespace

void k_nomial_reduce(Plan& plan, const Shape& shape) {
  const TreePart part = whole_message(shape);
  plan.scratch_blocks = part.scratch_blocks();
  lay_up(plan, place_of(shape), part);
}

void k_nomial_broadcast(Plan& plan, const Shape& shape) {
  lay_down(plan, place_of(shape), whole_message(shape));
}

}  // namespace hocket::internal::algorithms

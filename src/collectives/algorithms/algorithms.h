// The functions in the rows of the registry. Each adds the lanes to the plan of one rank, for at
// least two ranks. Every rank makes its own plan; the plans of all ranks fit together. The verifier
// proves it for 1 to 64 ranks, and for plans of many ranks for more, in the tests.
#pragma once

#include "collectives/plan/plan.h"

namespace hocket::internal::algorithms {

// Load/store, one node.
void inline_all_reduce(Plan& plan, const Shape& shape);
void inline_reduce(Plan& plan, const Shape& shape);
void inline_broadcast(Plan& plan, const Shape& shape);
void inline_all_gather(Plan& plan, const Shape& shape);
void inline_gather(Plan& plan, const Shape& shape);
void inline_reduce_scatter(Plan& plan, const Shape& shape);
void inline_scatter(Plan& plan, const Shape& shape);
void inline_all_to_all(Plan& plan, const Shape& shape);
void inline_barrier(Plan& plan, const Shape& shape);
void one_shot_all_reduce(Plan& plan, const Shape& shape);
void one_shot_reduce(Plan& plan, const Shape& shape);
void one_shot_broadcast(Plan& plan, const Shape& shape);
void one_shot_all_gather(Plan& plan, const Shape& shape);
void one_shot_gather(Plan& plan, const Shape& shape);
void one_shot_reduce_scatter(Plan& plan, const Shape& shape);
void one_shot_scatter(Plan& plan, const Shape& shape);
void one_shot_all_to_all(Plan& plan, const Shape& shape);
void staged_all_reduce(Plan& plan, const Shape& shape);
void staged_reduce(Plan& plan, const Shape& shape);
void root_fold(Plan& plan, const Shape& shape);
void staged_broadcast(Plan& plan, const Shape& shape);
void staged_all_gather(Plan& plan, const Shape& shape);
void staged_gather(Plan& plan, const Shape& shape);
void staged_reduce_scatter(Plan& plan, const Shape& shape);
void staged_scatter(Plan& plan, const Shape& shape);
void staged_all_to_all(Plan& plan, const Shape& shape);
void eager_gather(Plan& plan, const Shape& shape);
void eager_scatter(Plan& plan, const Shape& shape);
void eager_all_to_all(Plan& plan, const Shape& shape);
void direct_all_reduce(Plan& plan, const Shape& shape);
void direct_reduce(Plan& plan, const Shape& shape);
void direct_broadcast(Plan& plan, const Shape& shape);
void direct_all_gather(Plan& plan, const Shape& shape);
void direct_gather(Plan& plan, const Shape& shape);
void direct_reduce_scatter(Plan& plan, const Shape& shape);
void direct_scatter(Plan& plan, const Shape& shape);
void direct_all_to_all(Plan& plan, const Shape& shape);

// Over messages.
void exchange_all_reduce(Plan& plan, const Shape& shape);  // "one-shot"
void exchange_all_gather(Plan& plan, const Shape& shape);
void exchange_barrier(Plan& plan, const Shape& shape);
void owner_fold(Plan& plan, const Shape& shape);  // all-reduce, reduce-scatter
void pairs_all_to_all(Plan& plan, const Shape& shape);
void pairs_gather(Plan& plan, const Shape& shape);
void pairs_scatter(Plan& plan, const Shape& shape);
void pairs_reduce(Plan& plan, const Shape& shape);
void ring(Plan& plan, const Shape& shape);  // all-reduce, all-gather, reduce-scatter
void tree_all_reduce(Plan& plan, const Shape& shape);
void tree_reduce(Plan& plan, const Shape& shape);
void tree_broadcast(Plan& plan, const Shape& shape);
void tree_barrier(Plan& plan, const Shape& shape);
void k_nomial_reduce(Plan& plan, const Shape& shape);
void k_nomial_broadcast(Plan& plan, const Shape& shape);
void k_nomial_gather(Plan& plan, const Shape& shape);
void k_nomial_scatter(Plan& plan, const Shape& shape);
void double_tree_all_reduce(Plan& plan, const Shape& shape);
void double_tree_reduce(Plan& plan, const Shape& shape);
void double_tree_broadcast(Plan& plan, const Shape& shape);
void circulant(Plan& plan, const Shape& shape);           // all-reduce, all-gather, reduce-scatter
void pat(Plan& plan, const Shape& shape);                 // all-gather, reduce-scatter
void bruck(Plan& plan, const Shape& shape);               // all-to-all
void recursive_doubling(Plan& plan, const Shape& shape);  // all-reduce
void message(Plan& plan, const Shape& shape);             // send, recv; the peer is shape.root

// Load/store within nodes, messages between them.
void two_level_all_reduce(Plan& plan, const Shape& shape);
void two_level_reduce_scatter(Plan& plan, const Shape& shape);
void two_level_all_gather(Plan& plan, const Shape& shape);
void two_level_broadcast(Plan& plan, const Shape& shape);
void two_level_reduce(Plan& plan, const Shape& shape);
void two_level_gather(Plan& plan, const Shape& shape);
void two_level_scatter(Plan& plan, const Shape& shape);
void two_level_all_to_all(Plan& plan, const Shape& shape);
void leaders_all_reduce(Plan& plan, const Shape& shape);
void leaders_all_gather(Plan& plan, const Shape& shape);
void leaders_reduce_scatter(Plan& plan, const Shape& shape);
void leaders_gather(Plan& plan, const Shape& shape);
void leaders_scatter(Plan& plan, const Shape& shape);
void leaders_broadcast(Plan& plan, const Shape& shape);
void leaders_reduce(Plan& plan, const Shape& shape);
void leaders_barrier(Plan& plan, const Shape& shape);

}  // namespace hocket::internal::algorithms

// two-level all-reduce, reduce-scatter and all-gather: load and store within each node, messages
// between nodes. All of this happens at the same time, on different chunks.
//
// All-reduce. S is the number of ranks of the largest node, n the number of nodes. The message is
// cut in S message shards ("shards" below), and each shard in n blocks, one for each node: block j
// n + m is the part of shard j that is folded on node m. On node i, which has n_i ranks, local rank
// j mod n_i owns shard j: it sends and receives the parts of this shard for its node, and folds
// part i. So all ranks of a node send and receive, also if nodes have different numbers of ranks.
//
//   node 0: ranks 0 and 1, node 1: ranks 2 and 3; S = 2 shards of 2 parts: blocks 00 01 | 10 11
//   ranks 0 and 2 own shard 0, ranks 1 and 3 own shard 1
//
//   rank 0         rank 1         rank 2         rank 3
//   stages 10 11   stages 00 01   stages 10 11   stages 00 01   lane stage: shards of other owners
//   sums 01        sums 11        sums 00        sums 10        lane partial: of its node
//   01 -> rank 2   11 -> rank 3   00 -> rank 0   10 -> rank 1   lanes send part, receive part
//   folds 00       folds 10       folds 01       folds 11       lane fold: of all nodes
//   00 -> rank 2   10 -> rank 3   01 -> rank 0   11 -> rank 1   lanes send result, receive result
//   copies 10 11   copies 00 01   copies 10 11   copies 00 01   lane collect: from owners' scratch
//
// A node sends n - 1 of the n parts of every shard, and n - 1 times the result of its own part:
// together 2 (n - 1) / n times the message, which is the least for an all-reduce. Parts of 16- and
// 8-bit floats are sums, and are sent as fp32, unless their node has one rank. The order of the
// fold depends on the layout, but each part is folded by one rank and its result is copied, so all
// ranks get the same bits.
//
// A reduce-scatter needs no shards, and ends with the fold. Rank q owns block q. On each other node
// the local rank (local rank of q) mod n_i folds the inputs of its node for block q and sends the
// partial result to rank q, which folds all of them. In an all-gather rank q sends its block to
// that same rank of each other node, from whose scratch the other ranks of the node copy it.
//
// Source: MagPIe (Kielmann et al., PPoPP'99), in which ranks reduce within nodes first; Kandalla et
// al. (CAC'09) and DPML (Bayatpour et al., SC'17), which have several leaders for each node.
#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/levels.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

namespace {

enum Flag : int { ready = 0, result = 1, consumed = 2 };

/// What the lanes of all collectives here need.
class TwoLevel : Levels {
 public:
  TwoLevel(Plan& plan, const Shape& shape) : Levels(plan, shape) {}

  void all_reduce();
  void reduce_scatter();
  void all_gather();

 private:
  bool owns(std::uint32_t owner) const { return owner % locals_ == own_; }
  /// Sums of several ranks are wide.
  bool wide_from(std::uint32_t node) const { return shape_.widened && !alone_on(node); }

  /// The contributions of the node to block b of the input, one of which is this rank's own.
  std::vector<Range> local_parts(std::uint32_t b) const {
    const Index block = fixed(b);
    return in_rank_order(own_, locals_, r_.input(block), at(r_.scratch(block), by_source(0)));
  }

  void stage(std::uint32_t blocks, auto&& is_mine, Flag read);
  void send_partial(std::uint32_t b, Index to, Index tag);
  std::vector<std::uint32_t> receive_partials(std::uint32_t b, std::uint32_t owner, Index tag,
                                              std::uint32_t fold_lane, std::vector<Range>* parts);
  void own_shard(std::uint32_t j, std::uint32_t collect_lane, Steps* results);

  std::uint32_t next_scratch_ = 0;
};

/// The lane that copies the blocks of the input that other ranks of the node fold to scratch.
void TwoLevel::stage(std::uint32_t blocks, auto&& is_mine, Flag read) {
  if (one_local_rank()) return;
  Steps steps = {wait_all(read, slots)};
  for (std::uint32_t i = 1; i <= blocks; ++i) {
    const std::uint32_t b = (shape_.rank + i) % blocks;
    if (is_mine(b)) continue;
    steps.push_back(copy(fixed(b), r_.input(fixed(b)), {r_.scratch(fixed(b))}));
  }
  add(publishing(all_blocks("stage", Buffer::input, std::move(steps)), ready));
}

/// What this node contributes to block b goes to rank `to`.
void TwoLevel::send_partial(std::uint32_t b, Index to, Index tag) {
  const Index block = fixed(b);
  if (one_local_rank()) {
    add(all_blocks("send part", Buffer::input, {send(to, tag, block, r_.input(block))}));
    return;
  }
  const Range partial = r_.scratch(fixed(next_scratch_++), shape_.widened);
  const std::uint32_t sum = next_lane(), sent = sum + 1;
  add(all_blocks(
      "partial", Buffer::input,
      {wait_all(ready), await(sent, fixed(0), slots), fold(block, local_parts(b), partial)}));
  add(all_blocks("send part", Buffer::input,
                 {await(sum, fixed(0)), send(to, tag, block, partial)}));
}

/// The lanes that receive what the other nodes contribute to block b, from the ranks that stand
/// there for `owner`. parts: all contributions, in the order of nodes.
std::vector<std::uint32_t> TwoLevel::receive_partials(std::uint32_t b, std::uint32_t owner,
                                                      Index tag, std::uint32_t fold_lane,
                                                      std::vector<Range>* parts) {
  const Index block = fixed(b);
  std::vector<std::uint32_t> lanes;
  for (std::uint32_t m = 0; m < nodes_; ++m) {
    if (m == node_) {
      const std::vector<Range> local = local_parts(b);
      parts->insert(parts->end(), local.begin(), local.end());
      continue;
    }
    const Range part = r_.scratch(fixed(next_scratch_++), wide_from(m));
    parts->push_back(part);
    lanes.push_back(add(all_blocks(
        "receive part", Buffer::input,
        {await(fold_lane, fixed(0), slots), recv(fixed(rank_on(m, owner)), tag, block, part)})));
  }
  return lanes;
}

/// The lanes of an all-reduce for shard j, which this rank owns.
void TwoLevel::own_shard(std::uint32_t j, std::uint32_t collect_lane, Steps* results) {
  const std::uint32_t mine = j * nodes_ + node_;
  const Index block = fixed(mine), part_tag = fixed(std::int64_t{2} * j),
              result_tag = fixed(std::int64_t{2} * j + 1);
  const std::uint32_t fold_lane = reserve();
  std::vector<Range> parts;
  const std::vector<std::uint32_t> receives =
      receive_partials(mine, j, part_tag, fold_lane, &parts);
  results->push_back(await(fold_lane, fixed(0)));
  for (const std::uint32_t m : nodes_after(node_)) {
    const std::uint32_t theirs = j * nodes_ + m;
    const Index b = fixed(theirs), owner = fixed(rank_on(m, j));
    send_partial(theirs, owner, part_tag);
    Steps steps = {await(next_lane() - 1, fixed(0))};  // in place, the result overwrites the part
    if (!one_local_rank()) {
      steps = {wait_all(consumed, slots), await(collect_lane, fixed(0), slots)};
    }
    steps.push_back(recv(owner, result_tag, b, one_local_rank() ? r_.output(b) : r_.scratch(b)));
    results->push_back(
        await(add(all_blocks("receive result", Buffer::output, std::move(steps))), fixed(0)));
  }
  Steps fold;
  if (!one_local_rank()) fold = {wait_all(ready), wait_all(consumed, slots)};
  for (const std::uint32_t lane : receives) fold.push_back(await(lane, fixed(0)));
  std::vector<Range> places = {r_.output(block)};
  if (!one_local_rank()) places.push_back(r_.scratch(block));
  for (const std::uint32_t m : nodes_after(node_)) {
    const std::uint32_t sent =
        add(all_blocks("send result", Buffer::output,
                       {await(fold_lane, fixed(0)),
                        send(fixed(rank_on(m, j)), result_tag, block, places.back())}));
    if (!one_local_rank()) fold.push_back(await(sent, fixed(0), slots));
  }
  fold.push_back(finish(block, std::move(parts), std::move(places)));
  plan_.lanes[fold_lane] = all_blocks("fold", Buffer::input, std::move(fold));
}

void TwoLevel::all_reduce() {
  const std::uint32_t shards = layout_.ranks_of_largest(), blocks = shards * nodes_;
  const std::uint32_t owned = (shards - 1) / layout_.ranks_of_smallest() + 1;
  const auto local_owner = [&](std::uint32_t b) { return b / nodes_ % locals_; };
  plan_.cut = blocks;
  plan_.scratch_blocks = blocks + 2 * owned * (nodes_ - 1);
  plan_.wide_scratch = shape_.widened;
  next_scratch_ = blocks;
  const auto is_mine = [&](std::uint32_t b) { return local_owner(b) == own_; };
  stage(blocks, is_mine, result);

  // Other lanes await these two, so their numbers must be known.
  const std::uint32_t collect_lane = next_lane(), result_lane = collect_lane + 1;
  if (!one_local_rank()) plan_.lanes.resize(result_lane + 1);
  Steps results;
  for (std::uint32_t j = own_; j < shards; j += locals_) own_shard(j, collect_lane, &results);
  if (one_local_rank()) return;

  Steps collect = {await(result_lane, fixed(0))};
  for (std::uint32_t i = 0; i < locals_; ++i) {
    const std::uint32_t owner = (own_ + i) % locals_;
    if (owner != own_) collect.push_back(wait(fixed(owner), result));
    for (std::uint32_t b = 0; b < blocks; ++b) {
      const bool is_written = owner == own_ && b % nodes_ == node_;  // by the fold
      if (local_owner(b) != owner || is_written) continue;
      const Index block = fixed(b);
      collect.push_back(copy(block, at(r_.scratch(block), fixed(owner)), {r_.output(block)}));
    }
  }
  plan_.lanes[collect_lane] =
      publishing(all_blocks("collect", Buffer::output, std::move(collect)), consumed);
  plan_.lanes[result_lane] =
      publishing(all_blocks("result", Buffer::output, std::move(results)), result);
}

void TwoLevel::reduce_scatter() {
  const std::uint32_t blocks = shape_.ranks;
  const std::uint32_t largest = layout_.ranks_of_largest();
  const std::uint32_t spread = (largest - 1) / layout_.ranks_of_smallest() + 1;
  plan_.scratch_blocks = blocks + (nodes_ - 1) * spread + nodes_ - 1;
  plan_.wide_scratch = shape_.widened;
  next_scratch_ = blocks;
  const auto local_owner = [&](std::uint32_t b) { return layout_.local_rank(b); };
  const auto is_mine = [&](std::uint32_t b) { return owns(local_owner(b)); };
  stage(blocks, is_mine, consumed);

  const std::uint32_t fold_lane = reserve();
  std::vector<Range> parts;
  const std::vector<std::uint32_t> receives =
      receive_partials(shape_.rank, own_, fixed(0), fold_lane, &parts);
  Steps steps;
  if (!one_local_rank()) steps = {wait_all(ready)};
  for (const std::uint32_t lane : receives) steps.push_back(await(lane, fixed(0)));
  steps.push_back(finish(fixed(shape_.rank), std::move(parts), {r_.output(fixed(0))}));
  plan_.lanes[fold_lane] = all_blocks("fold", Buffer::input, std::move(steps));
  Steps folded = {await(fold_lane, fixed(0))};
  for (const std::uint32_t m : nodes_after(node_)) {
    for (const std::uint32_t b : layout_.ranks_of(m)) {
      if (!owns(local_owner(b))) continue;
      const std::uint32_t first = next_lane();
      send_partial(b, fixed(b), fixed(0));
      folded.push_back(await(first, fixed(0)));
    }
  }
  if (!one_local_rank())
    add(publishing(all_blocks("folded", Buffer::input, std::move(folded)), consumed));
}

void TwoLevel::all_gather() {
  const std::uint32_t blocks = shape_.ranks;
  const std::uint32_t largest = layout_.ranks_of_largest();
  const std::uint32_t spread = (largest - 1) / layout_.ranks_of_smallest() + 1;
  plan_.scratch_blocks = 1 + (nodes_ - 1) * spread;
  const Index own = fixed(shape_.rank), only = fixed(0), tag = fixed(0);
  const bool shares = !one_local_rank();
  // Block q of another node is in this block of the scratch of the local rank that receives it.
  std::vector<std::uint32_t> place(blocks), next(locals_, 1);
  for (std::uint32_t q = 0; q < blocks; ++q) {
    if (layout_.node_of(q) != node_) place[q] = next[layout_.local_rank(q) % locals_]++;
  }

  if (shares) {
    add(publishing(all_blocks("stage", Buffer::output,
                              {wait_all(consumed, slots),
                               copy(own, r_.input(only), {r_.scratch(only), r_.output(own)})}),
                   ready));
  } else {
    add(all_blocks("copy", Buffer::output, {copy(own, r_.input(only), {r_.output(own)})}));
  }
  const std::uint32_t collect_lane = next_lane(), result_lane = collect_lane + 1;
  if (shares) plan_.lanes.resize(result_lane + 1);
  Steps results, collect;
  for (std::uint32_t q = 0; q < blocks; ++q) {
    if (layout_.node_of(q) == node_ || !owns(layout_.local_rank(q))) continue;
    const Index b = fixed(q);
    const Range staged = r_.scratch(fixed(place[q]));
    Steps steps;
    if (shares) {
      steps = {wait_all(consumed, slots), await(collect_lane, fixed(0), slots)};
    }
    steps.push_back(recv(b, tag, b, shares ? staged : r_.output(b)));
    results.push_back(
        await(add(all_blocks("receive", Buffer::output, std::move(steps))), fixed(0)));
    collect.push_back(results.back());
    collect.push_back(copy(b, staged, {r_.output(b)}));
  }
  for (const std::uint32_t m : nodes_after(node_)) {
    add(all_blocks("send", Buffer::output,
                   {send(fixed(rank_on(m, own_)), tag, own, r_.input(only))}));
  }
  if (!shares) return;

  for (std::uint32_t i = 1; i < locals_; ++i) {
    const std::uint32_t peer = (own_ + i) % locals_, rank = layout_.ranks_of(node_)[peer];
    collect.push_back(wait(fixed(peer), ready));
    collect.push_back(
        copy(fixed(rank), at(r_.scratch(only), fixed(peer)), {r_.output(fixed(rank))}));
    if (next[peer] > 1) collect.push_back(wait(fixed(peer), result));
    for (std::uint32_t q = 0; q < blocks; ++q) {
      if (layout_.node_of(q) == node_ || layout_.local_rank(q) % locals_ != peer) continue;
      collect.push_back(
          copy(fixed(q), at(r_.scratch(fixed(place[q])), fixed(peer)), {r_.output(fixed(q))}));
    }
  }
  plan_.lanes[collect_lane] =
      publishing(all_blocks("collect", Buffer::output, std::move(collect)), consumed);
  if (results.empty()) results = {await(0, fixed(0))};  // no peer waits for this lane
  plan_.lanes[result_lane] =
      publishing(all_blocks("result", Buffer::output, std::move(results)), result);
}

}  // namespace

void two_level_all_reduce(Plan& plan, const Shape& shape) { TwoLevel(plan, shape).all_reduce(); }
void two_level_reduce_scatter(Plan& plan, const Shape& shape) {
  TwoLevel(plan, shape).reduce_scatter();
}
void two_level_all_gather(Plan& plan, const Shape& shape) { TwoLevel(plan, shape).all_gather(); }

}  // namespace hocket::internal::algorithms

// two-level gather, scatter and all-to-all: the blocks that go from one node to another are first
// put side by side in the scratch of one rank, by load and store, and then sent in few messages.
//
//   2 nodes, node 0: ranks 0 and 1, node 1: ranks 2 and 3; a: the block of rank 0, ...
//
//   gather to rank 0
//   rank 0              rank 1              rank 2              rank 3
//                       stages b                                stages d           lane stage
//                                           packs c d                              lane pack
//                       receives c d        c d > 1                                receive, send
//   copies a, b c d                                                                lane collect
//
// Gather. On each node but the root's, the plan leader (local rank 0; "leader" below) copies the
// blocks of its node to its scratch and sends them, all in one message, to a rank of the root's
// node. The ranks of the root's node receive these messages in turn, beginning with the rank after
// the root, so that the root need not receive all of them. The root copies from their scratch. So
// each block is sent once, n - 1 messages come to the root's node, and only the root copies more
// than the blocks of its node.
//
//   scatter from rank 0
//   rank 0              rank 1              rank 2              rank 3
//   stages b c d                                                                   lane stage
//                       c d > 2, from       receives c d                           send, receive
//                       rank 0's scratch
//   copies a            copies b            copies c            copies d           lane collect
//
// Scatter. The blocks go the other way. The root copies all blocks to its scratch. From there the
// ranks of the root's node, in turn, send the blocks of each other node to its leader, and the
// ranks of that node copy their blocks from the scratch of the leader.
//
//   all-to-all; a2: the block of rank 0 for rank 2
//   rank 0              rank 1              rank 2              rank 3
//   stages a1 a3        stages b0 b2        stages c3 c1        stages d2 d0       lane stage
//   packs a2 b2         packs a3 b3         packs c0 d0         packs c1 d1        lane pack
//   a2 b2 > 2           a3 b3 > 3           c0 d0 > 0           c1 d1 > 1          send, receive
//   copies b0           copies a1           copies d2           copies c3          lane collect
//   copies a0, c0 d0    copies b1, c1 d1    copies c2, a2 b2    copies d3, a3 b3   lane unpack
//
// All-to-all. Rank d is to receive a block from each rank of another node, which has n_i ranks. The
// rank of that node with the local rank (local rank of d) mod n_i collects these blocks and sends
// them to d in one message. So all ranks send and receive, a node sends p - n_i messages instead of
// n_i (p - n_i), and each block is sent between nodes once.
//
// Runs of blocks. The blocks of one message are next to one another in scratch, and one index of a
// plan names them, so their numbers must be at equal distances (`Run`). If the ranks of a node are
// not (0, 1, 3), a gather or a scatter sends several messages for that node. A message of one block
// that only one rank of its node handles needs no scratch: it is sent from the input, or received
// into the output.
//
// Scratch. A rank overwrites chunk k - slots in its scratch with chunk k when every local rank that
// reads chunk k - slots has published by the flag `consumed` that it has copied or sent it, and
// when this rank's own sends from there have ended.
//
// The v-variants have no such plan. A rank that packs the blocks of other ranks must know their
// lengths. In gather-v, scatter-v and all-to-all-v only the two ends of a block know its length,
// and a plan has no step that tells it to another rank.
//
// Source: of gather and scatter by leaders MagPIe (Kielmann et al., PPoPP'99); of an all-to-all
// whose messages are put together within nodes Kumar, Mamidala and Panda (IPDPS'08); that all ranks
// of a node send is known from Träff and Hunold (CLUSTER'20).
#include <algorithm>

#include "base/checked.h"
#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/levels.h"

namespace hocket::internal::algorithms {

using namespace steps;

namespace {

enum Flag : int { ready = 0, consumed = 1 };

constexpr std::uint32_t leader = 0;  // local rank
constexpr Index only = {.base = 0};

class RootedBlocks : Levels {
 public:
  RootedBlocks(Plan& plan, const Shape& shape)
      : Levels(plan, shape),
        extents_(shape.collective == Collective::gather ? Buffer::output : Buffer::input),
        root_node_(layout_.node_of(narrowed<std::uint32_t>(shape.root))),
        root_(layout_.local_rank(narrowed<std::uint32_t>(shape.root))),
        at_root_node_(node_ == root_node_) {}

  void gather();
  void scatter();

 private:
  /// What goes from or to the root's node in one message.
  struct Message {
    Run run;
    std::uint32_t node;   // whose blocks these are
    std::uint32_t local;  // which rank of the root's node sends or receives it
    std::uint32_t there;  // its first place in the scratch of the leader
    std::uint32_t place;  // the same in the root's node
    bool in_place;        // the root has it in its input or output, and needs no scratch
  };
  std::vector<Message> messages(std::vector<std::uint32_t> next) const;
  std::uint32_t most_places() const;

  Index own() const { return fixed(shape_.rank); }
  Index rank_of(const Message& message) const {
    return fixed(at_root_node_ ? rank_on(message.node, leader)
                               : rank_on(root_node_, message.local));
  }
  Index tag(const Message& message) const { return fixed(message.there); }
  Step send_from(const Message& message, const Range& range) const {
    return for_blocks(send(rank_of(message), tag(message), message.run.blocks(), range),
                      message.run.length);
  }
  Step recv_into(const Message& message, const Range& range) const {
    return for_blocks(recv(rank_of(message), tag(message), message.run.blocks(), range),
                      message.run.length);
  }
  Step copy_all(const Message& message, const Range& from, const Range& to) const {
    return for_blocks(copy(message.run.blocks(), from, {to}), message.run.length);
  }
  Range of_leader(const Message& message) const {
    return r_.scratch(message.run.places(message.there));
  }
  Range of_root_node(const Message& message, std::uint32_t local) const {
    return at(r_.scratch(message.run.places(message.place)), fixed(local));
  }
  std::uint32_t add(const char* name, Steps steps) {
    return Levels::add(all_blocks(name, extents_, std::move(steps)));
  }
  void fill(std::uint32_t lane, const char* name, Steps steps, int flag) {
    plan_.lanes[lane] = all_blocks(name, extents_, std::move(steps));
    if (!one_local_rank()) plan_.lanes[lane].publishes = narrowed<std::int16_t>(flag);
  }

  void gather_to_root(const std::vector<Message>& all);
  void gather_for_root(const std::vector<Message>& all);
  void gather_on_other_node(const std::vector<Message>& all);
  void scatter_from_root(const std::vector<Message>& all);
  void scatter_for_root(const std::vector<Message>& all);
  void scatter_on_other_node(const std::vector<Message>& all);

  const Buffer extents_;
  const std::uint32_t root_node_, root_;
  const bool at_root_node_;
};

/// next: the first free place in the scratch of each rank of the root's node.
std::vector<RootedBlocks::Message> RootedBlocks::messages(std::vector<std::uint32_t> next) const {
  std::vector<Message> found;
  std::uint32_t turn = root_;
  for (const std::uint32_t node : nodes_after(root_node_)) {
    turn = (turn + 1) % size_of(root_node_);
    std::uint32_t there = 0;
    for (const Run& run : runs_of(layout_.ranks_of(node))) {
      const bool in_place = turn == root_ && run.length == 1;
      std::uint32_t& place = next[turn % next.size()];
      found.push_back({run, node, turn, there, place, in_place});
      there += run.length;
      if (!in_place) place += run.length;
    }
  }
  return found;
}

/// The blocks of scratch that a gather needs, whichever rank is the root: those of a leader, or the
/// own block and what comes from other nodes.
std::uint32_t RootedBlocks::most_places() const {
  std::uint32_t most = layout_.ranks_of_largest();
  for (std::uint32_t node = 0; node < nodes_; ++node) {
    std::vector<std::uint32_t> next(size_of(node), 1);
    std::size_t turn = 0;
    for (const std::uint32_t other : nodes_after(node)) {
      std::uint32_t& place = next[++turn % next.size()];
      place += size_of(other);
      most = std::max(most, place);
    }
  }
  return most;
}

void RootedBlocks::gather() {
  // Block 0 of a rank of the root's node is its own.
  const std::vector<Message> all = messages(std::vector<std::uint32_t>(size_of(root_node_), 1));
  plan_.scratch_blocks = most_places();
  if (!at_root_node_) return gather_on_other_node(all);
  if (own_ == root_) return gather_to_root(all);
  gather_for_root(all);
}

void RootedBlocks::gather_on_other_node(const std::vector<Message>& all) {
  if (own_ != leader) {
    Lane stage = all_blocks(
        "stage", extents_,
        {wait(fixed(leader), consumed, slots), copy(own(), r_.input(only), {r_.scratch(only)})});
    Levels::add(publishing(std::move(stage), ready));
    return;
  }
  const std::uint32_t pack_lane = one_local_rank() ? 0 : reserve();
  Steps pack;
  for (const Message& message : all) {
    if (message.node != node_) continue;
    if (one_local_rank()) {
      add("send", {send_from(message, r_.input(only))});
      return;
    }
    const std::uint32_t sent =
        add("send", {await(pack_lane, only), send_from(message, of_leader(message))});
    pack.push_back(await(sent, only, slots));
  }
  pack.push_back(copy(own(), r_.input(only), {r_.scratch(fixed(own_))}));
  for (std::uint32_t peer = 1; peer < locals_; ++peer) {
    const Index block = fixed(rank_on(node_, peer));
    pack.push_back(wait(fixed(peer), ready));
    pack.push_back(copy(block, at(r_.scratch(only), fixed(peer)), {r_.scratch(fixed(peer))}));
  }
  fill(pack_lane, "pack", std::move(pack), consumed);
}

/// A rank of the root's node that is not the root.
void RootedBlocks::gather_for_root(const std::vector<Message>& all) {
  const Step free = wait(fixed(root_), consumed, slots);
  Steps stage = {free, copy(own(), r_.input(only), {r_.scratch(only)})};
  for (const Message& message : all) {
    if (message.local != own_) continue;
    const std::uint32_t received =
        add("receive", {free, recv_into(message, of_root_node(message, own_))});
    stage.push_back(await(received, only));
  }
  fill(reserve(), "stage", std::move(stage), ready);
}

void RootedBlocks::gather_to_root(const std::vector<Message>& all) {
  const std::uint32_t collect_lane = reserve();
  Steps collect = {copy(own(), r_.input(only), {r_.output(own())})};
  // The ranks that receive no messages come first.
  for (std::uint32_t i = locals_; i-- > 0;) {
    const std::uint32_t peer = (own_ + i) % locals_;
    if (peer != own_) {
      const Index block = fixed(rank_on(node_, peer));
      collect.push_back(wait(fixed(peer), ready));
      collect.push_back(copy(block, at(r_.scratch(only), fixed(peer)), {r_.output(block)}));
    }
    for (const Message& message : all) {
      if (message.local != peer) continue;
      const Range output = r_.output(message.run.blocks()), staged = of_root_node(message, peer);
      if (message.in_place) {
        add("receive", {recv_into(message, output)});
        continue;
      }
      if (peer == own_) {
        collect.push_back(await(
            add("receive", {await(collect_lane, only, slots), recv_into(message, staged)}), only));
      }
      collect.push_back(copy_all(message, staged, output));
    }
  }
  fill(collect_lane, "collect", std::move(collect), consumed);
}

void RootedBlocks::scatter() {
  // The root's scratch has the blocks of its node first.
  const std::vector<Message> all = messages({size_of(root_node_)});
  plan_.scratch_blocks = shape_.ranks;
  if (!at_root_node_) return scatter_on_other_node(all);
  if (own_ == root_) return scatter_from_root(all);
  scatter_for_root(all);
}

void RootedBlocks::scatter_from_root(const std::vector<Message>& all) {
  const std::uint32_t stage_lane = reserve();
  Steps stage;
  if (!one_local_rank()) stage = {wait_all(consumed, slots)};
  for (const Message& message : all) {
    if (message.local != own_) continue;
    if (message.in_place) {
      add("send", {send_from(message, r_.input(message.run.blocks()))});
      continue;
    }
    const std::uint32_t sent =
        add("send", {await(stage_lane, only), send_from(message, of_root_node(message, own_))});
    stage.push_back(await(sent, only, slots));
  }
  for (const Message& message : all) {
    if (message.in_place) continue;
    stage.push_back(copy_all(message, r_.input(message.run.blocks()), of_root_node(message, own_)));
  }
  for (std::uint32_t peer = 0; peer < locals_; ++peer) {
    const Index block = fixed(rank_on(node_, peer));
    const Range place = peer == own_ ? r_.output(only) : r_.scratch(fixed(peer));
    stage.push_back(copy(block, r_.input(block), {place}));
  }
  fill(stage_lane, "stage", std::move(stage), ready);
}

/// A rank of the root's node that is not the root.
void RootedBlocks::scatter_for_root(const std::vector<Message>& all) {
  const Step there = wait(fixed(root_), ready);
  Steps collect = {there,
                   copy(own(), at(r_.scratch(fixed(own_)), fixed(root_)), {r_.output(only)})};
  for (const Message& message : all) {
    if (message.local != own_) continue;
    collect.push_back(
        await(add("send", {there, send_from(message, of_root_node(message, root_))}), only));
  }
  fill(reserve(), "collect", std::move(collect), consumed);
}

void RootedBlocks::scatter_on_other_node(const std::vector<Message>& all) {
  if (own_ != leader) {
    fill(reserve(), "collect",
         {wait(fixed(leader), ready),
          copy(own(), at(r_.scratch(fixed(own_)), fixed(leader)), {r_.output(only)})},
         consumed);
    return;
  }
  const std::uint32_t collect_lane = one_local_rank() ? 0 : reserve();
  Steps collect;
  for (const Message& message : all) {
    if (message.node != node_) continue;
    if (one_local_rank()) {
      add("receive", {recv_into(message, r_.output(only))});
      return;
    }
    const std::uint32_t received =
        add("receive", {wait_all(consumed, slots), await(collect_lane, only, slots),
                        recv_into(message, of_leader(message))});
    collect.push_back(await(received, only));
  }
  collect.push_back(copy(own(), r_.scratch(fixed(own_)), {r_.output(only)}));
  fill(collect_lane, "collect", std::move(collect), ready);
}

class AllToAll : Levels {
 public:
  AllToAll(Plan& plan, const Shape& shape) : Levels(plan, shape) {}

  void build();

 private:
  /// Whether the blocks of this node for rank d of another node are put together by this rank.
  bool packs_for(std::uint32_t d) const {
    return layout_.node_of(d) != node_ && layout_.local_rank(d) % locals_ == own_;
  }
  std::uint32_t most_places() const;
  void stage();
  void send_to(std::uint32_t d);
  void receive();

  std::uint32_t next_place_ = 0;
  Steps packed_;  // awaits
};

/// The blocks of scratch of the rank that needs most: those that it stages, packs and receives.
std::uint32_t AllToAll::most_places() const {
  std::uint32_t most = 0;
  for (std::uint32_t node = 0; node < nodes_; ++node) {
    std::uint32_t packed = 0;
    for (const std::uint32_t other : nodes_after(node)) {
      const auto messages = narrowed<std::uint32_t>((size_of(other) - 1) / size_of(node) + 1);
      packed += messages * size_of(node);
    }
    most = std::max(most, packed + shape_.ranks - size_of(node));
  }
  return shape_.ranks + most;
}

void AllToAll::build() {
  plan_.scratch_blocks = most_places();
  next_place_ = shape_.ranks;
  if (!one_local_rank()) stage();
  for (const std::uint32_t node : nodes_after(node_)) {
    for (const std::uint32_t d : layout_.ranks_of(node)) {
      if (packs_for(d)) send_to(d);
    }
  }
  receive();
  if (one_local_rank()) return;
  const Index own = fixed(shape_.rank);
  Steps collect;
  for (std::uint32_t i = 1; i < locals_; ++i) {
    const std::uint32_t peer = (own_ + i) % locals_;
    const Index block = fixed(rank_on(node_, peer));
    collect.push_back(wait(fixed(peer), ready));
    collect.push_back(copy(block, at(r_.scratch(own), fixed(peer)), {r_.output(block)}));
  }
  collect.insert(collect.end(), packed_.begin(), packed_.end());
  add(publishing(all_blocks("collect", Buffer::output, std::move(collect)), consumed));
}

/// Block d has the place d.
void AllToAll::stage() {
  std::vector<std::uint32_t> for_peers;
  for (std::uint32_t d = 0; d < shape_.ranks; ++d) {
    if (d != shape_.rank && !packs_for(d)) for_peers.push_back(d);
  }
  Steps steps = {wait_all(consumed, slots)};
  for (const Run& run : runs_of(for_peers)) {
    const Index blocks = run.blocks();
    steps.push_back(for_blocks(copy(blocks, r_.input(blocks), {r_.scratch(blocks)}), run.length));
  }
  add(publishing(all_blocks("stage", Buffer::input, std::move(steps)), ready));
}

void AllToAll::send_to(std::uint32_t d) {
  const Index block = fixed(d), to = fixed(d);
  if (one_local_rank()) {
    add(all_blocks("send", Buffer::input, {send(to, only, block, r_.input(block))}));
    return;
  }
  const std::uint32_t first = next_place_;
  next_place_ += locals_;
  const std::uint32_t pack_lane = reserve();
  const std::uint32_t sent =
      add(all_blocks("send", Buffer::input,
                     {await(pack_lane, only),
                      for_blocks(send(to, only, block, r_.scratch(by_source(first))), locals_)}));
  Steps steps = {wait_all(ready), await(sent, only, slots)};
  const auto pack_of_peers = [&](std::uint32_t from, std::uint32_t end) {
    if (from == end) return;
    const Range theirs = at(r_.scratch(block), by_source(from));
    steps.push_back(
        for_blocks(copy(block, theirs, {r_.scratch(by_source(first + from))}), end - from));
  };
  pack_of_peers(0, own_);
  steps.push_back(copy(block, r_.input(block), {r_.scratch(fixed(first + own_))}));
  pack_of_peers(own_ + 1, locals_);
  plan_.lanes[pack_lane] = all_blocks("pack", Buffer::input, std::move(steps));
  packed_.push_back(await(pack_lane, only));
}

void AllToAll::receive() {
  const std::uint32_t unpack_lane = reserve();
  const Index own = fixed(shape_.rank);
  Steps unpack = {copy(own, r_.input(own), {r_.output(own)})};
  for (std::uint32_t i = 1; i < nodes_; ++i) {
    const std::uint32_t node = (node_ + nodes_ - i) % nodes_;
    const Index from = fixed(rank_on(node, own_));
    if (alone_on(node)) {
      add(all_blocks("receive", Buffer::output, {recv(from, only, from, r_.output(from))}));
      continue;
    }
    const Range place = r_.scratch(by_source(next_place_));
    const std::uint32_t received =
        add(all_blocks("receive", Buffer::output,
                       {await(unpack_lane, only, slots),
                        for_blocks(recv(from, only, only, place), size_of(node))}));
    unpack.push_back(await(received, only));
    for (const Run& run : runs_of(layout_.ranks_of(node))) {
      const Index blocks = run.blocks();
      unpack.push_back(for_blocks(
          copy(blocks, r_.scratch(run.places(next_place_)), {r_.output(blocks)}), run.length));
      next_place_ += run.length;
    }
  }
  plan_.lanes[unpack_lane] = all_blocks("unpack", Buffer::output, std::move(unpack));
}

}  // namespace

void two_level_gather(Plan& plan, const Shape& shape) { RootedBlocks(plan, shape).gather(); }
void two_level_scatter(Plan& plan, const Shape& shape) { RootedBlocks(plan, shape).scatter(); }
void two_level_all_to_all(Plan& plan, const Shape& shape) { AllToAll(plan, shape).build(); }

}  // namespace hocket::internal::algorithms

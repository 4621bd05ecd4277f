// eager: small blocks of a gather-v, a scatter-v or an all-to-all-v pass through scratch, as in
// `one-shot`, and large blocks are messages, as in `pairs`.
//
// Only the sender and the receiver of such a block know its count. Each of them decides by the
// count alone which way the block goes: through scratch if it has at most Plan::small_bytes bytes.
// If the two have different counts, one of which is small and the other one large, that is an error
// of the program. They find it because the arrival lines have the counts.
//
//   rank 0        rank 1        rank 2        rank 3      a gather to rank 0
//   .             [scratch b]   .             [scratch d]  small: input -> own scratch
//   arrive        arrive        arrive        arrive
//   copy a        .             send c        .            large: a message
//   await 1, copy b; await 2, recv c; await 3, copy d      each in a lane of its own
//
// A gather needs one block of scratch on each rank, whatever their number: a small block has up to
// 64 KiB. Where ranks share cores, it has as much as the large scratch of a rank holds: a rank then
// ends when it has copied its block, and leaves its core to the root. In a scatter and an
// all-to-all the sender divides the scratch among its peers: with up to 5 ranks a small block has
// up to 16 KiB, with 13 ranks 5 KiB. A longer block may be copied once, from mapped memory, instead
// of twice. With more than 13 ranks the counts of a rank's blocks do not fit into its arrival line:
// then every block is sent as a message, as the algorithm `pairs` does.
//
// The executor decides where the scratch of a small block is, by its count alone. If the block fits
// beside the counts it is in the arrival line: up to 96 bytes in a gather; in the other two up to
// 88 with 2 ranks, 40 with 3, 4 with 9. So a peer gets count and block with one line of memory:
// with 2 ranks a gather-v of 8 B took 61 ns instead of 85 ns (near cores, 2026-11-27). Other small
// blocks are in scratch. A rank has scratches of several sizes: few large ones, many small ones
// (transport/shm/board.h). A block is put into a scratch of the smallest size that can hold it,
// because a rank may run ahead of its peers by as many operations as it has scratches of that size,
// less one.
//
// All lanes have one instance, so that the executor can prepare the copies of a call that is
// repeated. No lane waits for another one, and a rank sends its messages without waiting for a
// peer: so all messages of a rank are under way at the same time. A rank copies its own block, if
// that is large, after its messages have begun: peers on the same host copy their blocks meanwhile.
//
// Source: no publication known; the same idea: the eager messages of MPI libraries, which are sent
// without asking the receiver (Gropp, Lusk, Doss and Skjellum, "A high-performance, portable
// implementation of the MPI message passing interface standard", Parallel Computing 1996). Here the
// choice is made for each block.
#include <algorithm>

#include "collectives/algorithms/algorithms.h"
#include "collectives/plan/extents.h"
#include "collectives/plan/steps.h"
#include "transport/shm/board.h"
#include "transport/transport.h"

namespace hocket::internal::algorithms {

using namespace steps;

namespace {

/// Sets Plan::small_bytes: to the greatest length at which a scratch of `room` bytes holds `blocks`
/// blocks, but to `most_bytes` at most. Returns false if the counts of a rank's blocks do not fit
/// into the rank's arrival line.
bool divide_scratch(Plan& plan, std::uint32_t blocks, std::size_t most_bytes,
                    std::size_t room = Board::least_large_scratch_bytes) {
  constexpr std::size_t line = 64;
  const Shape& shape = plan.shape;
  if (counts_in_line(row_of(shape.collective), shape.ranks) > most_counts_in_line) return false;
  const std::size_t small = std::min(most_bytes, room / blocks);
  plan.small_bytes = narrowed<std::uint32_t>(small / line * line);
  plan.scratch_blocks = blocks;
  plan.single_chunk = true;
  return true;
}

/// There are too many ranks: all blocks are messages.
void as_pairs(Plan& plan, const Shape& shape, void (*build_lanes)(Plan&, const Shape&)) {
  plan.node.clear();
  plan.scratch_blocks = 0;
  plan.single_chunk = false;
  build_lanes(plan, shape);
}

/// The block in the scratch of rank `from` that rank `to` reads: a rank has none for itself.
Index place(const Shape& shape, std::uint32_t from, std::uint32_t to) {
  return fixed((to + shape.ranks - from - 1) % shape.ranks);
}

/// Takes the block that `from` sends, from its scratch or by a message, to the place `to`.
Lane take(const Ranges& r, std::uint32_t from, Index in_scratch, Index block) {
  const Index peer = fixed(from), tag = fixed(0);
  return one_block("take", Buffer::output, block,
                   {await_arrival(peer),
                    when_small(copy(block, at(r.scratch(in_scratch), peer), {r.output(block)})),
                    when_large(recv(peer, tag, block, r.output(block)))});
}

/// Sends block `to` of the input to that rank, if it is large.
Lane send_large(const Ranges& r, std::uint32_t to) {
  const Index peer = fixed(to), tag = fixed(0);
  return one_block("send", Buffer::input, peer, {when_large(send(peer, tag, peer, r.input(peer)))});
}

/// Puts the small blocks of the input into scratch, and copies this rank's own block to the output
/// if it is small.
Lane put(const Ranges& r, const Shape& shape, Index own_output) {
  Steps steps;
  for (std::uint32_t i = 1; i < shape.ranks; ++i) {
    const std::uint32_t to = (shape.rank + i) % shape.ranks;
    const Range scratch = r.scratch(place(shape, shape.rank, to));
    steps.push_back(when_small(copy(fixed(to), r.input(fixed(to)), {scratch})));
  }
  const Index own = fixed(shape.rank);
  steps.push_back(arrive());
  steps.push_back(when_small(copy(own, r.input(own), {r.output(own_output)})));
  return all_blocks("put", Buffer::input, std::move(steps));
}

/// Sends the large blocks of the input, and copies this rank's own block if it is large: after the
/// sends have begun, so that peers copy theirs meanwhile.
void send_and_copy(Plan& plan, const Ranges& r, const Shape& shape, Index own_output) {
  for (std::uint32_t i = 1; i < shape.ranks; ++i) {
    plan.lanes.push_back(send_large(r, (shape.rank + i) % shape.ranks));
  }
  const Index own = fixed(shape.rank);
  plan.lanes.push_back(one_block("copy", Buffer::input, own,
                                 {when_large(copy(own, r.input(own), {r.output(own_output)}))}));
}

}  // namespace

void eager_gather(Plan& plan, const Shape& shape) {
  const Ranges r(shape.rank);
  const Index own = fixed(shape.rank), root = fixed(shape.root), only = fixed(0), tag = fixed(0);
  const std::size_t room = shape.shares_cores ? Board::scratch_bytes_of(narrowed<int>(shape.ranks))
                                              : Board::least_large_scratch_bytes;
  divide_scratch(plan, 1, room, room);
  if (!shape.is_root()) {
    plan.lanes = {one_block("put", Buffer::input, only,
                            {when_small(copy(only, r.input(only), {r.scratch(only)})), arrive(),
                             when_large(send(root, tag, only, r.input(only)))})};
    return;
  }
  plan.lanes = {one_block("begin", Buffer::output, own,
                          {arrive(), when_small(copy(own, r.input(only), {r.output(own)}))})};
  for (std::uint32_t i = 1; i < shape.ranks; ++i) {
    const std::uint32_t from = (shape.rank + i) % shape.ranks;
    plan.lanes.push_back(take(r, from, only, fixed(from)));
  }
  plan.lanes.push_back(one_block("copy", Buffer::output, own,
                                 {when_large(copy(own, r.input(only), {r.output(own)}))}));
}

void eager_scatter(Plan& plan, const Shape& shape) {
  if (!divide_scratch(plan, shape.ranks - 1, least_located_bytes))
    return as_pairs(plan, shape, pairs_scatter);
  const Ranges r(shape.rank);
  const auto root = static_cast<std::uint32_t>(shape.root);
  if (!shape.is_root()) {
    plan.lanes = {take(r, root, place(shape, root, shape.rank), fixed(0))};
    Steps& steps = plan.lanes[0].steps;
    steps.insert(steps.begin(), arrive());
    return;
  }
  plan.lanes = {put(r, shape, fixed(0))};
  send_and_copy(plan, r, shape, fixed(0));
}

void eager_all_to_all(Plan& plan, const Shape& shape) {
  if (!divide_scratch(plan, shape.ranks - 1, least_located_bytes))
    return as_pairs(plan, shape, pairs_all_to_all);
  const Ranges r(shape.rank);
  plan.lanes = {put(r, shape, fixed(shape.rank))};
  send_and_copy(plan, r, shape, fixed(shape.rank));
  for (std::uint32_t i = 1; i < shape.ranks; ++i) {
    const std::uint32_t from = (shape.rank + shape.ranks - i) % shape.ranks;
    plan.lanes.push_back(take(r, from, place(shape, from, shape.rank), fixed(from)));
  }
}

}  // namespace hocket::internal::algorithms

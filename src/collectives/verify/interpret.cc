#include "collectives/verify/interpret.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "collectives/plan/steps.h"
#include "reduce/fold.h"

namespace hocket::internal {

namespace {

class Interpreter {
 public:
  Interpreter(std::span<const Plan> plans, std::span<const Sizes> sizes,
              std::span<const void* const> inputs, std::span<void* const> outputs,
              const Interpretation& of);
  Status run();

 private:
  /// The memory of a range in one chunk.
  struct Area {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    bool wide = false;
    bool partial = false;     // the plan calls it wide, whatever the type
    std::uint32_t giver = 0;  // the rank whose input it holds, if it holds an input
  };
  struct Message {
    std::vector<std::byte> data;  // of a send that has ended: all blocks without gaps
    std::vector<Area> blocks;     // the source of a send
    bool* taken = nullptr;        // of a send that has not ended: set when the message is received
  };
  /// An instance of a lane that has started.
  struct Thread {
    std::uint32_t rank = 0;
    const Lane* lane = nullptr;
    std::size_t lane_number = 0;
    std::uint32_t instance = 0;
    std::size_t next = 0, chunk = 0, chunks = 1;
    bool posted = false, taken = false, done = false;
  };
  struct Progress {
    std::size_t chunks = 0;  // that have been completed
    bool ended = false;
  };
  struct Rank {
    std::vector<std::byte> scratch, line;
    bool arrived = false;
    std::vector<std::vector<Progress>> progress;  // of each lane and instance
  };
  using Key = std::tuple<std::uint32_t, std::uint32_t, std::int64_t, std::size_t>;

  void start_lanes(std::uint32_t rank);
  void start(std::uint32_t rank, std::size_t lane, std::uint32_t instance);
  void take_turn(Thread& thread);
  void next_step(Thread& thread);
  bool may_go_on(Thread& thread, const Step& step);
  bool peers_are(const Thread& thread, const Step& step, auto&& ready) const;
  bool has_published(const Thread& thread, const Step& step, std::uint32_t peer) const;
  bool has_awaited(const Thread& thread, const Step& step) const;
  bool send(Thread& thread, const Step& step);
  bool recv(Thread& thread, const Step& step);
  void fold_step(const Thread& thread, const Step& step);
  void fold_block(const Thread& thread, const Step& step, std::uint32_t repetition);
  std::vector<Area> areas_of(const Thread& thread, const Step& step,
                             const std::vector<Range>& ranges, std::uint32_t repetition);
  std::vector<Area> blocks_of(const Thread& thread, const Step& step,
                              const std::vector<Range>& ranges);
  Area area_of(const Thread& thread, const Step& step, const Range& range, std::uint32_t repetition,
               std::uint32_t source);
  Status end() const;
  void fail(const Thread& thread, const std::string& what);

  std::span<const Plan> plans_;
  std::span<const Sizes> sizes_;
  std::span<const void* const> inputs_;
  std::span<void* const> outputs_;
  const Interpretation of_;
  std::vector<Lane> entries_;  // by rank: the entry as a lane; without steps if there is none
  std::size_t longest_ = 0;    // elements of the longest block of all ranks
  std::size_t stride_ = 0;     // bytes between the blocks of scratch
  std::mt19937_64 random_;
  std::vector<Rank> ranks_;
  std::deque<Thread> threads_;                         // a deque, so that threads do not move
  std::map<Key, std::deque<Message>> messages_;        // from, to, tag, chunk
  std::map<const std::byte*, std::uint32_t> brought_;  // blocks of scratch: who sent their input
  bool moved_ = true;
  Status status_;
};

Interpreter::Interpreter(std::span<const Plan> plans, std::span<const Sizes> sizes,
                         std::span<const void* const> inputs, std::span<void* const> outputs,
                         const Interpretation& of)
    : plans_(plans), sizes_(sizes), inputs_(inputs), outputs_(outputs), of_(of), random_(of.seed) {
  // One distance for all ranks and for both widths, so that no rank must ask another for it.
  for (const Sizes& each : sizes_) {
    longest_ = std::max({longest_, each.input.longest, each.output.longest});
    stride_ = std::max(stride_, scratch_stride_bytes(each, of_.dtype, true));
  }
  ranks_.resize(plans_.size());
  for (std::uint32_t r = 0; r < plans_.size(); ++r) {
    const Plan& plan = plans_[r];
    Rank& rank = ranks_[r];
    rank.scratch.assign(stride_ * plan.scratch_blocks * plan.slots, std::byte{0xa5});
    rank.line.assign(line_payload_bytes, std::byte{0xa5});
    for (const Lane& lane : plan.lanes) rank.progress.emplace_back(lane.instances);
    entries_.push_back(steps::once("entry", entry_of(plan)));
  }
}

Status Interpreter::run() {
  for (std::uint32_t r = 0; r < plans_.size(); ++r) {
    if (entries_[r].steps.empty()) {
      start_lanes(r);
    } else {
      threads_.push_back({.rank = r, .lane = &entries_[r]});
    }
  }
  std::vector<std::size_t> order;
  std::size_t known = 0;
  while (moved_ && status_.ok()) {
    moved_ = false;
    std::erase_if(order, [&](std::size_t index) { return threads_[index].done; });
    while (known < threads_.size()) order.push_back(known++);
    std::ranges::shuffle(order, random_);
    for (const std::size_t index : order) take_turn(threads_[index]);
  }
  return status_.ok() ? end() : status_;
}

/// Starts the first instances of all lanes.
void Interpreter::start_lanes(std::uint32_t rank) {
  const std::vector<Lane>& lanes = plans_[rank].lanes;
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    const std::uint32_t first = std::min(lanes[lane].window, lanes[lane].instances);
    for (std::uint32_t i = 0; i < first; ++i) start(rank, lane, i);
  }
}

void Interpreter::start(std::uint32_t rank, std::size_t lane_number, std::uint32_t instance) {
  const Lane& lane = plans_[rank].lanes[lane_number];
  Thread thread;
  thread.rank = rank;
  thread.lane = &lane;
  thread.lane_number = lane_number;
  thread.instance = instance;
  if (lane.counts == Counts::one_block) {
    const std::int64_t block = lane.block.at(instance);
    if (block < 0 || block >= sizes_[rank].of(lane.extents).blocks) {
      return fail(thread, fmt::format("is for block {}, which does not exist", block));
    }
  }
  thread.chunks = sizes_[rank].chunks_of(lane.counts, lane.extents,
                                         static_cast<std::size_t>(lane.block.at(instance)));
  threads_.push_back(thread);
}

/// Runs up to three steps of the thread.
void Interpreter::take_turn(Thread& thread) {
  for (std::size_t steps = 1 + random_() % 3; steps > 0 && !thread.done; --steps) {
    const bool ran =
        thread.lane->steps.empty() || may_go_on(thread, thread.lane->steps[thread.next]);
    if (!ran || !status_.ok()) return;
    moved_ = true;
    next_step(thread);
  }
}

void Interpreter::next_step(Thread& thread) {
  thread.posted = thread.taken = false;
  if (++thread.next < thread.lane->steps.size()) return;
  thread.next = 0;
  ++thread.chunk;
  thread.done = thread.chunk == thread.chunks;
  if (thread.lane == &entries_[thread.rank]) {
    if (thread.done) start_lanes(thread.rank);
    return;
  }
  std::vector<Progress>& progress = ranks_[thread.rank].progress[thread.lane_number];
  progress[thread.instance] = {thread.chunk, thread.done};
  const std::size_t following = std::size_t{thread.instance} + thread.lane->window;
  if (thread.done && following < progress.size()) {
    start(thread.rank, thread.lane_number, static_cast<std::uint32_t>(following));
  }
}

/// Runs the step and returns true, or returns false if the step must wait.
bool Interpreter::may_go_on(Thread& thread, const Step& step) {
  if (step.when != When::always) {
    const auto block = static_cast<std::size_t>(step.block.at(thread.instance));
    if (sizes_[thread.rank].leaves_out(step.when, thread.lane->extents, block)) return true;
  }
  switch (step.kind) {
    case StepKind::fold:
      fold_step(thread, step);
      return true;
    case StepKind::send:
      return send(thread, step);
    case StepKind::recv:
      return recv(thread, step);
    case StepKind::arrive:
      ranks_[thread.rank].arrived = true;
      return true;
    case StepKind::await_arrival:
      return peers_are(thread, step, [&](std::uint32_t r) { return ranks_[r].arrived; });
    case StepKind::wait:
      return peers_are(thread, step,
                       [&](std::uint32_t r) { return has_published(thread, step, r); });
    case StepKind::await:
      return has_awaited(thread, step);
    case StepKind::await_board:
      return true;  // the memory is new: no rank reads it in an earlier operation
  }
  return false;
}

/// Whether the local peer of the step is ready, or (all) every local peer.
bool Interpreter::peers_are(const Thread& thread, const Step& step, auto&& ready) const {
  const std::vector<std::uint32_t>& node = plans_[thread.rank].node;
  const std::int64_t peer = step.peer.at(thread.instance);
  if (!step.all) {
    return peer >= 0 && peer < static_cast<std::int64_t>(node.size()) && ready(node[peer]);
  }
  return std::ranges::all_of(node, [&](std::uint32_t r) { return r == thread.rank || ready(r); });
}

bool Interpreter::has_published(const Thread& thread, const Step& step, std::uint32_t peer) const {
  if (thread.chunk < step.lag) return true;
  const std::vector<Lane>& lanes = plans_[peer].lanes;
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    if (lanes[lane].publishes != static_cast<int>(step.flag)) continue;
    return ranks_[peer].progress[lane][0].chunks > thread.chunk - step.lag;
  }
  return false;
}

bool Interpreter::has_awaited(const Thread& thread, const Step& step) const {
  if (!step.end && thread.chunk < step.lag) return true;
  const std::vector<Progress>& progress = ranks_[thread.rank].progress[step.lane];
  for (std::uint32_t j = 0; j < step.repeat; ++j) {
    const std::int64_t instance = step.instance.at(thread.instance, j);
    if (instance < 0 || instance >= static_cast<std::int64_t>(progress.size())) continue;
    const Progress& of = progress[instance];
    if (step.end ? !of.ended : of.chunks <= thread.chunk - step.lag) return false;
  }
  return true;
}

bool Interpreter::send(Thread& thread, const Step& step) {
  if (thread.posted) return thread.taken;
  thread.posted = moved_ = true;
  Message message;
  message.blocks = blocks_of(thread, step, step.srcs);
  const bool ends_at_once = random_() % 2 == 0;
  if (ends_at_once) {
    for (const Area& block : message.blocks) {
      message.data.insert(message.data.end(), block.data, block.data + block.bytes);
    }
  } else {
    message.taken = &thread.taken;
  }
  const auto peer = static_cast<std::uint32_t>(step.peer.at(thread.instance));
  const std::int64_t tag = step.tag.at(thread.instance);
  messages_[{thread.rank, peer, tag, thread.chunk}].push_back(std::move(message));
  return ends_at_once;
}

bool Interpreter::recv(Thread& thread, const Step& step) {
  const auto peer = static_cast<std::uint32_t>(step.peer.at(thread.instance));
  const std::int64_t tag = step.tag.at(thread.instance);
  const auto waiting = messages_.find({peer, thread.rank, tag, thread.chunk});
  if (waiting == messages_.end()) return false;
  const Message message = std::move(waiting->second.front());
  waiting->second.pop_front();
  if (waiting->second.empty()) messages_.erase(waiting);
  const std::vector<Area> blocks = blocks_of(thread, step, step.dsts);
  if (blocks.size() != message.blocks.size()) {
    fail(thread, fmt::format("receives {} blocks into {}", message.blocks.size(), blocks.size()));
    return true;
  }
  const std::byte* left = message.data.data();
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    const Area &from = message.blocks[b], &to = blocks[b];
    if (!to.partial) brought_[to.data] = peer;
    if (to.bytes != from.bytes) {
      fail(thread, fmt::format("receives {} bytes into {}", from.bytes, to.bytes));
      return true;
    }
    if (to.bytes > 0) std::memmove(to.data, message.taken != nullptr ? from.data : left, to.bytes);
    if (message.taken == nullptr) left += to.bytes;
  }
  if (message.taken != nullptr) *message.taken = true;
  return true;
}

/// The blocks that a message carries.
std::vector<Interpreter::Area> Interpreter::blocks_of(const Thread& thread, const Step& step,
                                                      const std::vector<Range>& ranges) {
  std::vector<Area> blocks;
  if (ranges.empty()) return blocks;
  for (std::uint32_t j = 0; j < step.repeat; ++j) {
    blocks.push_back(area_of(thread, step, ranges[0], j, j));
  }
  return blocks;
}

void Interpreter::fold_step(const Thread& thread, const Step& step) {
  for (std::uint32_t j = 0; j < step.repeat && status_.ok(); ++j) fold_block(thread, step, j);
}

void Interpreter::fold_block(const Thread& thread, const Step& step, std::uint32_t repetition) {
  const std::vector<Area> from = areas_of(thread, step, step.srcs, repetition);
  const std::vector<Area> to = areas_of(thread, step, step.dsts, repetition);
  if (!status_.ok()) return;
  if (from.empty() || to.empty()) return fail(thread, "folds nothing");
  std::vector<FoldSource> srcs;
  std::vector<void*> dsts;
  srcs.reserve(from.size());
  dsts.reserve(to.size());
  for (const Area& area : from) srcs.push_back({area.data, area.wide});
  for (const Area& area : to) {
    if (area.wide != to[0].wide) return fail(thread, "writes places of different width");
    dsts.push_back(area.data);
  }
  Fold fold;
  fold.srcs = srcs.data();
  fold.src_count = static_cast<int>(srcs.size());
  fold.dsts = dsts.data();
  fold.dst_count = static_cast<int>(dsts.size());
  fold.wide_dst = to[0].wide;
  fold.count = to[0].bytes / (to[0].wide ? wide_size_of(of_.dtype) : size_of(of_.dtype));
  fold.dtype = of_.dtype;
  fold.op = of_.op;
  fold.finish = step.finish;
  std::vector<std::uint64_t> scalars;
  if (of_.op == Op::pre_mul_sum) {
    fold.op = Op::sum;
    for (const Area& area : from) scalars.push_back(area.partial ? 0 : of_.scalars[area.giver]);
    for (std::size_t i = 0; i < from.size(); ++i) srcs[i].wide = from[i].partial;
    const bool copies = from.size() == 1 && !step.finish && from[0].partial == to[0].partial;
    if (!copies) fold.scalars = scalars.data();
  }
  fold.divisor = static_cast<std::uint32_t>(plans_.size());
  if (fold.count > 0) fold_reference(fold);
}

std::vector<Interpreter::Area> Interpreter::areas_of(const Thread& thread, const Step& step,
                                                     const std::vector<Range>& ranges,
                                                     std::uint32_t repetition) {
  std::vector<Area> areas;
  for (const Range& range : ranges) {
    for (std::uint32_t j = 0; j < range.repeat; ++j) {
      areas.push_back(area_of(thread, step, range, repetition, repetition + j));
    }
  }
  return areas;
}

/// The memory of range `source` of those that `range` stands for. All ranges of block `repetition`
/// of a step have the length of that block in the current chunk.
Interpreter::Area Interpreter::area_of(const Thread& thread, const Step& step, const Range& range,
                                       std::uint32_t repetition, std::uint32_t source) {
  const auto wrong = [&](const std::string& what) {
    fail(thread, what);
    return Area{};
  };
  const std::vector<std::uint32_t>& node = plans_[thread.rank].node;
  const std::int64_t local = range.rank.at(thread.instance, source);
  const std::int64_t block = range.block.at(thread.instance, source);
  const std::int64_t of = step.block.at(thread.instance, repetition);
  if (node.empty() ? local != thread.rank : local < 0 || local >= std::ssize(node)) {
    return wrong(fmt::format("names rank {}, which is not in the node", local));
  }
  const std::uint32_t owner = node.empty() ? thread.rank : node[local];
  const Buffer extents = thread.lane->extents;
  if (of < 0 || of >= sizes_[thread.rank].of(extents).blocks) {
    return wrong(fmt::format("handles block {}, which does not exist", of));
  }
  const std::size_t count = sizes_[thread.rank].range(extents, of, thread.chunk).count;
  const std::size_t size = size_of(of_.dtype);
  Area area{.bytes = count * size, .partial = range.wide, .giver = owner};
  const std::int64_t blocks = range.buffer == Buffer::scratch ? plans_[owner].scratch_blocks
                              : range.buffer == Buffer::line
                                  ? line_payload_bytes
                                  : sizes_[owner].of(range.buffer).blocks;
  if (block < 0 || block >= blocks)
    return wrong(fmt::format("names block {} of {}", block, blocks));
  switch (range.buffer) {
    case Buffer::input:
    case Buffer::output: {
      const void* base = range.buffer == Buffer::input ? inputs_[owner] : outputs_[owner];
      const Elements elements = sizes_[owner].range(range.buffer, block, thread.chunk);
      if (elements.count != count) {
        return wrong(fmt::format("handles {} elements of {}", elements.count, count));
      }
      if (count > 0 && base == nullptr) return wrong("uses a buffer that does not exist");
      area.data = static_cast<std::byte*>(const_cast<void*>(base));
      if (count > 0) area.data += elements.first * size;
      break;
    }
    case Buffer::scratch: {
      const Plan& plan = plans_[owner];
      const std::size_t slot = thread.chunk % plan.slots;
      area.data = ranks_[owner].scratch.data() + (slot * plan.scratch_blocks + block) * stride_;
      area.wide = range.wide && is_widened(of_.dtype);
      if (area.wide) area.bytes = count * wide_size_of(of_.dtype);
      if (const auto found = brought_.find(area.data);
          owner == thread.rank && found != brought_.end()) {
        area.giver = found->second;
      }
      break;
    }
    case Buffer::line:
      if (block * longest_ * size + area.bytes > line_payload_bytes) {
        return wrong("uses more bytes than a line has");
      }
      area.data = ranks_[owner].line.data() + block * longest_ * size;
      break;
  }
  return area;
}

/// The verdict after the last step.
Status Interpreter::end() const {
  for (const Thread& thread : threads_) {
    if (thread.done) continue;
    return invalid_argument(
        fmt::format("the plan deadlocks: rank {}, lane '{}', instance {}, chunk {} waits at {}",
                    thread.rank, thread.lane->name, thread.instance, thread.chunk,
                    print(plans_[thread.rank], thread.lane->steps[thread.next])));
  }
  if (messages_.empty()) return {};
  const auto& [from, to, tag, chunk] = messages_.begin()->first;
  return invalid_argument(
      fmt::format("the plans contradict one another: rank {} does not receive the message of chunk "
                  "{} with tag {} from rank {}",
                  to, chunk, tag, from));
}

void Interpreter::fail(const Thread& thread, const std::string& what) {
  const std::vector<Step>& steps = thread.lane->steps;
  const std::string step =
      thread.next < steps.size() ? print(plans_[thread.rank], steps[thread.next]) : "no steps";
  status_ = invalid_argument(
      fmt::format("the plan is wrong: rank {}, lane '{}', instance {}, chunk {} ({}) {}",
                  thread.rank, thread.lane->name, thread.instance, thread.chunk, step, what));
}

}  // namespace

Status interpret(std::span<const Plan> plans, std::span<const Sizes> sizes,
                 std::span<const void* const> inputs, std::span<void* const> outputs,
                 const Interpretation& of) {
  if (plans.empty()) return invalid_argument("interpret: there are no plans");
  if (sizes.size() != plans.size() || inputs.size() != plans.size() ||
      outputs.size() != plans.size()) {
    return invalid_argument("interpret: each rank needs a plan, sizes, an input and an output");
  }
  if (plans[0].shape.widened != tells_partial_results(of.dtype, of.op)) {
    return invalid_argument("interpret: the plan is for types of another width");
  }
  return Interpreter(plans, sizes, inputs, outputs, of).run();
}

}  // namespace hocket::internal

#include "collectives/verify/interpret.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "collectives/plan/partition.h"
#include "reduce/fold.h"

namespace hocket::internal {

namespace {

class Interpreter {
 public:
  Interpreter(std::span<const Plan> plans, std::span<const void* const> inputs,
              std::span<void* const> outputs, const Interpretation& of);
  Status run();

 private:
  /// The part of a buffer that a range names in one chunk.
  struct Area {
    std::byte* data = nullptr;
    std::size_t elements = 0;
    bool wide = false;
  };
  struct Message {
    std::vector<std::byte> bytes;  // the data of a send that has ended
    Area area;                     // the source of a send that has not ended
    bool* taken = nullptr;         // set when such a message has been received
  };
  struct Thread {
    int rank = 0;
    std::size_t lane = 0;
    enum { prologue, body, epilogue } section = prologue;
    const Steps* steps = nullptr;
    std::size_t next = 0, chunk = 0;
    bool posted = false, taken = false, done = false;
  };
  struct Rank {
    std::vector<std::byte> scratch, line;
    bool arrived = false;
    std::size_t notified[public_flags] = {};
    std::vector<std::size_t> signalled, signals_per_chunk;
    std::size_t lanes_left = 0;
  };

  Status check() const;
  void start_lanes(int rank);
  void start_epilogue(int rank);
  void next_step(Thread& thread);
  bool may_go_on(Thread& thread, const Step& step);
  bool send(Thread& thread, const Step& step);
  bool recv(Thread& thread, const Step& step);
  void fold_step(const Thread& thread, const Step& step);
  Area area_of(const Thread& thread, const Range& range);
  std::size_t bytes_of(const Area& area) const {
    return area.elements * (area.wide ? wide_size_of(of_.dtype) : size_of(of_.dtype));
  }
  void fail(const Thread& thread, const Step& step, const std::string& what);

  std::span<const Plan> plans_;
  std::span<const void* const> inputs_;
  std::span<void* const> outputs_;
  const Interpretation of_;
  Partition part_;
  std::size_t stride_ = 0;
  std::mt19937_64 random_;
  std::vector<Rank> ranks_;
  std::deque<Thread> threads_;  // a deque, so that threads do not move
  std::map<std::tuple<int, int, std::size_t>, std::deque<Message>> messages_;  // from, to, lane
  bool moved_ = true;
  Status status_;
};

Interpreter::Interpreter(std::span<const Plan> plans, std::span<const void* const> inputs,
                         std::span<void* const> outputs, const Interpretation& of)
    : plans_(plans), inputs_(inputs), outputs_(outputs), of_(of), random_(of.seed) {
  const Plan& first = plans_[0];
  part_ = partition(first.shape.collective, message_blocks(first), of_.count, of_.dtype,
                    first.single_chunk ? 0 : of_.chunk_elements);
  bool wide = false;
  for (const Plan& plan : plans_) {
    for (const Steps& lane : plan.lanes) {
      for (const Step& step : lane) {
        for (const Range& range : step.dsts) wide |= range.wide;
      }
    }
  }
  stride_ = scratch_stride_bytes(part_, of_.dtype, wide);
  ranks_.resize(plans_.size());
  for (std::size_t r = 0; r < plans_.size(); ++r) {
    const Plan& plan = plans_[r];
    Rank& rank = ranks_[r];
    rank.scratch.assign(stride_ * plan.scratch_blocks * plan.slots, std::byte{0xa5});
    rank.line.assign(line_payload_bytes, std::byte{0xa5});
    rank.signalled.resize(plan.private_flags);
    rank.signals_per_chunk.resize(plan.private_flags);
    for (const Steps& lane : plan.lanes) {
      for (const Step& step : lane) {
        if (step.kind == StepKind::signal) ++rank.signals_per_chunk[step.flag];
      }
    }
    Thread thread;
    thread.rank = static_cast<int>(r);
    thread.steps = &plan.prologue;
    threads_.push_back(thread);
  }
}

Status Interpreter::check() const {
  if (inputs_.size() != plans_.size() || outputs_.size() != plans_.size()) {
    return invalid_argument("interpret: a plan, an input and an output for each rank, please");
  }
  const Plan& plan = plans_[0];
  if (plan.shape.widened != is_widened(of_.dtype)) {
    return invalid_argument("interpret: the plan is for types of another width");
  }
  bool uses_line = false;
  for (const Steps& lane : plan.lanes) {
    for (const Step& step : lane) {
      for (const Range& range : step.srcs) uses_line |= range.buffer == Buffer::line;
    }
  }
  const bool whole_input = plan.shape.collective == Collective::reduce_scatter;
  const std::size_t carried = of_.count * size_of(of_.dtype) * (whole_input ? plans_.size() : 1);
  if (uses_line && carried > line_payload_bytes) {
    return invalid_argument(fmt::format("interpret: {} bytes do not fit a line", carried));
  }
  return {};
}

Status Interpreter::run() {
  HOCKET_RETURN_IF_ERROR(check());
  for (std::size_t r = 0; r < plans_.size(); ++r) {
    if (plans_[r].prologue.empty()) next_step(threads_[r]);
  }
  std::vector<std::size_t> order;
  while (moved_ && status_.ok()) {
    moved_ = false;
    while (order.size() < threads_.size()) order.push_back(order.size());
    std::ranges::shuffle(order, random_);
    for (std::size_t index : order) {
      Thread& thread = threads_[index];
      for (std::size_t turns = 1 + random_() % 3; turns > 0 && !thread.done; --turns) {
        if (!may_go_on(thread, (*thread.steps)[thread.next])) break;
        if (!status_.ok()) return status_;
        moved_ = true;
        next_step(thread);
      }
    }
  }
  if (!status_.ok()) return status_;
  for (const Thread& thread : threads_) {
    if (thread.done) continue;
    const Step& step = (*thread.steps)[thread.next];
    return invalid_argument(
        fmt::format("the plan deadlocks: rank {}, lane {}, chunk {} waits at {}", thread.rank,
                    thread.lane, thread.chunk, print(step)));
  }
  return {};
}

void Interpreter::next_step(Thread& thread) {
  thread.posted = thread.taken = false;
  const std::size_t chunks = thread.section == Thread::body ? part_.chunks : 1;
  if (++thread.next < thread.steps->size()) return;
  thread.next = 0;
  if (++thread.chunk < chunks) return;
  thread.done = true;
  if (thread.section == Thread::prologue) start_lanes(thread.rank);
  if (thread.section == Thread::body && --ranks_[thread.rank].lanes_left == 0) {
    start_epilogue(thread.rank);
  }
}

void Interpreter::start_lanes(int rank) {
  const Plan& plan = plans_[rank];
  for (std::size_t lane = 0; lane < plan.lanes.size(); ++lane) {
    if (plan.lanes[lane].empty()) continue;
    ++ranks_[rank].lanes_left;
    Thread thread;
    thread.rank = rank;
    thread.lane = lane;
    thread.section = Thread::body;
    thread.steps = &plan.lanes[lane];
    threads_.push_back(thread);
  }
  if (ranks_[rank].lanes_left == 0) start_epilogue(rank);
}

void Interpreter::start_epilogue(int rank) {
  if (plans_[rank].epilogue.empty()) return;
  Thread thread;
  thread.rank = rank;
  thread.section = Thread::epilogue;
  thread.steps = &plans_[rank].epilogue;
  threads_.push_back(thread);
}

/// Runs the step and returns true, or returns false if the step must wait.
bool Interpreter::may_go_on(Thread& thread, const Step& step) {
  Rank& rank = ranks_[thread.rank];
  const auto all_meant = [&](auto&& there) {
    for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) {
      if (r != thread.rank && (step.peer == own || step.peer == r) && !there(ranks_[r])) {
        return false;
      }
    }
    return true;
  };
  switch (step.kind) {
    case StepKind::fold:
      fold_step(thread, step);
      return true;
    case StepKind::send:
      return send(thread, step);
    case StepKind::recv:
      return recv(thread, step);
    case StepKind::arrive:
      rank.arrived = true;
      return true;
    case StepKind::await_arrival:
      return all_meant([](const Rank& r) { return r.arrived; });
    case StepKind::notify:
      ++rank.notified[step.flag];
      return true;
    case StepKind::wait: {
      if (thread.chunk < step.lag) return true;
      const std::size_t target = thread.chunk - step.lag + 1;
      return all_meant([&](const Rank& r) { return r.notified[step.flag] >= target; });
    }
    case StepKind::signal:
      ++rank.signalled[step.flag];
      return true;
    case StepKind::await:
      if (thread.chunk < step.lag) return true;
      return rank.signalled[step.flag] >=
             (thread.chunk - step.lag) * rank.signals_per_chunk[step.flag] + step.ordinal;
  }
  return false;
}

bool Interpreter::send(Thread& thread, const Step& step) {
  if (thread.posted) return thread.taken;
  thread.posted = moved_ = true;
  Message message;
  if (!step.srcs.empty()) message.area = area_of(thread, step.srcs[0]);
  const bool ends_at_once = random_() % 2 == 0;
  if (ends_at_once) {
    const std::byte* data = message.area.data;
    message.bytes.assign(data, data + bytes_of(message.area));
  } else {
    message.taken = &thread.taken;
  }
  messages_[{thread.rank, step.peer, thread.lane}].push_back(std::move(message));
  return ends_at_once;
}

bool Interpreter::recv(Thread& thread, const Step& step) {
  std::deque<Message>& waiting = messages_[{step.peer, thread.rank, thread.lane}];
  if (waiting.empty()) return false;
  const Message message = std::move(waiting.front());
  waiting.pop_front();
  Area area;
  if (!step.dsts.empty()) area = area_of(thread, step.dsts[0]);
  if (bytes_of(area) != bytes_of(message.area)) {
    fail(thread, step,
         fmt::format("receives {} bytes into {}", bytes_of(message.area), bytes_of(area)));
    return true;
  }
  const std::byte* from = message.taken != nullptr ? message.area.data : message.bytes.data();
  if (bytes_of(area) > 0) std::memmove(area.data, from, bytes_of(area));
  if (message.taken != nullptr) *message.taken = true;
  return true;
}

void Interpreter::fold_step(const Thread& thread, const Step& step) {
  std::vector<FoldSource> srcs;
  std::vector<void*> dsts;
  const Area first = area_of(thread, step.dsts[0]);
  for (const Range& range : step.srcs) {
    const Area area = area_of(thread, range);
    if (area.elements != first.elements) {
      return fail(thread, step,
                  fmt::format("folds {} elements into {}", area.elements, first.elements));
    }
    srcs.push_back({area.data, area.wide});
  }
  for (const Range& range : step.dsts) dsts.push_back(area_of(thread, range).data);
  Fold fold;
  fold.srcs = srcs.data();
  fold.src_count = static_cast<int>(srcs.size());
  fold.dsts = dsts.data();
  fold.dst_count = static_cast<int>(dsts.size());
  fold.wide_dst = first.wide;
  fold.count = first.elements;
  fold.dtype = of_.dtype;
  fold.op = of_.op;
  fold.finish = step.finish;
  fold.divisor = static_cast<std::uint32_t>(plans_.size());
  if (fold.count > 0) fold_reference(fold);
}

Interpreter::Area Interpreter::area_of(const Thread& thread, const Range& range) {
  const int owner = range.rank == own ? thread.rank : range.rank;
  const Plan& plan = plans_[owner];
  const std::size_t size = size_of(of_.dtype);
  Area area;
  switch (range.buffer) {
    case Buffer::input:
    case Buffer::output: {
      const Elements elements = part_.range(range.block, thread.chunk);
      const void* base = range.buffer == Buffer::input ? inputs_[owner] : outputs_[owner];
      area.data = static_cast<std::byte*>(const_cast<void*>(base)) + elements.first * size;
      area.elements = elements.count;
      return area;
    }
    case Buffer::scratch: {
      const std::size_t slot = thread.chunk % plan.slots;
      area.data =
          ranks_[owner].scratch.data() + (slot * plan.scratch_blocks + range.block) * stride_;
      area.wide = range.wide && is_widened(of_.dtype);
      break;
    }
    case Buffer::line:
      area.data = ranks_[owner].line.data() + range.block * part_.block_elements * size;
      break;
  }
  area.elements = part_.range(range.length_block, thread.chunk).count;
  return area;
}

void Interpreter::fail(const Thread& thread, const Step& step, const std::string& what) {
  status_ =
      invalid_argument(fmt::format("the plan is wrong: rank {}, lane {}, chunk {} ({}) {}",
                                   thread.rank, thread.lane, thread.chunk, print(step), what));
}

}  // namespace

Status interpret(std::span<const Plan> plans, std::span<const void* const> inputs,
                 std::span<void* const> outputs, const Interpretation& of) {
  if (plans.empty()) return invalid_argument("interpret: there are no plans");
  return Interpreter(plans, inputs, outputs, of).run();
}

}  // namespace hocket::internal

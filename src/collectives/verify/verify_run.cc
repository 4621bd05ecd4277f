#include "collectives/verify/verify_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/verify/verify_form.h"

namespace hocket::internal::verify_detail {

Run::Run(std::span<const Plan> plans, const Messages& messages, ChunkCounts counts)
    : plans_(plans),
      messages_(messages),
      counts_(std::move(counts)),
      is_barrier_(plans[0].shape.collective == Collective::barrier) {
  posted_.assign(messages.size(), nobody);
  make_threads();
  mark_awaited();
  std::vector<std::uint32_t> rank_of;
  for (const Thread& t : threads_) rank_of.push_back(t.rank);
  order_ = std::make_unique<Order>(std::move(rank_of), is_barrier_);
  memories_.emplace_back(plans_, counts_, false);
  const bool never_in_place = plans[0].shape.collective == Collective::all_to_all || is_barrier_ ||
                              is_p2p(plans[0].shape.collective);
  if (!never_in_place) memories_.emplace_back(plans_, counts_, true);
  add_inputs();
  for (const Rank& rank : by_rank_) runnable_.push_back(rank.caller);
}

void Run::make_threads() {
  by_rank_.resize(plans_.size());
  for (std::uint32_t r = 0; r < plans_.size(); ++r) {
    const Plan& plan = plans_[r];
    Rank& rank = by_rank_[r];
    rank.caller = static_cast<int>(threads_.size());
    rank.entry = entry_of(plan);
    threads_.push_back({.rank = r});
    for (std::uint32_t l = 0; l < plan.lanes.size(); ++l) {
      const Lane& lane = plan.lanes[l];
      rank.lanes.emplace_back(lane.instances);
      if (lane.publishes >= 0) rank.publisher[lane.publishes] = l;
      for (std::uint32_t i = 0; i < std::min(lane.window, lane.instances); ++i) {
        threads_.push_back({.rank = r, .lane = l, .instance = i});
      }
    }
    rank.threads = rank.left = static_cast<int>(threads_.size()) - rank.caller - 1;
    rank.awaited.resize(plan.node.size());
  }
}

/// Notes are kept of lanes that some step awaits.
void Run::mark_awaited() {
  for (std::uint32_t r = 0; r < plans_.size(); ++r) {
    by_rank_[r].is_awaited.resize(plans_[r].lanes.size());
    for (std::size_t l = 0; l < plans_[r].lanes.size(); ++l) {
      by_rank_[r].is_awaited[l] = plans_[r].lanes[l].publishes >= 0;
    }
    for (const Lane& lane : plans_[r].lanes) {
      for (const Step& step : lane.steps) {
        if (step.kind == StepKind::await) by_rank_[r].is_awaited[step.lane] = true;
      }
    }
  }
}

void Run::add_inputs() {
  for (const Plan& plan : plans_) {
    const std::uint32_t rank = plan.shape.rank;
    const Epoch begin = order_->next_end(by_rank_[rank].caller);
    for (Memory& memory : memories_) {
      for (Cell& cell : memory.callers(rank)) cell.last_write = begin;
    }
    for (std::uint32_t block = 0; block < blocks_of(plan, Buffer::input); ++block) {
      const std::uint64_t item = item_of(plan, Buffer::input, block);
      for (std::uint32_t chunk = 0; chunk < counts_.of(item); ++chunk) {
        const ValueId value = values_.add_input(rank, item, chunk);
        const Spot spot{.rank = rank, .buffer = Buffer::input, .block = block};
        for (Memory& memory : memories_) memory.cell(spot, chunk).value = value;
      }
    }
  }
}

Status Run::run() {
  for (const Rank& rank : by_rank_) {
    order_->begin(rank.caller);
    order_->tick(rank.caller);
  }
  while (!runnable_.empty() && status_.ok()) {
    const int thread = runnable_.front();
    runnable_.pop_front();
    while (go_on(thread) == Outcome::went_on) {
    }
  }
  if (!status_.ok()) return status_;
  for (const Rank& rank : by_rank_) {
    if (!rank.ended) return stuck();
  }
  if (is_barrier_) return check_barrier();
  for (Memory& memory : memories_) HOCKET_RETURN_IF_ERROR(check_answer(memory));
  return {};
}

void Run::wake(std::vector<int>& waiting) {
  runnable_.insert(runnable_.end(), waiting.begin(), waiting.end());
  waiting.clear();
}

Run::Outcome Run::go_on(int thread) {
  const Thread& t = threads_[thread];
  if (t.done || !status_.ok()) return Outcome::blocked;
  if (t.next < steps_of(thread).size()) return step(thread);
  if (t.lane == callers) return go_on_as_caller(thread);
  end_chunk(thread);
  return Outcome::went_on;
}

/// The caller of a rank has run the entry: it starts the lanes, and ends when all of them have
/// ended.
Run::Outcome Run::go_on_as_caller(int thread) {
  Thread& t = threads_[thread];
  if (t.next == steps_of(thread).size()) {
    start_lanes(t.rank);
    ++t.next;
  }
  if (by_rank_[t.rank].left > 0) return Outcome::blocked;
  end_rank(thread);
  return status_.ok() ? Outcome::went_on : Outcome::failed;
}

void Run::start_lanes(std::uint32_t rank) {
  const Rank& r = by_rank_[rank];
  const Order::Note begun = order_->note(r.caller);
  for (int thread = r.caller + 1; thread <= r.caller + r.threads; ++thread) {
    order_->hear(thread, begun);
    order_->tick(thread);  // a note says what a thread knew when its last step ended
    start(thread, threads_[thread].instance);
    runnable_.push_back(thread);
  }
}

void Run::start(int thread, std::uint32_t instance) {
  Thread& t = threads_[thread];
  t.instance = instance;
  t.chunk = t.next = 0;
  t.chunks = counts_.of(plan_of(thread), lane_of(thread), instance);
  t.starts.push_back(order_->next_end(thread).tick);
}

bool Run::is_left_out(int thread) const {
  const When when = current(thread).when;
  return when != When::always && counts_.leaves_out(when, item_of_step(thread, 0));
}

Run::Outcome Run::step(int thread) {
  if (is_left_out(thread)) {
    next_step(thread);
    return Outcome::went_on;
  }
  switch (current(thread).kind) {
    case StepKind::fold:
      if (!fold(thread)) return Outcome::failed;
      next_step(thread);
      return Outcome::went_on;
    case StepKind::send:
    case StepKind::recv:
      return message(thread);
    case StepKind::arrive:
      order_->tick(thread);
      if (!arrive(thread)) return Outcome::failed;
      next_step(thread);
      return Outcome::went_on;
    case StepKind::await_arrival:
      return await_arrival(thread);
    case StepKind::wait:
      return wait(thread);
    case StepKind::await:
      return await(thread);
    case StepKind::await_board:
      by_rank_[threads_[thread].rank].board_is_free = true;
      next_step(thread);
      return Outcome::went_on;
  }
  return Outcome::failed;
}

/// The send and the recv of a message end together, when both threads have reached them.
Run::Outcome Run::message(int thread) {
  const Thread& t = threads_[thread];
  std::int32_t& posted = posted_[messages_.of(t.rank, t.lane, t.instance, t.next)];
  if (posted == nobody) {
    posted = thread;
    return Outcome::blocked;
  }
  const int partner = posted;
  posted = nobody;
  const bool sends = current(thread).kind == StepKind::send;
  const int sender = sends ? thread : partner;
  const int receiver = sends ? partner : thread;
  if (current(receiver).when != When::always && !has_met(receiver, threads_[sender].rank)) {
    fail(receiver, nullptr,
         fmt::format("receives a block from rank {} before it has awaited that rank's arrival, "
                     "which tells whether the block is large for that rank too",
                     threads_[sender].rank));
    return Outcome::failed;
  }
  order_->hear(receiver, order_->note(sender));
  if (moves_data(current(sender))) {
    for (Memory& memory : memories_) {
      if (!transfer(memory, sender, receiver)) return Outcome::failed;
    }
  }
  next_step(partner);
  runnable_.push_back(partner);
  next_step(thread);
  return Outcome::went_on;
}

bool Run::arrive(int thread) {
  Rank& rank = by_rank_[threads_[thread].rank];
  if (!rank.board_is_free) {
    return fail(thread, nullptr, "writes the arrival line before it has awaited its board");
  }
  rank.arrived = true;
  rank.arrival = order_->note(thread);
  wake(rank.waiting);
  return true;
}

/// False if that rank has not arrived; then the thread is woken when it has.
bool Run::hear_arrival(int thread, std::uint32_t local) {
  const std::uint32_t own = threads_[thread].rank;
  const std::uint32_t peer = plans_[own].node[local];
  if (peer == own) return true;
  Rank& rank = by_rank_[peer];
  if (!rank.arrived) {
    rank.waiting.push_back(thread);
    return false;
  }
  order_->hear(thread, rank.arrival);
  by_rank_[own].awaited[local].push_back(order_->next_end(thread));
  return true;
}

Run::Outcome Run::await_all_arrivals(int thread) {
  Thread& t = threads_[thread];
  const auto locals = static_cast<std::uint32_t>(plans_[t.rank].node.size());
  for (; t.checked < locals; ++t.checked) {
    if (!hear_arrival(thread, t.checked)) return Outcome::blocked;
  }
  return Outcome::went_on;
}

Run::Outcome Run::await_arrival(int thread) {
  const Step& step = current(thread);
  if (step.all) {
    if (await_all_arrivals(thread) == Outcome::blocked) return Outcome::blocked;
  } else {
    const std::int64_t peer = step.peer.at(threads_[thread].instance);
    if (!hear_arrival(thread, static_cast<std::uint32_t>(peer))) return Outcome::blocked;
  }
  next_step(thread);
  return Outcome::went_on;
}

/// False if that chunk is not completed; then the thread is woken at the next progress.
bool Run::hear_chunk(int thread, Progress& progress, std::uint32_t chunk) {
  if (progress.completed > chunk) {
    order_->hear(thread, progress.notes[chunk]);
    return true;
  }
  progress.waiting.push_back(thread);
  return false;
}

Run::Outcome Run::wait(int thread) {
  Thread& t = threads_[thread];
  const Step& step = current(thread);
  const Plan& plan = plans_[t.rank];
  if (t.chunk >= step.lag) {
    const bool awaits_arrivals = t.chunk == step.lag && waits_await_arrivals(plan);
    const auto locals = static_cast<std::uint32_t>(plan.node.size());
    const auto one = step.all ? 0 : static_cast<std::uint32_t>(step.peer.at(t.instance));
    for (; t.checked < (step.all ? locals : 1); ++t.checked) {
      const std::uint32_t peer = plan.node[one + t.checked];
      if (peer == t.rank) continue;
      if (awaits_arrivals && !hear_arrival(thread, one + t.checked)) return Outcome::blocked;
      Rank& rank = by_rank_[peer];
      Progress& progress = rank.lanes[rank.publisher[step.flag]][0];
      if (!hear_chunk(thread, progress, t.chunk - step.lag)) return Outcome::blocked;
    }
  }
  next_step(thread);
  return Outcome::went_on;
}

Run::Outcome Run::await(int thread) {
  Thread& t = threads_[thread];
  const Step& step = current(thread);
  std::vector<Progress>& lane = by_rank_[t.rank].lanes[step.lane];
  for (; t.checked < step.repeat; ++t.checked) {
    const std::int64_t instance = step.instance.at(t.instance, t.checked);
    if (instance < 0 || instance >= static_cast<std::int64_t>(lane.size())) continue;
    Progress& progress = lane[instance];
    if (step.end) {
      if (!progress.ended) {
        progress.waiting.push_back(thread);
        return Outcome::blocked;
      }
      order_->hear(thread, progress.notes.back());
    } else if (t.chunk >= step.lag && !hear_chunk(thread, progress, t.chunk - step.lag)) {
      return Outcome::blocked;
    }
  }
  next_step(thread);
  return Outcome::went_on;
}

void Run::next_step(int thread) {
  Thread& t = threads_[thread];
  ++steps_run_;
  order_->tick(thread);
  t.checked = 0;
  ++t.next;
}

void Run::end_chunk(int thread) {
  Thread& t = threads_[thread];
  Rank& rank = by_rank_[t.rank];
  Progress& progress = rank.lanes[t.lane][t.instance];
  order_->tick(thread);
  if (rank.is_awaited[t.lane]) progress.notes.push_back(order_->note(thread));
  ++progress.completed;
  progress.ended = progress.completed == t.chunks;
  wake(progress.waiting);
  t.next = 0;
  ++t.chunk;
  if (!progress.ended) return;
  const Lane& lane = lane_of(thread);
  const std::uint32_t next = t.instance + lane.window;
  if (next < lane.instances) {
    start(thread, next);
    return;
  }
  t.done = true;
  if (--rank.left == 0) runnable_.push_back(rank.caller);
}

/// Everything that the lanes have done precedes the caller's next accesses.
void Run::end_rank(int thread) {
  Rank& rank = by_rank_[threads_[thread].rank];
  for (int lane = thread + 1; lane <= thread + rank.threads; ++lane) {
    order_->hear(thread, order_->note(lane));
  }
  rank.ended = threads_[thread].done = true;
  check_end(threads_[thread].rank);
}

std::string Run::name_of_thread(Epoch epoch) const {
  const Thread& t = threads_[epoch.thread];
  const Plan& plan = plans_[t.rank];
  if (t.lane == callers) return fmt::format("rank {}'s caller", t.rank);
  const Lane& lane = plan.lanes[t.lane];
  std::string text = fmt::format("rank {}, lane '{}'", t.rank, lane.name);
  if (lane.instances < 2) return text;
  const auto after = std::ranges::upper_bound(t.starts, epoch.tick) - t.starts.begin();
  const std::uint32_t first =
      t.instance - lane.window * (static_cast<std::uint32_t>(t.starts.size()) - 1);
  return text + fmt::format(" instance {}", first + lane.window * (after - 1));
}

std::string Run::at(int thread, const Memory* memory) const {
  const Thread& t = threads_[thread];
  if (t.lane == callers) {
    return fmt::format("{} in its entry ({})", name_of_rank(plans_[t.rank]),
                       print(plans_[t.rank], current(thread)));
  }
  return name_of_step(plans_[t.rank], t.lane, t.instance, t.next) +
         fmt::format(" in chunk {} of {}", t.chunk, t.chunks) +
         (memory == nullptr    ? ""
          : memory->in_place() ? ", in place,"
                               : ", out of place,");
}

bool Run::fail(int thread, const Memory* memory, const std::string& what) {
  status_ = wrong(at(thread, memory), what);
  return false;
}

Status Run::stuck() const {
  std::string text;
  int shown = 0;
  for (int thread = 0; thread < static_cast<int>(threads_.size()); ++thread) {
    const Thread& t = threads_[thread];
    const bool runs = t.lane == callers ? t.next < steps_of(thread).size() : !t.starts.empty();
    if (t.done || !runs) continue;
    if (++shown <= 4) text += (shown > 1 ? "; " : "") + at(thread);
  }
  if (shown > 4) text += fmt::format("; and {} more", shown - 4);
  return wrong("deadlock:", "nothing can go on past " + text);
}

}  // namespace hocket::internal::verify_detail

#include "collectives/verify/verify_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/plan/partition.h"

namespace hocket::internal::verify_detail {

Run::Run(std::span<const Plan> plans, std::uint32_t chunks)
    : plans_(plans),
      ranks_(static_cast<int>(plans.size())),
      chunks_(plans[0].single_chunk ? 1 : chunks),
      is_barrier_(plans[0].shape.collective == Collective::barrier) {
  std::uint32_t inputs = 1;
  for (const Plan& plan : plans_) {
    plan_of_.push_back(&plan);
    inputs = std::max(inputs, plan.input_blocks);
  }
  values_ = std::make_unique<Values>(ranks_, inputs, chunks_);
  make_threads();
  count_waiters();
  std::vector<int> rank_of;
  for (const Thread& t : threads_) rank_of.push_back(t.rank);
  order_ = std::make_unique<Order>(std::move(rank_of));
  for (bool in_place : {false, true}) memories_.emplace_back(plan_of_, chunks_, in_place, *values_);
  if (is_barrier_) {
    begun_.assign(threads_.size(), std::vector<std::uint64_t>((ranks_ + 63) / 64));
  }
  for (int r = 0; r < ranks_; ++r) begin(r);
}

void Run::make_threads() {
  by_rank_.resize(ranks_);
  for (int r = 0; r < ranks_; ++r) {
    const Plan& plan = plans_[r];
    Rank& rank = by_rank_[r];
    rank.main = static_cast<int>(threads_.size());
    Thread main;
    main.rank = r;
    main.steps = &plan.prologue;
    main.started = true;
    threads_.push_back(main);
    for (std::size_t lane = 0; lane < plan.lanes.size(); ++lane) {
      rank.lane_threads.push_back(-1);
      if (plan.lanes[lane].empty()) continue;
      rank.lane_threads.back() = static_cast<int>(threads_.size());
      ++rank.lanes_left;
      Thread t;
      t.rank = r;
      t.lane = static_cast<int>(lane);
      t.section = Section::lane;
      t.steps = &plan.lanes[lane];
      t.chunks = chunks_;
      threads_.push_back(t);
    }
    rank.private_flags.resize(plan.private_flags);
  }
}

/// Counts the steps that will wait for each notify or signal, so that its note can be deleted after
/// the last one.
void Run::count_waiters() {
  const auto add = [](Flag& flag, const Step& step, bool in_lane) {
    for (Waiter& w : flag.waiters) {
      if (w.ordinal == step.ordinal && w.lag == step.lag && w.in_lane == in_lane) {
        ++w.threads;
        return;
      }
    }
    flag.waiters.push_back({step.ordinal, step.lag, 1, in_lane});
  };
  const auto look_at = [&](int r, const Steps& steps, bool in_lane) {
    for (const Step& step : steps) {
      if (step.kind == StepKind::notify) by_rank_[r].public_flags_[step.flag].per_chunk = 1;
      if (step.kind == StepKind::signal) ++by_rank_[r].private_flags[step.flag].per_chunk;
      if (step.kind == StepKind::await) add(by_rank_[r].private_flags[step.flag], step, in_lane);
      if (step.kind != StepKind::wait) continue;
      for (int peer = 0; peer < ranks_; ++peer) {
        if (peer == r || (step.peer != own && step.peer != peer)) continue;
        add(by_rank_[peer].public_flags_[step.flag], step, in_lane);
      }
    }
  };
  for (int r = 0; r < ranks_; ++r) {
    look_at(r, plans_[r].prologue, false);
    for (const Steps& lane : plans_[r].lanes) look_at(r, lane, true);
    look_at(r, plans_[r].epilogue, false);
  }
}

void Run::begin(int rank) {
  const int main = by_rank_[rank].main;
  for (Memory& memory : memories_) memory.give(rank, order_->next_end(main));
  order_->tick(main);
  if (is_barrier_) begun_[main][rank / 64] |= std::uint64_t{1} << (rank % 64);
  if (plans_[rank].prologue.empty()) section_done(main);
}

Status Run::run() {
  bool moved = true;
  while (moved && status_.ok()) {
    moved = false;
    for (int t = 0; t < static_cast<int>(threads_.size()) && status_.ok(); ++t) {
      while (go_on(t) == Outcome::went_on) moved = true;
    }
  }
  if (!status_.ok()) return status_;
  for (const Rank& rank : by_rank_) {
    if (!threads_[rank.main].done) return stuck();
  }
  if (is_barrier_) return check_barrier();
  for (Memory& memory : memories_) HOCKET_RETURN_IF_ERROR(check_answer(memory));
  return {};
}

Run::Outcome Run::go_on(int thread) {
  const Thread& t = threads_[thread];
  if (t.done || !t.started || t.next >= t.steps->size()) return Outcome::blocked;
  return step(thread);
}

Run::Outcome Run::step(int thread) {
  switch (current(thread).kind) {
    case StepKind::fold:
      if (!fold(thread)) return Outcome::failed;
      next_step(thread);
      return Outcome::went_on;
    case StepKind::send:
    case StepKind::recv:
      return message(thread);
    case StepKind::arrive:
    case StepKind::notify:
    case StepKind::signal:
      publish(thread);
      return status_.ok() ? Outcome::went_on : Outcome::failed;
    case StepKind::await_arrival:
      return await_arrival(thread);
    case StepKind::wait:
      return wait(thread);
    case StepKind::await:
      return await(thread);
  }
  return Outcome::failed;
}

/// The send and the recv of a message end together, when both threads have reached them.
Run::Outcome Run::message(int thread) {
  const Thread& t = threads_[thread];
  const Step& mine = current(thread);
  const std::vector<int>& lanes = by_rank_[mine.peer].lane_threads;
  const int partner = lanes[t.lane];  // exists: check_form has passed
  const Thread& p = threads_[partner];
  if (p.done || !p.started) return Outcome::blocked;
  const Step& theirs = current(partner);
  const bool sends = mine.kind == StepKind::send;
  if (theirs.kind != (sends ? StepKind::recv : StepKind::send) || theirs.peer != t.rank) {
    return Outcome::blocked;
  }
  const int sender = sends ? thread : partner;
  const int receiver = sends ? partner : thread;
  hear_thread(receiver, sender);
  const bool from = !current(sender).srcs.empty(), to = !current(receiver).dsts.empty();
  if (from != to) {
    fail(receiver, nullptr, "is one end of an empty message whose other end is not");
    return Outcome::failed;
  }
  for (Memory& memory : memories_) {
    if (from && !transfer(memory, sender, receiver)) return Outcome::failed;
  }
  next_step(sender);
  next_step(receiver);
  return status_.ok() ? Outcome::went_on : Outcome::failed;
}

Run::Outcome Run::await_arrival(int thread) {
  const Step& step = current(thread);
  const int rank = threads_[thread].rank;
  const auto meant = [&](int r) { return r != rank && (step.peer == own || step.peer == r); };
  for (int r = 0; r < ranks_; ++r) {
    if (meant(r) && !by_rank_[r].arrived) return Outcome::blocked;
  }
  for (int r = 0; r < ranks_; ++r) {
    if (meant(r)) hear(thread, by_rank_[r].arrival);
  }
  next_step(thread);
  return Outcome::went_on;
}

Run::Outcome Run::wait(int thread) {
  const Thread& t = threads_[thread];
  const Step& step = current(thread);
  if (t.chunk >= step.lag) {
    const std::size_t number = t.chunk - step.lag;
    const auto meant = [&](int r) { return r != t.rank && (step.peer == own || step.peer == r); };
    for (int r = 0; r < ranks_; ++r) {
      if (meant(r) && by_rank_[r].public_flags_[step.flag].notes.size() <= number) {
        return Outcome::blocked;
      }
    }
    for (int r = 0; r < ranks_; ++r) {
      if (meant(r)) hear_and_release(thread, by_rank_[r].public_flags_[step.flag], number);
    }
  }
  next_step(thread);
  return Outcome::went_on;
}

Run::Outcome Run::await(int thread) {
  const Thread& t = threads_[thread];
  const Step& step = current(thread);
  if (t.chunk >= step.lag) {
    Flag& flag = by_rank_[t.rank].private_flags[step.flag];
    const std::size_t number = std::size_t{t.chunk - step.lag} * flag.per_chunk + step.ordinal - 1;
    if (flag.notes.size() <= number) return Outcome::blocked;
    hear_and_release(thread, flag, number);
  }
  next_step(thread);
  return Outcome::went_on;
}

void Run::publish(int thread) {
  const Step step = current(thread);
  const Thread t = threads_[thread];
  Rank& rank = by_rank_[t.rank];
  order_->tick(thread);
  if (step.kind == StepKind::arrive) {
    rank.arrived = true;
    rank.arrival = note_of(thread, ranks_);
  } else {
    Flag& flag = step.kind == StepKind::notify ? rank.public_flags_[step.flag]
                                               : rank.private_flags[step.flag];
    const std::size_t number = flag.notes.size();
    const std::size_t chunk = number / flag.per_chunk, ordinal = number % flag.per_chunk + 1;
    int readers = 0;
    for (const Waiter& w : flag.waiters) {
      const std::size_t chunks = w.in_lane ? chunks_ : 1;
      if (w.ordinal == ordinal && chunk + w.lag < chunks) readers += w.threads;
    }
    flag.notes.push_back(readers > 0 ? note_of(thread, readers) : Note{});
  }
  next_step(thread);
}

void Run::next_step(int thread) {
  Thread& t = threads_[thread];
  ++steps_run_;
  order_->tick(thread);
  if (++t.next < t.steps->size()) return;
  if (t.section == Section::lane && ++t.chunk < t.chunks) {
    t.next = 0;
    return;
  }
  section_done(thread);
}

/// A lane, the prologue or the epilogue has ended: starts the section that follows.
void Run::section_done(int thread) {
  Rank& rank = by_rank_[threads_[thread].rank];
  Thread& main = threads_[rank.main];
  if (threads_[thread].section == Section::lane) {
    threads_[thread].done = true;
    hear_thread(rank.main, thread);
    if (--rank.lanes_left > 0) return;
  } else if (main.section == Section::prologue) {
    for (int lane : rank.lane_threads) {
      if (lane < 0) continue;
      threads_[lane].started = true;
      order_->fork(rank.main, lane);
      if (is_barrier_) begun_[lane] = begun_[rank.main];
    }
    if (rank.lanes_left > 0) return;
  } else {
    main.done = true;
    check_end(main.rank);
    return;
  }
  main.section = Section::epilogue;
  main.steps = &plans_[main.rank].epilogue;
  main.next = 0;
  if (!main.steps->empty()) return;
  main.done = true;
  check_end(main.rank);
}

Run::Note Run::note_of(int thread, int readers) const {
  Note note{order_->note(thread), {}, readers};
  if (is_barrier_) note.begun = begun_[thread];
  return note;
}

void Run::hear(int thread, const Note& note) {
  order_->hear(thread, note.order);
  if (!is_barrier_) return;
  for (std::size_t i = 0; i < note.begun.size(); ++i) begun_[thread][i] |= note.begun[i];
}

void Run::hear_thread(int thread, int other) {
  order_->hear(thread, other);
  if (!is_barrier_) return;
  for (std::size_t i = 0; i < begun_[other].size(); ++i) begun_[thread][i] |= begun_[other][i];
}

void Run::hear_and_release(int thread, Flag& flag, std::size_t number) {
  Note& note = flag.notes[number];
  hear(thread, note);
  if (--note.readers == 0) note = {};
}

std::string Run::name_of_thread(int thread) const {
  const Thread& t = threads_[thread];
  return t.lane < 0 ? fmt::format("rank {}'s caller", t.rank)
                    : fmt::format("rank {}, lane {}", t.rank, t.lane);
}

std::string Run::at(int thread, const Memory* memory) const {
  const Thread& t = threads_[thread];
  return name_of_step(plans_[t.rank], t.section, std::max(t.lane, 0), t.next) +
         fmt::format(" in chunk {} of {}", t.chunk, chunks_) +
         (memory == nullptr    ? ""
          : memory->in_place() ? ", in place,"
                               : ", out of place,");
}

bool Run::fail(int thread, const Memory* memory, const std::string& what) {
  status_ = invalid_argument("the plan is wrong: " + at(thread, memory) + " " + what);
  return false;
}

Status Run::stuck() const {
  std::string text;
  int shown = 0;
  for (int t = 0; t < static_cast<int>(threads_.size()); ++t) {
    const Thread& thread = threads_[t];
    if (thread.done || !thread.started || thread.next >= thread.steps->size()) continue;
    if (++shown <= 4) text += (shown > 1 ? "; " : "") + at(t);
  }
  if (shown > 4) text += fmt::format("; and {} more", shown - 4);
  return invalid_argument("the plan is wrong: deadlock: nothing can go on past " + text);
}

}  // namespace hocket::internal::verify_detail

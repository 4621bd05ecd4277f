#include "collectives/select/simulation.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/limits.h"

namespace hocket::internal {
namespace {

constexpr std::uint32_t none = 0xffffffff;
constexpr std::uint32_t ended = 0xffffffff;    // the progress of an instance
constexpr std::size_t arrival = public_flags;  // beside the flags of lanes
constexpr Picoseconds never = std::numeric_limits<Picoseconds>::max();

/// bytes x rate, where their product need not fit.
Picoseconds time_of(std::uint64_t bytes, std::int64_t femtoseconds) {
  return static_cast<Picoseconds>(bytes / 1000) * femtoseconds +
         static_cast<Picoseconds>(bytes % 1000) * femtoseconds / 1000;
}

/// An active lane instance. It is in the queue of what is ready, or in one list of waiters.
struct Active {
  const Lane* lane = nullptr;
  std::uint32_t lane_index = 0, rank = 0;  // rank: an index of simulated ranks
  std::uint32_t instance = 0;
  std::uint32_t next = 0;    // step
  std::uint32_t cursor = 0;  // of a step that waits for several
  std::uint32_t chunk = 0, chunks = 0;
  std::uint32_t next_waiter = none;
  bool posted = false;      // the message of the step
  std::uint32_t hops = 0;   // of the messages that its first chunk depends on
  Picoseconds on_link = 0;  // of a message that is sent
  Picoseconds in_port = 0;  // of its receiver
  bool done = false;
};

struct Flag {
  std::vector<Picoseconds> published;  // when, for each chunk
  std::uint32_t hops = 0;              // Active::hops of the lane that publishes it
  std::uint32_t waiters = none;
};

/// A lane instance's progress in chunks.
struct Progress {
  std::uint32_t chunks = 0;
  std::uint32_t hops = 0;  // Active::hops
  std::uint32_t waiters = none;
};

struct Rank {
  const Plan* plan = nullptr;
  std::uint32_t number = 0;
  std::uint32_t processor = 0;  // on which it runs, or ran last
  Picoseconds runs_until = 0;
  Picoseconds end = 0;
  std::vector<std::size_t> first_progress;  // of each lane, in progress
  std::vector<Progress> progress;
  // Of each lane's steps, for each element.
  std::vector<std::vector<std::uint32_t>> bytes;
  std::vector<std::vector<std::int64_t>> femtoseconds;
  Flag flags[public_flags + 1];
};

struct Link {
  Picoseconds sends_until = 0, takes_until = 0;  // its two directions
  Picoseconds sending = 0, taking = 0;           // in all
};

struct Processor {
  Picoseconds until = 0;         // it has work
  Picoseconds busy = 0;          // in all
  std::uint32_t rank = none;     // which it runs, or ran last
  Picoseconds takes_at = never;  // an event lets it take an instance then
};

struct MessageKey {
  std::uint64_t pair;
  std::int64_t tag;
  std::uint32_t chunk;
  bool operator==(const MessageKey&) const = default;
};
struct HashOfKey {
  std::size_t operator()(const MessageKey& key) const {
    std::uint64_t hash = key.pair * 0x9e3779b97f4a7c15ULL;
    hash = (hash ^ static_cast<std::uint64_t>(key.tag)) * 0xbf58476d1ce4e5b9ULL;
    hash = (hash ^ (hash >> 32) ^ key.chunk) * 0x94d049bb133111ebULL;
    return hash ^ (hash >> 29);
  }
};
struct Message {
  bool sent = false;
  Picoseconds left = 0;    // the sender's link
  Picoseconds taking = 0;  // how long the receiver is busy with it
  Picoseconds on_link = 0;
  Picoseconds in_port = 0;
  Picoseconds latency = 0;
  std::uint32_t hops = 0;
  std::uint32_t waiters = none;
};

class Simulation {
 public:
  explicit Simulation(const Simulated& simulated)
      : simulated_(simulated),
        sizes_(simulated.sizes),
        costs_(simulated.costs),
        processors_(simulated.processors),
        shared_(simulated.processors < simulated.plans.size()),
        ready_(shared_ ? 1 : simulated.processors) {
    const Layout* const layout = simulated.layout;
    links_.resize(simulated.plans.size() + (layout != nullptr ? layout->nodes() : 0));
    for (const Plan& plan : simulated.plans) add(plan);
    for (Rank& rank : ranks_) begin(rank);
  }

  Times run() {
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      switch (event.kind) {
        case Event::ready:
          queue(event.index);
          break;
        case Event::left:
          deliver(active_[event.index]);
          queue(event.index);
          break;
        case Event::arrives:
          receive(active_[event.index]);
          break;
        case Event::takes:
          if (processors_[event.index].takes_at == now_) run_next(event.index);
          break;
      }
    }
    HOCKET_ASSERT(std::ranges::all_of(active_, &Active::done), "a verified plan ends");
    return {end_, mean_end(), busiest(), work(), hops_};
  }

 private:
  struct Event {
    Picoseconds time;
    enum Kind : std::uint8_t {
      ready,    // an active instance can go on
      left,     // the message of an active instance has left, and it can go on
      arrives,  // a message for an active instance has passed the links
      takes     // a processor takes the next instance
    } kind;
    std::uint32_t index;
    bool operator>(const Event& other) const {
      return std::tie(time, kind, index) > std::tie(other.time, other.kind, other.index);
    }
  };

  Picoseconds busiest() const {
    Picoseconds most = 0;
    for (const Processor& processor : processors_) most = std::max(most, processor.busy);
    for (const Link& link : links_) most = std::max({most, link.sending, link.taking});
    return most;
  }

  Picoseconds mean_end() const {
    Picoseconds all = 0;
    for (const Rank& rank : ranks_) all += rank.end;
    if (simulated_.alike != Alike::all_but_root) return all / std::ssize(ranks_);
    const Picoseconds ranks = ranks_[0].plan->shape.ranks;
    return (all + (ranks - std::ssize(ranks_)) * ranks_.back().end) / ranks;
  }

  Picoseconds work() const {
    Picoseconds all = looks_ * costs_.sync;
    for (const Processor& processor : processors_) all += processor.busy;
    for (const Link& link : links_) all += link.sending + link.taking;
    return all / static_cast<Picoseconds>(ranks_.size());
  }

  /// The instance can go on, as soon as a processor takes it.
  void queue(std::uint32_t index) {
    std::uint32_t taker = ranks_[active_[index].rank].processor;
    ready_for(taker).push_back(index);
    if (shared_ && (takes_next(processors_[taker]) || processors_[taker].until > now_)) {
      taker = idlest();
    }
    take_at(processors_[taker].until, taker);
  }

  /// Whether an event lets the processor take an instance as soon as it is idle.
  bool takes_next(const Processor& processor) const {
    return processor.takes_at <= std::max(now_, processor.until);
  }

  /// Of the processors that take no instance as soon as they are idle, the first to be idle; any
  /// processor, if there is none.
  std::uint32_t idlest() const {
    const auto order = [&](const Processor& p) { return std::tuple(takes_next(p), p.until); };
    return static_cast<std::uint32_t>(std::ranges::min_element(processors_, {}, order) -
                                      processors_.begin());
  }

  /// An event that was to come later is then ignored.
  void take_at(Picoseconds time, std::uint32_t number) {
    time = std::max(now_, time);
    if (processors_[number].takes_at <= time) return;
    processors_[number].takes_at = time;
    events_.push({time, Event::takes, number});
  }

  /// Active instances that the processor may take.
  std::deque<std::uint32_t>& ready_for(std::uint32_t number) {
    return ready_[shared_ ? 0 : number];
  }

  /// An instance of the rank that the processor ran last; else of a rank that ran there; else the
  /// first. None: their ranks run on other processors; then *until is when the first of them ends.
  std::deque<std::uint32_t>::iterator next_for(std::uint32_t number, Picoseconds* until) {
    std::deque<std::uint32_t>& ready = ready_for(number);
    auto best = ready.end();
    bool best_here = false;
    *until = -1;
    for (auto at = ready.begin(); at != ready.end(); ++at) {
      const std::uint32_t index = active_[*at].rank;
      if (index == processors_[number].rank && ranks_[index].processor == number) return at;
      const Rank& rank = ranks_[index];
      const bool here = rank.processor == number;
      if (!here && rank.runs_until > now_) {
        *until = *until < 0 ? rank.runs_until : std::min(*until, rank.runs_until);
      } else if (best == ready.end() || (here && !best_here)) {
        best = at;
        best_here = here;
      }
    }
    return best;
  }

  void run_next(std::uint32_t number) {
    Processor& processor = processors_[number];
    processor.takes_at = never;
    if (processor.until > now_) return take_at(processor.until, number);
    Picoseconds until = -1;
    const auto next = next_for(number, &until);
    if (next == ready_for(number).end()) {
      if (until >= 0) take_at(until, number);
      return;
    }
    Active& active = active_[*next];
    Rank& rank = ranks_[active.rank];
    rank.processor = number;
    const bool turns = processor.rank != active.rank || rank.runs_until < now_;
    processor.rank = active.rank;
    const Picoseconds from = now_;
    if (turns && costs_.turn > 0) {
      // After the turn the processor looks again: another instance may be ready then.
      now_ += costs_.turn;
    } else {
      ready_for(number).erase(next);
      run(active);
    }
    processor.busy += now_ - from;
    processor.until = rank.runs_until = now_;  // nothing is received meanwhile
    now_ = from;
    if (!ready_for(number).empty()) take_at(processor.until, number);
  }

  std::uint32_t index_of(const Active& active) const {
    return static_cast<std::uint32_t>(&active - active_.data());
  }
  void resume(const Active& active, Picoseconds time) {
    events_.push({time, Event::ready, index_of(active)});
  }
  void enlist(Active& active, std::uint32_t& waiters) {
    active.next_waiter = waiters;
    waiters = index_of(active);
  }
  /// All of them look again, at that time.
  void wake(std::uint32_t& waiters, Picoseconds time) {
    for (std::uint32_t next = std::exchange(waiters, none); next != none;) {
      const Active& active = active_[next];
      next = active.next_waiter;
      resume(active, time);
    }
  }

  void add(const Plan& plan) {
    Rank rank;
    rank.plan = &plan;
    rank.number = plan.shape.rank;
    rank.processor = static_cast<std::uint32_t>(ranks_.size() % processors_.size());
    std::size_t instances = 0;
    std::vector<Range> read;  // by earlier steps
    for (const Lane& lane : plan.lanes) {
      rank.first_progress.push_back(instances);
      instances += lane.instances;
      std::vector<std::uint32_t>& bytes = rank.bytes.emplace_back();
      std::vector<std::int64_t>& femtoseconds = rank.femtoseconds.emplace_back();
      for (const Step& step : lane.steps) {
        bytes.push_back(bytes_of_element(step));
        femtoseconds.push_back(femtoseconds_of_element(plan, step, read));
        read.insert(read.end(), step.srcs.begin(), step.srcs.end());
      }
    }
    rank.progress.resize(instances);
    ranks_.push_back(std::move(rank));
  }

  /// What a step reads and writes for each element.
  std::uint32_t bytes_of_element(const Step& step) const {
    std::uint32_t narrow = 0, wide = 0;
    for (const std::vector<Range>* ranges : {&step.srcs, &step.dsts}) {
      for (const Range& range : *ranges) (range.wide ? wide : narrow) += range.repeat;
    }
    const std::size_t of_block =
        narrow * size_of(simulated_.dtype) + wide * wide_size_of(simulated_.dtype);
    return static_cast<std::uint32_t>(step.repeat * of_block);
  }

  /// read: what earlier steps of the rank have read.
  std::int64_t femtoseconds_of_element(const Plan& plan, const Step& step,
                                       std::span<const Range> read) const {
    std::int64_t sum = 0;
    for (const std::vector<Range>* ranges : {&step.srcs, &step.dsts}) {
      for (const Range& range : *ranges) {
        const std::size_t bytes =
            range.wide ? wide_size_of(simulated_.dtype) : size_of(simulated_.dtype);
        for (std::uint32_t j = 0; j < range.repeat; ++j) {
          const bool written = ranges == &step.dsts;
          const bool again =
              !written && is_cached_input(range) && std::ranges::find(read, range) != read.end();
          const std::int64_t rate =
              again ? costs_.femtoseconds_per_touch : rate_of(plan, range, j, written);
          sum += static_cast<std::int64_t>(bytes) * rate;
        }
      }
    }
    return step.repeat * sum;
  }

  /// True if an input stays in the processor's own cache when it has been read.
  bool is_cached_input(const Range& range) const {
    const Extents& input = sizes_.input;
    return range.buffer == Buffer::input &&
           input.blocks * input.longest * size_of(simulated_.dtype) <= simulated_.core_cache_bytes;
  }

  /// Of a byte, by the place where it lies. Lines come with the flags.
  std::int64_t rate_of(const Plan& plan, const Range& range, std::uint32_t source,
                       bool written) const {
    const std::size_t element = size_of(simulated_.dtype);
    bool in_memory = false, shared = false;
    if (range.buffer == Buffer::line) return costs_.femtoseconds_per_touch;
    if (range.buffer == Buffer::scratch) {
      // A chunk is read soon after it was written: then the cache holds it, if it also has room for
      // what is copied meanwhile. It is written again when all slots have been used; operations use
      // two large scratches of a board in turn (transport/shm/board.h).
      const std::size_t in_turn = plan.node.empty() ? 1 : 2;
      const std::size_t longest = std::max(sizes_.input.longest, sizes_.output.longest);
      const std::size_t slots = std::min<std::size_t>(plan.slots, sizes_.chunks_in(longest));
      const std::size_t chunk =
          plan.scratch_blocks * scratch_stride_bytes(sizes_, simulated_.dtype, range.wide);
      in_memory = (written ? in_turn * slots : 2) * chunk > simulated_.core_cache_bytes;
      shared = written && !plan.node.empty();
    } else {
      const Extents& extents = sizes_.of(range.buffer);
      in_memory = extents.blocks * extents.longest * element > cached_buffer_bytes;
    }
    if (in_memory && written) return costs_.femtoseconds_of_memory_written;
    if (in_memory) return costs_.femtoseconds_of_memory;
    const bool own = range.rank.at(0, source) == plan.shape.rank;
    return own && !shared ? costs_.femtoseconds_per_touch : costs_.femtoseconds_of_peer;
  }

  /// In the entry the wait for the arrivals takes time, and the buffers that it maps: as all ranks
  /// begin at the same time, the board is free.
  void begin(Rank& rank) {
    const auto index = static_cast<std::uint32_t>(&rank - ranks_.data());
    const Mapped mapped = mapped_buffers(*rank.plan);
    Picoseconds entry = mapped != Mapped::none ? costs_.find_regions : 0;
    if (mapped == Mapped::of_all || (mapped == Mapped::of_root && !rank.plan->shape.is_root())) {
      ++looks_;
      const auto all = static_cast<Picoseconds>(rank.plan->node.size() - 1);
      entry += costs_.sync + (mapped == Mapped::of_all ? all : 1) * costs_.map_peer;
    }
    for (std::uint32_t l = 0; l < rank.plan->lanes.size(); ++l) {
      const Lane& lane = rank.plan->lanes[l];
      for (std::uint32_t i = 0; i < std::min(lane.window, lane.instances); ++i) {
        Active& active = active_.emplace_back();
        active.lane = &lane;
        active.lane_index = l;
        active.rank = index;
        begin_instance(active, i);
        resume(active, entry);
      }
    }
  }

  void begin_instance(Active& active, std::uint32_t instance) {
    active.instance = instance;
    active.chunk = active.hops = 0;
    active.chunks =
        static_cast<std::uint32_t>(sizes_.chunks_of(active.lane->counts, active.lane->extents, 0));
  }

  std::uint64_t bytes_of(const Active& active) const {
    const std::uint32_t each = ranks_[active.rank].bytes[active.lane_index][active.next];
    if (each == 0) return 0;
    return sizes_.range(active.lane->extents, 0, active.chunk).count * each;
  }

  Picoseconds time_of_fold(const Active& active) const {
    return time_of(sizes_.range(active.lane->extents, 0, active.chunk).count,
                   ranks_[active.rank].femtoseconds[active.lane_index][active.next]);
  }

  /// Until it must wait, or has completed a chunk.
  void run(Active& active) {
    while (!active.done) {
      if (!step(active, active.lane->steps[active.next])) return;
      active.cursor = 0;
      if (++active.next < active.lane->steps.size()) continue;
      complete_chunk(active);
      if (!active.done) return resume(active, now_);
    }
    Picoseconds& end = ranks_[active.rank].end;
    end = std::max(end, now_);
    end_ = std::max(end_, end);
  }

  void complete_chunk(Active& active) {
    Rank& rank = ranks_[active.rank];
    active.next = 0;
    ++active.chunk;
    const bool last = active.chunk == active.chunks;
    Progress& progress = rank.progress[rank.first_progress[active.lane_index] + active.instance];
    progress.chunks = last ? ended : active.chunk;
    progress.hops = active.hops;
    wake(progress.waiters, now_);
    if (active.lane->publishes >= 0) {
      Flag& flag = rank.flags[static_cast<std::size_t>(active.lane->publishes)];
      flag.hops = std::max(flag.hops, active.hops);
      publish(flag);
    }
    if (!last) return;
    const std::uint32_t following = active.instance + active.lane->window;
    if (following < active.lane->instances) {
      begin_instance(active, following);
    } else {
      active.done = true;
    }
  }

  void publish(Flag& flag) {
    flag.published.push_back(now_);
    wake(flag.waiters, now_ + costs_.sync);
  }

  /// False: the instance waits.
  bool step(Active& active, const Step& step) {
    if (sizes_.leaves_out(step.when, active.lane->extents, 0)) return true;
    switch (step.kind) {
      case StepKind::fold:
        now_ += time_of_fold(active);
        return true;
      case StepKind::send:
        return send(active, step);
      case StepKind::recv:
        return recv(active, step);
      case StepKind::arrive:
        publish(ranks_[active.rank].flags[arrival]);
        return true;
      case StepKind::await_arrival:
        if (!wait(active, step, arrival, 1)) return false;
        ++looks_;
        return true;
      case StepKind::wait:
        if (active.chunk < step.lag) return true;
        if (!wait(active, step, step.flag, active.chunk - step.lag + 1)) return false;
        ++looks_;
        return true;
      case StepKind::await:
        return await(active, step);
      case StepKind::await_board:  // no step of a lane; the entry is priced by begin()
        return true;
    }
    return true;
  }

  /// The simulated rank that stands for a rank.
  std::uint32_t representative(std::uint32_t rank) const {
    switch (simulated_.alike) {
      case Alike::all:
        return 0;
      case Alike::all_but_root:
        return rank == 0 ? 0 : 1;
      case Alike::none:
        break;
    }
    return rank;
  }

  /// Whether a simulated rank stands for local peers of `rank`, which may be that rank itself.
  bool has_peers(const Rank& rank, std::uint32_t representative) const {
    const Rank& other = ranks_[representative];
    if (&rank != &other) {
      return simulated_.alike != Alike::none || rank.plan->node == other.plan->node;
    }
    const std::size_t ranks = rank.plan->node.size();
    if (simulated_.alike == Alike::all) return ranks > 1;
    return simulated_.alike == Alike::all_but_root && representative == 1 && ranks > 2;
  }

  bool wait(Active& active, const Step& step, std::size_t flag, std::uint32_t chunks) {
    const Rank& rank = ranks_[active.rank];
    if (!step.all) {
      const auto local = static_cast<std::size_t>(step.peer.at(active.instance));
      const std::uint32_t peer = rank.plan->node[local];
      return sees(active, ranks_[representative(peer)].flags[flag], chunks);
    }
    for (; active.cursor < ranks_.size(); ++active.cursor) {
      if (!has_peers(rank, active.cursor)) continue;
      if (!sees(active, ranks_[active.cursor].flags[flag], chunks)) return false;
    }
    return true;
  }

  bool sees(Active& active, Flag& flag, std::uint32_t chunks) {
    if (flag.published.size() < chunks) {
      enlist(active, flag.waiters);
      return false;
    }
    const Picoseconds seen = flag.published[chunks - 1] + costs_.sync;
    if (seen > now_) {
      resume(active, seen);
      return false;
    }
    depend(active, flag.hops);
    return true;
  }

  /// The instance depends on a message that is the last of a chain of so many.
  void depend(Active& active, std::uint32_t hops) {
    if (active.chunk == 0) active.hops = std::max(active.hops, hops);
    hops_ = std::max(hops_, active.hops);
  }

  bool await(Active& active, const Step& step) {
    if (!step.end && active.chunk < step.lag) return true;
    Rank& rank = ranks_[active.rank];
    const std::uint32_t target = step.end ? ended : active.chunk - step.lag + 1;
    const std::int64_t instances = rank.plan->lanes[step.lane].instances;
    for (; active.cursor < step.repeat; ++active.cursor) {
      const std::int64_t instance = step.instance.at(active.instance, active.cursor);
      if (instance < 0 || instance >= instances) continue;
      Progress& progress =
          rank.progress[rank.first_progress[step.lane] + static_cast<std::size_t>(instance)];
      if (progress.chunks < target) {
        enlist(active, progress.waiters);
        return false;
      }
      depend(active, progress.hops);
    }
    return true;
  }

  /// The name of a message, the same at both ends. Where one rank stands for several, the name of
  /// its message is that of all their messages at once.
  MessageKey key_of(const Active& active, const Step& step, bool sends) const {
    const std::uint64_t own = ranks_[active.rank].number;
    const std::uint64_t peer = static_cast<std::uint64_t>(step.peer.at(active.instance));
    const std::uint64_t from = sends ? own : peer, to = sends ? peer : own;
    const std::uint64_t all = ranks_[active.rank].plan->shape.ranks;
    MessageKey key{.pair = 0, .tag = step.tag.at(active.instance), .chunk = active.chunk};
    switch (simulated_.alike) {
      case Alike::all:
        key.pair = (to + all - from) % all;  // the distance
        break;
      case Alike::all_but_root:
        key.pair = to;  // the root: from any of the others
        break;
      case Alike::none:
        key.pair = from * all + to;
    }
    return key;
  }

  /// What a message between two ranks uses.
  struct Way {
    std::uint32_t link = 0;      // of the rank that asks
    std::uint64_t messages = 1;  // which take their turns on the link at the same time
    bool local = false;
  };
  Way way_to(const Active& active, std::uint32_t peer) const {
    const Layout* const layout = simulated_.layout;
    if (layout == nullptr) return {.link = active.rank};
    const std::uint32_t own = ranks_[active.rank].number, ranks = layout->ranks();
    if (simulated_.alike == Alike::none) {
      const std::uint32_t node = layout->node_of(own);
      if (node == layout->node_of(peer)) return {.link = active.rank, .local = true};
      return {.link = static_cast<std::uint32_t>(ranks_.size()) + node};
    }
    if (simulated_.alike == Alike::all_but_root) return {.link = active.rank};
    const std::uint32_t distance = (peer + ranks - own) % ranks;
    return {.link = active.rank,
            .messages = std::min({distance, ranks - distance, layout->ranks_of_largest()})};
  }

  /// Whether the kernel copies the message, in the time of its receiver.
  bool is_copied_by_kernel(const Active& sender) const {
    const Collective collective = ranks_[sender.rank].plan->shape.collective;
    return costs_.femtoseconds_of_kernel_copy > 0 && scatters_blocks(row_of(collective)) &&
           bytes_of(sender) > shm_eager_bytes;
  }

  /// A send ends when its last byte has left the link. One that the kernel copies ends at once
  /// here; in fact it ends with its receive, so the mean over the ranks is a little low.
  bool send(Active& active, const Step& step) {
    if (std::exchange(active.posted, !active.posted)) return true;
    const Way way = way_to(active, static_cast<std::uint32_t>(step.peer.at(active.instance)));
    now_ += way.local ? costs_.local_work() : costs_.work;
    if (is_copied_by_kernel(active)) {
      active.on_link = 0;
      active.in_port = time_of(bytes_of(active), costs_.femtoseconds_of_kernel_copy);
      events_.push({now_, Event::left, index_of(active)});
      return false;
    }
    const std::int64_t rate =
        way.local ? costs_.femtoseconds_of_local_send() : costs_.femtoseconds_on_link;
    const Picoseconds on_link = time_of(bytes_of(active) * way.messages, rate);
    Link& link = links_[way.link];
    link.sends_until = std::max(link.sends_until, now_) + on_link;
    link.sending += on_link;
    active.on_link = on_link;
    const auto port_of = [&](std::int64_t local) {
      return time_of(bytes_of(active), way.local ? local : costs_.femtoseconds_in_port);
    };
    active.in_port = port_of(costs_.femtoseconds_of_local_recv());
    now_ += port_of(costs_.femtoseconds_of_local_send());
    const Picoseconds left = std::max(link.sends_until, now_);
    events_.push({left, Event::left, index_of(active)});
    return false;
  }

  void deliver(const Active& sender) {
    const Step& step = sender.lane->steps[sender.next];
    Message& message = messages_[key_of(sender, step, true)];
    const Way way = way_to(sender, static_cast<std::uint32_t>(step.peer.at(sender.instance)));
    message.sent = true;
    message.latency = way.local ? costs_.local_latency() : costs_.latency;
    message.on_link = sender.on_link;
    message.in_port = sender.in_port;
    message.hops = sender.hops + 1;
    message.taking = std::max(way.local ? costs_.local_work() : costs_.work, sender.on_link);
    message.left = now_;
    for (std::uint32_t next = std::exchange(message.waiters, none); next != none;) {
      Active& receiver = active_[next];
      next = receiver.next_waiter;
      expect(receiver, message);
    }
  }

  bool recv(Active& active, const Step& step) {
    if (std::exchange(active.posted, !active.posted)) {
      if (shared_) now_ += active.in_port;
      return true;
    }
    Message& message = messages_[key_of(active, step, false)];
    if (message.sent) {
      expect(active, message);
    } else {
      enlist(active, message.waiters);
    }
    return false;
  }

  static Picoseconds take(Link& link, Picoseconds left, Picoseconds taking) {
    link.taking += taking;
    return link.takes_until = std::max(left, link.takes_until + taking);
  }

  /// When a message has passed the links of its receiver.
  Picoseconds arrival_of(const Active& receiver, const Message& message) {
    const Step& step = receiver.lane->steps[receiver.next];
    const Way way = way_to(receiver, static_cast<std::uint32_t>(step.peer.at(receiver.instance)));
    const Picoseconds taken = take(links_[receiver.rank], message.left, message.taking);
    const Picoseconds passed =
        way.link == receiver.rank ? taken : take(links_[way.link], message.left, message.on_link);
    return std::max(taken, passed) + message.latency;
  }

  /// The receiver waits for a message that has left.
  void expect(Active& receiver, const Message& message) {
    receiver.in_port = message.in_port;
    depend(receiver, message.hops);
    events_.push(
        {std::max(now_, arrival_of(receiver, message)), Event::arrives, index_of(receiver)});
  }

  /// The rank's processor copies the message: what came while the processor was idle, it has copied
  /// already. Where ranks share processors, the rank copies all of it when it runs again.
  void receive(const Active& receiver) {
    if (shared_) return queue(index_of(receiver));
    Processor& processor = processors_[ranks_[receiver.rank].processor];
    processor.busy += receiver.in_port;
    processor.until = std::max(now_, processor.until + receiver.in_port);
    resume(receiver, processor.until);
  }

  const Simulated& simulated_;
  const Sizes sizes_;
  const Costs costs_;
  std::vector<Processor> processors_;
  const bool shared_;  // fewer processors than ranks: each rank runs on any of them
  // Active instances that no processor runs: of each processor; of all, if they are shared.
  std::vector<std::deque<std::uint32_t>> ready_;
  std::vector<Link> links_;  // of each simulated rank, then of each node
  std::vector<Rank> ranks_;
  std::vector<Active> active_;
  std::unordered_map<MessageKey, Message, HashOfKey> messages_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  Picoseconds now_ = 0;
  Picoseconds end_ = 0;
  std::uint32_t hops_ = 0;
  Picoseconds looks_ = 0;  // steps that have waited for flags of peers
};

}  // namespace

Times simulate(const Simulated& simulated) { return Simulation(simulated).run(); }

}  // namespace hocket::internal

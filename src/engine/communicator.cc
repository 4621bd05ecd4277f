#include "engine/communicator.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "collectives/plan/json.h"
#include "engine/calibration.h"
#include "engine/record_text.h"
#include "engine/trace_clock.h"

namespace hocket::internal {
namespace {

// A group of so many messages is traced as a whole.
constexpr std::size_t least_recorded_in_trace = 4096;

/// What a rank gives in a split.
struct SplitEntry {
  std::int32_t color, key;
};

/// Either all ranks duplicate the communicator or none does.
Status check_alike(const std::vector<SplitEntry>& all, int color, const std::string& name) {
  const bool duplicates = color == Communicator::duplicate;
  const auto other = std::find_if(all.begin(), all.end(), [&](const SplitEntry& entry) {
    return (entry.color == Communicator::duplicate) != duplicates;
  });
  if (other == all.end()) return {};
  const auto rank = static_cast<int>(other - all.begin());
  const auto call = [](bool duplicate) {
    return duplicate ? "hocketCommDuplicate" : "hocketCommSplit";
  };
  return {Code::mismatch,
          fmt::format("rank {} of '{}' called {}, but this rank called {}", rank, name,
                      call(!duplicates), call(duplicates)),
          rank};
}

}  // namespace

Communicator::Communicator(std::shared_ptr<Session> session, std::vector<int> members,
                           std::uint64_t comm_id, const CommConfig& config,
                           const CommContext& context)
    : session_(std::move(session)),
      config_(config),
      shared_(context.shared),
      factory_(context.factory),
      errors_(context.errors),
      membership_(*session_, std::move(members), comm_id, config.name),
      links_(*session_, membership_, shared_),
      oversubscription_(ranks_per_core(*session_)) {}

Status Communicator::create(std::shared_ptr<Session> session, std::vector<int> members,
                            std::uint64_t comm_id, std::uint64_t parent, const CommConfig& config,
                            const CommContext& context, std::unique_ptr<Communicator>* out) {
  std::unique_ptr<Communicator> made(
      new Communicator(std::move(session), std::move(members), comm_id, config, context));
  made->membership_.set_parent(parent);
  const Status status = status_of_call([&] { return made->make(context); });
  if (!status.ok()) {
    best_effort([&] { made->membership_.report_failure(status, 0); });
    return status;
  }
  made->membership_.set_parent(0);
  *out = std::move(made);
  return {};
}

Status Communicator::make(const CommContext& context) {
  {
    const StopRequest::Scope scope(context.stop, [this] { tell_abort(); });
    HOCKET_RETURN_IF_ERROR(links_.open(config_, factory_));
  }
  make_engine();
  HOCKET_RETURN_IF_ERROR(start_dumps());
  const StopRequest::Scope scope(context.stop, [this] { abort(); });
  return agree(context.figures);
}

Communicator::~Communicator() {
  if (engine_ != nullptr) order_.flush();
  dump_.reset();
  membership_.unwatch_faults();
  if (errors_.is_set()) {
    best_effort([this] { links_.cancel(errors_.get()); });
  }
  leave();
}

Status Communicator::finalize() {
  order_.flush();
  Call barrier;
  barrier.number = order_.next_number();
  const Status status = run(barrier);
  dump_->finish_requests();
  HOCKET_RETURN_IF_ERROR(status);
  leave();
  return {};
}

/// Says goodbye to the other ranks, once.
void Communicator::leave() {
  if (left_) return;
  left_ = true;
  if (trace_ != nullptr) trace_->flush();
  links_.close();
  if (ranks() == 1) return;
  best_effort([this] { membership_.report_left(); });
}

void Communicator::make_engine() {
  EngineOptions options;
  options.rank = rank();
  options.ranks = ranks();
  options.deadline = config_.deadline_ms * nanos_per_ms;
  options.recorded = static_cast<std::size_t>(config_.record_operations);
  if (!config_.trace_folder.empty()) {
    trace_ = std::make_unique<TraceFile>(
        config_.trace_folder, membership_, config_.name,
        [this](const Program& program) { return transports_of(program, *engine_, ranks()); });
    // What is traced is recorded first, and must last until it has ended.
    options.recorded = std::max<std::size_t>(options.recorded, least_recorded_in_trace);
  }
  options.sink = trace_.get();
  // Until the ranks have agreed, the selector gets only options that are equal on all ranks.
  SelectorOptions common;
  common.rank = rank();
  common.ranks = ranks();
  common.one_node = nodes() == 1;
  common.layout = membership_.layout();
  common.board_scratch_bytes = least_scratch_bytes();
  EngineHost& host = *this;
  engine_ = std::make_unique<Engine>(host, options, links_.links(), links_.transports(),
                                     std::make_unique<Selector>(common));
  membership_.watch_faults([this] {
    best_effort([this] { membership_.answer_overdue(engine_->begun()); });
    engine_->fault_pending().store(true, std::memory_order_relaxed);
    links_.doorbells().wake();
  });
  engine_->fault_pending().store(true, std::memory_order_relaxed);  // faults from before the watch
}

Status Communicator::start_dumps() {
  DumpTarget target;
  target.signal = config_.dump_signal;
  if (!config_.dump_folder.empty()) {
    const int session_rank = membership_.session_rank(rank());
    const Member& self = membership_.member(rank());
    target.file = fmt::format("{}/hocket-rank{}-{}-pid{}.txt", config_.dump_folder, session_rank,
                              self.host, self.pid);
  }
  return RecordDump::start(
      std::move(target),
      [this](std::size_t most_ended) {
        return record_lines({*engine_, membership_, config_.name, errors_.get()}, most_ended);
      },
      &dump_);
}

/// Of the boards of all nodes: the same on all ranks.
std::size_t Communicator::least_scratch_bytes() const {
  return Board::scratch_bytes_of(static_cast<int>(membership_.layout()->ranks_of_largest()));
}

std::unique_ptr<Selector> Communicator::make_selector(const Figures& figures,
                                                      LoadedPlans plans) const {
  SelectorOptions options;
  options.rank = rank();
  options.ranks = ranks();
  options.one_node = nodes() == 1;
  options.deterministic = config_.deterministic;
  options.signature_flags = signature_flags();
  options.algorithm = config_.algorithm;
  options.layout = membership_.layout();
  options.board_scratch_bytes = least_scratch_bytes();
  options.figures = figures;
  options.loaded = std::move(plans);
  return std::make_unique<Selector>(options);
}

/// The plans of HOCKET_PLAN_FILES that serve this number of ranks on these nodes.
Status Communicator::verify_plan_files(LoadedPlans* out) const {
  if (config_.plans == nullptr) return {};
  const Layout& layout = *membership_.layout();
  for (const PlanFile& file : *config_.plans) {
    if (!file.serves(layout.ranks(), &layout)) continue;
    std::shared_ptr<const LoadedPlan> plan;
    const Status status = out->verify(file, layout.ranks(), &plan, &layout);
    if (!status.ok()) return invalid_usage("HOCKET_PLAN_FILES: " + status.message());
    out->add(std::move(plan));
  }
  return {};
}

Status Communicator::agree(const std::optional<Figures>& known) {
  Figures figures = known.value_or(Figures());
  LoadedPlans plans;
  if (const Status status = verify_plan_files(&plans); !status.ok()) {
    fail(status);
    return status;
  }
  if (ranks() > 1) {
    const auto run_by = [this](std::span<const Call> calls, const char* algorithm) {
      engine_->force_algorithm(algorithm);
      return run(calls);
    };
    const auto read = [this](int peer, std::uint64_t address, std::size_t bytes, std::byte* to) {
      return links_.memory().read(peer, address, bytes, to);
    };
    Calibration calibration(*session_, membership_, links_.board(), config_, plans,
                            links_.transports(), run_by, read);
    if (const Status status = calibration.agree(&figures, known.has_value()); !status.ok()) {
      fail(status);  // the ranks whose settings agree learn of it
      return status;
    }
  }
  if (trace_ != nullptr) HOCKET_RETURN_IF_ERROR(open_trace());
  figures_ = figures;
  engine_->set_selector(make_selector(figures, std::move(plans)), signature_flags());
  log_ready(figures);
  return {};
}

/// The figures of this communicator, if they are also those of one that these of its ranks make: if
/// its ranks are as near to one another. All of the new ranks get the same answer. To measure the
/// figures takes ten times as long as the rest of a split.
std::optional<Figures> Communicator::figures_for(const std::vector<int>& ranks,
                                                 const CommConfig& config) const {
  const bool reaches_alike = config.use_shm == config_.use_shm &&
                             config.use_tcp == config_.use_tcp && config.nodes == config_.nodes;
  if (!reaches_alike) return std::nullopt;
  if (nodes() == 1) return figures_;
  std::vector<int> nodes;
  for (const int rank : ranks) nodes.push_back(membership_.member(rank).node);
  std::ranges::sort(nodes);
  const bool share_nodes = std::ranges::adjacent_find(nodes) != nodes.end();
  const bool one_node = nodes.empty() || nodes.front() == nodes.back();
  const bool share_here = membership_.layout()->ranks_of_largest() > 1;
  if (one_node || share_nodes != share_here) return std::nullopt;
  return figures_;
}

Status Communicator::open_trace() {
  ClockOffset offset;
  Status status = measure_trace_clock(
      membership_, [this](std::span<const Call> calls) { return run(calls); }, &offset);
  if (status.ok()) status = trace_->open(offset);
  if (!status.ok()) engine_->fail(status);
  return status;
}

void Communicator::log_ready(const Figures& f) const {
  if (!log_enabled(LogLevel::info)) return;
  std::string line = fmt::format(
      "'{}' is ready: {}, local rank {} of {}, {} ranks on {} node{}; {:.3g} ranks per core here",
      config_.name, name_of_rank(rank()), local_rank(), local_ranks(), ranks(), nodes(),
      nodes() == 1 ? "" : "s", ranks_per_core(*session_));
  // The line has only figures that were measured. docs/TUNING.md explains each figure.
  if (ranks() > 1 && rank() == 0) {
    line += fmt::format("; figures: caches {:.3f} ns/byte; memory {:.3f} ns/byte",
                        f.cached_ns_per_byte, f.memory_ns_per_byte);
    if (nodes() == 1) line += fmt::format("; operation {:.0f} ns", f.call_ns);
    if (ranks() > nodes()) {
      line += fmt::format("; flags {:.0f} ns; peer's caches {:.3f} ns/byte", f.sync_ns,
                          f.peer_ns_per_byte);
    }
    if (f.peer_non_temporal_ns_per_byte > 0) {
      line += fmt::format("; past peer's caches {:.3f} ns/byte, in 4 KiB {:.2f} of the time",
                          f.peer_non_temporal_ns_per_byte, f.small_non_temporal_ratio);
    }
    line += fmt::format(
        "; message latency {:.0f} ns; message work {:.0f} ns; link {:.3f} ns/byte; port {:.3f} "
        "ns/byte",
        f.message_ns, f.message_overhead_ns, f.link_ns_per_byte, f.port_ns_per_byte);
    if (f.ranks_per_core > 1) line += fmt::format("; turn of a core {:.0f} ns", f.turn_ns);
    if (f.kernel_copy_ns_per_byte > 0) {
      line += fmt::format("; kernel copy {:.3f} ns/byte", f.kernel_copy_ns_per_byte);
    }
    if (nodes() == 1 && f.ranks_per_core <= 1) {
      line += fmt::format("; peer memory {:.3f} ns/byte; peer memory past caches {:.3f} ns/byte",
                          f.push_ns_per_byte, f.push_non_temporal_ns_per_byte);
    }
  }
  log_line(LogLevel::info, line);
}

std::string Communicator::name_of_rank(int rank) const { return membership_.name_of_rank(rank); }

void Communicator::ring(int local_rank) { links_.doorbells().ring(local_rank); }

void Communicator::ask_for_late_ranks(std::uint64_t collective, const std::string& what_waits) {
  membership_.report_overdue(collective, what_waits);
}

bool Communicator::export_region(std::uint64_t region) {
  return links_.memory().export_region(region);
}

std::byte* Communicator::private_scratch(std::size_t bytes) { return links_.scratch().of(bytes); }

Status Communicator::map_remote(int peer, RegionOffset offset, std::size_t bytes,
                                std::uint64_t operation, std::byte** out) {
  return links_.memory().map_remote(peer, offset, bytes, operation, out);
}

void Communicator::poll_faults(FaultNews* news) {
  if (!errors_.aborted()) return membership_.poll_faults(news);
  if (news->error.ok()) news->error = error();
  news->at_once = true;
}

void Communicator::on_failure(const Status& status, std::uint64_t operation, bool tell_peers) {
  // If there is no memory for the report, the other ranks learn of the failure by their deadline,
  // or because this rank leaves.
  if (tell_peers) best_effort([&] { membership_.report_failure(status, operation); });
  errors_.set(status);
  if (dump_ != nullptr) dump_->at_error();
  if (trace_ != nullptr) trace_->flush();
}

/// In a handler.
Status Communicator::fail_by_exception() {
  fail(caught());
  return engine_->status();
}

Status Communicator::drive_to_end() {
  try {
    const Sleeper self = sleeper();
    drive({&self, 1}, oversubscription_);
  } catch (const std::exception&) {
    return fail_by_exception();
  }
  return engine_->status();
}

Status Communicator::run(std::span<const Call> calls) {
  HOCKET_ASSERT(!calls.empty(), "there is a call to run");
  const Status submitted = status_of_call([&]() -> Status {
    for (const Call& call : calls.first(calls.size() - 1)) engine_->submit(call);
    return {};
  });
  if (!submitted.ok()) fail(submitted);
  return run(calls.back());
}

void Communicator::submit(std::span<const Call> calls, const Status& error, Work* work) {
  work->begin(calls.size());
  const Status submitted = status_of_call([&]() -> Status {
    HOCKET_RETURN_IF_ERROR(error);
    for (const Call& call : calls) engine_->submit(call, work);
    return {};
  });
  if (submitted.ok()) return;
  fail(submitted);
  work->fail(engine_->status());
}

/// Ends everything with an error that arose here.
void Communicator::fail(const Status& status) {
  engine_->fail_now(status);
  engine_->report_failure();
}

Status Communicator::error() {
  // Perhaps no thread drives the engine: what the monitor thread has heard counts all the same.
  if (!errors_.is_set() && engine_->fault_pending().load(std::memory_order_relaxed)) [[unlikely]]
    errors_.set(membership_.first_fault());
  return errors_.get();
}

void Communicator::abort() noexcept {
  if (!errors_.abort()) return;
  tell_abort();
  engine_->fault_pending().store(true, std::memory_order_relaxed);
  links_.doorbells().wake();
}

void Communicator::tell_abort() noexcept {
  const Status aborted = status_of_call([this] { return membership_.own_abort(); });
  errors_.set(aborted);
  best_effort([&] { membership_.report_abort(aborted); });
}

bool Communicator::is_mapped(const void* pointer, std::size_t bytes) const {
  RegionOffset offset;
  return nodes() == 1 && shared_.regions.find(pointer, bytes, &offset);
}

bool Communicator::is_mapped(const Call& call) const {
  const CollectiveRow& row = row_of(call.collective);
  const auto all = [&](const void* buffer, Blocks blocks) {
    const std::size_t each = call.count * size_of(call.dtype);
    return blocks == Blocks::none || buffer == nullptr ||
           is_mapped(buffer, blocks == Blocks::per_rank ? each * ranks() : each);
  };
  return all(call.input, row.input) && all(call.output, row.output);
}

Communicator::Memory Communicator::memory() const {
  const auto local = static_cast<std::uint64_t>(local_ranks());
  return {Board::bytes(local_ranks()), local * local * links_.board().fifo_bytes(),
          links_.scratch().bytes()};
}

/// Messages have no plan to choose, and so no price: the bytes of a message are copied into a fifo
/// and out of it, or cross a link.
Status Communicator::estimate(const Call& call, double* ns) {
  if (!is_p2p(call)) return engine_->estimate(call, is_mapped(call), ns);
  const auto bytes = static_cast<double>(call.count * size_of(call.dtype));
  const bool local = membership_.member(call.root).node == membership_.member(rank()).node;
  *ns = local ? figures_.sync_ns + 2 * bytes * figures_.cached_ns_per_byte
              : figures_.message_ns + figures_.message_overhead_ns +
                    bytes * figures_.link_ns_per_byte;
  return {};
}

const char* Communicator::last_algorithm() const {
  const Program* const program = engine_->last_program();
  return program == nullptr ? "none" : shared_.texts.keep(program->algorithm());
}

const char* Communicator::last_transport() const {
  const Program* const program = engine_->last_program();
  return program == nullptr ? "none"
                            : shared_.texts.keep(transports_of(*program, *engine_, ranks()));
}

Status Communicator::load_plan(std::string_view json, bool forced) {
  struct Entry {
    std::uint64_t hash = 0;
    std::uint8_t refused = 0, forced = 0;
    char name[most_name_characters + 1] = {};
    char zero[6] = {};
    bool operator==(const Entry&) const = default;
  };
  std::shared_ptr<const LoadedPlan> plan;
  std::vector<Entry> all;
  Entry mine;
  // A rank that refuses the plan tells the others, which wait for it.
  const Status verified = status_of_call([&]() -> Status {
    PlanFile file;
    all.resize(static_cast<std::size_t>(ranks()));
    HOCKET_RETURN_IF_ERROR(read_plan(json, given_text, &file));
    const Layout& layout = *membership_.layout();
    return engine_->loaded_plans().verify(file, layout.ranks(), &plan, &layout);
  });
  mine.refused = !verified.ok();
  mine.forced = forced;
  if (verified.ok()) {
    mine.hash = plan->file.hash;
    plan->file.name.copy(mine.name, most_name_characters);
  }
  order_.flush();
  if (all.empty()) {
    fail(verified);
    return verified;
  }
  Call call;
  call.collective = Collective::all_gather;
  call.input = &mine;
  call.output = all.data();
  call.count = sizeof mine;
  call.dtype = Dtype::uint8;
  HOCKET_RETURN_IF_ERROR(run(call));
  if (!verified.ok()) return verified;
  for (int rank = 0; rank < ranks(); ++rank) {
    const Entry &first = all[0], &other = all[static_cast<std::size_t>(rank)];
    if (other.refused != 0) {
      return {
          Code::mismatch,
          name_of_rank(rank) + " has refused the plan that it was given: no rank has loaded one",
          rank};
    }
    if (other == first) continue;
    const auto text = [](const Entry& entry) {
      return name_and_hash(entry.name, entry.hash) + (entry.forced != 0 ? ", forced" : "");
    };
    return {Code::mismatch,
            fmt::format("rank 0 was given the plan {} and rank {} the plan {}: give all ranks the "
                        "same; no rank has loaded one",
                        text(first), rank, text(other)),
            rank};
  }
  engine_->add_plan(std::move(plan), forced);
  return {};
}

Status Communicator::split(CallOrder::Ticket ticket, int color, int key, const CommConfig& config,
                           ErrorCell& errors, StopRequest* stop,
                           std::unique_ptr<Communicator>* out) {
  const SplitEntry mine{color, key};
  std::vector<SplitEntry> all;
  std::vector<int> members, group;
  std::string name;
  // If there is no memory, this rank takes no part; the other ranks wait for it until the deadline.
  const Status prepared = status_of_call([&]() -> Status {
    all.resize(static_cast<std::size_t>(ranks()));
    members = membership_.members();
    group.reserve(members.size());
    name = config_.name;
    return {};
  });
  Call call;
  call.collective = Collective::all_gather;
  call.input = &mine;
  call.output = all.data();
  call.count = 2;
  call.dtype = Dtype::int32;
  Handover handover;
  handover.communicator = this;
  handover.ticket = ticket;
  handover.calls = {&call, 1};
  handover.error = prepared;
  Sleeper sleeper;
  Handovers& all_handovers = shared_.handovers;
  const Status gathered = run_in_turn(all_handovers, {&handover, 1}, {&sleeper, 1});
  const std::uint64_t comm_id = membership_.comm_id_of_next_split(color);
  const std::shared_ptr<Session> session = session_;
  const std::uint64_t parent = membership_.comm_id();
  if (gathered.ok()) {
    for (std::size_t rank = 0; rank < members.size(); ++rank) {
      if (all[rank].color == color) group.push_back(static_cast<int>(rank));
    }
  }
  CommContext context{shared_, errors, stop, factory_};
  best_effort([&] { context.figures = figures_for(group, config); });
  // Keeps the faults of the parent beyond the end of the parent. The comm id is open already, so
  // this allocates nothing.
  const OpenCommId open_parent(*session, parent);
  if (!gathered.ok() && color != no_color) {
    best_effort([&] { membership_.report_failed_split(comm_id, gathered); });
  }
  finish(all_handovers, *this, ticket);  // from here on this communicator may be destroyed
  HOCKET_RETURN_IF_ERROR(gathered);
  HOCKET_RETURN_IF_ERROR(check_alike(all, color, name));
  if (color == no_color) return {};
  std::stable_sort(group.begin(), group.end(), [&](int a, int b) {
    return all[static_cast<std::size_t>(a)].key < all[static_cast<std::size_t>(b)].key;
  });
  for (int& rank : group) rank = members[static_cast<std::size_t>(rank)];
  return create(session, std::move(group), comm_id, parent, config, context, out);
}

}  // namespace hocket::internal

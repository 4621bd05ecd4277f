// Communicators: collectives, messages, queries.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <hocket/cpp/blocks.hpp>
#include <hocket/cpp/config.hpp>
#include <hocket/cpp/datatypes.hpp>
#include <hocket/cpp/elements.hpp>
#include <hocket/cpp/error.hpp>
#include <hocket/cpp/group.hpp>
#include <hocket/cpp/memory.hpp>
#include <hocket/cpp/operators.hpp>
#include <hocket/cpp/owner.hpp>
#include <hocket/cpp/stream.hpp>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace hocket {

/// The ranks of a job, or a part of them. The destructor leaves the communicator. When it runs, no
/// group may be open in its thread. It waits until this rank's operations have ended. Communicators
/// are not made inside a group: join() makes several ranks of one process at once.
///
/// Operations take buffers (see elements.hpp) and check their sizes: a wrong size throws
/// InvalidArgument, and nothing has happened. Without a stream an operation runs in the calling
/// thread and has ended when the call returns; with blocking = false, when wait() returns. On a
/// stream it has ended when the stream's synchronize() returns, or the wait() of an event that was
/// recorded after it. In a group it begins at the group's end(). The caller keeps the buffers alive
/// and untouched until the operation has ended.
class Communicator {
 public:
  /// A communicator of the launcher's job (hocketCommInitFromEnv); without a launcher, of this
  /// process alone.
  [[nodiscard]] static Communicator from_environment(const Config& config = {}) {
    const hocketConfig_t options = config.to_c();
    hocketComm_t handle = nullptr;
    check(hocketCommInitFromEnv(&handle, &options), "hocketCommInitFromEnv");
    return Communicator(handle, config.blocking.value_or(true));
  }
  [[nodiscard]] static Communicator join(int ranks, const UniqueId& id, int rank,
                                         const Config& config = {}) {
    detail::refuse_in_group("hocketCommInitRankConfig");
    const hocketConfig_t options = config.to_c();
    hocketComm_t handle = nullptr;
    check(hocketCommInitRankConfig(&handle, ranks, id.get(), rank, &options),
          "hocketCommInitRankConfig");
    return Communicator(handle, config.blocking.value_or(true));
  }
  /// The same with several unique ids (hocketCommInitRankScalable). ids: a contiguous range of
  /// UniqueId, equal on all ranks.
  template <typename Ids>
  requires std::ranges::contiguous_range<Ids>
  [[nodiscard]] static Communicator join(int ranks, const Ids& ids, int rank,
                                         const Config& config = {}) {
    detail::refuse_in_group("hocketCommInitRankScalable");
    std::vector<hocketUniqueId> plain;
    for (const UniqueId& id : ids) plain.push_back(id.get());
    const hocketConfig_t options = config.to_c();
    hocketComm_t handle = nullptr;
    check(hocketCommInitRankScalable(&handle, ranks, rank, static_cast<int>(plain.size()),
                                     plain.data(), &options),
          "hocketCommInitRankScalable");
    return Communicator(handle, config.blocking.value_or(true));
  }
  /// Joins several ranks of a job at once, all in this process, from one thread.
  [[nodiscard]] static std::vector<Communicator> join(int ranks, const UniqueId& id,
                                                      std::span<const int> own_ranks,
                                                      const Config& config = {}) {
    const hocketConfig_t options = config.to_c();
    std::vector<hocketComm_t> handles(own_ranks.size());
    detail::refuse_in_group("hocketCommInitRankConfig");
    group([&] {
      for (std::size_t i = 0; i < handles.size(); ++i) {
        check(hocketCommInitRankConfig(&handles[i], ranks, id.get(), own_ranks[i], &options),
              "hocketCommInitRankConfig");
      }
    });
    return owners(handles, config.blocking.value_or(true));
  }
  /// All ranks of a new job in this process (hocketCommInitAll).
  [[nodiscard]] static std::vector<Communicator> join_all(int ranks) {
    detail::refuse_in_group("hocketCommInitAll");
    std::vector<hocketComm_t> handles(ranks > 0 ? static_cast<std::size_t>(ranks) : 1);
    check(hocketCommInitAll(handles.data(), ranks, nullptr), "hocketCommInitAll");
    return owners(handles, true);
  }
  /// A communicator of the ranks that give this color, numbered by key and then by rank. What
  /// config does not set is as in this communicator. Empty for HOCKET_SPLIT_NOCOLOR.
  [[nodiscard]] Communicator split(int color, int key = 0, const Config& config = {}) {
    require_joined("hocketCommSplit");
    detail::refuse_in_group("hocketCommSplit");
    const hocketConfig_t options = config.to_c();
    hocketComm_t handle = nullptr;
    check(hocketCommSplit(get(), color, key, &handle, &options), "hocketCommSplit");
    return Communicator(handle, config.blocking.value_or(blocking_));
  }
  /// A communicator of the same ranks with operations and errors of its own.
  [[nodiscard]] Communicator duplicate(const Config& config = {}) {
    require_joined("hocketCommDuplicate");
    detail::refuse_in_group("hocketCommDuplicate");
    const hocketConfig_t options = config.to_c();
    hocketComm_t handle = nullptr;
    check(hocketCommDuplicate(get(), &handle, &options), "hocketCommDuplicate");
    return Communicator(handle, config.blocking.value_or(blocking_));
  }
  /// A communicator of some ranks of this communicator, in the order of `ranks`. Only its members
  /// call it, with the same ranks and tag.
  [[nodiscard]] Communicator create_group(std::span<const int> ranks, int tag = 0,
                                          const Config& config = {}) {
    require_joined("hocketCommCreateGroup");
    detail::refuse_in_group("hocketCommCreateGroup");
    const hocketConfig_t options = config.to_c();
    hocketComm_t handle = nullptr;
    check(hocketCommCreateGroup(get(), ranks.data(), static_cast<int>(ranks.size()), tag, &handle,
                                &options),
          "hocketCommCreateGroup");
    return Communicator(handle, config.blocking.value_or(blocking_));
  }

  [[nodiscard]] hocketComm_t get() const noexcept { return owner_.get(); }
  /// False after a move, and for the split without a color: each call then throws InvalidArgument.
  [[nodiscard]] explicit operator bool() const noexcept { return get() != nullptr; }

  // ---- Joining and errors. These may be called from any thread.

  /// Whether the communicator may be used: with blocking = false not before all ranks have joined.
  /// Throws the error of the join.
  [[nodiscard]] bool ready() const {
    int ranks = 0;
    const hocketResult_t result = hocketCommCount(get(), &ranks);
    check(result, "hocketCommCount");
    return result == hocketSuccess;
  }
  /// With blocking = false: waits until the join, and every operation without a stream, has ended,
  /// and throws the communicator's error. With blocking = true it only throws that error.
  void wait() const {
    std::chrono::microseconds pause(0);
    for (hocketResult_t state = async_error(); state != hocketSuccess; state = async_error()) {
      if (state != hocketInProgress) {
        const std::string sentence = hocketGetLastError(get());
        detail::throw_error(state, "hocketCommGetAsyncError", sentence, culprit());
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause + std::chrono::microseconds(1), std::chrono::microseconds(1000));
    }
  }
  /// hocketSuccess, hocketInProgress, or the error that ended the join or poisoned the
  /// communicator.
  [[nodiscard]] hocketResult_t async_error() const {
    hocketResult_t state = hocketSuccess;
    check(hocketCommGetAsyncError(get(), &state), "hocketCommGetAsyncError");
    return state;
  }
  /// The rank that caused that error; -1: there is no error, or no single rank caused it.
  [[nodiscard]] int culprit() const { return query(hocketCommGetCulprit, "hocketCommGetCulprit"); }
  /// Ends all operations on this rank, and soon on all others: they throw Aborted. It does not free
  /// the communicator; the destructor does.
  void abort() { check(hocketCommAbort(get()), "hocketCommAbort"); }

  // ---- Queries. Before the communicator is ready they throw InvalidUsage: see ready() and wait().

  [[nodiscard]] int rank() const { return query(hocketCommUserRank, "hocketCommUserRank"); }
  [[nodiscard]] int ranks() const { return query(hocketCommCount, "hocketCommCount"); }
  [[nodiscard]] int local_rank() const { return query(hocketCommLocalRank, "hocketCommLocalRank"); }
  [[nodiscard]] int local_ranks() const {
    return query(hocketCommLocalCount, "hocketCommLocalCount");
  }
  [[nodiscard]] int nodes() const { return query(hocketCommNodeCount, "hocketCommNodeCount"); }

  /// What is known of each rank.
  [[nodiscard]] std::vector<hocketMember_t> members() const {
    std::vector<hocketMember_t> all(static_cast<std::size_t>(ranks()));
    check(hocketCommMembers(get(), all.data(), static_cast<int>(all.size())), "hocketCommMembers");
    return all;
  }

  /// A figure about the memory that the communicator holds, in bytes.
  [[nodiscard]] std::uint64_t memory(hocketCommMemStat_t stat = hocketStatMemTotal) const {
    require_joined("hocketCommMemStats");
    std::uint64_t value = 0;
    check(hocketCommMemStats(get(), stat, &value), "hocketCommMemStats");
    return value;
  }

  struct Algorithm {
    std::string_view algorithm, transport;  // static strings
  };
  /// The algorithm and the transport of this rank's last collective.
  [[nodiscard]] Algorithm last_algorithm() const {
    require_joined("hocketCommLastAlgorithm");
    const char *algorithm = "", *transport = "";
    check(hocketCommLastAlgorithm(get(), &algorithm, &transport), "hocketCommLastAlgorithm");
    return {algorithm, transport};
  }
  /// Appends the record of the latest operations to a file; without a path: to the log. Any thread
  /// may call it.
  void dump_record(const std::string& path) const {
    check(hocketCommDumpRecord(get(), path.c_str()), "hocketCommDumpRecord");
  }
  void dump_record() const { check(hocketCommDumpRecord(get(), nullptr), "hocketCommDumpRecord"); }

  /// Adds a user-defined plan (docs/PLANS.md), the same on every rank. forced: it runs in every
  /// call that it can serve and that no forced plan loaded later can serve.
  void load_plan(const std::string& json, bool forced = false) {
    require_joined("hocketCommLoadPlan");
    check(hocketCommLoadPlan(get(), json.c_str(), forced ? 1 : 0), "hocketCommLoadPlan");
  }

  // ---- Collectives: every rank calls them, in the same order, with buffers of the same size.

  // A reduction has an operator of hocket (hocketSum) or of the program (Operator<T>,
  // PreMulSum<T>).

  /// The output of every rank receives the reduction of all inputs, element by element.
  template <typename In, typename Out, detail::ReductionOperator Op>
  void all_reduce(In&& input, Out&& output, const Op& op, StreamRef stream = caller_thread) {
    const auto in = detail::operand(op, std::forward<In>(input));
    const auto out = detail::result(op, std::forward<Out>(output));
    detail::require_same_operands(op, in, out);
    detail::require_equal("hocketAllReduce", in.size(), out.size());
    reduce_all(in.data(), out, op, stream);
  }
  /// In place: data is input and output.
  template <typename Data, detail::ReductionOperator Op>
  requires std::ranges::range<Data>
  void all_reduce(Data&& data, const Op& op, StreamRef stream = caller_thread) {
    const auto out = detail::result(op, std::forward<Data>(data));
    reduce_all(out.data(), out, op, stream);
  }
  /// Returns the reduction of all ranks' values. In a group, where no result exists before the end,
  /// it throws InvalidUsage.
  template <typename T, detail::ReductionOperator Op>
  requires(!std::ranges::range<const T&>) [[nodiscard]] T all_reduce(const T& value, const Op& op) {
    int depth = 0;
    check(hocketGroupDepth(&depth), "hocketGroupDepth");
    if (depth > 0) {
      throw InvalidUsage("hocketAllReduce",
                         "a group is open, and begins nothing before its end: the reduction of a "
                         "single value has no result yet; reduce a buffer");
    }
    T values[1] = {value};
    const auto out = detail::result(op, values);
    if (blocking_) {
      reduce_all(out.data(), out, op, caller_thread);
    } else {  // a stream of its own, whose end is also that of an operation that fails
      Stream stream = Stream::create();
      reduce_all(out.data(), out, op, stream);
      stream.synchronize();
    }
    return values[0];
  }

  /// The output of every rank receives the input of root. The input of other ranks is ignored.
  template <typename In, typename Out>
  void broadcast(In&& input, Out&& output, int root, StreamRef stream = caller_thread) {
    const auto in = detail::input(std::forward<In>(input));
    const auto out = detail::output(std::forward<Out>(output));
    detail::require_same(in, out);
    if (root == rank()) detail::require_equal("hocketBroadcast", in.size(), out.size());
    start("hocketBroadcast", hocketBroadcast, in.data(), out.data(), out.size(),
          detail::datatype(out), root, get(), stream.get());
  }
  /// In place: the data of root overwrite the data of the other ranks.
  template <typename Data>
  void broadcast(Data&& data, int root, StreamRef stream = caller_thread) {
    const auto out = detail::output(std::forward<Data>(data));
    start("hocketBroadcast", hocketBroadcast, out.data(), out.data(), out.size(),
          detail::datatype(out), root, get(), stream.get());
  }

  /// The output of every rank receives all inputs in the order of the ranks. It is ranks() times as
  /// large as an input.
  template <typename In, typename Out>
  requires(!std::convertible_to<Out, StreamRef> &&
           detail::no_blocks<Out>) void all_gather(In&& input, Out&& output,
                                                   StreamRef stream = caller_thread) {
    const auto in = detail::input(std::forward<In>(input));
    const auto out = detail::output(std::forward<Out>(output));
    detail::require_same(in, out);
    detail::require_parts("hocketAllGather", "output", out.size(), ranks(), "input", in.size());
    start("hocketAllGather", hocketAllGather, in.data(), out.data(), in.size(),
          detail::datatype(out), get(), stream.get());
  }
  /// In place: data has ranks() parts of one size; the rank()-th is this rank's input.
  template <typename Data>
  void all_gather(Data&& data, StreamRef stream = caller_thread) {
    const auto out = detail::output(std::forward<Data>(data));
    const std::size_t part = detail::part_of("hocketAllGather", out.size(), ranks());
    const auto* own = out.data() + static_cast<std::size_t>(rank()) * part;
    start("hocketAllGather", hocketAllGather, own, out.data(), part, detail::datatype(out), get(),
          stream.get());
  }

  /// The output of rank r receives the r-th part of the reduction of all inputs. An input is
  /// ranks() times as large as an output.
  template <typename In, detail::no_blocks Out, detail::ReductionOperator Op>
  void reduce_scatter(In&& input, Out&& output, const Op& op, StreamRef stream = caller_thread) {
    const auto in = detail::operand(op, std::forward<In>(input));
    const auto out = detail::result(op, std::forward<Out>(output));
    detail::require_same_operands(op, in, out);
    detail::require_parts("hocketReduceScatter", "input", in.size(), ranks(), "output", out.size());
    start("hocketReduceScatter", hocketReduceScatter, in.data(), out.data(), out.size(),
          detail::reduced(op, out), detail::handle(op), get(), stream.get());
  }
  /// In place: data has ranks() parts, of which the rank()-th receives the result. The others are
  /// unspecified afterwards.
  template <typename Data, detail::ReductionOperator Op>
  void reduce_scatter(Data&& data, const Op& op, StreamRef stream = caller_thread) {
    const auto out = detail::result(op, std::forward<Data>(data));
    const std::size_t part = detail::part_of("hocketReduceScatter", out.size(), ranks());
    auto* own = out.data() + static_cast<std::size_t>(rank()) * part;
    start("hocketReduceScatter", hocketReduceScatter, out.data(), own, part,
          detail::reduced(op, out), detail::handle(op), get(), stream.get());
  }

  /// The output of root receives the reduction of all inputs. The output of other ranks is ignored.
  template <typename In, typename Out, detail::ReductionOperator Op>
  void reduce(In&& input, Out&& output, const Op& op, int root, StreamRef stream = caller_thread) {
    const auto in = detail::operand(op, std::forward<In>(input));
    const auto out = detail::result(op, std::forward<Out>(output));
    detail::require_same_operands(op, in, out);
    if (root == rank()) detail::require_equal("hocketReduce", in.size(), out.size());
    start("hocketReduce", hocketReduce, in.data(), out.data(), in.size(), detail::reduced(op, out),
          detail::handle(op), root, get(), stream.get());
  }
  /// In place: data is the input, and on root the output.
  template <typename Data, detail::ReductionOperator Op>
  void reduce(Data&& data, const Op& op, int root, StreamRef stream = caller_thread) {
    const auto out = detail::result(op, std::forward<Data>(data));
    start("hocketReduce", hocketReduce, out.data(), out.data(), out.size(),
          detail::reduced(op, out), detail::handle(op), root, get(), stream.get());
  }

  /// The output of root receives all inputs in the order of the ranks; it is ranks() times as large
  /// as an input. The output of other ranks is ignored.
  template <typename In, detail::no_blocks Out>
  void gather(In&& input, Out&& output, int root, StreamRef stream = caller_thread) {
    const auto in = detail::input(std::forward<In>(input));
    const auto out = detail::output(std::forward<Out>(output));
    detail::require_same(in, out);
    if (root == rank()) {
      detail::require_parts("hocketGather", "output", out.size(), ranks(), "input", in.size());
    }
    start("hocketGather", hocketGather, in.data(), out.data(), in.size(), detail::datatype(out),
          root, get(), stream.get());
  }

  /// In place: data of root has ranks() parts, of which the rank()-th is its input; data of the
  /// other ranks is their input.
  template <typename Data>
  void gather(Data&& data, int root, StreamRef stream = caller_thread) {
    const auto out = detail::output(std::forward<Data>(data));
    const bool is_root = root == rank();
    const std::size_t part =
        is_root ? detail::part_of("hocketGather", out.size(), ranks()) : out.size();
    const auto* own = out.data() + (is_root ? static_cast<std::size_t>(root) * part : 0);
    start("hocketGather", hocketGather, own, out.data(), part, detail::datatype(out), root, get(),
          stream.get());
  }

  /// The output of rank r receives the r-th part of the input of root, which is ranks() times as
  /// large as an output. The input of other ranks is ignored.
  template <typename In, detail::no_blocks Out>
  void scatter(In&& input, Out&& output, int root, StreamRef stream = caller_thread) {
    const auto in = detail::input(std::forward<In>(input));
    const auto out = detail::output(std::forward<Out>(output));
    detail::require_same(in, out);
    if (root == rank()) {
      detail::require_parts("hocketScatter", "input", in.size(), ranks(), "output", out.size());
    }
    start("hocketScatter", hocketScatter, in.data(), out.data(), out.size(), detail::datatype(out),
          root, get(), stream.get());
  }

  /// In place: data of root has ranks() parts, of which the rank()-th stays; data of the other
  /// ranks receives their part.
  template <typename Data>
  void scatter(Data&& data, int root, StreamRef stream = caller_thread) {
    const auto out = detail::output(std::forward<Data>(data));
    const bool is_root = root == rank();
    const std::size_t part =
        is_root ? detail::part_of("hocketScatter", out.size(), ranks()) : out.size();
    auto* own = out.data() + (is_root ? static_cast<std::size_t>(root) * part : 0);
    start("hocketScatter", hocketScatter, out.data(), own, part, detail::datatype(out), root, get(),
          stream.get());
  }

  /// The q-th part of the output of rank r receives the r-th part of the input of rank q. Input and
  /// output have ranks() parts of one size.
  template <typename In, typename Out>
  void all_to_all(In&& input, Out&& output, StreamRef stream = caller_thread) {
    const auto in = detail::input(std::forward<In>(input));
    const auto out = detail::output(std::forward<Out>(output));
    detail::require_same(in, out);
    detail::require_equal("hocketAlltoAll", in.size(), out.size());
    const std::size_t part = detail::part_of("hocketAlltoAll", out.size(), ranks());
    start("hocketAlltoAll", hocketAlltoAll, in.data(), out.data(), part, detail::datatype(out),
          get(), stream.get());
  }

  // ---- The same with blocks of different counts (see collectives.h): a Blocks has a count for
  // each rank, and the displacements of the blocks, or none if they follow one another. In calls in
  // place write hocket::Blocks(counts), or braces: a plain vector in that place would be taken for
  // the output.

  /// Block r of the output of every rank receives the input of rank r.
  template <typename In, typename Out>
  void all_gather(In&& input, Out&& output, Blocks blocks, StreamRef stream = caller_thread) {
    const auto in = detail::input(std::forward<In>(input));
    const auto out = detail::output(std::forward<Out>(output));
    detail::require_same(in, out);
    blocks.require("hocketAllGatherV", "output", out.size(), ranks());
    start("hocketAllGatherV", hocketAllGatherV, in.data(), in.size(), out.data(), blocks.counts(),
          blocks.displacements(), detail::datatype(out), get(), stream.get());
  }
  /// In place: block rank() of data is this rank's input.
  template <typename Data>
  void all_gather(Data&& data, const Blocks& blocks, StreamRef stream = caller_thread) {
    const auto out = detail::output(std::forward<Data>(data));
    blocks.require("hocketAllGatherV", "data", out.size(), ranks());
    start("hocketAllGatherV", hocketAllGatherV, out.data() + blocks.begin_of(rank()),
          blocks.counts()[rank()], out.data(), blocks.counts(), blocks.displacements(),
          detail::datatype(out), get(), stream.get());
  }
  /// The output of rank r receives block r of the reduction of all inputs. The blocks of an input
  /// follow one another.
  template <typename In, typename Out, detail::ReductionOperator Op>
  void reduce_scatter(In&& input, Out&& output, Blocks blocks, const Op& op,
                      StreamRef stream = caller_thread) {
    const auto in = detail::operand(op, std::forward<In>(input));
    const auto out = detail::result(op, std::forward<Out>(output));
    detail::require_same_operands(op, in, out);
    blocks.require("hocketReduceScatterV", "input", in.size(), ranks());
    blocks.require_consecutive("hocketReduceScatterV");
    detail::require_equal("hocketReduceScatterV", blocks.counts()[rank()], out.size());
    start("hocketReduceScatterV", hocketReduceScatterV, in.data(), out.data(), blocks.counts(),
          detail::reduced(op, out), detail::handle(op), get(), stream.get());
  }
  /// In place: block rank() of data receives the result. The others are unspecified afterwards.
  template <typename Data, detail::ReductionOperator Op>
  void reduce_scatter(Data&& data, const Blocks& blocks, const Op& op,
                      StreamRef stream = caller_thread) {
    const auto out = detail::result(op, std::forward<Data>(data));
    blocks.require("hocketReduceScatterV", "data", out.size(), ranks());
    blocks.require_consecutive("hocketReduceScatterV");
    start("hocketReduceScatterV", hocketReduceScatterV, out.data(),
          out.data() + blocks.begin_of(rank()), blocks.counts(), detail::reduced(op, out),
          detail::handle(op), get(), stream.get());
  }
  /// Block r of the output of root receives the input of rank r. Other ranks' output and blocks are
  /// ignored.
  template <typename In, typename Out>
  void gather(In&& input, Out&& output, Blocks blocks, int root, StreamRef stream = caller_thread) {
    const auto in = detail::input(std::forward<In>(input));
    const auto out = detail::output(std::forward<Out>(output));
    detail::require_same(in, out);
    if (root == rank()) blocks.require("hocketGatherV", "output", out.size(), ranks());
    start("hocketGatherV", hocketGatherV, in.data(), in.size(), out.data(), blocks.counts(),
          blocks.displacements(), detail::datatype(out), root, get(), stream.get());
  }
  /// In place: block rank() of root's data is its input; data of the other ranks is their input,
  /// and their blocks are ignored.
  template <typename Data>
  void gather(Data&& data, const Blocks& blocks, int root, StreamRef stream = caller_thread) {
    const auto out = detail::output(std::forward<Data>(data));
    const bool is_root = root == rank();
    if (is_root) blocks.require("hocketGatherV", "data", out.size(), ranks());
    start("hocketGatherV", hocketGatherV, out.data() + (is_root ? blocks.begin_of(root) : 0),
          is_root ? blocks.counts()[root] : out.size(), out.data(), blocks.counts(),
          blocks.displacements(), detail::datatype(out), root, get(), stream.get());
  }
  /// The output of rank r receives block r of the input of root. Other ranks' input and blocks are
  /// ignored.
  template <typename In, typename Out>
  void scatter(In&& input, Blocks blocks, Out&& output, int root,
               StreamRef stream = caller_thread) {
    const auto in = detail::input(std::forward<In>(input));
    const auto out = detail::output(std::forward<Out>(output));
    detail::require_same(in, out);
    if (root == rank()) blocks.require("hocketScatterV", "input", in.size(), ranks());
    start("hocketScatterV", hocketScatterV, in.data(), blocks.counts(), blocks.displacements(),
          out.data(), out.size(), detail::datatype(out), root, get(), stream.get());
  }
  /// In place: block rank() of root's data stays where it is; data of the other ranks receives
  /// their block, and their blocks are ignored.
  template <typename Data>
  void scatter(Data&& data, const Blocks& blocks, int root, StreamRef stream = caller_thread) {
    const auto out = detail::output(std::forward<Data>(data));
    const bool is_root = root == rank();
    if (is_root) blocks.require("hocketScatterV", "data", out.size(), ranks());
    start("hocketScatterV", hocketScatterV, out.data(), blocks.counts(), blocks.displacements(),
          out.data() + (is_root ? blocks.begin_of(root) : 0),
          is_root ? blocks.counts()[root] : out.size(), detail::datatype(out), root, get(),
          stream.get());
  }
  /// Block q of the output of rank r receives block r of the input of rank q.
  template <typename In, typename Out>
  void all_to_all(In&& input, Blocks sent, Out&& output, Blocks received,
                  StreamRef stream = caller_thread) {
    const auto in = detail::input(std::forward<In>(input));
    const auto out = detail::output(std::forward<Out>(output));
    detail::require_same(in, out);
    sent.require("hocketAlltoAllV", "input", in.size(), ranks());
    received.require("hocketAlltoAllV", "output", out.size(), ranks());
    start("hocketAlltoAllV", hocketAlltoAllV, in.data(), sent.counts(), sent.displacements(),
          out.data(), received.counts(), received.displacements(), detail::datatype(out), get(),
          stream.get());
  }

  /// The barrier ends on no rank before every rank has begun it.
  void barrier(StreamRef stream = caller_thread) {
    start("hocketBarrier", hocketBarrier, get(), stream.get());
  }

  // ---- Messages: the k-th send from one rank to another matches the k-th recv of the other rank
  // from it. Both have the same size.

  template <typename In>
  void send(In&& data, int peer, StreamRef stream = caller_thread) {
    const auto in = detail::input(std::forward<In>(data));
    start("hocketSend", hocketSend, in.data(), in.size(), detail::datatype(in), peer, get(),
          stream.get());
  }
  template <typename Out>
  void recv(Out&& data, int peer, StreamRef stream = caller_thread) {
    const auto out = detail::output(std::forward<Out>(data));
    start("hocketRecv", hocketRecv, out.data(), out.size(), detail::datatype(out), peer, get(),
          stream.get());
  }
  /// A send to rank `to` and a recv from rank `from`, which progress together.
  template <typename In, typename Out>
  void sendrecv(In&& input, int to, Out&& output, int from, StreamRef stream = caller_thread) {
    group([&] {
      send(std::forward<In>(input), to, stream);
      recv(std::forward<Out>(output), from, stream);
    });
  }

  // ---- Memory.

  /// Registers a range of this rank's memory with the communicator (hocketCommRegister).
  template <typename Range>
  [[nodiscard]] Registration register_memory(Range&& memory) {
    require_joined("hocketCommRegister");
    const std::span<std::byte> bytes = detail::writable_bytes(std::forward<Range>(memory));
    void* handle = nullptr;
    check(hocketCommRegister(get(), bytes.data(), bytes.size(), &handle), "hocketCommRegister");
    return Registration(get(), handle);
  }
  /// Lets local peers map memory that this rank has mapped from the memfd fd, from offset on
  /// (hocketCommRegisterFd).
  template <typename Range>
  [[nodiscard]] Registration register_memory(Range&& memory, int fd, std::int64_t offset = 0) {
    require_joined("hocketCommRegisterFd");
    const std::span<std::byte> bytes = detail::writable_bytes(std::forward<Range>(memory));
    void* handle = nullptr;
    check(hocketCommRegisterFd(get(), bytes.data(), bytes.size(), fd, offset, &handle),
          "hocketCommRegisterFd");
    return Registration(get(), handle);
  }
  /// How local peers reach this memory in large collectives.
  template <typename Range>
  [[nodiscard]] hocketMemoryPath_t memory_path(const Range& memory) const {
    require_joined("hocketCommMemoryPath");
    const std::span<const std::byte> bytes = detail::bytes(memory);
    hocketMemoryPath_t path = hocketPathStaged;
    check(hocketCommMemoryPath(get(), bytes.data(), bytes.size(), &path), "hocketCommMemoryPath");
    return path;
  }

  /// A collective, and the last call of this rank: when it returns, all operations of all ranks
  /// have ended. It may be left out.
  void finalize() {
    require_joined("hocketCommFinalize");
    check(hocketCommFinalize(get()), "hocketCommFinalize");
  }

 private:
  Communicator(hocketComm_t handle, bool blocking) : owner_(handle), blocking_(blocking) {}

  static std::vector<Communicator> owners(const std::vector<hocketComm_t>& handles, bool blocking) {
    std::vector<Communicator> comms;
    comms.reserve(handles.size());
    for (hocketComm_t handle : handles) comms.push_back(Communicator(handle, blocking));
    return comms;
  }

  void require_joined(const char* operation) const {
    if (!blocking_ && !ready()) not_joined(operation);
  }
  [[noreturn]] static void not_joined(const char* operation) {
    throw InvalidUsage(operation,
                       "the communicator is still joining: call wait() first, or ask ready()");
  }
  int query(hocketResult_t (*call)(hocketComm_t, int*), const char* operation) const {
    int value = 0;
    const hocketResult_t result = call(get(), &value);
    check(result, operation);
    if (result == hocketInProgress) not_joined(operation);
    return value;
  }
  /// A communicator that has not joined is refused first, so hocketInProgress from the call means
  /// that the operation runs.
  template <typename Call, typename... Arguments>
  void start(const char* operation, Call call, Arguments... arguments) {
    require_joined(operation);
    check(call(arguments...), operation);
  }
  template <typename T, typename Op>
  void reduce_all(const void* input, std::span<T> output, const Op& op, StreamRef stream) {
    start("hocketAllReduce", hocketAllReduce, input, output.data(), output.size(),
          detail::reduced(op, output), detail::handle(op), get(), stream.get());
  }

  detail::Owner<hocketComm_t, hocketCommDestroy> owner_;
  bool blocking_;
};

}  // namespace hocket

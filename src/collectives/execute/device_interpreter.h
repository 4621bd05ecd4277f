// The body of a load/store program as a device runs it: the same source compiles for the host,
// where a thread stands for a thread block, and by nvcc. It reads only the program (program.h), the
// sizes of the operation, and the addresses of all local ranks' buffers. A host has run the entry
// of the program before, and has awaited the arrival of all local peers: here a step `wait` looks
// at flags only. can_run() refuses programs with messages and those that tell small blocks from
// large ones.
//
// Workers. A rank has R workers (thread blocks), which all run the whole program, each on its share
// of every chunk: a share is a multiple of 16 bytes. So a flag has R instances, one for each
// worker; worker q waits for the workers q of other ranks only.
//
// A Worker is the type that stands for a thread block. It has
//   thread(), threads()     this thread's number among those of the worker
//   all(condition)          a barrier of all threads; true if the condition holds for all of them
//   meet()                  a barrier of all threads
//   load(flag), store(flag, value)
//                           with acquire and release order, visible to the whole system
//   pause()                 called between two looks at flags
// All threads of a worker run the same steps; in a fold each thread handles different elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/device.h"
#include "collectives/plan/extents.h"
#include "collectives/plan/program.h"
#include "reduce/elements.h"

namespace hocket::internal::device {

// Limits of what each thread of a worker keeps; can_run() refuses programs that need more.
inline constexpr std::uint32_t most_active = 8, most_counters = 8, most_operands = 64;
// The flag of a rank's arrival follows the public flags.
inline constexpr int arrival_flag = public_flags;
inline constexpr int flags_per_worker = public_flags + 1;

/// The memory of a local rank.
struct RankMemory {
  const std::byte* input;
  std::byte* output;
  std::byte* scratch;
  std::byte* line;
  /// flags[worker * flags_per_worker + flag], all 0 before the first operation.
  std::uint64_t* flags;
};

/// One operation of one rank.
struct DeviceCall {
  const ProgramHeader* program;
  const RankMemory* ranks;  // of all local ranks
  std::uint32_t local_ranks;
  std::uint32_t workers;
  Sizes sizes;
  std::size_t stride;      // bytes between the blocks of scratch
  std::uint64_t sequence;  // number of the operation, from 1 on
  std::uint64_t* abort;    // becomes nonzero if the operation must end
  Dtype dtype;
  Op op;
};

/// True if the program can run on a device with that operator. User operators run only on the host,
/// and PreMulSum needs the scalars of the board.
inline bool can_run(const Program& program, Op op) {
  const ProgramHeader& header = program.header();
  if (op >= Op::pre_mul_sum || header.small_bytes > 0) return false;
  if (header.active > most_active || header.counters > most_counters ||
      header.most_operands > most_operands) {
    return false;
  }
  for (const Instruction& step : program.code()) {
    if (step.kind == StepKind::send || step.kind == StepKind::recv) return false;
  }
  return true;
}

template <typename T>
HOCKET_HOST_DEVICE const T* array_of(const ProgramHeader* program, std::uint32_t offset) {
  return reinterpret_cast<const T*>(reinterpret_cast<const std::byte*>(program) + offset);
}

/// The fold of elements [begin, end) by the threads of a worker.
struct DeviceFold {
  const std::byte* srcs[most_operands];
  bool wide[most_operands];
  std::byte* dsts[most_operands];
  std::uint32_t src_count, dst_count;
  bool wide_dst, divide;
  std::uint32_t divisor;
  std::size_t begin, end;
};

template <class Element, class Operator, class Worker>
HOCKET_HOST_DEVICE void fold_elements(const DeviceFold& f, const Worker& worker) {
  using Wide = typename Element::Wide;
  const auto load = [&](std::uint32_t s, std::size_t i) -> Wide {
    if constexpr (Element::widened) {
      if (f.wide[s]) return reduce::load_as<Wide>(f.srcs[s], i);
    }
    return Element::load(f.srcs[s], i);
  };
  for (std::size_t i = f.begin + worker.thread(); i < f.end; i += worker.threads()) {
    Wide value = load(0, i);
    for (std::uint32_t s = 1; s < f.src_count; ++s) value = Operator::apply(value, load(s, i));
    if (f.divide) value = reduce::divide(value, f.divisor);
    value = reduce::canonical(value);
    for (std::uint32_t d = 0; d < f.dst_count; ++d) {
      if (Element::widened && f.wide_dst) {
        reduce::store_as<Wide>(f.dsts[d], i, value);
      } else {
        Element::store(f.dsts[d], i, value);
      }
    }
  }
}

template <class Element, class Worker>
HOCKET_HOST_DEVICE void fold_with(Op op, const DeviceFold& f, const Worker& worker) {
  switch (op) {
    case Op::sum:
    case Op::avg:
      return fold_elements<Element, reduce::Sum>(f, worker);
    case Op::prod:
      return fold_elements<Element, reduce::Prod>(f, worker);
    case Op::max:
      return fold_elements<Element, reduce::Max>(f, worker);
    case Op::min:
      return fold_elements<Element, reduce::Min>(f, worker);
    default:
      break;
  }
  if constexpr (std::is_integral_v<typename Element::Wide>) {
    switch (op) {
      case Op::bit_and:
        return fold_elements<Element, reduce::BitAnd>(f, worker);
      case Op::bit_or:
        return fold_elements<Element, reduce::BitOr>(f, worker);
      default:
        return fold_elements<Element, reduce::BitXor>(f, worker);
    }
  }
}

template <class Worker>
HOCKET_HOST_DEVICE void fold_any(Dtype dtype, Op op, const DeviceFold& f, const Worker& worker) {
  using namespace reduce;
  switch (dtype) {
    case Dtype::int8:
      return fold_with<Plain<std::int8_t>>(op, f, worker);
    case Dtype::uint8:
      return fold_with<Plain<std::uint8_t>>(op, f, worker);
    case Dtype::int32:
      return fold_with<Plain<std::int32_t>>(op, f, worker);
    case Dtype::uint32:
      return fold_with<Plain<std::uint32_t>>(op, f, worker);
    case Dtype::int64:
      return fold_with<Plain<std::int64_t>>(op, f, worker);
    case Dtype::uint64:
      return fold_with<Plain<std::uint64_t>>(op, f, worker);
    case Dtype::float16:
      return fold_with<Widened<Float16>>(op, f, worker);
    case Dtype::float32:
      return fold_with<Plain<float>>(op, f, worker);
    case Dtype::float64:
      return fold_with<Plain<double>>(op, f, worker);
    case Dtype::bfloat16:
      return fold_with<Widened<Bfloat16>>(op, f, worker);
    case Dtype::float8_e4m3:
      return fold_with<Widened<E4m3>>(op, f, worker);
    case Dtype::float8_e5m2:
      return fold_with<Widened<E5m2>>(op, f, worker);
    case Dtype::int16:
      return fold_with<Plain<std::int16_t>>(op, f, worker);
    case Dtype::uint16:
      return fold_with<Plain<std::uint16_t>>(op, f, worker);
  }
}

/// Worker `number` of this rank's workers.
template <class Worker>
class Interpreter {
 public:
  HOCKET_HOST_DEVICE Interpreter(const DeviceCall& call, std::uint32_t number, Worker& worker)
      : call_(call),
        header_(*call.program),
        lanes_(array_of<LaneCode>(call.program, call.program->first_lane)),
        code_(array_of<Instruction>(call.program, call.program->first_instruction)),
        operands_(array_of<Operand>(call.program, call.program->first_operand)),
        number_(number),
        worker_(worker) {}

  /// Returns false if the operation was aborted.
  HOCKET_HOST_DEVICE bool run() {
    begin();
    for (;;) {
      bool all_done = true, moved = false;
      for (std::uint32_t i = 0; i < header_.active; ++i) {
        if (!active_[i].done) moved |= advance(active_[i]);
        all_done &= active_[i].done;
      }
      if (all_done) return true;
      if (moved) continue;
      const bool goes_on = worker_.load(call_.abort) == 0;
      if (!worker_.all(goes_on)) return false;
      worker_.pause();
    }
  }

 private:
  struct Active {
    std::uint32_t lane, instance, next;
    std::size_t chunk, chunks;
    bool done;
  };
  static constexpr std::uint32_t ended = 0xffffffff;

  HOCKET_HOST_DEVICE void begin() {
    std::uint32_t next = 0;
    for (std::uint32_t i = 0; i < header_.counters; ++i) progress_[i] = 0;
    for (std::uint32_t l = 0; l < header_.lanes; ++l) {
      for (std::uint32_t i = 0; i < lanes_[l].window; ++i) {
        active_[next].lane = l;
        active_[next].done = false;
        begin_instance(active_[next++], i);
      }
    }
  }

  HOCKET_HOST_DEVICE void begin_instance(Active& active, std::uint32_t instance) const {
    const LaneCode& lane = lanes_[active.lane];
    active.instance = instance;
    active.next = 0;
    active.chunk = 0;
    const auto block = static_cast<std::size_t>(lane.block.at(instance));
    active.chunks = call_.sizes.chunks_of(lane.counts, lane.extents, block);
  }

  HOCKET_HOST_DEVICE bool advance(Active& active) {
    const LaneCode& lane = lanes_[active.lane];
    bool moved = false;
    while (run_step(active, code_[lane.first + active.next])) {
      moved = true;
      if (++active.next < lane.count) continue;
      complete_chunk(active);
      if (active.done) break;
    }
    return moved;
  }

  HOCKET_HOST_DEVICE void complete_chunk(Active& active) {
    const LaneCode& lane = lanes_[active.lane];
    active.next = 0;
    const bool last = ++active.chunk == active.chunks;
    worker_.meet();
    progress_[lane.first_counter + active.instance] =
        last ? ended : static_cast<std::uint32_t>(active.chunk);
    if (lane.publishes >= 0) publish(lane.publishes, active.chunk);
    if (!last) return;
    const std::uint32_t following = active.instance + lane.window;
    if (following < lane.instances) {
      begin_instance(active, following);
    } else {
      active.done = true;
    }
  }

  HOCKET_HOST_DEVICE std::uint64_t* flag(std::uint32_t rank, int flag) const {
    return call_.ranks[rank].flags + number_ * flags_per_worker + flag;
  }
  HOCKET_HOST_DEVICE std::uint64_t flag_value(std::uint64_t count) const {
    return (call_.sequence << 24) + count;
  }
  /// The caller has called meet() after the last writes of the worker's threads.
  HOCKET_HOST_DEVICE void publish(int which, std::uint64_t count) {
    if (worker_.thread() == 0) worker_.store(flag(header_.rank, which), flag_value(count));
  }
  HOCKET_HOST_DEVICE bool reached(std::uint32_t rank, int which, std::uint64_t count) {
    return rank == header_.rank || worker_.load(flag(rank, which)) >= flag_value(count);
  }
  HOCKET_HOST_DEVICE bool reached_by(const Instruction& step, const Active& active, int which,
                                     std::uint64_t count) {
    bool there = true;
    if (step.all) {
      for (std::uint32_t rank = 0; rank < call_.local_ranks; ++rank) {
        there = there && reached(rank, which, count);
      }
    } else {
      there = reached(static_cast<std::uint32_t>(step.peer.at(active.instance)), which, count);
    }
    return worker_.all(there);
  }

  /// Returns false if the step must wait.
  HOCKET_HOST_DEVICE bool run_step(const Active& active, const Instruction& step) {
    switch (step.kind) {
      case StepKind::fold:
        fold(active, step);
        return true;
      case StepKind::arrive:
        worker_.meet();
        publish(arrival_flag, 1);
        return true;
      case StepKind::await_arrival:
        return reached_by(step, active, arrival_flag, 1);
      case StepKind::wait:
        return active.chunk < step.lag ||
               reached_by(step, active, step.flag, active.chunk - step.lag + 1);
      case StepKind::await:
        return has_progress(active, step);
      default:
        return true;  // can_run() refuses messages
    }
  }

  HOCKET_HOST_DEVICE bool has_progress(const Active& active, const Instruction& step) const {
    if (!step.end && active.chunk < step.lag) return true;
    const LaneCode& lane = lanes_[step.lane];
    const std::uint64_t target = step.end ? ended : active.chunk - step.lag + 1;
    for (std::uint32_t j = 0; j < step.repeat; ++j) {
      const std::int64_t instance = step.peer.at(active.instance, j);
      if (instance < 0 || instance >= lane.instances) continue;
      if (progress_[lane.first_counter + instance] < target) return false;
    }
    return true;
  }

  HOCKET_HOST_DEVICE std::byte* address_of(const Operand& operand, const Active& active,
                                           std::uint32_t source, std::size_t element) const {
    const RankMemory& rank = call_.ranks[operand.rank.at(active.instance, source)];
    const auto block = static_cast<std::size_t>(operand.block.at(active.instance, source));
    switch (operand.buffer) {
      case Buffer::input:
      case Buffer::output: {
        std::byte* const base =
            operand.buffer == Buffer::input ? const_cast<std::byte*>(rank.input) : rank.output;
        return base + call_.sizes.first_of(operand.buffer, block, active.chunk) * element;
      }
      case Buffer::scratch: {
        const std::size_t slot = active.chunk % header_.slots;
        return rank.scratch + (slot * header_.scratch_blocks + block) * call_.stride;
      }
      case Buffer::line:
        return rank.line + block * line_stride(call_.sizes) * element;
    }
    return nullptr;
  }

  HOCKET_HOST_DEVICE void fold(const Active& active, const Instruction& step) {
    for (std::uint32_t r = 0; r < step.repeat; ++r) fold_block(active, step, r);
    worker_.meet();
  }

  /// Folds block `repetition` of the step. Either the step is repeated, or one of its operands.
  HOCKET_HOST_DEVICE void fold_block(const Active& active, const Instruction& step,
                                     std::uint32_t repetition) {
    const std::size_t element = size_of(call_.dtype);
    const Operand* operand = operands_ + step.first_operand;
    const auto block = static_cast<std::size_t>(step.block.at(active.instance, repetition));
    const std::size_t count =
        call_.sizes.range(lanes_[active.lane].extents, block, active.chunk).count;
    DeviceFold f;
    f.src_count = f.dst_count = 0;
    f.wide_dst = operand->wide;
    for (std::uint32_t i = 0; i < step.dsts; ++i, ++operand) {
      for (std::uint32_t j = 0; j < operand->repeat; ++j) {
        f.dsts[f.dst_count++] = address_of(*operand, active, repetition + j, element);
      }
    }
    for (std::uint32_t i = 0; i < step.srcs; ++i, ++operand) {
      for (std::uint32_t j = 0; j < operand->repeat; ++j) {
        f.wide[f.src_count] = operand->wide;
        f.srcs[f.src_count++] = address_of(*operand, active, repetition + j, element);
      }
    }
    f.divide = call_.op == Op::avg && step.finish && header_.ranks > 1;
    f.divisor = header_.ranks;
    const std::size_t unit = 16 / element;
    const std::size_t longest = line_stride(call_.sizes);
    const std::size_t full = call_.sizes.chunk_elements == 0 ? longest : call_.sizes.chunk_elements;
    const std::size_t share = round_up(divide_up(full, call_.workers), unit);
    f.begin = share * number_ < count ? share * number_ : count;
    f.end = f.begin + share < count ? f.begin + share : count;
    if (f.src_count == 1 && !f.divide && f.wide[0] == f.wide_dst) {
      copy(f, f.wide_dst ? wide_size_of(call_.dtype) : element);
    } else {
      fold_any(call_.dtype, call_.op, f, worker_);
    }
  }

  /// A copy changes no byte, not even of a NaN. A copy of memory onto itself is no access.
  HOCKET_HOST_DEVICE void copy(const DeviceFold& f, std::size_t element) const {
    for (std::uint32_t d = 0; d < f.dst_count; ++d) {
      if (f.dsts[d] == f.srcs[0]) continue;
      for (std::size_t i = f.begin + worker_.thread(); i < f.end; i += worker_.threads()) {
        reduce::memcpy(f.dsts[d] + i * element, f.srcs[0] + i * element, element);
      }
    }
  }

  const DeviceCall& call_;
  const ProgramHeader& header_;
  const LaneCode* const lanes_;
  const Instruction* const code_;
  const Operand* const operands_;
  const std::uint32_t number_;
  Worker& worker_;
  Active active_[most_active];
  std::uint32_t progress_[most_counters];
};

}  // namespace hocket::internal::device

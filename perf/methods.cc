// The four methods of timing: what is between two clock reads.
#include <algorithm>

#include "runner.h"

namespace hocket::perf {
namespace {

/// Arithmetic in registers alone.
double compute(std::uint64_t loops) {
  double x = 1;
  for (std::uint64_t i = 0; i < loops; ++i) x = x * 0.9999999 + 1e-9;
  return x;
}

volatile double computed;  // so that the compiler keeps the computation

double loops_per_us() {
  constexpr std::uint64_t loops = 100'000;
  double best_us = 0;
  for (int i = 0; i < 20; ++i) {
    const double start = now_us();
    computed = compute(loops);
    const double took = now_us() - start;
    if (i == 0 || took < best_us) best_us = took;
  }
  return static_cast<double>(loops) / best_us;
}

}  // namespace

/// seen->first: from the first call to the end of the last, and to the return of the last call.
/// seen->second: the time of every iteration, if asked for.
bool Runner::back_to_back(Operation* operation, Seen* seen, Measured* row, Failure* failure) {
  const std::size_t group = operation->group();
  const auto total = static_cast<std::size_t>(options_.iterations) * group;
  const auto warmups = static_cast<std::size_t>(options_.warmup_iterations);
  if (warmups > 0) operation->fill();
  for (std::size_t i = 0; i < warmups; ++i) {
    if (!operation->iterate(i * group, failure)) return false;
  }
  if (!operation->wait(failure)) return false;
  operation->fill();
  return timed_loop(operation, seen, failure) && learn_algorithm(row, failure) &&
         check_left(operation, total, seen, failure);
}

/// After calls 0 to total - 1 each output slot has the result of the last call that used it.
bool Runner::check_left(Operation* operation, std::size_t total, Seen* seen, Failure* failure) {
  if (options_.checks == 0) return true;
  const std::size_t left = std::min(total, operation->slots().out);
  const Expectation& e = operation->expectation();
  const bool fresh = !operation->in_place() || total <= left || e.repeatable_in_place();
  const std::size_t wanted = fresh ? checks_wanted(*operation) : 0;
  for (std::size_t i = 0; i < left; ++i) {
    check(*operation, total - left + i, picked(i, left, wanted), seen);
  }
  return fresh || check_repeated(operation, seen, failure);
}

bool Runner::timed_loop(Operation* operation, Seen* seen, Failure* failure) {
  const auto iterations = static_cast<std::size_t>(options_.iterations);
  const bool each = options_.times_each();
  std::vector<double> ends(each ? iterations : 0);
  hocketComm_t comm = ground_.comm;
  if (!ok(hocketBarrier(comm, nullptr), "hocketBarrier", comm, failure)) return false;
  const double start = now_us();
  for (std::size_t i = 0; i < iterations; ++i) {
    if (!operation->iterate(i * operation->group(), failure)) return false;
    if (options_.blocking == Blocking::wait_and_barrier &&
        !ok(hocketBarrier(comm, nullptr), "hocketBarrier", comm, failure)) {
      return false;
    }
    if (!each) continue;
    if (ground_.stream == nullptr) {
      ends[i] = now_us();
    } else if (!ok(hocketEventRecord(events_[i], ground_.stream), "hocketEventRecord", comm,
                   failure)) {
      return false;
    }
  }
  const double called = now_us();
  for (std::size_t i = 0; each && ground_.stream != nullptr && i < iterations; ++i) {
    if (!ok(hocketEventSynchronize(events_[i]), "hocketEventSynchronize", comm, failure)) {
      return false;
    }
    ends[i] = now_us();
  }
  if (!operation->wait(failure)) return false;
  seen->first = {now_us() - start, called - start};
  double before = start;
  for (const double end : ends) {
    seen->second.push_back(end - before);
    before = end;
  }
  return true;
}

/// In place, a slot that was used twice had its own result as input the second time, so there is no
/// reference for it. This uses all slots once more, with new data and without a clock.
bool Runner::check_repeated(Operation* operation, Seen* seen, Failure* failure) {
  const std::size_t slots = operation->slots().out;
  const std::size_t wanted = checks_wanted(*operation);
  operation->fill();
  for (std::size_t k = 0; k < slots; k += operation->group()) {
    if (!operation->iterate(k, failure)) return false;
  }
  if (!operation->wait(failure)) return false;
  for (std::size_t k = 0; k < slots; ++k) check(*operation, k, picked(k, slots, wanted), seen);
  return true;
}

/// Runs as many iterations as there are slots, then reads and checks their results and rewrites
/// their inputs, and so on. Before each iteration is a barrier. Only the iterations are timed. With
/// --buffers, results are read only after the last iteration.
bool Runner::in_rounds(Operation* operation, const Timed& timed, Seen* seen, Measured* row,
                       Failure* failure) {
  const std::size_t group = operation->group();
  const auto warmups = static_cast<std::size_t>(options_.warmup_iterations);
  const std::size_t all = warmups + static_cast<std::size_t>(options_.iterations);
  const std::size_t results = (all - warmups) * group;
  const bool at_once = options_.buffers > 0;
  const std::size_t per_round = at_once ? all : operation->slots().out / group;
  const std::size_t wanted = checks_wanted(*operation);
  for (std::size_t begin = 0; begin < all;) {
    const std::size_t end = std::min(all, begin + per_round);
    operation->fill();
    for (std::size_t i = begin; i < end; ++i) {
      if (!ok(hocketBarrier(ground_.comm, nullptr), "hocketBarrier", ground_.comm, failure) ||
          !timed(i, (i - begin) * group, failure) || !learn_algorithm(row, failure)) {
        return false;
      }
    }
    if (at_once) return check_left(operation, all * group, seen, failure);
    for (std::size_t i = std::max(begin, warmups); options_.checks > 0 && i < end; ++i) {
      for (std::size_t k = 0; k < group; ++k) {
        check(*operation, (i - begin) * group + k,
              picked((i - warmups) * group + k, results, wanted), seen);
      }
    }
    progress_(static_cast<int>(end), static_cast<int>(all));
    begin = end;
  }
  return true;
}

/// --barrier: seen->first has every iteration's time. --aligned: its start and, in seen->second,
/// its end, both on the common clock.
bool Runner::one_by_one(Operation* operation, Seen* seen, Measured* row, Failure* failure) {
  const auto warmups = static_cast<std::size_t>(options_.warmup_iterations);
  const bool aligned = options_.method == Method::aligned;
  const Timed timed = [&](std::size_t i, std::size_t first, Failure* why) {
    const double start = now_us();
    if (!operation->iterate(first, why) || !operation->wait(why)) return false;
    const double end = now_us();
    if (i < warmups) return true;
    seen->first.push_back(aligned ? start : end - start);
    if (aligned) seen->second.push_back(end);
    return true;
  };
  if (aligned && !clock_.measure(failure)) return false;
  if (!in_rounds(operation, timed, seen, row, failure)) return false;
  if (!aligned) return true;
  if (!clock_.measure(failure)) return false;
  for (std::vector<double>* times : {&seen->first, &seen->second}) {
    for (double& time : *times) time = clock_.common_us(time);
  }
  return true;
}

/// seen->first: mean times of call, computation and wait together; of each; and of call and wait
/// without computation between. The computation is as long as the latter was.
bool Runner::overlapped(Operation* operation, Seen* seen, Measured* row, Failure* failure) {
  const auto warmups = static_cast<std::size_t>(options_.warmup_iterations);
  double overall = 0, computation = 0, call = 0, waiting = 0, pure = 0;
  const Timed alone = [&](std::size_t i, std::size_t first, Failure* why) {
    const double start = now_us();
    if (!operation->iterate(first, why) || !operation->wait(why)) return false;
    if (i >= warmups) pure += now_us() - start;
    return true;
  };
  if (!in_rounds(operation, alone, seen, row, failure)) return false;
  static const double speed = loops_per_us();
  const auto loops = static_cast<std::uint64_t>(pure / options_.iterations * speed);
  const Timed together = [&](std::size_t i, std::size_t first, Failure* why) {
    const double start = now_us();
    if (!operation->iterate(first, why)) return false;
    const double called = now_us();
    computed = compute(loops);
    const double ready = now_us();
    if (!operation->wait(why)) return false;
    const double end = now_us();
    if (i < warmups) return true;
    overall += end - start;
    call += called - start;
    computation += ready - called;
    waiting += end - ready;
    return true;
  };
  if (!in_rounds(operation, together, seen, row, failure)) return false;
  for (const double sum : {overall, computation, call, waiting, pure}) {
    seen->first.push_back(sum / options_.iterations);
  }
  return true;
}

}  // namespace hocket::perf

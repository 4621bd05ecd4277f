// Fails an allocation of a small job with each call stack that leads to an allocation: this
// allocation alone, or all from there on.
//
// A job makes some 15,000 allocations, but most of them have the call stack of an earlier one. So
// the test notes the call stacks of a job in which nothing fails, and then lets the first
// allocation with a call stack fail: with LONG_TESTS for all call stacks, else for ten that the
// seed chooses. The call stacks are compared up to most_frames frames.
//
// EXHAUSTION_NUMBERS=FIRST-LAST refuses the allocations with these numbers instead, each in a job
// of its own. All allocations of a scenario take 4 to 9 minutes.
#include <execinfo.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <set>

#include "base/mix.h"
#include "exhaustion/scenario.h"
#include "seed.h"

namespace exhaustion {
namespace {

using CallStack = std::uint64_t;  // a hash of return addresses
constexpr CallStack none = 0;
constexpr int most_frames = 12;
constexpr std::size_t most_noted = 1 << 15;

/// The call stacks of the allocations of a job, in memory that its victim shares with the test.
struct Noted {
  std::atomic<std::size_t> count;
  CallStack all[most_noted];  // one for each allocation
};

enum class Mode { once, from_there_on };

std::atomic<bool> armed{false}, refusing{false};
std::atomic<CallStack> refused_at{none};  // the next allocation with it fails
std::atomic<std::size_t> left{0};         // not 0: so many allocations until one fails
Mode refused = Mode::once;
Noted* noted = nullptr;  // null: call stacks are not noted

/// The processes of all jobs are forked from the test, so functions have the same addresses in all.
CallStack current_call_stack() {
  void* frames[most_frames];
  const int depth = ::backtrace(frames, most_frames);
  CallStack stack = 1;
  for (int i = 0; i < depth; ++i) {
    stack = hocket::internal::mix(stack ^ reinterpret_cast<std::uintptr_t>(frames[i]));
  }
  return stack;
}

bool refuse() {
  static thread_local bool inside = false;  // of backtrace(), which may allocate
  if (!armed.load(std::memory_order_relaxed) || inside) return false;
  if (refusing.load(std::memory_order_relaxed)) {
    errno = ENOMEM;
    return true;
  }
  if (left.load(std::memory_order_relaxed) != 0) {
    if (left.fetch_sub(1) != 1) return false;
    errno = ENOMEM;
    return true;
  }
  inside = true;
  CallStack stack = current_call_stack();
  inside = false;
  if (noted != nullptr) {
    const std::size_t number = noted->count.fetch_add(1);
    if (number < most_noted) noted->all[number] = stack;
  }
  if (!refused_at.compare_exchange_strong(stack, none)) return false;
  refusing = refused == Mode::from_there_on;
  errno = ENOMEM;
  return true;
}

}  // namespace
}  // namespace exhaustion

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define HAS_INJECTION true
// They stand before libc's in this program, for operator new and for libc itself. Hidden symbols
// would serve this program alone, and neither libstdc++ nor libc.
#pragma GCC visibility push(default)
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) { return exhaustion::refuse() ? nullptr : __libc_malloc(bytes); }
void* calloc(size_t count, size_t bytes) {
  return exhaustion::refuse() ? nullptr : __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) {
  return exhaustion::refuse() ? nullptr : __libc_realloc(memory, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  return exhaustion::refuse() ? nullptr : __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  *memory = exhaustion::refuse() ? nullptr : __libc_memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
}
#pragma GCC visibility pop
#else
#define HAS_INJECTION false
#endif

namespace exhaustion {
namespace {

void disarm() { armed = false; }

Injection refuse_at(CallStack stack, Mode mode) {
  return {[=] {
            refused_at = stack;
            refused = mode;
            armed = true;
          },
          disarm};
}

Injection refuse_number(std::size_t number) {
  return {[=] {
            left = number;
            armed = true;
          },
          disarm};
}

/// The call stacks that lead to allocations in a job in which nothing fails, each once, in the
/// order of their first allocations.
std::vector<CallStack> call_stacks_of(const Scenario& scenario) {
  void* const shared =
      ::mmap(nullptr, sizeof(Noted), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) std::abort();
  auto* const all = static_cast<Noted*>(shared);
  const Injection note = {[=] {
                            noted = all;
                            armed = true;
                          },
                          disarm};
  Job sound(scenario, note, long_deadline_ms);
  sound.judge("nothing refused");
  EXPECT_EQ(0, sound.victim().result) << sound.victim().text;
  const std::size_t allocations = all->count;
  EXPECT_LT(100U, allocations);
  EXPECT_LT(allocations, most_noted);
  std::vector<CallStack> distinct;
  std::set<CallStack> known;
  for (std::size_t i = 0; i < std::min(allocations, most_noted); ++i) {
    if (known.insert(all->all[i]).second) distinct.push_back(all->all[i]);
  }
  ::munmap(shared, sizeof(Noted));
  std::printf("%zu allocations with %zu call stacks\n", allocations, distinct.size());
  return distinct;
}

/// When it is first used, backtrace() loads a library.
void prepare_backtrace() {
  void* frames[most_frames];
  ASSERT_LT(1, ::backtrace(frames, most_frames));
}

class OutOfMemory : public testing::TestWithParam<Scenario> {};

TEST_P(OutOfMemory, at_any_allocation_is_an_error_with_a_reason) {
  if (!HAS_INJECTION) GTEST_SKIP() << "a sanitizer has its own malloc";
  // OpenSSL makes thousands of allocations when it is first used.
  unsigned char digest[32] = {};
  ASSERT_NE(nullptr, ::HMAC(::EVP_sha256(), "", 0, digest, 0, digest, nullptr));
  prepare_backtrace();
  if (const char* const range = std::getenv("EXHAUSTION_NUMBERS"); range != nullptr) {
    std::size_t first = 0, last = 0;
    ASSERT_EQ(2, std::sscanf(range, "%zu-%zu", &first, &last)) << "FIRST-LAST";
    ASSERT_LT(0U, first);
    Injections injections;
    for (std::size_t number = first; number <= last; ++number) {
      injections.emplace_back("allocation " + std::to_string(number), refuse_number(number));
    }
    const int errors = run_all(GetParam(), injections);
    std::printf("%zu jobs, %d errors\n", injections.size(), errors);
    return;
  }
  const std::vector<CallStack> stacks = call_stacks_of(GetParam());
  ASSERT_LT(50U, stacks.size());
  const std::size_t stride = ranks::long_tests() ? 1 : stacks.size() / 10;
  std::vector<std::size_t> chosen;
  for (std::size_t at = tests::seed() % stride; at < stacks.size(); at += stride) {
    chosen.push_back(at);
  }
  // One call stack alone, to debug it.
  if (const char* const only = std::getenv("EXHAUSTION_AT"); only != nullptr) {
    chosen = {std::strtoul(only, nullptr, 0) % stacks.size()};
  }
  Injections injections;
  for (const std::size_t at : chosen) {
    const std::string name = "the first allocation with call stack " + std::to_string(at);
    injections.emplace_back(name + " refused", refuse_at(stacks[at], Mode::once));
    injections.emplace_back(name + " and all later ones refused",
                            refuse_at(stacks[at], Mode::from_there_on));
  }
  const int errors = run_all(GetParam(), injections);
  std::printf("%zu jobs, %d errors\n", injections.size(), errors);
  EXPECT_LT(0, errors);
}

INSTANTIATE_TEST_SUITE_P(Scenarios, OutOfMemory,
                         testing::Values(Scenario{"leader", 2, 0}, Scenario{"follower", 3, 1},
                                         Scenario{"tcp_root", 2, 0, "tcp"},
                                         Scenario{"tcp", 3, 2, "tcp"},
                                         Scenario{"stream", 2, 1, "shm,tcp", true}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace exhaustion

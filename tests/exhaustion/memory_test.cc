// Fails every allocation of a small job in turn: a single allocation, or all from there on.
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "exhaustion/scenario.h"
#include "seed.h"

namespace exhaustion {
namespace {

constexpr unsigned long never = ~0ul;

// The allocations that fail, counted from 1.
std::atomic<unsigned long> first_refused{never}, last_refused{never}, made{0};
std::atomic<bool> armed{false};

bool refuse() {
  if (!armed.load(std::memory_order_relaxed)) return false;
  const unsigned long number = made.fetch_add(1) + 1;
  const bool refused = number >= first_refused && number <= last_refused;
  if (refused) errno = ENOMEM;
  return refused;
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

enum class Mode { once, from_there_on };

Injection refuse_at(unsigned long first, Mode mode) {
  return {[=] {
            first_refused = first;
            last_refused = mode == Mode::once ? first : never;
            armed = true;
          },
          [] {
            armed = false;
            return made.load();
          }};
}

class OutOfMemory : public testing::TestWithParam<Scenario> {};

TEST_P(OutOfMemory, at_any_allocation_is_an_error_with_a_reason) {
  if (!HAS_INJECTION) GTEST_SKIP() << "a sanitizer has its own malloc";
  // OpenSSL makes thousands of allocations when it is first used.
  unsigned char digest[32] = {};
  ASSERT_NE(nullptr, ::HMAC(::EVP_sha256(), "", 0, digest, 0, digest, nullptr));
  unsigned long total = 0;
  {
    Job sound(GetParam(), refuse_at(never, Mode::once), long_deadline_ms);
    sound.judge("nothing refused");
    total = sound.victim().counted;
    ASSERT_EQ(0, sound.victim().result) << sound.victim().text;
  }
  ASSERT_LT(100u, total);
  const unsigned long stride = ranks::long_tests() ? 1 : total / 10;
  std::vector<unsigned long> moments;
  for (unsigned long at = 1 + tests::seed() % stride; at <= total; at += stride) {
    moments.push_back(at);
  }
  // One moment alone, to debug it.
  if (const char* const only = std::getenv("EXHAUSTION_AT"); only != nullptr) {
    moments = {std::strtoul(only, nullptr, 0)};
  }
  Injections injections;
  for (const unsigned long at : moments) {
    const std::string name = "allocation " + std::to_string(at);
    injections.emplace_back(name + " refused", refuse_at(at, Mode::once));
    injections.emplace_back(name + " and all later ones refused",
                            refuse_at(at, Mode::from_there_on));
  }
  const int errors = run_all(GetParam(), injections);
  std::printf("%lu allocations, %zu jobs, %d errors\n", total, injections.size(), errors);
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

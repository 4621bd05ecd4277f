// Fails each allocation of a small job in turn: a single allocation, or all from there on.
//
// A job makes some 15,000 allocations, but most of them at the same places: the calls that lead to
// an allocation (its *place*) are those of an earlier one. So the test notes the places of a job in
// which nothing fails, and lets the first allocation at each place fail: with LONG_TESTS at all
// places, else at ten that the seed chooses.
#include <execinfo.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <set>

#include "base/mix.h"
#include "exhaustion/scenario.h"
#include "seed.h"

namespace exhaustion {
namespace {

using Place = std::uint64_t;  // a hash of return addresses
constexpr Place nowhere = 0;
constexpr int most_frames = 12;
constexpr std::size_t most_places = 1 << 15;

/// Lies in memory that the victim of the sound job shares with the test.
struct Places {
  std::atomic<std::size_t> count;
  Place all[most_places];  // with repetitions
};

enum class Mode { once, from_there_on };

std::atomic<bool> armed{false}, refusing{false};
Place refused_at = nowhere;
Mode refused = Mode::once;
Places* noted = nullptr;  // null: places are not noted

/// The processes of all jobs are forked from the test, so a place has the same addresses in all.
Place place_here() {
  void* frames[most_frames];
  const int depth = ::backtrace(frames, most_frames);
  Place place = 1;
  for (int i = 0; i < depth; ++i) {
    place = hocket::internal::mix(place ^ reinterpret_cast<std::uintptr_t>(frames[i]));
  }
  return place;
}

bool refuse() {
  static thread_local bool inside = false;  // of backtrace(), which may allocate
  if (!armed.load(std::memory_order_relaxed) || inside) return false;
  if (refusing.load(std::memory_order_relaxed)) {
    errno = ENOMEM;
    return true;
  }
  inside = true;
  const Place place = place_here();
  inside = false;
  if (noted != nullptr) {
    const std::size_t number = noted->count.fetch_add(1);
    if (number < most_places) noted->all[number] = place;
  }
  if (place != refused_at) return false;
  if (refused == Mode::from_there_on) {
    refusing = true;
  } else {
    refused_at = nowhere;
  }
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

Injection refuse_at(Place place, Mode mode) {
  return {[=] {
            refused_at = place;
            refused = mode;
            armed = true;
          },
          [] {
            armed = false;
            return 0UL;
          }};
}

/// The places of a job in which nothing fails, each once, in the order of their first allocations.
std::vector<Place> places_of(const Scenario& scenario) {
  void* const shared =
      ::mmap(nullptr, sizeof(Places), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) std::abort();
  auto* const places = static_cast<Places*>(shared);
  const Injection note = {[=] {
                            noted = places;
                            armed = true;
                          },
                          [] {
                            armed = false;
                            return 0UL;
                          }};
  Job sound(scenario, note, long_deadline_ms);
  sound.judge("nothing refused");
  EXPECT_EQ(0, sound.victim().result) << sound.victim().text;
  const std::size_t allocations = places->count;
  EXPECT_LT(100U, allocations);
  EXPECT_LT(allocations, most_places);
  std::vector<Place> distinct;
  std::set<Place> known;
  for (std::size_t i = 0; i < std::min(allocations, most_places); ++i) {
    if (known.insert(places->all[i]).second) distinct.push_back(places->all[i]);
  }
  ::munmap(shared, sizeof(Places));
  std::printf("%zu allocations at %zu places\n", allocations, distinct.size());
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
  const std::vector<Place> places = places_of(GetParam());
  ASSERT_LT(50U, places.size());
  const std::size_t stride = ranks::long_tests() ? 1 : places.size() / 10;
  std::vector<std::size_t> chosen;
  for (std::size_t at = tests::seed() % stride; at < places.size(); at += stride) {
    chosen.push_back(at);
  }
  // One place alone, to debug it.
  if (const char* const only = std::getenv("EXHAUSTION_AT"); only != nullptr) {
    chosen = {std::strtoul(only, nullptr, 0) % places.size()};
  }
  Injections injections;
  for (const std::size_t at : chosen) {
    const std::string name = "the first allocation at place " + std::to_string(at);
    injections.emplace_back(name + " refused", refuse_at(places[at], Mode::once));
    injections.emplace_back(name + " and all later ones refused",
                            refuse_at(places[at], Mode::from_there_on));
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

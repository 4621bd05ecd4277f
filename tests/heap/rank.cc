// A rank under the shared heap (hocket-run --shared-heap): a program that allocates as usual. It
// returns 1, with a line that says why, if something is wrong.
#include <hocket/hocket.h>
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t count = 1 << 20;
constexpr std::size_t bytes = count * sizeof(float);
hocketComm_t comm;
int rank, ranks;

void check(bool good, int line, const char* what) {
  if (good) return;
  std::fprintf(stderr, "rank %d: line %d: %s\n", rank, line, what);
  std::_Exit(1);
}
#define CHECK(condition) check(condition, __LINE__, #condition)
#define CALL(call) check((call) == hocketSuccess, __LINE__, hocketGetLastError(comm))

bool holds(const void* block, std::size_t size, int value) {
  const auto* const all = static_cast<const unsigned char*>(block);
  return all[0] == value && std::memcmp(all, all + 1, size - 1) == 0;
}

bool is_mapped(const void* block, std::size_t size) {
  hocketMemoryPath_t path = hocketPathStaged;
  CALL(hocketCommMemoryPath(comm, block, size, &path));
  return path == hocketPathMapped;
}

/// Sums in every rank what the ranks have, from memory as it comes.
void all_reduce() {
  std::vector<float> in(count), out(count);
  CHECK(is_mapped(in.data(), bytes) && is_mapped(out.data(), bytes));
  for (std::size_t i = 0; i < count; ++i) in[i] = static_cast<float>(i % 1000 + rank);
  CALL(hocketAllReduce(in.data(), out.data(), count, hocketFloat32, hocketSum, comm, nullptr));
  for (std::size_t i = 0; i < count; ++i) {
    const auto expected = static_cast<float>(ranks * (i % 1000) + ranks * (ranks - 1) / 2);
    CHECK(out[i] == expected);
  }
}

/// Each function of malloc's family: its blocks are mapped, and keep their bytes.
void every_function() {
  const auto use = [](void* block, std::size_t size, std::size_t alignment) {
    CHECK(block != nullptr && reinterpret_cast<std::uintptr_t>(block) % alignment == 0);
    CHECK(::malloc_usable_size(block) >= size);
    std::memset(block, 1, size);
    CHECK(is_mapped(block, size));
    std::free(block);
  };
  use(std::malloc(bytes), bytes, 16);
  use(::memalign(256, bytes), bytes, 256);
  use(std::aligned_alloc(1 << 20, 1 << 20), 1 << 20, 1 << 20);
  use(::valloc(100000), 100000, 4096);
  use(::pvalloc(100000), 102400, 4096);
  void* block = nullptr;
  CHECK(::posix_memalign(&block, 64, bytes) == 0);
  use(block, bytes, 64);
  CHECK(::posix_memalign(&block, 24, bytes) == EINVAL);
  CHECK(::posix_memalign(&block, 64, SIZE_MAX / 2) == ENOMEM);
  const auto array = std::make_unique<double[]>(count);
  CHECK(is_mapped(array.get(), count));

  auto* zeros = static_cast<unsigned char*>(std::calloc(count, 4));
  CHECK(is_mapped(zeros, bytes));
  CHECK(holds(zeros, bytes, 0));
  std::memset(zeros, 9, bytes);
  std::free(zeros);
  zeros = static_cast<unsigned char*>(std::calloc(count, 4));
  CHECK(holds(zeros, bytes, 0));
  std::free(zeros);
  volatile std::size_t huge = SIZE_MAX / 2;
  CHECK(std::calloc(huge, 4) == nullptr && errno == ENOMEM);
  CHECK(std::malloc(huge) == nullptr && errno == ENOMEM);

  // From the C library's memory to the heap, within the heap, and back.
  char* moving = static_cast<char*>(std::malloc(100));
  CHECK(!is_mapped(moving, 100));
  std::memset(moving, 'a', 100);
  for (const std::size_t size : {std::size_t{20000}, bytes, 4 * bytes, bytes, std::size_t{50}}) {
    moving = static_cast<char*>(std::realloc(moving, size));
    CHECK(moving != nullptr && is_mapped(moving, size) == (size >= 16384));
    CHECK(holds(moving, 50, 'a'));
  }
  CHECK(std::realloc(moving, huge) == nullptr && moving[49] == 'a');
  std::free(moving);
  CHECK(std::realloc(std::realloc(nullptr, bytes), 0) == nullptr);
  CHECK(::malloc_usable_size(nullptr) == 0);
  std::free(nullptr);
}

/// Parent and child of fork() do not see one another's later bytes.
void fork_while_a_communicator_exists() {
  std::vector<unsigned char> numbers(bytes, 1);
  int go[2];
  CHECK(::pipe(go) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char word;
    CHECK(::read(go[0], &word, 1) == 1);
    CHECK(holds(numbers.data(), bytes, 1));
    numbers.assign(bytes, 3);
    std::vector<unsigned char> more(bytes, 4);  // of the child's own
    std::vector<unsigned char>().swap(numbers);
    std::_Exit(more[5] == 4 ? 0 : 1);
  }
  numbers.assign(bytes, 2);
  CHECK(::write(go[1], "g", 1) == 1);
  int status = -1;
  CHECK(::waitpid(child, &status, 0) == child && status == 0);
  CHECK(holds(numbers.data(), bytes, 2));
  CHECK(std::system("exit 3") == 3 << 8);
  std::FILE* const output = ::popen("echo text", "r");
  char text[16] = {};
  CHECK(std::fgets(text, sizeof text, output) != nullptr && std::string(text) == "text\n");
  CHECK(::pclose(output) == 0);
}

/// Threads allocate and free while the ranks communicate.
void allocate_beside_collectives() {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&stop, i] {
      for (std::size_t n = 0; !stop.load(); ++n) {
        const std::size_t size = 10000 + (n * 7919 + i * 104729) % 300000;
        std::vector<unsigned char> block(size, static_cast<unsigned char>(n));
        CHECK(block[0] == block[size - 1] && block[size / 2] == static_cast<unsigned char>(n));
      }
    });
  }
  for (int i = 0; i < 5; ++i) all_reduce();
  stop.store(true);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main() {
  CALL(hocketCommInitFromEnv(&comm, nullptr));
  CALL(hocketCommUserRank(comm, &rank));
  CALL(hocketCommCount(comm, &ranks));
  all_reduce();
  every_function();
  fork_while_a_communicator_exists();
  all_reduce();
  allocate_beside_collectives();
  CALL(hocketCommFinalize(comm));
  CALL(hocketCommDestroy(comm));
  return 0;
}

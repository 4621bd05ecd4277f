#include "bootstrap/launchers/pmix.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "bootstrap/launchers/mpi_library.h"

namespace hocket::internal {
namespace {

// The parts of the PMIx ABI (versions 2 to 5 of the standard) that are used here.
struct PmixProcess {
  char name_space[256];
  std::uint32_t rank;
};
struct PmixValue {
  std::uint16_t type;
  union {
    char* string;
    std::uint32_t uint32;
    std::uint64_t room[6];  // the library's own union is smaller
  } data;
};
constexpr std::uint16_t type_string = 3;
constexpr std::uint16_t type_uint32 = 14;
constexpr std::uint8_t scope_global = 3;
constexpr std::uint32_t any_rank = UINT32_MAX - 1;
constexpr int success = 0;
constexpr int not_found = -46;
using ValueCallback = void (*)(int status, PmixValue* value, void* data);

constexpr const char* text_key = "hocket.rank.0";
constexpr const char* waiting =
    "waiting for rank 0 to publish its address by PMIx (has rank 0 called hocketCommInitFromEnv?)";

}  // namespace

struct PmixLibrary {
  int (*init)(PmixProcess*, void*, std::size_t) = nullptr;
  int (*finalize)(const void*, std::size_t) = nullptr;
  int (*put)(std::uint8_t, const char*, PmixValue*) = nullptr;
  int (*commit)() = nullptr;
  int (*get)(const PmixProcess*, const char*, const void*, std::size_t, PmixValue**) = nullptr;
  int (*get_nb)(const PmixProcess*, const char*, const void*, std::size_t, ValueCallback,
                void*) = nullptr;
  const char* (*error_string)(int) = nullptr;
};

namespace {

template <typename Function>
bool take(void* library, const char* name, Function* out) {
  *out = reinterpret_cast<Function>(::dlsym(library, name));
  return *out != nullptr;
}

/// The variables by which Open MPI 5 says where it is installed, and the folders below it in which
/// it may have a libpmix.so.2 of its own.
constexpr const char* places[][2] = {
    {"PMIX_PREFIX", "/lib/"},
    {"PMIX_PREFIX", "/lib/openmpi/"},
    {"OMPI_LIBDIR_LOC", "/"},
    {"OMPI_LIBDIR_LOC", "/openmpi/"},
};

/// The library that this process has already (MPI loads it), else that of the launcher, else that
/// of the system. Two libraries in one process disturb each other, and a client of another version
/// than the server's makes the server print errors.
void* open_library() {
  constexpr const char* name = "libpmix.so.2";
  constexpr int mode = RTLD_NOW | RTLD_GLOBAL;
  if (void* const loaded = ::dlopen(name, mode | RTLD_NOLOAD)) return loaded;
  for (const auto& [variable, folder] : places) {
    const char* const prefix = ::secure_getenv(variable);
    if (prefix == nullptr || *prefix != '/') continue;
    if (void* const library = ::dlopen((std::string(prefix) + folder + name).c_str(), mode)) {
      return library;
    }
  }
  return ::dlopen(name, mode);
}

Status load(PmixLibrary* out) {
  void* const library = open_library();
  if (library == nullptr) {
    const char* const why = ::dlerror();
    return {Code::system_error,
            fmt::format("cannot load libpmix.so.2, by which this launcher tells ranks of one "
                        "another ({}): install it (Debian: libpmix2), or let LD_LIBRARY_PATH name "
                        "the folder where the launcher has it; or use hocketCommInitRank with an "
                        "id from hocketGetUniqueId that MPI_Bcast passes to all ranks",
                        why != nullptr ? why : "no reason given")};
  }
  const bool complete =
      take(library, "PMIx_Init", &out->init) && take(library, "PMIx_Finalize", &out->finalize) &&
      take(library, "PMIx_Put", &out->put) && take(library, "PMIx_Commit", &out->commit) &&
      take(library, "PMIx_Get", &out->get) && take(library, "PMIx_Get_nb", &out->get_nb) &&
      take(library, "PMIx_Error_string", &out->error_string);
  return complete ? Status()
                  : Status(Code::system_error, "libpmix.so.2 lacks a function of PMIx 2");
}

/// Loaded once; stays loaded, because the library has threads.
Status library(const PmixLibrary** out) {
  static std::mutex mutex;
  static PmixLibrary loaded;
  static bool done = false;
  const std::lock_guard lock(mutex);
  if (!done) HOCKET_RETURN_IF_ERROR(load(&loaded));
  done = true;
  *out = &loaded;
  return {};
}

Status failed(const PmixLibrary& library, const char* function, int status) {
  return {
      Code::remote_error,
      fmt::format("{} failed: {} ({}). Does the launcher have a PMIx server (srun: --mpi=pmix), "
                  "and is libpmix.so.2 of its version? hocketCommInitRank with an id from "
                  "hocketGetUniqueId that MPI_Bcast passes to all ranks needs neither",
                  function, library.error_string(status), status)};
}

PmixProcess process(const std::string& name_space, std::uint32_t rank) {
  PmixProcess out{};
  std::strncpy(out.name_space, name_space.c_str(), sizeof out.name_space - 1);
  out.rank = rank;
  return out;
}

/// The answer of PMIx_Get_nb, which may come after its reader has gone.
struct PmixAnswer {
  std::mutex mutex;
  bool come = false;
  int status = 0;
  std::string text;
};

void take_answer(int status, PmixValue* value, void* data) {
  const std::unique_ptr<std::shared_ptr<PmixAnswer>> owner(
      static_cast<std::shared_ptr<PmixAnswer>*>(data));
  best_effort([&] {
    PmixAnswer& answer = **owner;
    const std::lock_guard lock(answer.mutex);
    answer.status = status;
    if (status == success && value != nullptr && value->type == type_string) {
      answer.text = value->data.string;
    }
    answer.come = true;
  });
}

const PmixLibrary* kept_library = nullptr;
pid_t kept_process = 0;
void finalize_at_exit() {
  if (kept_process == ::getpid()) kept_library->finalize(nullptr, 0);
}

}  // namespace

Status Pmix::open(bool keep, std::unique_ptr<Pmix>* out) {
  const PmixLibrary* functions = nullptr;
  HOCKET_RETURN_IF_ERROR(library(&functions));
  PmixProcess self{};
  const int status = functions->init(&self, nullptr, 0);
  if (status != success) return failed(*functions, "PMIx_Init", status);
  std::unique_ptr<Pmix> pmix(new Pmix(*functions));
  pmix->name_space_.assign(self.name_space, ::strnlen(self.name_space, sizeof self.name_space));
  pmix->rank_ = static_cast<int>(self.rank);
  pmix->keep_ = keep;
  if (keep && kept_process != ::getpid()) {
    kept_library = functions;
    kept_process = ::getpid();
    std::atexit(finalize_at_exit);
  }
  *out = std::move(pmix);
  return {};
}

Pmix::~Pmix() {
  if (!keep_) library_.finalize(nullptr, 0);
}

Status Pmix::ranks(int* out) const {
  const PmixProcess job = process(name_space_, any_rank);
  PmixValue* value = nullptr;
  const int status = library_.get(&job, "pmix.job.size", nullptr, 0, &value);
  if (status != success || value == nullptr || value->type != type_uint32) {
    return failed(library_, "PMIx_Get of the number of ranks", status);
  }
  *out = static_cast<int>(value->data.uint32);
  std::free(value);  // a number has no memory of its own
  return {};
}

Status Pmix::publish(const std::string& text) {
  std::string copy = text;
  PmixValue value{};
  value.type = type_string;
  value.data.string = copy.data();
  int status = library_.put(scope_global, text_key, &value);
  if (status != success) return failed(library_, "PMIx_Put", status);
  status = library_.commit();
  return status == success ? Status() : failed(library_, "PMIx_Commit", status);
}

/// Asks once. *found: false if rank 0 has published nothing yet.
Status Pmix::read_once(const JoinWait& wait, std::string* text, bool* found) const {
  constexpr std::int64_t step_ms = 2;
  const auto answer = std::make_shared<PmixAnswer>();
  const PmixProcess first = process(name_space_, 0);
  auto owner = std::make_unique<std::shared_ptr<PmixAnswer>>(answer);
  const int asked = library_.get_nb(&first, text_key, nullptr, 0, take_answer, owner.get());
  if (asked != success) return failed(library_, "PMIx_Get_nb", asked);
  static_cast<void>(owner.release());
  while (true) {
    {
      const std::lock_guard lock(answer->mutex);
      *found = answer->come && answer->status == success;
      if (*found) *text = answer->text;
      if (*found || (answer->come && answer->status == not_found)) return {};
      if (answer->come) return failed(library_, "PMIx_Get of rank 0's address", answer->status);
    }
    HOCKET_RETURN_IF_ERROR(wait.pause(step_ms, waiting));
  }
}

/// The launcher's server keeps the question until rank 0 publishes something, or, if rank 0 has
/// published something else (MPI does in MPI_Init), answers at once that there is no such key.
Status Pmix::read(const JoinWait& wait, std::string* text) const {
  constexpr std::int64_t pause_ms = 20;
  while (true) {
    bool found = false;
    HOCKET_RETURN_IF_ERROR(read_once(wait, text, &found));
    if (found) return {};
    HOCKET_RETURN_IF_ERROR(wait.pause(pause_ms, waiting));
  }
}

}  // namespace hocket::internal

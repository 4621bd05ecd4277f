#include "bootstrap/launchers/munge.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <mutex>

namespace hocket::internal {
namespace {

constexpr int option_uid_restriction = 9;  // the ABI of libmunge.so.2
constexpr int success = 0;
constexpr int socket_error = 6;

struct MungeLibrary {
  void* (*create)() = nullptr;
  void (*destroy)(void* context) = nullptr;
  int (*set)(void* context, int option, ...) = nullptr;
  int (*encode)(char** credential, void* context, const void* bytes, int size) = nullptr;
  int (*decode)(const char* credential, void* context, void** bytes, int* size, uid_t* user,
                gid_t* group) = nullptr;
  const char* (*error_text)(int error) = nullptr;
};

template <typename Function>
bool take(void* library, const char* name, Function* out) {
  *out = reinterpret_cast<Function>(::dlsym(library, name));
  return *out != nullptr;
}

Status load(MungeLibrary* out) {
  void* const library = ::dlopen("libmunge.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    return {Code::system_error,
            fmt::format("cannot load libmunge.so.2 ({})", why != nullptr ? why : "unknown")};
  }
  const bool complete = take(library, "munge_ctx_create", &out->create) &&
                        take(library, "munge_ctx_destroy", &out->destroy) &&
                        take(library, "munge_ctx_set", &out->set) &&
                        take(library, "munge_encode", &out->encode) &&
                        take(library, "munge_decode", &out->decode) &&
                        take(library, "munge_strerror", &out->error_text);
  return complete ? Status() : Status(Code::system_error, "libmunge.so.2 lacks a function");
}

Status library(const MungeLibrary** out) {
  static std::mutex mutex;
  static MungeLibrary loaded;
  static bool done = false;
  const std::lock_guard lock(mutex);
  if (!done) HOCKET_RETURN_IF_ERROR(load(&loaded));
  done = true;
  *out = &loaded;
  return {};
}

Status failed(const MungeLibrary& library, const char* what, int error) {
  return {Code::system_error,
          fmt::format("MUNGE cannot {}: {}{}", what, library.error_text(error),
                      error == socket_error ? " (munged does not answer on this host)" : "")};
}

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

}  // namespace

Status seal_by_munge(const std::vector<std::uint8_t>& bytes, std::string* credential) {
  const MungeLibrary* munge = nullptr;
  HOCKET_RETURN_IF_ERROR(library(&munge));
  const std::unique_ptr<void, void (*)(void*)> context(munge->create(), munge->destroy);
  if (!context) return out_of_memory();
  int error = munge->set(context.get(), option_uid_restriction, ::geteuid());
  char* text = nullptr;
  if (error == success) {
    error = munge->encode(&text, context.get(), bytes.data(), static_cast<int>(bytes.size()));
  }
  const std::unique_ptr<void, Free> owner(text);
  if (error != success) return failed(*munge, "make a credential", error);
  *credential = text;
  return {};
}

Status open_by_munge(const std::string& credential, std::vector<std::uint8_t>* bytes) {
  const MungeLibrary* munge = nullptr;
  HOCKET_RETURN_IF_ERROR(library(&munge));
  void* content = nullptr;
  int size = 0;
  uid_t user = 0;
  gid_t group = 0;
  const int error = munge->decode(credential.c_str(), nullptr, &content, &size, &user, &group);
  const std::unique_ptr<void, Free> owner(content);
  if (error != success) return failed(*munge, "open rank 0's credential", error);
  if (user != ::geteuid()) {
    return {Code::remote_error,
            fmt::format("rank 0's credential was made by user {}, and this process belongs to user "
                        "{}: start all ranks as one user",
                        user, ::geteuid())};
  }
  const auto* first = static_cast<const std::uint8_t*>(content);
  bytes->assign(first, first + size);
  return {};
}

}  // namespace hocket::internal

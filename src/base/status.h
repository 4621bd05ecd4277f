// The only error type of the library. A successful Status is a null pointer. An error has a
// sentence (what happened, and what the user can do next), the rank that caused it, the operation
// and the link.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>

namespace hocket::internal {

/// The same numbers as hocketResult_t; a static_assert in src/api checks that.
enum class Code : int {
  ok = 0,
  system_error = 2,
  internal_error = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6,
  in_progress = 7,
  timeout = 8,
  mismatch = 100,
  aborted = 101,
};

const char* code_name(Code code);

class [[nodiscard]] Status {
 public:
  struct Detail {
    Code code = Code::ok;
    std::string message;         // one sentence: what happened and what to do next
    int culprit = -1;            // rank in the communicator (or session) that caused it; -1: none
    std::uint64_t sequence = 0;  // sequence number of the collective; 0: not in a collective
    std::string link;            // "shm", "tcp 10.0.0.1:4000", ...; empty: not on a link
  };

  Status() = default;
  Status(Code code, std::string message, int culprit = -1)
      : detail_(std::make_shared<const Detail>(Detail{code, std::move(message), culprit, 0, {}})) {}
  explicit Status(Detail detail) : detail_(std::make_shared<const Detail>(std::move(detail))) {}

  bool ok() const { return detail_ == nullptr; }
  Code code() const { return detail_ ? detail_->code : Code::ok; }
  int culprit() const { return detail_ ? detail_->culprit : -1; }
  std::uint64_t sequence() const { return detail_ ? detail_->sequence : 0; }
  const std::string& message() const;
  const std::string& link() const;

  /// Returns the same error with this operation (or link). Returns *this if it is a success, or if
  /// there is no memory.
  Status in_operation(std::uint64_t sequence) const;
  Status on_link(std::string link) const;
  /// The same error as the user's call returns it: "hocketAllReduce: ...".
  Status returned_by(const char* function) const;

 private:
  friend Status out_of_memory() noexcept;
  template <typename Change>
  Status changed(Change change) const;
  std::shared_ptr<const Detail> detail_;
};

/// The error for a lack of memory; it allocates nothing.
Status out_of_memory() noexcept;
/// In a catch block: the exception as an error.
Status caught() noexcept;
/// Returns the result of make(), or the exception that it throws as an error.
template <typename Make>
Status status_of_call(const Make& make) noexcept {
  try {
    return make();
  } catch (const std::exception&) {
    return caught();
  }
}
/// Runs task() and ignores its exceptions: for work that may fail without harm, as in a destructor.
template <typename Task>
void best_effort(const Task& task) noexcept {
  try {
    task();
  } catch (const std::exception&) {
  }
}

inline Status invalid_argument(std::string message) {
  return {Code::invalid_argument, std::move(message)};
}
inline Status invalid_usage(std::string message) {
  return {Code::invalid_usage, std::move(message)};
}
inline Status internal_error(std::string message) {
  return {Code::internal_error, std::move(message)};
}
/// "what: strerror(errno)", with errno as it is at the call.
Status system_error(const std::string& what);
Status system_error(const std::string& what, int error_number);

#define HOCKET_RETURN_IF_ERROR(expr)                                  \
  do {                                                                \
    if (::hocket::internal::Status status_ = (expr); !status_.ok()) { \
      return status_;                                                 \
    }                                                                 \
  } while (0)

}  // namespace hocket::internal

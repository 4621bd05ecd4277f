// Errors of files and of their contents, before other ranks know them.
#pragma once

#include <functional>
#include <hocket/hocket.hpp>
#include <stdexcept>
#include <string>

namespace hocket::training::storage {

/// An error that no rank but this one knows yet, without the name of the call.
class Failure : public std::runtime_error {
 public:
  Failure(hocketResult_t code, const std::string& sentence, int culprit = -1)
      : std::runtime_error(sentence), code_(code), culprit_(culprit) {}
  [[nodiscard]] hocketResult_t code() const noexcept { return code_; }
  [[nodiscard]] int culprit() const noexcept { return culprit_; }

 private:
  hocketResult_t code_;
  int culprit_;
};

[[noreturn]] inline void refuse(const std::string& sentence) {
  throw Failure(hocketInvalidArgument, sentence);
}
[[noreturn]] inline void mismatch(const std::string& sentence, int culprit = -1) {
  throw Failure(hocketMismatch, sentence, culprit);
}
/// A file is not what was written.
[[noreturn]] inline void damaged(const std::string& path, const std::string& how) {
  throw Failure(hocketSystemError, "'" + path + "' is damaged: " + how);
}
/// A call of the system failed: "cannot DO 'PATH': REASON", with the reason of an errno.
[[noreturn]] void system_failure(const std::string& verb, const std::string& path, int error);

/// How an action ended: hocketSuccess, or the code and the text of what it threw.
struct Outcome {
  hocketResult_t code = hocketSuccess;
  std::string sentence{};
  int culprit = -1;
};
Outcome outcome_of(const std::function<void()>& action);

/// Runs an action that communicates with no rank, and throws a Failure of it as the hocket::Error
/// of the operation.
void locally(const char* operation, const std::function<void()>& action);

}  // namespace hocket::training::storage

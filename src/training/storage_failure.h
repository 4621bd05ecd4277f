// Errors of files and of their contents, and how all ranks learn of the error of one rank.
#pragma once

#include <functional>
#include <hocket/hocket.hpp>
#include <stdexcept>
#include <string>
#include <vector>

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

/// Runs an action that communicates with no rank, and throws a Failure of it as the hocket::Error
/// of the operation.
void locally(const char* operation, const std::function<void()>& action);

/// Collective. The same on all ranks: if the action of a rank fails, all ranks throw the error of
/// the first such rank, which the message names. note: a sentence that is added to the message.
void agree(Communicator& comm, const char* operation, const std::string& note,
           const std::function<void()>& action);

/// Collective. The bytes of every rank.
std::vector<std::string> gather_bytes(Communicator& comm, const std::string& own);
/// Collective. The bytes of rank 0.
std::string broadcast_bytes(Communicator& comm, const std::string& own);

}  // namespace hocket::training::storage

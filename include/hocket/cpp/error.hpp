// Results of the C calls as exceptions.
#pragma once

#include <hocket/hocket.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace hocket {

/// An error of hocket: a subclass for each result below. It holds copies of everything, and so
/// outlives the communicator.
class Error : public std::runtime_error {
 public:
  /// operation: the C function that failed, a string literal.
  Error(hocketResult_t code, const char* operation, std::string_view sentence, int culprit)
      : std::runtime_error(text(code, operation, sentence)),
        code_(code),
        operation_(operation),
        culprit_(culprit) {}

  [[nodiscard]] hocketResult_t code() const noexcept { return code_; }
  /// The C function that returned the error, such as "hocketAllReduce". For an operation on a
  /// stream it is the function that waited for the operation.
  [[nodiscard]] const char* operation() const noexcept { return operation_; }
  /// The rank that caused the error, as numbered in the communicator of the failed operation; -1:
  /// no single rank caused it.
  [[nodiscard]] int culprit() const noexcept { return culprit_; }

 private:
  static std::string text(hocketResult_t code, std::string_view operation,
                          std::string_view sentence) {
    if (sentence.empty()) sentence = hocketGetErrorString(code);
    if (sentence.find(operation) != sentence.npos) return std::string(sentence);
    return std::string(operation) + ": " + std::string(sentence);
  }

  hocketResult_t code_;
  const char* operation_;
  int culprit_;
};

/// An argument is invalid whatever the other ranks do; nothing has happened.
class InvalidArgument : public Error {
 public:
  InvalidArgument(const char* operation, std::string_view sentence, int culprit = -1)
      : Error(hocketInvalidArgument, operation, sentence, culprit) {}
};
/// A call at a wrong time, or a wrong HOCKET_* variable.
class InvalidUsage : public Error {
 public:
  InvalidUsage(const char* operation, std::string_view sentence, int culprit = -1)
      : Error(hocketInvalidUsage, operation, sentence, culprit) {}
};
/// The operating system refused something.
class SystemError : public Error {
 public:
  SystemError(const char* operation, std::string_view sentence, int culprit = -1)
      : Error(hocketSystemError, operation, sentence, culprit) {}
};
/// A rank is dead or silent, has left, or broke the protocol.
class RemoteError : public Error {
 public:
  RemoteError(const char* operation, std::string_view sentence, int culprit = -1)
      : Error(hocketRemoteError, operation, sentence, culprit) {}
};
/// The deadline passed with every rank alive.
class Timeout : public Error {
 public:
  Timeout(const char* operation, std::string_view sentence, int culprit = -1)
      : Error(hocketTimeout, operation, sentence, culprit) {}
};
/// Ranks made different calls, or have different settings.
class Mismatch : public Error {
 public:
  Mismatch(const char* operation, std::string_view sentence, int culprit = -1)
      : Error(hocketMismatch, operation, sentence, culprit) {}
};
/// The communicator was aborted, here or on another rank.
class Aborted : public Error {
 public:
  Aborted(const char* operation, std::string_view sentence, int culprit = -1)
      : Error(hocketAborted, operation, sentence, culprit) {}
};

namespace detail {

[[noreturn]] inline void throw_error(hocketResult_t code, const char* operation,
                                     std::string_view sentence, int culprit) {
  switch (code) {
    case hocketInvalidArgument:
      throw InvalidArgument(operation, sentence, culprit);
    case hocketInvalidUsage:
      throw InvalidUsage(operation, sentence, culprit);
    case hocketSystemError:
      throw SystemError(operation, sentence, culprit);
    case hocketRemoteError:
      throw RemoteError(operation, sentence, culprit);
    case hocketTimeout:
      throw Timeout(operation, sentence, culprit);
    case hocketMismatch:
      throw Mismatch(operation, sentence, culprit);
    case hocketAborted:
      throw Aborted(operation, sentence, culprit);
    default:
      throw Error(code, operation, sentence, culprit);
  }
}

}  // namespace detail

/// Throws the Error of a C call that this thread has just made, unless it is a success or
/// hocketInProgress. operation: the call's name, a string literal.
inline void check(hocketResult_t result, const char* operation) {
  if (result == hocketSuccess || result == hocketInProgress) return;
  int culprit = -1;
  hocketGetLastCulprit(&culprit);
  detail::throw_error(result, operation, hocketGetLastError(nullptr), culprit);
}

}  // namespace hocket

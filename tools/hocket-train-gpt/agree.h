// Problems that one rank has, known to all ranks.
#pragma once

#include <exception>
#include <hocket/hocket.hpp>
#include <stdexcept>
#include <string>

namespace hocket::gpt {

/// Something that all ranks gave up for. All ranks have the same text, so one of them prints it.
class Refused : public std::runtime_error {
 public:
  Refused(const std::string& text, int status) : std::runtime_error(text), status_(status) {}
  [[nodiscard]] int status() const noexcept { return status_; }  // of the program's exit

 private:
  int status_;
};

/// Collective. Throws Refused on all ranks if a rank has a problem: the text of the first rank that
/// has one, with its number if not all ranks say the same. Empty: this rank has none.
void agree(Communicator& comm, const std::string& problem, int status = 1);

/// Collective. Throws Refused on all ranks if the texts of the ranks differ: `what` says what they
/// describe.
void require_equal(Communicator& comm, const std::string& what, const std::string& text);

/// Runs the action, and throws Refused on all ranks if it throws on one of them. The action is not
/// collective.
template <typename Action>
void all_do(Communicator& comm, Action action) {
  std::string problem;
  try {
    action();
  } catch (const std::exception& error) {
    problem = error.what();
    if (problem.empty()) problem = "an error without a text";
  }
  agree(comm, problem);
}

/// Runs a collective call of hocket that throws the same error on all ranks, and turns this error
/// into Refused, with the text before it. An error of the communication stays what it is.
template <typename Action>
auto refusing(const std::string& before, Action action) {
  try {
    return action();
  } catch (const Error& error) {
    switch (error.code()) {
      case hocketRemoteError:
      case hocketTimeout:
      case hocketAborted:
        throw;
      default:
        throw Refused(before + error.what(), 1);
    }
  }
}

}  // namespace hocket::gpt

#include "base/status.h"

#include <cerrno>
#include <new>
#include <system_error>

namespace hocket::internal {
namespace {

// Made when the library is loaded, because later there may be no memory for it. Never destroyed,
// because threads may still use it while static objects are destroyed.
const Status::Detail& no_memory = *new Status::Detail{
    Code::system_error,
    "out of memory: this process has reached a limit (ulimit -v, its control group, or the memory "
    "of the machine). Raise that limit, or use less memory",
    -1,
    0,
    {}};

}  // namespace

const char* code_name(Code code) {
  switch (code) {
    case Code::ok:
      return "success";
    case Code::system_error:
      return "system error";
    case Code::internal_error:
      return "internal error";
    case Code::invalid_argument:
      return "invalid argument";
    case Code::invalid_usage:
      return "invalid usage";
    case Code::remote_error:
      return "remote error";
    case Code::in_progress:
      return "in progress";
    case Code::timeout:
      return "deadline passed";
    case Code::mismatch:
      return "ranks disagree";
    case Code::aborted:
      return "aborted";
  }
  return "unknown result";
}

const std::string& Status::message() const {
  static const std::string success = "success";
  return detail_ ? detail_->message : success;
}

const std::string& Status::link() const {
  static const std::string none;
  return detail_ ? detail_->link : none;
}

template <typename Change>
Status Status::changed(Change change) const {
  try {
    Detail detail = *detail_;
    change(&detail);
    return Status(std::move(detail));
  } catch (const std::bad_alloc&) {
    return *this;
  }
}

Status Status::in_operation(std::uint64_t sequence) const {
  if (ok() || detail_->sequence == sequence) return *this;
  return changed([sequence](Detail* detail) { detail->sequence = sequence; });
}

Status Status::on_link(std::string link) const {
  if (ok()) return *this;
  return changed([&link](Detail* detail) { detail->link = std::move(link); });
}

Status out_of_memory() noexcept {
  Status status;  // shares the static detail without a control block: nothing is allocated
  status.detail_ = std::shared_ptr<const Status::Detail>(std::shared_ptr<void>(), &no_memory);
  return status;
}

Status caught() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::exception& error) {
    return status_of_call(
        [&error] { return internal_error(std::string("unexpected exception: ") + error.what()); });
  }
}

Status Status::returned_by(const char* function) const {
  if (ok()) return *this;
  return changed([function](Detail* detail) {
    detail->message = std::string(function) + ": " + detail->message;
  });
}

Status system_error(const std::string& what) { return system_error(what, errno); }

Status system_error(const std::string& what, int error_number) {
  return {Code::system_error, what + ": " + std::generic_category().message(error_number)};
}

}  // namespace hocket::internal

#include "base/status.h"

#include <cerrno>
#include <system_error>

namespace hocket {

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

Status Status::in_operation(std::uint64_t sequence) const {
  if (ok() || detail_->sequence == sequence) return *this;
  Detail detail = *detail_;
  detail.sequence = sequence;
  return Status(std::move(detail));
}

Status Status::on_link(std::string link) const {
  if (ok()) return *this;
  Detail detail = *detail_;
  detail.link = std::move(link);
  return Status(std::move(detail));
}

Status Status::returned_by(const char* function) const {
  if (ok()) return *this;
  Detail detail = *detail_;
  detail.message = std::string(function) + ": " + detail.message;
  return Status(std::move(detail));
}

Status system_error(const std::string& what) { return system_error(what, errno); }

Status system_error(const std::string& what, int error_number) {
  return {Code::system_error, what + ": " + std::generic_category().message(error_number)};
}

}  // namespace hocket

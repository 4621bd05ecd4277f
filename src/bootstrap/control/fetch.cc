#include "bootstrap/control/fetch.h"

namespace hocket::internal {

Status Fetch::take(UniqueFd* fd) {
  if (!done()) return internal_error("a descriptor was taken before it came");
  std::lock_guard lock(mutex_);  // `ended` may still read the descriptor
  *fd = std::move(fd_);
  return status_;
}

void Fetch::finish(const Status& status, UniqueFd fd) {
  status_ = status;
  fd_ = std::move(fd);
  std::lock_guard lock(mutex_);
  done_.store(true, std::memory_order_release);
  if (ended_) ended_(*this);
}

void Fetch::disregard() {
  std::lock_guard lock(mutex_);
  ended_ = nullptr;
}

}  // namespace hocket::internal

#include "bootstrap/control/heartbeat.h"

namespace hocket::internal {
namespace {
std::size_t page_bytes(int local_ranks) {
  return sizeof(HeartbeatLine) * static_cast<std::size_t>(local_ranks);
}
}  // namespace

Status HeartbeatPage::make(int local_ranks, UniqueFd* fd) {
  UniqueFd made;
  HOCKET_RETURN_IF_ERROR(make_memfd("hocket-heartbeat", page_bytes(local_ranks), &made));
  HOCKET_RETURN_IF_ERROR(map(local_ranks, made));
  *fd = std::move(made);
  return {};
}

Status HeartbeatPage::map(int local_ranks, const UniqueFd& fd) {
  std::shared_ptr<Mapping> mapping;
  HOCKET_RETURN_IF_ERROR(Mapping::of(fd.get(), &mapping));
  if (mapping->size() != page_bytes(local_ranks)) {
    return internal_error("the node's heartbeat page is not what it should be");
  }
  mapping_ = std::move(mapping);
  return {};
}

}  // namespace hocket::internal

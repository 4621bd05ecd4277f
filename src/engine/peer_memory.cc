#include "engine/peer_memory.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/assert.h"
#include "memory/process_memory.h"

namespace hocket::internal {
PeerMemory::~PeerMemory() {
  for (const auto& [region, fetch] : region_fetches_) session_.forget(fetch);
}

bool PeerMemory::export_region(std::uint64_t region) {
  Regions& regions = shared_.regions;
  if (offered_generation_ != regions.generation()) {
    offered_generation_ = regions.generation();
    std::erase_if(offered_, [&](std::uint64_t number) {
      if (regions.is_offered(number)) return false;
      session_.withdraw({DescriptorName::memory_space, number});
      return true;
    });
  }
  if (offered_.contains(region)) return true;
  const UniqueFd fd = regions.descriptor(region);
  if (!fd) return false;
  if (!session_.offer({DescriptorName::memory_space, region}, fd.get()).ok()) return false;
  offered_.insert(region);
  return true;
}

Status PeerMemory::map_remote(int peer, RegionOffset offset, std::size_t bytes,
                              std::uint64_t operation, std::byte** out) {
  HOCKET_ASSERT(peer != membership_.rank(), "a rank knows its own memory");
  auto found = peer_regions_.find({peer, offset.region});
  if (found == peer_regions_.end()) {
#if defined(__SANITIZE_THREAD__)
    // Ranks that are threads of one process use the owner's address: the thread sanitizer would see
    // no races between two mappings. A late store then reaches the owner's memory also after a
    // revocation, so other builds map the memory of all peers.
    if (membership_.member(peer).pid == ::getpid()) {
      *out = shared_.regions.address(offset, bytes);
      if (*out != nullptr) return {};
    }
#endif
    UniqueFd fd;
    HOCKET_RETURN_IF_ERROR(fetch_region(peer, offset.region, operation, &fd));
    PeerMapping fresh;
    HOCKET_RETURN_IF_ERROR(shared_.mappings.of(fd.get(), &fresh.mapping));
    if (peer_regions_.size() >= most_regions_) drop_half(operation);
    found = peer_regions_.emplace(PeerRegion{peer, offset.region}, std::move(fresh)).first;
  }
  found->second.used_by = std::max(found->second.used_by, operation);
  return address_in(*found->second.mapping, peer, offset, bytes, out);
}

std::ptrdiff_t PeerMemory::read(int peer, std::uint64_t address, std::size_t bytes,
                                std::byte* to) const {
  return read_process(membership_.member(peer).pid, address, bytes, to);
}

/// Code::in_progress until the descriptor has arrived, which wakes this rank.
Status PeerMemory::fetch_region(int peer, std::uint64_t region, std::uint64_t operation,
                                UniqueFd* fd) {
  static const Status on_its_way(Code::in_progress, "a peer's memory is not mapped yet");
  std::shared_ptr<Fetch>& fetch = region_fetches_[{peer, region}];
  if (fetch == nullptr) {
    const int member = membership_.session_rank(peer);
    HOCKET_RETURN_IF_ERROR(session_.post_fetch(
        member, membership_.scope(operation), {DescriptorName::memory_space, region},
        [this](const Fetch&) { doorbells_.wake(); }, &fetch));
  }
  if (!fetch->done()) return on_its_way;
  const Status status = fetch->take(fd);
  region_fetches_.erase({peer, region});
  return membership_.error_of_peer(peer, status);
}

/// Drops the half of the regions whose last use was longest ago, but none that the running
/// collective uses.
void PeerMemory::drop_half(std::uint64_t running) {
  std::vector<std::uint64_t> uses;
  for (const auto& [region, mapping] : peer_regions_) uses.push_back(mapping.used_by);
  const auto middle = uses.begin() + static_cast<std::ptrdiff_t>(uses.size() / 2);
  std::ranges::nth_element(uses, middle);
  std::erase_if(peer_regions_, [running, since = *middle](const auto& entry) {
    return entry.second.used_by < since && entry.second.used_by != running;
  });
}

Status PeerMemory::address_in(const Mapping& mapping, int peer, RegionOffset offset,
                              std::size_t bytes, std::byte** out) const {
  if (offset.offset > mapping.size() || bytes > mapping.size() - offset.offset) {
    return {
        Code::remote_error,
        membership_.name_of_rank(peer) + " named a buffer that reaches past the end of its memory",
        peer};
  }
  *out = mapping.data() + offset.offset;
  return {};
}

}  // namespace hocket::internal

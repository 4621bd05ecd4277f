// Mapped memory between the ranks of a node: the regions of this rank that its peers may map, and
// the regions of peers that are mapped here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "base/unique_fd.h"
#include "bootstrap/session.h"
#include "engine/doorbells.h"
#include "engine/membership.h"
#include "engine/shared_parts.h"

namespace hocket::internal {

class PeerMemory {
 public:
  /// The first four arguments outlive it. When a descriptor arrives from a peer, it rings this
  /// rank's doorbell. most_regions: how many regions of peers stay mapped.
  PeerMemory(Session& session, const Membership& membership, Doorbells& doorbells,
             SharedParts& shared, std::size_t most_regions = 4096)
      : session_(session),
        membership_(membership),
        doorbells_(doorbells),
        shared_(shared),
        most_regions_(most_regions) {}
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  /// See EngineHost and ExecutorHost. operation 0: for a message of hocketSend/hocketRecv; then the
  /// mapping stays until the next call of map_remote.
  bool export_region(std::uint64_t region);
  Status map_remote(int peer, RegionOffset offset, std::size_t bytes, std::uint64_t operation,
                    std::byte** out);
  /// read_process() of that peer.
  std::ptrdiff_t read(int peer, std::uint64_t address, std::size_t bytes, std::byte* to) const;

 private:
  Status fetch_region(int peer, std::uint64_t region, std::uint64_t operation, UniqueFd* fd);
  void drop_half(std::uint64_t running);
  Status address_in(const Mapping& mapping, int peer, RegionOffset offset, std::size_t bytes,
                    std::byte** out) const;

  using PeerRegion = std::pair<int, std::uint64_t>;
  struct PeerMapping {
    std::shared_ptr<Mapping> mapping;
    std::uint64_t used_by = 0;  // number of the last collective that uses it
  };
  Session& session_;
  const Membership& membership_;
  Doorbells& doorbells_;
  SharedParts& shared_;
  const std::size_t most_regions_;
  std::map<PeerRegion, PeerMapping> peer_regions_;
  std::map<PeerRegion, std::shared_ptr<Fetch>> region_fetches_;  // under way
  std::set<std::uint64_t> offered_;       // own regions that peers may ask for
  std::uint64_t offered_generation_ = 0;  // Regions::generation() when offered_ was last checked
};

}  // namespace hocket::internal

// The regions of the caller's buffers: which buffers of a collective the local peers can map, and
// how these buffers are taken away from the peers after an error.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "collectives/execute/executor.h"
#include "engine/engine_host.h"
#include "memory/regions.h"

namespace hocket::internal {

class BufferRegions {
 public:
  /// Both outlive it. regions: of this process.
  BufferRegions(Regions& regions, EngineHost& host) : regions_(regions), host_(host) {}

  /// Finds out which of the buffers local peers can map, and offers their regions to the peers.
  void find(Binding& binding);
  /// Finds out which of the buffers local peers can map when they receive from them. Does nothing
  /// for small buffers, whose messages are copied anyway.
  void find_sources(Binding& binding);
  /// True if another communicator of this process revoked the output while peers wrote into it.
  /// execution: of the collective of the last find().
  bool output_was_revoked(const Execution& execution) const {
    return execution.exports_output() && generation_ != regions_.generation() &&
           output_is_revoked(execution.binding());
  }
  /// From now on peers cannot write into the output.
  void revoke_output(const Execution& execution);

 private:
  struct SeenBuffer {
    const void* buffer = nullptr;
    std::size_t bytes = 0;
    std::uint64_t generation = 0;  // of Regions, when looked up
    bool mapped = false;
    RegionOffset offset;
  };

  bool find(const void* buffer, std::size_t bytes, RegionOffset* offset);
  bool output_is_revoked(const Binding& binding) const;

  Regions& regions_;
  EngineHost& host_;
  std::array<SeenBuffer, 16> seen_;  // recent lookups, by address
  std::uint64_t generation_ = 0;     // of regions_ at the last find()
};

}  // namespace hocket::internal

#include "bootstrap/net/control_messages.h"

#include <algorithm>
#include <cstring>

#include "base/limits.h"

namespace hocket::internal {
namespace {

constexpr std::size_t core_bytes = CoreSet().size() / 8;
constexpr std::uint64_t known_codes[] = {0, 2, 3, 4, 5, 6, 7, 8, 100, 101};

Code to_code(std::uint32_t value) {
  const bool known =
      std::find(std::begin(known_codes), std::end(known_codes), value) != std::end(known_codes);
  return known && value != 0 ? static_cast<Code>(value) : Code::remote_error;
}

}  // namespace

void Writer::text(const std::string& v, std::size_t cap) {
  const std::size_t size = std::min(v.size(), cap);
  u16(static_cast<std::uint16_t>(size));
  bytes_.insert(bytes_.end(), v.begin(), v.begin() + static_cast<std::ptrdiff_t>(size));
}

void Writer::address(const Address& v) {
  raw(v.ip.data(), v.ip.size());
  u8(v.v6 ? 1 : 0);
  u16(v.port);
}

std::uint64_t Reader::get(int width) {
  if (!good_ || left_ < static_cast<std::size_t>(width)) {
    good_ = false;
    return 0;
  }
  std::uint64_t out = 0;
  for (int i = 0; i < width; ++i) out |= static_cast<std::uint64_t>(data_[i]) << (8 * i);
  data_ += width;
  left_ -= static_cast<std::size_t>(width);
  return out;
}

void Reader::raw(std::uint8_t* out, std::size_t size) {
  if (!good_ || left_ < size) {
    good_ = false;
    std::memset(out, 0, size);
    return;
  }
  std::memcpy(out, data_, size);
  data_ += size;
  left_ -= size;
}

std::string Reader::text(std::size_t cap) {
  const std::size_t size = u16();
  if (!good_ || size > cap || size > left_) {
    good_ = false;
    return {};
  }
  std::string out(reinterpret_cast<const char*>(data_), size);
  data_ += size;
  left_ -= size;
  return out;
}

Address Reader::address() {
  Address out;
  raw(out.ip.data(), out.ip.size());
  const std::uint8_t v6 = u8();
  if (v6 > 1) good_ = false;
  out.v6 = v6 == 1;
  out.port = u16();
  return out;
}

/// The number of bytes that the highest core needs, then these bytes.
void Writer::cores(const CoreSet& v) {
  std::uint8_t bytes[core_bytes] = {};
  std::uint8_t used = 0;
  for (std::size_t core = 0; core < v.size(); ++core) {
    if (!v[core]) continue;
    bytes[core / 8] |= static_cast<std::uint8_t>(1 << core % 8);
    used = static_cast<std::uint8_t>(core / 8 + 1);
  }
  u8(used);
  raw(bytes, used);
}

CoreSet Reader::cores() {
  std::uint8_t bytes[core_bytes] = {};
  const std::uint8_t used = u8();
  if (used > core_bytes) good_ = false;
  if (good_) raw(bytes, used);
  CoreSet out;
  for (std::size_t core = 0; core < out.size(); ++core) out[core] = bytes[core / 8] >> core % 8 & 1;
  return out;
}

std::vector<std::uint8_t> encode(const JoinRequest& v) {
  Writer w;
  w.i32(v.rank);
  w.i32(v.ranks);
  w.i32(v.pid);
  w.u64(v.process);
  w.i64(v.remaining_ms);
  w.text(v.host, host_cap);
  w.address(v.address);
  w.u64(v.machine);
  w.cores(v.cores);
  w.u8(v.tls ? 1 : 0);
  return w.take();
}

bool decode(const std::vector<std::uint8_t>& bytes, JoinRequest* out) {
  Reader r(bytes);
  out->rank = r.i32();
  out->ranks = r.i32();
  out->pid = r.i32();
  out->process = r.u64();
  out->remaining_ms = r.i64();
  out->host = r.text(host_cap);
  out->address = r.address();
  out->machine = r.u64();
  out->cores = r.cores();
  const std::uint8_t tls = r.u8();
  out->tls = tls == 1;
  return r.complete() && tls <= 1;
}

std::vector<std::uint8_t> encode(const Failure& v) {
  Writer w;
  w.u32(static_cast<std::uint32_t>(v.code));
  w.i32(v.culprit);
  w.text(v.text, text_cap);
  return w.take();
}

bool decode(const std::vector<std::uint8_t>& bytes, Failure* out) {
  Reader r(bytes);
  out->code = to_code(r.u32());
  out->culprit = r.i32();
  out->text = r.text(text_cap);
  return r.complete();
}

std::vector<std::uint8_t> encode(const TreePosition& v) {
  Writer w;
  w.i32(v.node);
  w.i32(v.nodes);
  w.i32(v.ranks);
  w.i32(v.parent_rank);
  w.address(v.parent);
  return w.take();
}

bool decode(const std::vector<std::uint8_t>& bytes, TreePosition* out) {
  Reader r(bytes);
  out->node = r.i32();
  out->nodes = r.i32();
  out->ranks = r.i32();
  out->parent_rank = r.i32();
  out->parent = r.address();
  return r.complete() && out->nodes >= 1 && out->nodes <= out->ranks && out->ranks <= max_ranks &&
         out->node >= 0 && out->node < out->nodes && out->parent_rank >= -1 &&
         out->parent_rank < out->ranks;
}

std::vector<std::uint8_t> encode(const Table& v) {
  Writer w;
  w.raw(v.session_key.data(), v.session_key.size());
  w.u32(static_cast<std::uint32_t>(v.members.size()));
  w.u32(static_cast<std::uint32_t>(v.leaders.size()));
  for (const int leader : v.leaders) {
    w.i32(leader);
    w.text(v.members[leader].host, host_cap);
  }
  for (const Member& member : v.members) {
    w.i32(member.node);
    w.i32(member.pid);
    w.address(member.address);
    w.u64(member.machine);
    w.cores(member.cores);
  }
  return w.take();
}

bool decode(const std::vector<std::uint8_t>& bytes, int ranks, Table* out) {
  Reader r(bytes);
  r.raw(out->session_key.data(), out->session_key.size());
  const std::uint32_t members = r.u32();
  const std::uint32_t nodes = r.u32();
  if (!r.good() || members != static_cast<std::uint32_t>(ranks) || nodes < 1 || nodes > members) {
    return false;
  }
  std::vector<std::string> hosts(nodes);
  out->leaders.resize(nodes);
  for (std::uint32_t node = 0; node < nodes; ++node) {
    out->leaders[node] = r.i32();
    hosts[node] = r.text(host_cap);
  }
  out->members.resize(members);
  std::vector<int> sizes(nodes, 0);
  int seen = 0;  // nodes so far: a new one must have the next number
  for (Member& member : out->members) {
    member.node = r.i32();
    member.pid = r.i32();
    member.address = r.address();
    member.machine = r.u64();
    member.cores = r.cores();
    if (!r.good() || member.node < 0 || member.node > seen || member.node >= int(nodes)) {
      return false;
    }
    if (member.node == seen) ++seen;
    member.local_rank = sizes[member.node]++;
    member.host = hosts[member.node];
  }
  for (std::uint32_t node = 0; node < nodes; ++node) {
    const int leader = out->leaders[node];
    if (leader < 0 || leader >= ranks || out->members[leader].node != int(node)) return false;
  }
  return r.complete() && seen == int(nodes);
}

std::vector<std::uint8_t> encode(const Fault& v) {
  Writer w;
  w.u8(static_cast<std::uint8_t>(v.kind));
  w.i32(v.rank);
  w.u64(v.comm_id);
  w.u64(v.sequence);
  w.u32(static_cast<std::uint32_t>(v.code));
  w.text(v.text, text_cap);
  w.i32(v.reporter);
  return w.take();
}

bool decode(const std::vector<std::uint8_t>& bytes, int ranks, Fault* out) {
  Reader r(bytes);
  const std::uint8_t kind = r.u8();
  out->rank = r.i32();
  out->comm_id = r.u64();
  out->sequence = r.u64();
  out->code = to_code(r.u32());
  out->text = r.text(text_cap);
  out->reporter = r.i32();
  if (!r.complete() || kind > static_cast<std::uint8_t>(Fault::Kind::overdue)) return false;
  out->kind = static_cast<Fault::Kind>(kind);
  return out->rank >= -1 && out->rank < ranks && out->reporter >= -1 && out->reporter < ranks;
}

std::size_t body_cap(int ranks) {
  return 8192 + static_cast<std::size_t>(std::clamp(ranks, 0, max_ranks)) *
                    (32 + host_cap + 8 + 9 + core_bytes);
}

}  // namespace hocket::internal

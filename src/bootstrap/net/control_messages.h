// The messages of the control plane as bytes: little-endian, fixed widths, every length limited. A
// Reader never reads past its end; after such an attempt it returns zeros, and good() is false.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bootstrap/types.h"

namespace hocket::internal {

class Writer {
 public:
  void u8(std::uint8_t v) { bytes_.push_back(v); }
  void u16(std::uint16_t v) { put(v, 2); }
  void u32(std::uint32_t v) { put(v, 4); }
  void i32(std::int32_t v) { put(static_cast<std::uint32_t>(v), 4); }
  void u64(std::uint64_t v) { put(v, 8); }
  void i64(std::int64_t v) { put(static_cast<std::uint64_t>(v), 8); }
  void raw(const std::uint8_t* data, std::size_t size) {
    bytes_.insert(bytes_.end(), data, data + size);
  }
  void text(const std::string& v, std::size_t cap);  // cut at cap
  void address(const Address& v);
  void cores(const CoreSet& v);
  const std::vector<std::uint8_t>& bytes() const { return bytes_; }
  std::vector<std::uint8_t> take() { return std::move(bytes_); }

 private:
  void put(std::uint64_t v, int width) {
    for (int i = 0; i < width; ++i) bytes_.push_back(static_cast<std::uint8_t>(v >> (8 * i)));
  }
  std::vector<std::uint8_t> bytes_;
};

class Reader {
 public:
  Reader(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
  explicit Reader(const std::vector<std::uint8_t>& bytes) : Reader(bytes.data(), bytes.size()) {}
  std::uint8_t u8() { return static_cast<std::uint8_t>(get(1)); }
  std::uint16_t u16() { return static_cast<std::uint16_t>(get(2)); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(get(4)); }
  std::int32_t i32() { return static_cast<std::int32_t>(get(4)); }
  std::uint64_t u64() { return get(8); }
  std::int64_t i64() { return static_cast<std::int64_t>(get(8)); }
  void raw(std::uint8_t* out, std::size_t size);
  std::string text(std::size_t cap);
  Address address();
  CoreSet cores();
  bool good() const { return good_; }
  bool complete() const { return good_ && left_ == 0; }
  std::size_t left() const { return left_; }

 private:
  std::uint64_t get(int width);
  const std::uint8_t* data_;
  std::size_t left_;
  bool good_ = true;
};

enum class MessageType : std::uint16_t {
  join_request = 1,    // rank -> leader -> coordinator: JoinRequest; a follower adds its pidfd
  fail = 2,            // ends a join: Failure
  place = 3,           // coordinator -> leader: TreePosition
  table = 4,           // down the tree of leaders, then to the followers: Table
  confirm = 5,         // leader -> coordinator: has the table, its parent and its children
  done = 6,            // coordinator -> leader -> follower: all leaders have confirmed
  heartbeat_page = 7,  // leader -> follower: the page's descriptor
  pidfds = 8,          // leader -> follower: ranks and their pidfds
  heartbeat = 9,       // between leaders
  fault = 10,          // to all ranks
  fetch = 11,          // id, space, number
  descriptor = 12      // id; carries the descriptor
};

/// A rank that wants to join.
struct JoinRequest {
  int rank = 0;
  int ranks = 0;
  int pid = 0;
  std::uint64_t process = 0;  // random number of the process: pids repeat across PID namespaces
  std::int64_t remaining_ms = 0;
  std::string host;
  Address address;
  std::uint64_t machine = 0;
  CoreSet cores;
  bool tls = false;
};

struct Failure {
  Code code = Code::remote_error;
  int culprit = -1;
  std::string text;
};

/// A leader's place in the tree of leaders. Leaders are numbered as their nodes.
struct TreePosition {
  int node = 0;
  int nodes = 1;
  int ranks = 1;
  int parent_rank = -1;  // the parent; -1: this leader is the top and gets the table next
  Address parent;
};

struct Table {
  // For all connections after the join, if the job has no key; else zeros, because the table
  // crosses the network.
  Key session_key{};
  std::vector<Member> members;
  std::vector<int> leaders;  // by node: its leader's rank
};

inline constexpr std::size_t host_cap = 64;
inline constexpr std::size_t text_cap = 2048;

std::vector<std::uint8_t> encode(const JoinRequest& v);
std::vector<std::uint8_t> encode(const Failure& v);
std::vector<std::uint8_t> encode(const TreePosition& v);
std::vector<std::uint8_t> encode(const Table& v);
std::vector<std::uint8_t> encode(const Fault& v);
bool decode(const std::vector<std::uint8_t>& bytes, JoinRequest* out);
bool decode(const std::vector<std::uint8_t>& bytes, Failure* out);
bool decode(const std::vector<std::uint8_t>& bytes, TreePosition* out);
/// Checks that the table is complete: `ranks` members, nodes numbered by lowest rank, local ranks
/// in order, leaders on their nodes.
bool decode(const std::vector<std::uint8_t>& bytes, int ranks, Table* out);
bool decode(const std::vector<std::uint8_t>& bytes, int ranks, Fault* out);

/// The longest body that a member of a job with so many ranks may send.
std::size_t body_cap(int ranks);

}  // namespace hocket::internal

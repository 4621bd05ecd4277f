#include "message.h"

#include <cstring>

namespace hocket::launch {

Writer& Writer::u8(std::uint8_t value) {
  bytes_.push_back(static_cast<char>(value));
  return *this;
}

Writer& Writer::u32(std::uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) u8(static_cast<std::uint8_t>(value >> shift));
  return *this;
}

Writer& Writer::text(std::string_view value) {
  u32(static_cast<std::uint32_t>(value.size()));
  bytes_.append(value);
  return *this;
}

Writer& Writer::texts(const std::vector<std::string>& values) {
  u32(static_cast<std::uint32_t>(values.size()));
  for (const std::string& value : values) text(value);
  return *this;
}

Writer& Writer::raw(const void* data, std::size_t size) {
  bytes_.append(static_cast<const char*>(data), size);
  return *this;
}

Writer& Writer::address(const Address& value) {
  raw(value.ip.data(), value.ip.size());
  return u8(value.v6).u32(value.scope).u32(value.port);
}

std::uint8_t Reader::u8() {
  std::uint8_t value = 0;
  raw(&value, 1);
  return value;
}

std::uint32_t Reader::u32() {
  std::uint8_t bytes[4] = {};
  raw(bytes, sizeof bytes);
  return bytes[0] | bytes[1] << 8 | bytes[2] << 16 | static_cast<std::uint32_t>(bytes[3]) << 24;
}

void Reader::raw(void* data, std::size_t size) {
  if (!ok_ || rest_.size() < size) {
    ok_ = false;
    return;
  }
  std::memcpy(data, rest_.data(), size);
  rest_.remove_prefix(size);
}

std::string Reader::text() {
  const std::uint32_t size = u32();
  if (!ok_ || rest_.size() < size) {
    ok_ = false;
    return {};
  }
  std::string value(rest_.substr(0, size));
  rest_.remove_prefix(size);
  return value;
}

std::vector<std::string> Reader::texts() {
  std::vector<std::string> values;
  const std::uint32_t count = u32();
  // Each text takes four bytes at least, so a lying count ends the loop early.
  for (std::uint32_t i = 0; ok_ && i < count; ++i) values.push_back(text());
  return values;
}

Address Reader::address() {
  Address value;
  raw(value.ip.data(), value.ip.size());
  value.v6 = u8() != 0;
  value.scope = u32();
  const std::uint32_t port = u32();
  if (port > 0xffff) ok_ = false;
  value.port = static_cast<std::uint16_t>(port);
  return value;
}

std::string ListenRequest::encode() const {
  return Writer().text(interface).u8(local_only).texts(candidates).texts(route_to).take();
}

bool ListenRequest::decode(std::string_view payload) {
  Reader in(payload);
  interface = in.text();
  local_only = in.u8() != 0;
  candidates = in.texts();
  route_to = in.texts();
  return in.done();
}

std::string StartRequest::encode() const {
  Writer out;
  out.raw(key.data(), key.size()).raw(job_id.data(), job_id.size()).address(root);
  out.i32(first_rank).i32(count).i32(ranks).u8(tag_output);
  return out.text(directory).texts(arguments).texts(environment).take();
}

bool StartRequest::decode(std::string_view payload) {
  Reader in(payload);
  in.raw(key.data(), key.size());
  in.raw(job_id.data(), job_id.size());
  root = in.address();
  first_rank = in.i32();
  count = in.i32();
  ranks = in.i32();
  tag_output = in.u8() != 0;
  directory = in.text();
  arguments = in.texts();
  environment = in.texts();
  return in.done() && first_rank >= 0 && count > 0 && count <= ranks - first_rank &&
         !arguments.empty();
}

std::string Hello::encode() const {
  return Writer().u32(version).i32(pid).text(host).text(ssh_connection).take();
}

bool Hello::decode(std::string_view payload) {
  Reader in(payload);
  version = in.u32();
  if (in.ok() && version != protocol_version) return true;  // the rest may look different there
  pid = in.i32();
  host = in.text();
  ssh_connection = in.text();
  return in.done();
}

std::string Exited::encode() const {
  return Writer().i32(rank).i32(pid).i32(wait_status).text(reason).take();
}

bool Exited::decode(std::string_view payload) {
  Reader in(payload);
  rank = in.i32();
  pid = in.i32();
  wait_status = in.i32();
  reason = in.text();
  return in.done();
}

}  // namespace hocket::launch

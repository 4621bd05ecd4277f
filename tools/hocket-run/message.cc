#include "message.h"

#include <algorithm>
#include <functional>

namespace hocket::internal::launch {
namespace {

// Unlike the texts of control_messages.h these have no size limit: an argument may be longer than
// 64 KiB.
void put(Writer* out, const std::string& text) {
  out->u32(static_cast<std::uint32_t>(text.size()));
  out->raw(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
}

void put(Writer* out, const std::vector<std::string>& texts) {
  out->u32(static_cast<std::uint32_t>(texts.size()));
  for (const std::string& text : texts) put(out, text);
}

void put(Writer* out, const std::vector<Program>& programs) {
  out->u32(static_cast<std::uint32_t>(programs.size()));
  for (const Program& program : programs) {
    out->i32(program.ranks);
    put(out, program.arguments);
  }
}

void put(Writer* out, const std::vector<int>& numbers) {
  out->u32(static_cast<std::uint32_t>(numbers.size()));
  for (const int number : numbers) out->i32(number);
}

// The addresses of control_messages.h have no scope.
void put(Writer* out, const Address& address) {
  out->address(address);
  out->u32(address.scope);
}

void get(Reader* in, std::string* text) {
  text->resize(
      std::min<std::size_t>(in->u32(), in->left() + 1));  // a byte too many makes the reader fail
  in->raw(reinterpret_cast<std::uint8_t*>(text->data()), text->size());
}

void get(Reader* in, std::vector<std::string>* texts) {
  texts->clear();
  const std::uint32_t count = in->u32();
  // Each text takes at least four bytes, so the loop ends early if count is too large.
  for (std::uint32_t i = 0; in->good() && i < count; ++i) get(in, &texts->emplace_back());
}

void get(Reader* in, std::vector<Program>* programs) {
  programs->clear();
  const std::uint32_t count = in->u32();
  for (std::uint32_t i = 0; in->good() && i < count; ++i) {
    Program& program = programs->emplace_back();
    program.ranks = in->i32();
    get(in, &program.arguments);
  }
}

void get(Reader* in, std::vector<int>* numbers) {
  numbers->clear();
  const std::uint32_t count = in->u32();
  for (std::uint32_t i = 0; in->good() && i < count; ++i) numbers->push_back(in->i32());
}

/// True if these are ranks of a job, each once, in ascending order.
bool are_ranks_of(const std::vector<int>& here, std::int32_t ranks) {
  return !here.empty() && here.front() >= 0 && here.back() < ranks &&
         std::ranges::adjacent_find(here, std::greater_equal()) == here.end();
}

/// True if every program can be run and together they have count ranks.
bool are_programs_of(const std::vector<Program>& programs, std::size_t count) {
  std::size_t sum = 0;
  for (const Program& program : programs) {
    if (program.ranks <= 0 || program.arguments.empty()) return false;
    sum += static_cast<std::size_t>(program.ranks);
  }
  return sum == count;
}

bool is_known(Part part) { return part <= Part::l3cache; }

bool are_valid(const BindingRules& rules) {
  return is_known(rules.to) && is_known(rules.spread) && rules.cores_per_rank > 0 &&
         rules.ranks_per_part >= 0;
}

void get(Reader* in, Address* address) {
  *address = in->address();
  address->scope = in->u32();
}

std::string text_of(const Writer& out) { return {out.bytes().begin(), out.bytes().end()}; }

}  // namespace

Reader reader_of(std::string_view payload) {
  return {reinterpret_cast<const std::uint8_t*>(payload.data()), payload.size()};
}

std::string payload_of(std::uint32_t value) {
  Writer out;
  out.u32(value);
  return text_of(out);
}

std::string payload_of(const Address& address) {
  Writer out;
  put(&out, address);
  return text_of(out);
}

bool decode(std::string_view payload, Address* address) {
  Reader in = reader_of(payload);
  get(&in, address);
  return in.complete();
}

std::string CountRequest::encode() const {
  Writer out;
  out.u8(static_cast<std::uint8_t>(part));
  return text_of(out);
}

bool CountRequest::decode(std::string_view payload) {
  Reader in = reader_of(payload);
  part = static_cast<Part>(in.u8());
  return in.complete() && is_known(part) && part != Part::none;
}

std::string Counted::encode() const {
  Writer out;
  out.i32(parts);
  return text_of(out);
}

bool Counted::decode(std::string_view payload) {
  Reader in = reader_of(payload);
  parts = in.i32();
  return in.complete() && parts > 0;
}

std::string ListenRequest::encode() const {
  Writer out;
  put(&out, interface);
  out.u8(local_only);
  put(&out, candidates);
  put(&out, route_to);
  return text_of(out);
}

bool ListenRequest::decode(std::string_view payload) {
  Reader in = reader_of(payload);
  get(&in, &interface);
  local_only = in.u8() != 0;
  get(&in, &candidates);
  get(&in, &route_to);
  return in.complete();
}

std::string StartRequest::encode() const {
  Writer out;
  out.raw(key.data(), key.size());
  out.raw(job_id.data(), job_id.size());
  put(&out, coordinator);
  put(&out, here);
  out.i32(ranks);
  out.u8(tag_output);
  out.u8(pty);
  out.u16(terminal_size.rows);
  out.u16(terminal_size.columns);
  out.u8(static_cast<std::uint8_t>(binding.to));
  out.u8(static_cast<std::uint8_t>(binding.spread));
  out.i32(binding.cores_per_rank);
  out.i32(binding.ranks_per_part);
  out.u8(report_bindings);
  out.u8(show_placement);
  put(&out, directory);
  put(&out, programs);
  put(&out, environment);
  return text_of(out);
}

bool StartRequest::decode(std::string_view payload) {
  Reader in = reader_of(payload);
  in.raw(key.data(), key.size());
  in.raw(job_id.data(), job_id.size());
  get(&in, &coordinator);
  get(&in, &here);
  ranks = in.i32();
  tag_output = in.u8() != 0;
  pty = in.u8() != 0;
  terminal_size.rows = in.u16();
  terminal_size.columns = in.u16();
  binding.to = static_cast<Part>(in.u8());
  binding.spread = static_cast<Part>(in.u8());
  binding.cores_per_rank = in.i32();
  binding.ranks_per_part = in.i32();
  report_bindings = in.u8() != 0;
  show_placement = in.u8() != 0;
  get(&in, &directory);
  get(&in, &programs);
  get(&in, &environment);
  return in.complete() && are_ranks_of(here, ranks) && are_valid(binding) &&
         are_programs_of(programs, here.size());
}

std::string Hello::encode() const {
  Writer out;
  out.u32(version);
  out.i32(pid);
  put(&out, host);
  put(&out, ssh_connection);
  return text_of(out);
}

bool Hello::decode(std::string_view payload) {
  Reader in = reader_of(payload);
  version = in.u32();
  if (in.good() && version != protocol_version) return true;  // the rest may have another format
  pid = in.i32();
  get(&in, &host);
  get(&in, &ssh_connection);
  return in.complete();
}

std::string Exited::encode() const {
  Writer out;
  for (const std::int32_t value : {rank, pid, wait_status}) out.i32(value);
  put(&out, reason);
  return text_of(out);
}

bool Exited::decode(std::string_view payload) {
  Reader in = reader_of(payload);
  for (std::int32_t* value : {&rank, &pid, &wait_status}) *value = in.i32();
  get(&in, &reason);
  return in.complete();
}

}  // namespace hocket::internal::launch

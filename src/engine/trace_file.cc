#include "engine/trace_file.h"

#include <fmt/format.h>

#include "base/append_file.h"
#include "base/log.h"

namespace hocket::internal {
namespace {

// Events are written when there are so many, or the last time was so long ago.
constexpr std::size_t most_kept = 4096;
constexpr Nanos between_flushes = nanos_per_s;

std::string json_text(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace

TraceFile::TraceFile(const std::string& folder, const Membership& membership,
                     const std::string& name, TransportsOf transports_of)
    : membership_(membership),
      name_(json_text(name)),
      transports_of_(std::move(transports_of)),
      path_(fmt::format("{}/hocket-trace-{:016x}-rank{}.json", folder, membership.comm_id(),
                        membership.rank())),
      process_(membership.session_rank(membership.rank())),
      thread_(static_cast<std::uint32_t>(membership.comm_id() & 0x7fffffff)) {
  kept_.reserve(most_kept);
}

std::string TraceFile::head() const {
  const auto metadata = [this](const char* name, const std::string& arguments) {
    return fmt::format(R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{{}}}}},)"
                       "\n",
                       name, process_, thread_, arguments);
  };
  const Member& self = membership_.member(membership_.rank());
  const std::string process =
      fmt::format("rank {} (host {}, pid {})", process_, self.host, self.pid);
  return "[\n" + metadata("process_name", "\"name\":" + json_text(process)) +
         metadata("process_sort_index", fmt::format("\"sort_index\":{}", process_)) +
         metadata("thread_name", "\"name\":" + name_) +
         metadata("hocket_communicator",
                  fmt::format(R"("name":{},"communicator":"{:016x}","rank":{},"ranks":{},)"
                              R"("clock_offset_us":{:.3f},"clock_uncertainty_us":{:.3f})",
                              name_, membership_.comm_id(), membership_.rank(), membership_.ranks(),
                              offset_.offset_us, offset_.uncertainty_us));
}

Status TraceFile::open(const ClockOffset& offset) {
  offset_ = offset;
  HOCKET_RETURN_IF_ERROR(append_file(path_, head()));
  is_open_ = true;
  return {};
}

/// What runs before open() are the measurements of the new communicator.
void TraceFile::ended(const RecordEntry& entry) {
  if (!is_open_ || failed_) return;
  best_effort([&] { kept_.push_back(entry); });
  if (kept_.size() >= most_kept || entry.end - flushed_at_ >= between_flushes) {
    flushed_at_ = entry.end;
    flush();
  }
}

void TraceFile::flush() noexcept {
  if (!is_open_ || failed_) return;
  const Status status = status_of_call([this] {
    std::string text;
    for (const RecordEntry& entry : kept_) add(entry, &text);
    return append_file(path_, text);
  });
  kept_.clear();
  if (status.ok()) return;
  failed_ = true;
  best_effort([&] { log_line(LogLevel::error, status.message() + ": the trace ends here"); });
}

void TraceFile::add(const RecordEntry& entry, std::string* text) const {
  const Signature& call = entry.signature;
  const Program& program = *entry.program;
  const bool is_message = is_p2p(call.collective);
  const int root = row_of(call.collective).rooted ? call.root : -1;
  const int rank = is_message ? entry.peer : root;
  const std::string arguments = fmt::format(
      R"("communicator":"{:016x}","sequence":{},"operation":{},"count":{},"type":"{}","op":"{}",)"
      R"("{}":{},"bytes":{},"algorithm":"{}","transport":"{}","mapped":{},"result":"{}")",
      membership_.comm_id(), entry.sequence, call.sequence, call.count, name_of(call.dtype),
      name_of(call.op), is_message ? "peer" : "root", rank, call.count * size_of(call.dtype),
      program.algorithm(), transports_of_(program),
      program.header().maps_input || program.header().maps_output, code_name(entry.code));
  const char* const category = is_message ? "message" : "collective";
  add_span(name_of(call.collective), category, entry, entry.end, arguments, text);
  if (entry.admitted != 0 && !is_message) {
    add_span("wait for the other ranks", "wait", entry, entry.admitted,
             fmt::format("\"sequence\":{}", entry.sequence), text);
  }
}

/// Collectives of a communicator run one after another: spans of its thread. Messages overlap: a
/// pair of events each, which the viewer matches by their id.
void TraceFile::add_span(const std::string& name, const char* category, const RecordEntry& entry,
                         Nanos end, const std::string& arguments, std::string* text) const {
  const auto event = [&](const std::string& kind, Nanos when) {
    *text += fmt::format(R"({{"name":"{}","cat":"{}",{},"pid":{},"tid":{},"ts":{:.3f})", name,
                         category, kind, process_, thread_, shown_us(when));
  };
  if (entry.peer < 0) {
    event(fmt::format(R"("ph":"X","dur":{:.3f})", static_cast<double>(end - entry.begin) / 1000),
          entry.begin);
    *text += ",\"args\":{" + arguments + "}},\n";
    return;
  }
  const std::string id = fmt::format(R"("id":"{}-{}-{}")", process_, thread_, entry.id);
  event(R"("ph":"b",)" + id, entry.begin);
  *text += ",\"args\":{" + arguments + "}},\n";
  event(R"("ph":"e",)" + id, end);
  *text += "},\n";
}

}  // namespace hocket::internal

// The messages between hocket-run and its agents, and the frames that carry them. The first byte
// selects the message.
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "message.h"
#include "stream.h"

namespace hocket::internal {
namespace {

/// What was decoded is encoded to bytes that give the same again.
template <typename T>
bool check(std::string_view bytes, T* message) {
  if (!message->decode(bytes)) return false;
  const std::string canonical = message->encode();
  T again;
  FUZZ_CHECK(again.decode(canonical) && again.encode() == canonical);
  // Nothing is decoded behind a version that is not known.
  FUZZ_CHECK((std::is_same_v<T, launch::Hello>) || canonical.size() == bytes.size());
  return true;
}

template <typename T>
void check(std::string_view bytes) {
  T message;
  check(bytes, &message);
}

void check_start(std::string_view bytes) {
  launch::StartRequest start;
  if (!check(bytes, &start)) return;
  FUZZ_CHECK(!start.here.empty() && start.here.front() >= 0 && start.here.back() < start.ranks);
  FUZZ_CHECK(std::ranges::is_sorted(start.here));
  FUZZ_CHECK(start.binding.to <= launch::Part::l3cache);
  FUZZ_CHECK(start.binding.spread <= launch::Part::l3cache);
  FUZZ_CHECK(start.binding.cores_per_rank > 0 && start.binding.ranks_per_part >= 0);
  for (std::size_t local = 0; local < start.here.size(); ++local) {
    FUZZ_CHECK(!launch::arguments_of(start.programs, static_cast<int>(local)).empty());
  }
}

/// All bytes come at once, then the end.
void check_frames(std::string_view bytes) {
  int ends[2];
  FUZZ_CHECK(::pipe(ends) == 0);
  UniqueFd in(ends[0]), out(ends[1]);
  FUZZ_CHECK(::write(out.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  out.reset();
  launch::Stream stream(std::move(in), UniqueFd());
  stream.expect_greeting();
  FUZZ_CHECK(!stream.fill());
  std::string frames(launch::greeting);
  for (launch::Message message; stream.next(&message);) {
    frames += launch::payload_of(static_cast<std::uint32_t>(message.payload.size()));
    frames += static_cast<char>(message.type) + message.payload;
  }
  const std::size_t begin = bytes.find(launch::greeting);
  FUZZ_CHECK(begin != std::string_view::npos ? bytes.substr(begin).starts_with(frames)
                                             : frames == launch::greeting);
}

FUZZ_TARGET(launch_message, input) {
  const std::uint8_t type = input.byte();
  const std::string_view bytes = input.text();
  if (type % 7 == 0) check_start(bytes);
  if (type % 7 == 1) check<launch::ListenRequest>(bytes);
  if (type % 7 == 2) check<launch::CountRequest>(bytes);
  if (type % 7 == 3) check<launch::Counted>(bytes);
  if (type % 7 == 4) check<launch::Exited>(bytes);
  if (type % 7 == 5) check<launch::Hello>(bytes);
  if (type % 7 == 6) check_frames(bytes);
}

}  // namespace
}  // namespace hocket::internal

#include "reduce/user_fold.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "base/checked.h"

namespace hocket::internal {
namespace {

// Partial results are computed in pieces that stay in the L1 cache.
constexpr std::size_t piece_bytes = std::size_t{16} << 10;

thread_local bool inside = false;

class Inside {
 public:
  Inside() {
    threads_inside_user_operator.fetch_add(1, std::memory_order_relaxed);
    inside = true;
  }
  ~Inside() {
    inside = false;
    threads_inside_user_operator.fetch_sub(1, std::memory_order_relaxed);
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

}  // namespace

bool this_thread_is_inside_user_operator() { return inside; }

/// A piece of the result is complete before it is written, so a destination may be the memory of
/// any source.
void fold_by_user(const Fold& f, const UserFold& by, UserFoldRoom* room) {
  HOCKET_ASSERT(f.count % by.unit == 0, "an element of the user is never split");
  HOCKET_ASSERT(!f.wide_dst, "partial results of the user's operators have the call's type");
  const std::size_t element = by.unit * size_of(f.dtype);
  const std::size_t elements = f.count / by.unit;
  const std::size_t piece = std::max<std::size_t>(1, piece_bytes / element);
  const std::size_t needed = std::min(piece, elements) * element;
  if (room->size() * sizeof(UserFoldLine) < needed) {
    room->resize(divide_up(needed, sizeof(UserFoldLine)));
  }
  auto* const result = reinterpret_cast<std::byte*>(room->data());
  const Inside running;
  for (std::size_t at = 0; at < elements; at += piece) {
    const std::size_t count = std::min(piece, elements - at), bytes = count * element;
    const auto source = [&](int s) {
      return static_cast<const std::byte*>(f.srcs[s].data) + at * element;
    };
    std::memcpy(result, source(f.src_count - 1), bytes);
    for (int s = f.src_count - 2; s >= 0; --s) by.op->apply(source(s), result, count, by.datatype);
    for (int d = 0; d < f.dst_count; ++d) {
      std::memcpy(static_cast<std::byte*>(f.dsts[d]) + at * element, result, bytes);
    }
  }
}

}  // namespace hocket::internal

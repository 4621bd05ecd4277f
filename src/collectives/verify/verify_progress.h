// Finds deadlocks for every number of chunks. A run shows only the deadlocks that occur with its
// numbers of chunks. That is not enough if a step waits for the end of an instance, and so for all
// its chunks: such a wait may close a cycle only when more chunks are under way than all slots
// between the two lanes can hold.
//
// The graph. A node is a step of an instance. An edge leads from a step, in chunk k, to a step that
// must have ended first:
//   - the step before it in the same chunk; of the first step: the last step, in chunk k - 1
//   - the other end of its message, in chunk k
//   - the last step of the instance that it awaits or waits for, in chunk k - lag
// and, as a *whole edge*, to the last chunk of an instance:
//   - from the first step of instance i in chunk 0 to the last step of instance i - window
//   - from an await of an end to the last step of that instance
//
// A deadlock is a cycle of such waits. Along an edge that is not whole the chunk never increases.
// So a cycle without a whole edge stays in one chunk, and every run finds it. In a cycle with whole
// edges, each whole edge leads to a last chunk, and the other edges lead from there down to the
// chunk in which the next whole edge begins. They can do so if there are more chunks than lags on
// the way, because every instance with several chunks waits for its own previous chunk. Hence: some
// number of chunks leads to such a deadlock if and only if the graph, without the chunks, has a
// cycle with a whole edge. It suffices to use the same number of chunks for all items.
#pragma once

#include <span>

#include "base/status.h"
#include "collectives/plan/plan.h"
#include "collectives/verify/verify_messages.h"

namespace hocket::internal::verify_detail {

/// OK, or a sentence about a cycle with a whole edge. The plans have passed check_form, and
/// `messages` has their messages.
Status check_progress(std::span<const Plan> plans, const Messages& messages);

}  // namespace hocket::internal::verify_detail

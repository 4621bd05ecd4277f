// The builders behind the registry. Every rank builds its own plan, and the plans of all ranks fit
// together (verify.h proves it for 1..64 ranks). With one rank every builder gives the same plan:
// a copy.
#pragma once

#include "collectives/plan.h"

namespace hocket {

// Load/store, one node.
Plan build_inline(
    const Shape& shape);  // all-reduce, broadcast, all-gather, reduce-scatter, barrier
Plan build_one_shot(const Shape& shape);  // all-reduce, broadcast, all-gather, reduce-scatter
Plan build_staged(const Shape& shape);    // the same
Plan build_direct(const Shape& shape);    // the same

// Messages.
Plan build_exchange(const Shape& shape);    // "one-shot": all-reduce, all-gather, barrier
Plan build_owner_fold(const Shape& shape);  // all-reduce, reduce-scatter
Plan build_ring(const Shape& shape);        // all-reduce, all-gather, reduce-scatter
Plan build_tree(const Shape& shape);        // all-reduce, broadcast, barrier
Plan build_message(const Shape& shape);     // send, recv: with shape.root

}  // namespace hocket

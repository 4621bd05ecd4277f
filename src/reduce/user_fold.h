// Folds with a user operator, in the order of the right fold: x0 op (x1 op (x2 op ...)).
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "base/types.h"
#include "reduce/fold.h"

namespace hocket::internal {

class UserOperator {
 public:
  virtual ~UserOperator() = default;
  /// inout[i] = in[i] op inout[i]; datatype: the user's number.
  virtual void apply(const void* in, void* inout, std::size_t count, int datatype) const = 0;
  virtual OperatorName name() const = 0;
};

/// The operator of a call, and its elements.
struct UserFold {
  std::shared_ptr<const UserOperator> op;
  int datatype = 0;        // the user's number
  std::uint32_t unit = 1;  // how many elements of Fold::dtype an element of that datatype has
};

/// Memory for the partial results of one fold; it grows and is used again.
struct alignas(64) UserFoldLine {
  std::byte bytes[64];
};
using UserFoldRoom = std::vector<UserFoldLine>;

/// Folds whole elements of the user: fold.count is a multiple of unit. No operand is wide; op,
/// finish and stores have no meaning here.
void fold_by_user(const Fold& fold, const UserFold& by, UserFoldRoom* room);

/// The number of threads of this process that run a user operator. A call of the API reads a flag
/// of its thread only if this number is not 0.
inline std::atomic<int> threads_inside_user_operator{0};
bool this_thread_is_inside_user_operator();

/// True while this thread runs an operator of the user.
inline bool inside_user_operator() {
  return threads_inside_user_operator.load(std::memory_order_relaxed) != 0 &&
         this_thread_is_inside_user_operator();
}

}  // namespace hocket::internal

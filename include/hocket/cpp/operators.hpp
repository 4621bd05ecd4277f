// User-defined operators.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <hocket/cpp/datatypes.hpp>
#include <hocket/cpp/elements.hpp>
#include <hocket/cpp/error.hpp>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace hocket {

namespace detail {

/// An operator of a communicator; the destructor ends it.
class OperatorHandle {
 public:
  explicit OperatorHandle(hocketComm_t comm) noexcept : comm_(comm) {}
  OperatorHandle(OperatorHandle&& other) noexcept
      : comm_(std::exchange(other.comm_, nullptr)), op_(other.op_) {}
  OperatorHandle& operator=(OperatorHandle&& other) noexcept {
    std::swap(comm_, other.comm_);
    std::swap(op_, other.op_);
    return *this;
  }
  ~OperatorHandle() {
    if (comm_ != nullptr) hocketRedOpDestroy(op_, comm_);
  }
  [[nodiscard]] hocketComm_t comm() const noexcept { return comm_; }
  [[nodiscard]] hocketRedOp_t get() const noexcept { return op_; }
  /// Takes the result of the call that made *place(). After an error there is nothing to end.
  void made(hocketResult_t result, const char* operation) {
    if (result != hocketSuccess) comm_ = nullptr;
    check(result, operation);
  }
  [[nodiscard]] hocketRedOp_t* place() noexcept { return &op_; }

 private:
  hocketComm_t comm_;
  hocketRedOp_t op_ = hocketMaxRedOp;
};

}  // namespace detail

/// The sum of the inputs of all ranks, each multiplied by the scalar of its rank. Every rank makes
/// its own, with the same T. The object must outlive the operations that use it, and must not
/// outlive its communicator.
///
///   hocket::PreMulSum mean(comm, 1.0f / static_cast<float>(comm.ranks()));
///   comm.all_reduce(gradients, mean);
template <typename T>
class PreMulSum {
  static_assert(detail::check_reducible<T>());

 public:
  template <typename Comm>
  PreMulSum(const Comm& comm, T scalar) : handle_(comm.get()) {
    if constexpr (Element<T>) {
      handle_.made(hocketRedOpCreatePreMulSum(handle_.place(), &scalar, datatype_of<T>,
                                              hocketScalarHostImmediate, handle_.comm()),
                   "hocketRedOpCreatePreMulSum");
    }
  }

  [[nodiscard]] hocketRedOp_t get() const noexcept { return handle_.get(); }
  [[nodiscard]] hocketDataType_t datatype() const noexcept { return datatype_of<T>; }

 private:
  detail::OperatorHandle handle_;
};

enum class Commutative : bool { no, yes };

/// A function of the program as the operator of reductions of elements of type T, which may be any
/// trivially copyable type. The function gets a and b as (const T&, const T&) and returns a op b as
/// a T. See hocketUserFunction_t for the rules of operators; an exception that leaves the function
/// ends the program. The object must outlive the operations that use it, and must not outlive its
/// communicator.
///
///   hocket::Operator<Point> farther(comm, "farther", [](const Point& a, const Point& b) {
///     return norm(a) < norm(b) ? b : a;
///   }, hocket::Commutative::no);
///   comm.all_reduce(points, farther);
template <typename T>
class Operator {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>,
                "hocket: the elements of an operator are moved as bytes: their type must be "
                "trivially copyable");
  static_assert(alignof(T) <= 16, "hocket: partial results are aligned to 16 bytes");

 public:
  template <typename Comm, typename Function>
  requires std::is_invocable_r_v<T, Function&, const T&, const T&> Operator(
      const Comm& comm, const std::string& name, Function function,
      Commutative commutative = Commutative::no)
      : function_(new Function(std::move(function)),
                  [](void* kept) { delete static_cast<Function*>(kept); }),
        handle_(comm.get()) {
    handle_.made(hocketRedOpCreateUser(handle_.place(), apply<Function>, function_.get(),
                                       commutative == Commutative::yes ? 1 : 0, name.c_str(),
                                       handle_.comm()),
                 "hocketRedOpCreateUser");
  }
  Operator(Operator&&) noexcept = default;
  Operator& operator=(Operator&& other) noexcept {
    std::swap(type_, other.type_);
    std::swap(function_, other.function_);
    handle_ = std::move(other.handle_);
    return *this;
  }
  ~Operator() = default;

  [[nodiscard]] hocketRedOp_t get() const noexcept { return handle_.get(); }
  [[nodiscard]] hocketDataType_t datatype() const noexcept {
    if constexpr (Element<T>) {
      return datatype_of<T>;
    } else {
      return type_.get();
    }
  }

 private:
  struct Nothing {};
  struct Bytes : ContiguousType {
    Bytes() : ContiguousType(sizeof(T), hocketUint8) {}
  };

  template <typename Function>
  static void apply(void* context, const void* in, void* inout, std::size_t count,
                    hocketDataType_t) noexcept {
    Function& function = *static_cast<Function*>(context);
    const T* const a = static_cast<const T*>(in);
    T* const b = static_cast<T*>(inout);
    for (std::size_t i = 0; i < count; ++i) b[i] = function(a[i], b[i]);
  }

  [[no_unique_address]] std::conditional_t<Element<T>, Nothing, Bytes> type_;
  std::unique_ptr<void, void (*)(void*)> function_;
  detail::OperatorHandle handle_;  // last: it ends before its function
};

namespace detail {

template <typename Op>
struct ElementOfOperator {};
template <typename T>
struct ElementOfOperator<Operator<T>> {
  using type = T;
};
template <typename T>
struct ElementOfOperator<PreMulSum<T>> {
  using type = T;
};

/// An operator that the program has made, for elements of one type.
template <typename Op>
concept MadeOperator = requires {
  typename ElementOfOperator<Op>::type;
};
/// The same, or an operator of hocket.
template <typename Op>
concept ReductionOperator = std::same_as<Op, hocketRedOp_t> || MadeOperator<Op>;

/// The buffers of a reduction, its datatype and its operator.
inline hocketRedOp_t handle(hocketRedOp_t op) { return op; }
template <MadeOperator Op>
hocketRedOp_t handle(const Op& op) {
  return op.get();
}

template <typename Range, typename T>
consteval bool check_operand() {
  if constexpr (check_range<Range>()) {
    static_assert(std::same_as<std::remove_cv_t<ElementOf<Range>>, T>,
                  "hocket: the elements of the buffer have another type than the operator's");
    return std::same_as<std::remove_cv_t<ElementOf<Range>>, T>;
  } else {
    return false;
  }
}

template <typename Range>
auto operand(hocketRedOp_t, Range&& range) {
  if constexpr (check_reducible_buffer<Range>()) {
    return input(std::forward<Range>(range));
  } else {
    return std::span<const std::uint8_t>();
  }
}
template <MadeOperator Op, typename Range, typename T = typename ElementOfOperator<Op>::type>
std::span<const T> operand(const Op&, Range&& range) {
  if constexpr (check_operand<Range, T>()) {
    return std::span<const T>(std::ranges::data(range), std::ranges::size(range));
  } else {
    return {};
  }
}

template <typename Range>
auto result(hocketRedOp_t, Range&& range) {
  if constexpr (check_reducible_buffer<Range>()) {
    return output(std::forward<Range>(range));
  } else {
    return std::span<std::uint8_t>();
  }
}
template <MadeOperator Op, typename Range, typename T = typename ElementOfOperator<Op>::type>
std::span<T> result(const Op&, Range&& range) {
  if constexpr (check_operand<Range, T>()) {
    static_assert(!std::is_const_v<ElementOf<Range>>,
                  "hocket: the elements of this buffer are const, but a result is to be written to "
                  "them");
    return std::span<T>(std::ranges::data(range), std::ranges::size(range));
  } else {
    return {};
  }
}

template <typename T>
hocketDataType_t reduced(hocketRedOp_t, std::span<T> out) {
  return datatype(out);
}
template <MadeOperator Op, typename T>
hocketDataType_t reduced(const Op& op, std::span<T>) {
  return op.datatype();
}

template <typename In, typename Out>
void require_same_operands(hocketRedOp_t, std::span<const In> in, std::span<Out> out) {
  require_same(in, out);
}
template <MadeOperator Op, typename T>
void require_same_operands(const Op&, std::span<const T>, std::span<T>) {}

}  // namespace detail
}  // namespace hocket

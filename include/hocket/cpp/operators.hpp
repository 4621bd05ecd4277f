// Operators and datatypes of the program.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <hocket/cpp/elements.hpp>
#include <hocket/cpp/error.hpp>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace hocket {

/// A datatype of n elements of another one, for calls of the C API (hocketTypeCreateContiguous).
class ContiguousType {
 public:
  ContiguousType(int n, hocketDataType_t base) {
    check(hocketTypeCreateContiguous(&type_, n, base), "hocketTypeCreateContiguous");
  }
  ContiguousType(ContiguousType&& other) noexcept
      : type_(std::exchange(other.type_, hocketMaxDataType)) {}
  ContiguousType& operator=(ContiguousType&& other) noexcept {
    std::swap(type_, other.type_);
    return *this;
  }
  ~ContiguousType() {
    if (type_ != hocketMaxDataType) hocketTypeDestroy(type_);
  }
  [[nodiscard]] hocketDataType_t get() const noexcept { return type_; }

 private:
  hocketDataType_t type_ = hocketMaxDataType;
};

enum class Commutative : bool { no, yes };

/// A function of the program as the operator of reductions of elements of type T, which may be any
/// trivially copyable type. The function gets a and b as (const T&, const T&) and returns a op b as
/// a T. See hocketUserFunction_t for the rules of operators; an exception that leaves the function
/// ends the program. The operator lives until the operations with it have ended, and not longer
/// than its communicator.
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
        comm_(comm.get()) {
    check(hocketRedOpCreateUser(&op_, apply<Function>, function_.get(),
                                commutative == Commutative::yes ? 1 : 0, name.c_str(), comm_),
          "hocketRedOpCreateUser");
  }
  Operator(Operator&& other) noexcept
      : type_(std::move(other.type_)),
        function_(std::move(other.function_)),
        comm_(std::exchange(other.comm_, nullptr)),
        op_(other.op_) {}
  Operator& operator=(Operator&& other) noexcept {
    std::swap(type_, other.type_);
    std::swap(function_, other.function_);
    std::swap(comm_, other.comm_);
    std::swap(op_, other.op_);
    return *this;
  }
  ~Operator() {
    if (comm_ != nullptr) hocketRedOpDestroy(op_, comm_);
  }

  [[nodiscard]] hocketRedOp_t get() const noexcept { return op_; }
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
  hocketComm_t comm_;
  hocketRedOp_t op_ = hocketMaxRedOp;
};

namespace detail {

template <typename Op>
struct ElementOfOperator {};
template <typename T>
struct ElementOfOperator<Operator<T>> {
  using type = T;
};

/// An operator of hocket, or of the program.
template <typename Op>
concept ReductionOperator = std::same_as<Op, hocketRedOp_t> || requires {
  typename ElementOfOperator<Op>::type;
};

/// The buffers of a reduction, its datatype and its operator.
inline hocketRedOp_t handle(hocketRedOp_t op) { return op; }
template <typename T>
hocketRedOp_t handle(const Operator<T>& op) {
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
  return input(std::forward<Range>(range));
}
template <typename Range, typename T>
std::span<const T> operand(const Operator<T>&, Range&& range) {
  if constexpr (check_operand<Range, T>()) {
    return std::span<const T>(std::ranges::data(range), std::ranges::size(range));
  } else {
    return {};
  }
}

template <typename Range>
auto result(hocketRedOp_t, Range&& range) {
  const auto out = output(std::forward<Range>(range));
  require_reducible(out);
  return out;
}
template <typename Range, typename T>
std::span<T> result(const Operator<T>&, Range&& range) {
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
template <typename T>
hocketDataType_t reduced(const Operator<T>& op, std::span<T>) {
  return op.datatype();
}

template <typename In, typename Out>
void require_same_operands(hocketRedOp_t, std::span<const In> in, std::span<Out> out) {
  require_same(in, out);
}
template <typename T>
void require_same_operands(const Operator<T>&, std::span<const T>, std::span<T>) {}

}  // namespace detail
}  // namespace hocket

// Integer kernels. Sums and products wrap, so that signed and unsigned share them.
#include "reduce/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/kernels_integer.cc"
#include "hwy/foreach_target.h"
#include "reduce/loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hocket::internal::reduce {
namespace HWY_NAMESPACE {

const KernelRow* integer_rows() {
#if HWY_TARGET == HWY_SCALAR
  static const KernelRow rows[] = {scalar_kernels[static_cast<int>(Dtype::int8)],
                                   scalar_kernels[static_cast<int>(Dtype::uint8)],
                                   scalar_kernels[static_cast<int>(Dtype::int32)],
                                   scalar_kernels[static_cast<int>(Dtype::uint32)],
                                   scalar_kernels[static_cast<int>(Dtype::int64)],
                                   scalar_kernels[static_cast<int>(Dtype::uint64)],
                                   scalar_kernels[static_cast<int>(Dtype::int16)],
                                   scalar_kernels[static_cast<int>(Dtype::uint16)]};
#else
  static constexpr KernelRow rows[] = {integer_row<Plain<std::int8_t>, Plain<std::uint8_t> >(),
                                       integer_row<Plain<std::uint8_t>, Plain<std::uint8_t> >(),
                                       integer_row<Plain<std::int32_t>, Plain<std::uint32_t> >(),
                                       integer_row<Plain<std::uint32_t>, Plain<std::uint32_t> >(),
                                       integer_row<Plain<std::int64_t>, Plain<std::uint64_t> >(),
                                       integer_row<Plain<std::uint64_t>, Plain<std::uint64_t> >(),
                                       integer_row<Plain<std::int16_t>, Plain<std::uint16_t> >(),
                                       integer_row<Plain<std::uint16_t>, Plain<std::uint16_t> >()};
#endif
  return rows;
}

}  // namespace HWY_NAMESPACE
}  // namespace hocket::internal::reduce
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hocket::internal::reduce {
HWY_EXPORT(integer_rows);
const KernelRow* integer_kernels() { return HWY_DYNAMIC_DISPATCH(integer_rows)(); }
}  // namespace hocket::internal::reduce
#endif

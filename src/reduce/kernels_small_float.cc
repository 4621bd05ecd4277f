// Kernels of the types that are folded in fp32.
#include "reduce/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/kernels_small_float.cc"
#include "hwy/foreach_target.h"
#include "reduce/small_formats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hocket::internal::reduce {
namespace HWY_NAMESPACE {

const KernelRow* small_float_rows() {
#if HWY_TARGET == HWY_SCALAR
  static const KernelRow rows[] = {scalar_kernels[static_cast<int>(Dtype::float16)],
                                   scalar_kernels[static_cast<int>(Dtype::bfloat16)],
                                   scalar_kernels[static_cast<int>(Dtype::float8_e4m3)],
                                   scalar_kernels[static_cast<int>(Dtype::float8_e5m2)]};
#else
  static constexpr KernelRow rows[] = {row<Float16Element>(), row<Widened<Bfloat16Codec> >(),
                                       row<Widened<SmallCodec<E4m3> > >(),
                                       row<Widened<SmallCodec<E5m2> > >()};
#endif
  return rows;
}

}  // namespace HWY_NAMESPACE
}  // namespace hocket::internal::reduce
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hocket::internal::reduce {
HWY_EXPORT(small_float_rows);
const KernelRow* small_float_kernels() { return HWY_DYNAMIC_DISPATCH(small_float_rows)(); }
}  // namespace hocket::internal::reduce
#endif

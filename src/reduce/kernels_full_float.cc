// Kernels of fp32 and fp64, and the name of the instruction set.
#include <cstring>

#include "reduce/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/kernels_full_float.cc"
#include "hwy/foreach_target.h"
#include "reduce/loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hocket::internal::reduce {
namespace HWY_NAMESPACE {

const KernelRow* full_float_rows() {
#if HWY_TARGET == HWY_SCALAR
  return &scalar_kernels[static_cast<int>(Dtype::float32)];
#else
  static constexpr KernelRow rows[] = {row<Plain<float> >(), row<Plain<double> >()};
  return rows;
#endif
}

const char* name_of_target() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace hocket::internal::reduce
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hocket::internal::reduce {
HWY_EXPORT(full_float_rows);
HWY_EXPORT(name_of_target);

const KernelRow* full_float_kernels() { return HWY_DYNAMIC_DISPATCH(full_float_rows)(); }
const char* target_name() { return HWY_DYNAMIC_DISPATCH(name_of_target)(); }
}  // namespace hocket::internal::reduce
#endif

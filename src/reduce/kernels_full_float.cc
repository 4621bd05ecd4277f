// Kernels of fp32 and fp64, the copy that streams, and the name of the instruction set.
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

void stream_copy_impl(void* dst, const void* src, std::size_t bytes) {
#if HWY_TARGET == HWY_SCALAR
  std::memcpy(dst, src, bytes);
#else
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t lanes = hn::Lanes(d);
  auto* to = static_cast<std::uint8_t*>(dst);
  auto* from = static_cast<const std::uint8_t*>(src);
  const std::size_t past = reinterpret_cast<std::uintptr_t>(to) % lanes;
  const std::size_t head = past == 0 ? 0 : lanes - past;
  if (bytes < head + 4 * lanes) {
    std::memcpy(dst, src, bytes);
    return;
  }
  std::memcpy(to, from, head);
  std::size_t i = head;
  for (; i + 4 * lanes <= bytes; i += 4 * lanes) {
    const auto v0 = hn::LoadU(d, from + i);
    const auto v1 = hn::LoadU(d, from + i + lanes);
    const auto v2 = hn::LoadU(d, from + i + 2 * lanes);
    const auto v3 = hn::LoadU(d, from + i + 3 * lanes);
    hn::Stream(v0, d, to + i);
    hn::Stream(v1, d, to + i + lanes);
    hn::Stream(v2, d, to + i + 2 * lanes);
    hn::Stream(v3, d, to + i + 3 * lanes);
  }
  hwy::FlushStream();
  std::memcpy(to + i, from + i, bytes - i);
#endif
}

const char* name_of_target() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace hocket::internal::reduce
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hocket::internal::reduce {
HWY_EXPORT(full_float_rows);
HWY_EXPORT(stream_copy_impl);
HWY_EXPORT(name_of_target);

const KernelRow* full_float_kernels() { return HWY_DYNAMIC_DISPATCH(full_float_rows)(); }
StreamCopy stream_copy() { return &HWY_DYNAMIC_DISPATCH(stream_copy_impl); }
const char* target_name() { return HWY_DYNAMIC_DISPATCH(name_of_target)(); }
}  // namespace hocket::internal::reduce
#endif

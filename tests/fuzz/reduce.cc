// Differential: the vector kernels of every instruction set against plain code, bit for bit.
#include "fuzz/fuzz.h"
#include "reduce/reduce_testing.h"

namespace hocket::internal::reduce {
namespace {

FUZZ_TARGET(reduce, input) {
  const std::vector<std::int64_t> sets = hwy::SupportedAndGeneratedTargets();
  hwy::SetSupportedTargetsForTest(sets[input.byte() % sets.size()]);
  forget_targets();
  Fold fold_of;
  fold_of.dtype = static_cast<Dtype>(input.byte() % dtype_count);
  fold_of.op = static_cast<Op>(input.byte() % op_count);
  if (!computes(fold_of.op, fold_of.dtype)) fold_of.op = Op::sum;
  fold_of.count = input.below(input.byte() % 8 == 0 ? 3000 : 150);
  fold_of.src_count = static_cast<int>(1 + input.byte() % 5);
  fold_of.stores = static_cast<Stores>(input.byte() % stores_count);
  const std::uint8_t flags = input.byte();
  fold_of.finish = (flags & 1) != 0;
  const bool scaled = fold_of.op == Op::sum && (flags & 2) != 0;
  fold_of.wide_dst = is_widened(fold_of.dtype) && (flags & 4) != 0;
  fold_of.divisor = input.number<std::uint32_t>();
  const auto bytes_of = [&](bool wide) {
    return fold_of.count * (wide ? wide_size_of(fold_of.dtype) : size_of(fold_of.dtype));
  };
  std::vector<std::vector<std::uint8_t>> memory;
  std::vector<FoldSource> sources;
  std::vector<std::uint64_t> scalars;
  std::mt19937_64 random(input.number<std::uint64_t>());
  for (int s = 0; s < fold_of.src_count; ++s) {
    const bool wide = (is_widened(fold_of.dtype) || scaled) && input.byte() % 2 == 1;
    const std::size_t offset = input.byte() % 64;
    std::vector<std::uint8_t>& each = memory.emplace_back(offset + bytes_of(wide));
    fill_elements(each.data() + offset, fold_of.count, fold_of.dtype, wide, random);
    for (std::size_t i = offset; i < each.size() && input.left() > 100; ++i) each[i] = input.byte();
    sources.push_back({each.data() + offset, wide});
    fill_elements(&scalars.emplace_back(), 1, fold_of.dtype, true, random);
  }
  fold_of.srcs = sources.data();
  if (scaled) fold_of.scalars = scalars.data();
  const std::size_t offset = input.byte() % 64;
  const std::size_t bytes = bytes_of(fold_of.wide_dst);
  std::vector<std::uint8_t> expected(offset + bytes + 64, 0xa5);  // with guards at both ends
  std::vector<std::uint8_t> results[2] = {expected, expected};
  fold_of.dst_count = 1 + input.byte() % 2;
  void* const plain[] = {expected.data() + offset, expected.data() + offset};
  fold_of.dsts = plain;
  Fold reference = fold_of;
  reference.dst_count = 1;
  fold_reference(reference);
  void* const dsts[] = {results[0].data() + offset, results[1].data() + offset};
  fold_of.dsts = dsts;
  fold(fold_of);
  for (int d = 0; d < fold_of.dst_count; ++d) FUZZ_CHECK(results[d] == expected);
  hwy::SetSupportedTargetsForTest(0);
  forget_targets();
}

}  // namespace
}  // namespace hocket::internal::reduce

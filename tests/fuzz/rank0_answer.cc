// What rank 0, or any other program at its port, answers before either side has proved anything.
#include "bootstrap/launchers/rank0_address.h"
#include "fuzz/fuzz.h"

namespace hocket::internal {
namespace {

FUZZ_TARGET(rank0_answer, input) {
  const std::vector<std::uint8_t> bytes = input.vector();
  Rank0Answer answer;
  if (!decode(bytes, &answer)) return;
  FUZZ_CHECK(bytes.size() <= longest_answer);
  FUZZ_CHECK(encode(answer) == bytes);
}

}  // namespace
}  // namespace hocket::internal

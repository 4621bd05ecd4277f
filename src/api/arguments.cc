#include "api/arguments.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "api/process.h"
#include "base/checked.h"
#include "base/mix.h"
#include "hocket/hocket.h"

namespace hocket::internal::api {
namespace {

/// No machine has longer addresses.
constexpr std::uint64_t address_space = std::uint64_t{1} << 57;

/// Bytes of a buffer: [begin, begin + bytes).
struct Bytes {
  std::uintptr_t begin = 0;
  std::uint64_t bytes = 0;

  std::uintptr_t end() const { return begin + bytes; }
  /// True if it ends within the address space. An empty buffer may have any address.
  bool ends() const {
    return bytes == 0 || (bytes <= address_space && begin <= address_space - bytes);
  }
};

Bytes bytes_at(const void* begin, std::uint64_t bytes) {
  return {reinterpret_cast<std::uintptr_t>(begin), bytes};
}

bool overlap(const Bytes& a, const Bytes& b) {
  return a.bytes > 0 && b.bytes > 0 && a.begin < b.end() && b.begin < a.end();
}

Status past_the_end(const char* buffer, const std::string& sizes) {
  return invalid_argument(
      sizes + ": " + buffer +
      " would reach past the end of the address space: check how the number was computed");
}

/// The error of two buffers that overlap otherwise than in place.
Status overlapping(const CollectiveRow& row) {
  const std::string text = "the buffers overlap: ";
  if (row.input == Blocks::per_rank && row.output == Blocks::per_rank) {
    return invalid_argument(text + "this collective cannot run in place: give it two buffers");
  }
  if (row.output == Blocks::per_rank) {
    return invalid_argument(text +
                            "in place means that sendbuff is the block of this rank in recvbuff");
  }
  if (row.input == Blocks::per_rank) {
    return invalid_argument(text +
                            "in place means that recvbuff is the block of this rank in sendbuff");
  }
  return invalid_argument(text + "in place means sendbuff == recvbuff");
}

/// In a call in place: the address of the output less that of the input, modulo 2^64. Empty: the
/// collective cannot run in place. place: the byte where the block of this rank begins, in the
/// buffer with a block for each rank.
std::optional<std::uint64_t> in_place_distance(const CollectiveRow& row, std::uint64_t place) {
  const bool gathers = row.output == Blocks::per_rank, scatters = row.input == Blocks::per_rank;
  if (gathers && scatters) return {};
  return gathers ? 0 - place : scatters ? place : 0;
}

bool in_place(const Call& call, std::uint64_t place) {
  const auto distance = in_place_distance(row_of(call.collective), place);
  return distance && reinterpret_cast<std::uintptr_t>(call.output) ==
                         reinterpret_cast<std::uintptr_t>(call.input) + *distance;
}

/// The bytes of this rank's buffers, whose blocks have one size; 0: it has no such buffer.
struct BufferBytes {
  std::uint64_t input = 0, output = 0;
};

/// block, all: the bytes of one block and of all blocks.
BufferBytes bytes_of_buffers(const Call& call, int rank, std::uint64_t block, std::uint64_t all) {
  const CollectiveRow& row = row_of(call.collective);
  const bool is_root = call.root == rank;
  const auto bytes = [&](Blocks blocks) { return blocks == Blocks::per_rank ? all : block; };
  return {has_input(row, is_root) ? bytes(row.input) : 0,
          has_output(row, is_root) ? bytes(row.output) : 0};
}

std::string count_text(const char* name, std::size_t count) {
  return std::string(name) + " is " + std::to_string(count);
}
std::string count_text(const char* name, std::size_t block, std::size_t count) {
  return std::string(name) + "[" + std::to_string(block) + "] is " + std::to_string(count);
}

/// Bytes of so many elements; empty: more than memory can have.
std::optional<std::uint64_t> bytes_of(std::uint64_t elements, Dtype dtype) {
  const auto bytes = checked_mul(elements, size_of(dtype));
  return bytes && *bytes <= PTRDIFF_MAX ? bytes : std::nullopt;
}

constexpr const char* too_many =
    ": so many elements have more bytes than memory can have: check how the number was computed";

Status no_buffer(const char* buffer, const std::string& count) {
  return invalid_argument(std::string(buffer) + " is NULL, but " + count +
                          ": give its address, or count no elements");
}

// ---- Blocks of different counts.

struct Buffer {
  const char* name;
  const void* data;
  bool received;
};

/// The error of a block that does not fit into memory, or has no buffer.
Status wrong_block(const VaryingArguments::Side& side, const Buffer& buffer, std::size_t b,
                   std::uint64_t elements_before, bool fits) {
  const std::string text = count_text(side.counts_name, b, side.counts[b]);
  if (buffer.data == nullptr) return no_buffer(buffer.name, text);
  const bool given = side.displacements != nullptr;
  const std::string where =
      given ? text + " and " + count_text(side.displacements_name, b, side.displacements[b])
            : text + " after " + std::to_string(elements_before) + " elements";
  return fits ? past_the_end(buffer.name, where) : invalid_argument(where + too_many);
}

/// Copies the arrays, and sets *total.
Status take_side(const VaryingArguments::Side& from, const Buffer& buffer, int ranks, Dtype dtype,
                 std::uint32_t unit, VaryingBlocks::Side* to, std::uint64_t* total) {
  if (from.counts == nullptr) {
    return invalid_argument(std::string(from.counts_name) + " is NULL: it has a count for each " +
                            "rank");
  }
  const auto blocks = static_cast<std::size_t>(ranks);
  to->counts.assign(from.counts, from.counts + blocks);
  to->offsets.assign(blocks, 0);
  std::uint64_t sum = 0;
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::size_t count = to->counts[b];
    if (count == 0) continue;
    const bool given = from.displacements != nullptr;
    const auto elements = checked_mul(count, unit);
    const auto offset = given ? checked_mul(from.displacements[b], unit) : sum;
    const auto with_this = elements ? checked_add(sum, *elements) : std::nullopt;
    const auto end = elements && offset ? checked_add(*offset, *elements) : std::nullopt;
    const bool fits = with_this && bytes_of(*with_this, dtype) && end && bytes_of(*end, dtype);
    if (buffer.data == nullptr || !fits || !bytes_at(buffer.data, *bytes_of(*end, dtype)).ends()) {
      return wrong_block(from, buffer, b, sum / unit, fits);
    }
    to->counts[b] = *elements;
    sum = *with_this;
    to->offsets[b] = *offset;
  }
  *total = sum;
  return {};
}

/// True if the blocks that are not empty lie one after the other, in the order of the ranks.
bool follow_one_another(const VaryingBlocks::Side& side) {
  std::size_t end = 0;
  for (std::size_t b = 0; b < side.counts.size(); ++b) {
    if (side.counts[b] == 0) continue;
    if (side.offsets[b] < end) return false;
    end = side.offsets[b] + side.counts[b];
  }
  return true;
}

/// The blocks that are not empty, in the order in which they lie.
std::vector<std::size_t> order_of(const VaryingBlocks::Side& side) {
  std::vector<std::size_t> order;
  for (std::size_t b = 0; b < side.counts.size(); ++b) {
    if (side.counts[b] > 0) order.push_back(b);
  }
  const auto begin = [&](std::size_t b) { return side.offsets[b]; };
  if (!std::ranges::is_sorted(order, {}, begin)) std::ranges::sort(order, {}, begin);
  return order;
}

/// No element may be received twice.
Status check_received(const VaryingArguments::Side& names, const VaryingBlocks::Side& side) {
  if (follow_one_another(side)) return {};
  const std::vector<std::size_t> order = order_of(side);
  for (std::size_t i = 1; i < order.size(); ++i) {
    const std::size_t a = order[i - 1], b = order[i];
    if (side.offsets[a] + side.counts[a] <= side.offsets[b]) continue;
    return invalid_argument("the blocks that are received from ranks " +
                            std::to_string(std::min(a, b)) + " and " +
                            std::to_string(std::max(a, b)) + " overlap in recvbuff: look at " +
                            names.counts_name + " and " + names.displacements_name);
  }
  return {};
}

/// The bytes of the blocks of a side; own: of the only block of a side without blocks.
std::vector<Bytes> ranges_of(const VaryingBlocks::Side& side, const void* buffer, std::size_t own,
                             std::size_t element) {
  if (side.counts.empty()) return {bytes_at(buffer, own * element)};
  std::vector<Bytes> ranges;
  for (const std::size_t b : order_of(side)) {
    const auto* begin = static_cast<const std::byte*>(buffer) + side.offsets[b] * element;
    ranges.push_back(bytes_at(begin, side.counts[b] * element));
  }
  return ranges;
}

/// One past the last element of any block.
std::size_t end_of(const VaryingBlocks::Side& side) {
  std::size_t end = 0;
  for (std::size_t b = 0; b < side.counts.size(); ++b) {
    if (side.counts[b] > 0) end = std::max(end, side.offsets[b] + side.counts[b]);
  }
  return end;
}

/// From the first byte of the blocks of a side to the last.
Bytes hull_of(const VaryingBlocks::Side& side, const void* buffer, std::size_t own,
              std::size_t element) {
  if (side.counts.empty()) return bytes_at(buffer, own * element);
  const std::size_t end = end_of(side);
  if (end == 0) return {};
  std::size_t begin = end;
  for (std::size_t b = 0; b < side.counts.size(); ++b) {
    if (side.counts[b] > 0) begin = std::min(begin, side.offsets[b]);
  }
  return bytes_at(static_cast<const std::byte*>(buffer) + begin * element, (end - begin) * element);
}

/// Both in the order of their begins.
bool any_overlap(const std::vector<Bytes>& inputs, const std::vector<Bytes>& outputs) {
  // The inputs may overlap one another, so each is compared with all outputs that it may reach.
  auto first = outputs.begin();
  for (const Bytes& input : inputs) {
    while (first != outputs.end() && first->end() <= input.begin) ++first;
    if (first != outputs.end() && overlap(input, *first)) return true;
  }
  return false;
}

Status check_varying_overlap(const Call& call, int rank) {
  const CollectiveRow& row = row_of(call.collective);
  const VaryingBlocks& blocks = *call.varying;
  const std::size_t element = size_of(call.dtype);
  const auto own = static_cast<std::size_t>(rank);
  const bool input = has_input(row, call.root == rank), output = has_output(row, call.root == rank);
  if (!input || !output) return {};
  const VaryingBlocks::Side& many = blocks.output.counts.empty() ? blocks.input : blocks.output;
  if (many.counts[own] > 0 && in_place(call, many.offsets[own] * element)) return {};
  if (!overlap(hull_of(blocks.input, call.input, call.count, element),
               hull_of(blocks.output, call.output, call.count, element)) ||
      !any_overlap(ranges_of(blocks.input, call.input, call.count, element),
                   ranges_of(blocks.output, call.output, call.count, element))) {
    return {};
  }
  return overlapping(row);
}

/// The buffer of this rank's only block. Its count is own_count_name, or that block of the input.
Status check_own(const Call& call, const Buffer& buffer, const VaryingArguments& arguments,
                 std::size_t rank) {
  const auto bytes = bytes_of(call.count, call.dtype);
  const bool exists = buffer.data != nullptr || call.count == 0;
  if (bytes && exists && bytes_at(buffer.data, *bytes).ends()) return {};
  const std::size_t count = call.count / call.unit;
  const std::string text = *arguments.own_count_name != '\0'
                               ? count_text(arguments.own_count_name, count)
                               : count_text(arguments.input.counts_name, rank, count);
  if (!bytes) return invalid_argument(text + too_many);
  return exists ? past_the_end(buffer.name, text) : no_buffer(buffer.name, text);
}

/// The block that a rank sends to itself has one count.
Status check_own_counts(const VaryingArguments& arguments, const VaryingBlocks& blocks,
                        const Call& call, std::size_t rank) {
  const bool sends = !blocks.input.counts.empty(), receives = !blocks.output.counts.empty();
  if (!sends && !receives) return {};  // the root knows the other counts
  const std::size_t sent = sends ? blocks.input.counts[rank] : call.count;
  const std::size_t received = receives ? blocks.output.counts[rank] : call.count;
  if (sent == received) return {};
  const auto text = [&](const VaryingArguments::Side& side, bool many, std::size_t count) {
    return many ? count_text(side.counts_name, rank, count / call.unit)
                : count_text(arguments.own_count_name, count / call.unit);
  };
  return invalid_argument(text(arguments.input, sends, sent) + ", but " +
                          text(arguments.output, receives, received) +
                          ": this rank sends that block to itself, so both must be equal");
}

std::int32_t hash_of(const std::vector<std::size_t>& counts) {
  std::uint64_t hash = counts.size();
  for (const std::size_t count : counts) hash = mix(hash ^ mix(count + 0x9e3779b97f4a7c15ULL));
  return static_cast<std::int32_t>(hash >> 33);
}

// ---- Datatypes and operators that NCCL does not have.

/// Sets the elements that an element of the datatype has, and counts in those.
Status narrow_dtype(int datatype, Call* call) {
  MadeDatatype made;
  HOCKET_RETURN_IF_ERROR(datatype_of(datatype, &made));
  call->dtype = made.base;
  call->unit = made.n;
  const auto elements = checked_mul(call->count, call->unit);
  if (!elements) return invalid_argument(count_text("count", call->count) + too_many);
  call->count = *elements;
  return {};
}

Status narrow_to_made(int op, int datatype, const hocketComm* comm, Call* call) {
  Operators::Made made;
  HOCKET_RETURN_IF_ERROR(Process::current().operators.find(comm, op, &made));
  if (made.op == nullptr) {
    call->op = Op::pre_mul_sum;
    call->scalar = made.scalar;
    if (made.dtype == call->dtype) return {};
    return invalid_argument("operator " + std::to_string(op) + " has a scalar of " +
                            name_of(made.dtype) + ", but the elements are " + name_of(call->dtype) +
                            ": hocketRedOpCreatePreMulSum makes an operator for that datatype");
  }
  call->op = made.commutative ? Op::user : Op::user_in_order;
  call->user = std::make_shared<UserFold>(UserFold{made.op, datatype, call->unit});
  return {};
}

/// After the datatype.
Status narrow_op(int op, int datatype, const hocketComm* comm, Call* call) {
  switch (op) {
    case hocketAnd:
      call->op = Op::bit_and;
      break;
    case hocketOr:
      call->op = Op::bit_or;
      break;
    case hocketXor:
      call->op = Op::bit_xor;
      break;
    default:
      return narrow_to_made(op, datatype, comm, call);
  }
  if (computes(call->op, call->dtype)) return {};
  return invalid_argument(std::string("operator ") + name_of(call->op) +
                          " is bitwise: " + name_of(call->dtype) +
                          " is no integer type: use sum, prod, max, min or avg");
}

}  // namespace

Status narrow(int datatype, int op, const hocketComm* comm, Call* call) {
  call->dtype = static_cast<Dtype>(datatype);
  call->op = static_cast<Op>(op);
  const auto is_of_nccl = [](int number, int count) { return number >= 0 && number < count; };
  if (!is_of_nccl(datatype, hocketNumTypes)) [[unlikely]]
    HOCKET_RETURN_IF_ERROR(narrow_dtype(datatype, call));
  if (!is_of_nccl(op, hocketNumOps)) [[unlikely]]
    HOCKET_RETURN_IF_ERROR(narrow_op(op, datatype, comm, call));
  return {};
}

Status check_root(const Call& call, int ranks) {
  const bool has_root = row_of(call.collective).rooted || is_p2p(call);
  if (!has_root || (call.root >= 0 && call.root < ranks)) return {};
  return invalid_argument((is_p2p(call) ? "peer " : "root ") + std::to_string(call.root) +
                          " does not exist: the communicator has ranks 0 to " +
                          std::to_string(ranks - 1));
}

Status check_buffers(const Call& call, int rank, int ranks) {
  const auto text = [&] { return count_text("count", call.count / call.unit); };
  const auto block = checked_mul(call.count, size_of(call.dtype));
  const auto all = block ? checked_mul(*block, static_cast<std::uint64_t>(ranks)) : std::nullopt;
  if (!all || *all > PTRDIFF_MAX) {
    return invalid_argument(text() + too_many);
  }
  const BufferBytes bytes = bytes_of_buffers(call, rank, *block, *all);
  const Bytes input = bytes_at(call.input, bytes.input);
  const Bytes output = bytes_at(call.output, bytes.output);
  if (call.input == nullptr && input.bytes > 0) return no_buffer("sendbuff", text());
  if (call.output == nullptr && output.bytes > 0) return no_buffer("recvbuff", text());
  if (!input.ends()) return past_the_end("sendbuff", text());
  if (!output.ends()) return past_the_end("recvbuff", text());
  const auto place = static_cast<std::uint64_t>(rank) * *block;
  if (!overlap(input, output) || in_place(call, place)) return {};
  return overlapping(row_of(call.collective));
}

Status take_blocks(const VaryingArguments& arguments, int rank, int ranks, Call* call) {
  const CollectiveRow& row = row_of(call->collective);
  const bool is_root = call->root == rank;
  auto blocks = std::make_shared<VaryingBlocks>();
  const auto take = [&](Blocks what, bool exists, const VaryingArguments::Side& from,
                        const Buffer& buffer, VaryingBlocks::Side* to) -> Status {
    if (what != Blocks::per_rank || !exists) return {};
    std::uint64_t total = 0;
    HOCKET_RETURN_IF_ERROR(take_side(from, buffer, ranks, call->dtype, call->unit, to, &total));
    if (buffer.received) HOCKET_RETURN_IF_ERROR(check_received(from, *to));
    if (!shares_blocks(row)) return {};
    blocks->total = total;
    blocks->longest = std::ranges::max(to->counts);
    blocks->hash = hash_of(to->counts);
    return {};
  };
  const bool input = has_input(row, is_root), output = has_output(row, is_root);
  const Buffer sent{"sendbuff", call->input, false}, received{"recvbuff", call->output, true};
  HOCKET_RETURN_IF_ERROR(take(row.input, input, arguments.input, sent, &blocks->input));
  HOCKET_RETURN_IF_ERROR(take(row.output, output, arguments.output, received, &blocks->output));
  const auto own = static_cast<std::size_t>(rank);
  if (*arguments.own_count_name == '\0' && row.output == Blocks::own) {
    call->count = blocks->input.counts[own];  // the caller gives the vector only
  }
  if (row.input == Blocks::own) HOCKET_RETURN_IF_ERROR(check_own(*call, sent, arguments, own));
  if (row.output == Blocks::own) HOCKET_RETURN_IF_ERROR(check_own(*call, received, arguments, own));
  HOCKET_RETURN_IF_ERROR(check_own_counts(arguments, *blocks, *call, own));
  call->varying = std::move(blocks);
  return check_varying_overlap(*call, rank);
}

void CheckedCall::keep(const Arguments& arguments, const VaryingArguments* varying,
                       const Call& call, int rank, int ranks) {
  valid_ = call.op < Op::pre_mul_sum && call.unit == 1;
  if (!valid_) return;
  call_ = call;
  count_ = arguments.count;
  datatype_ = arguments.datatype;
  op_ = arguments.op;
  const std::uint64_t element = size_of(call.dtype), block = call.count * element;
  BufferBytes bytes =
      bytes_of_buffers(call, rank, block, block * static_cast<std::uint64_t>(ranks));
  std::uint64_t place = static_cast<std::uint64_t>(rank) * block;
  if (varying != nullptr) {
    input_displaced_ = varying->input.displacements != nullptr;
    output_displaced_ = varying->output.displacements != nullptr;
    const VaryingBlocks::Side &in = call.varying->input, &out = call.varying->output;
    if (!in.counts.empty()) bytes.input = end_of(in) * element;
    if (!out.counts.empty()) bytes.output = end_of(out) * element;
    const VaryingBlocks::Side& many = out.counts.empty() ? in : out;
    const auto own = static_cast<std::size_t>(rank);
    if (!many.offsets.empty()) place = many.offsets[own] * element;
  }
  const auto most = [](std::uint64_t size) {
    return size == 0 ? UINT64_MAX : address_space - size - 1;
  };
  input_bytes_ = bytes.input;
  output_bytes_ = bytes.output;
  most_input_ = most(input_bytes_);
  most_output_ = most(output_bytes_);
  in_place_ = in_place_distance(row_of(call.collective), place);
}

bool CheckedCall::has_blocks_of(const VaryingArguments& varying) const {
  const auto alike = [](const VaryingArguments::Side& side, const VaryingBlocks::Side& kept,
                        bool displaced) {
    if (kept.counts.empty()) return true;  // this rank has no such buffer
    if (side.counts == nullptr || (side.displacements != nullptr) != displaced) return false;
    for (std::size_t b = 0; b < kept.counts.size(); ++b) {
      if (side.counts[b] != kept.counts[b]) return false;
      if (displaced && kept.counts[b] > 0 && side.displacements[b] != kept.offsets[b]) return false;
    }
    return true;
  };
  return alike(varying.input, call_.varying->input, input_displaced_) &&
         alike(varying.output, call_.varying->output, output_displaced_);
}

}  // namespace hocket::internal::api

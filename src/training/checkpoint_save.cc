#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <hocket/training/agreement.hpp>
#include <random>
#include <tuple>

#include "training/checkpoint_directory.h"
#include "training/checkpoint_manifest.h"
#include "training/checkpoint_plan.h"
#include "training/crc32c.h"
#include "training/dense_tensor.h"
#include "training/storage_failure.h"
#include "training/storage_file.h"
#include "training/text_hash.h"

namespace hocket::training {
namespace {

using namespace storage;

constexpr const char* save_operation = "hocket::training::save_checkpoint";

std::vector<TensorRange> checked_ranges(std::span<const TensorRange> ranges) {
  std::vector<TensorRange> all(ranges.begin(), ranges.end());
  for (TensorRange& range : all) {
    range.tensor = checked(std::move(range.tensor));
    require_range(range);
  }
  return all;
}

void require_metadata(const Metadata& metadata) {
  const std::size_t bytes = encode(metadata).size();
  if (bytes > largest_metadata) {
    refuse(fmt::format("the metadata have {} bytes, and at most {} are allowed", bytes,
                       largest_metadata));
  }
}

/// A save after its arguments have been checked. All ranks make the same calls.
class Save {
 public:
  Save(Communicator& comm, const std::string& directory, std::vector<TensorRange> ranges)
      : comm_(comm), directory_(directory), ranges_(std::move(ranges)) {}

  void plan();
  void begin(const std::string& label);
  /// This rank's pieces and their checksums.
  void write();
  void commit(const Metadata& metadata);
  void discard() noexcept {
    if (comm_.rank() == 0) discard_checkpoint(directory_, name_);
  }
  const std::string& name() const { return name_; }

 private:
  const char* memory_of(std::size_t tensor, const Piece& piece) const;
  void write_own_file();
  void collect_checksums();

  Communicator& comm_;
  const std::string& directory_;
  std::vector<TensorRange> ranges_;  // by name
  SavePlan plan_;
  std::uint64_t id_ = 0;
  std::string name_;
};

void Save::plan() {
  std::sort(ranges_.begin(), ranges_.end(), [](const TensorRange& a, const TensorRange& b) {
    return std::tie(a.tensor.name, a.begin) < std::tie(b.tensor.name, b.begin);
  });
  const std::string own = encode(ranges_);
  // Ranks that hold the same, as with DDP, need not tell one another.
  const std::uint64_t length_and_hash[] = {own.size(), text_hash(own)};
  std::vector<std::uint64_t> all(2 * static_cast<std::size_t>(comm_.ranks()));
  comm_.all_gather(length_and_hash, all);
  bool are_equal = true;
  for (std::size_t i = 2; i < all.size(); ++i) are_equal = are_equal && all[i] == all[i % 2];
  std::vector<std::vector<TensorRange>> of_ranks;
  if (are_equal) {
    of_ranks.assign(static_cast<std::size_t>(comm_.ranks()), ranges_);
  } else {
    for (const std::string& bytes : gather_bytes(comm_, own)) {
      of_ranks.push_back(decode_ranges(bytes));
    }
  }
  locally(save_operation, [&] { plan_ = plan_save(of_ranks); });
}

void Save::begin(const std::string& label) {
  run_on_all(comm_, save_operation, [&] {
    if (comm_.rank() == 0) name_ = begin_checkpoint(directory_, label);
  });
  name_ = broadcast_bytes(comm_, name_);
  if (comm_.rank() == 0) {
    std::random_device random;
    id_ = std::uint64_t{random()} << 32 | random();
  }
  std::uint64_t id[] = {id_};
  comm_.broadcast(id, 0);
  id_ = id[0];
}

/// A piece lies in one range of each rank that holds it.
const char* Save::memory_of(std::size_t tensor, const Piece& piece) const {
  const Parameter& of = plan_.tensors[tensor].tensor;
  auto at = std::lower_bound(
      ranges_.begin(), ranges_.end(), of.name,
      [](const TensorRange& range, const std::string& name) { return range.tensor.name < name; });
  for (; at != ranges_.end() && at->tensor.name == of.name; ++at) {
    if (at->begin <= piece.begin && piece.begin + piece.elements <= at->begin + at->elements) {
      return static_cast<const char*>(at->data) + (piece.begin - at->begin) * type_bytes(of.dtype);
    }
  }
  throw Failure(hocketInternalError, "no range has a piece of tensor '" + of.name + "'");
}

void Save::write_own_file() {
  const auto rank = static_cast<std::uint32_t>(comm_.rank());
  File file = File::create(temporary_path(directory_, name_) + "/" + data_file_name(rank));
  const std::string header =
      encode_file_header(id_, rank, static_cast<std::uint32_t>(comm_.ranks()));
  file.write(header.data(), header.size(), 0);
  for (const SavePlan::Place& place : plan_.of_rank[rank]) {
    StoredTensor& stored = plan_.tensors[place.tensor];
    Piece& piece = stored.pieces[place.piece];
    const char* memory = memory_of(place.tensor, piece);
    const std::size_t bytes = piece.elements * type_bytes(stored.tensor.dtype);
    piece.crc = crc32c(memory, bytes);
    file.write(memory, bytes, piece.offset);
  }
  file.sync_and_close();
}

void Save::write() {
  run_on_all(comm_, save_operation, "Nothing was saved, and earlier checkpoints are unchanged",
             [&] { write_own_file(); });
  collect_checksums();
}

void Save::collect_checksums() {
  std::string own;
  for (const SavePlan::Place& place : plan_.of_rank[static_cast<std::size_t>(comm_.rank())]) {
    const std::uint32_t crc = plan_.tensors[place.tensor].pieces[place.piece].crc;
    own.append(reinterpret_cast<const char*>(&crc), sizeof crc);
  }
  const std::vector<std::string> all = gather_bytes(comm_, own);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const char* at = all[rank].data();
    for (const SavePlan::Place& place : plan_.of_rank[rank]) {
      std::copy_n(at, sizeof(std::uint32_t),
                  reinterpret_cast<char*>(&plan_.tensors[place.tensor].pieces[place.piece].crc));
      at += sizeof(std::uint32_t);
    }
  }
}

void Save::commit(const Metadata& metadata) {
  const std::vector<std::string> all_metadata = gather_bytes(comm_, encode(metadata));
  run_on_all(comm_, save_operation, "Nothing was saved, and earlier checkpoints are unchanged",
             [&] {
               if (comm_.rank() != 0) return;
               const std::string folder = temporary_path(directory_, name_);
               for (std::uint32_t rank = 0; rank < plan_.file_bytes.size(); ++rank) {
                 const File file = File::open(folder + "/" + data_file_name(rank));
                 if (file.bytes() != plan_.file_bytes[rank]) {
                   damaged(file.path(), fmt::format("rank {} wrote {} bytes, and rank 0 sees {}",
                                                    rank, plan_.file_bytes[rank], file.bytes()));
                 }
               }
               Manifest manifest{id_, plan_.file_bytes, {}, std::move(plan_.tensors)};
               for (const std::string& each : all_metadata) {
                 manifest.metadata.push_back(decode_metadata(each));
               }
               const std::string bytes = encode(manifest);
               if (bytes.size() > largest_manifest) refuse("the manifest has more than 2^30 bytes");
               write_file(folder + "/manifest", bytes);
               commit_checkpoint(directory_, name_);
             });
}

}  // namespace

std::string save_checkpoint(Communicator& comm, const std::string& directory,
                            std::span<const TensorRange> ranges, const Metadata& metadata,
                            const SaveOptions& options) {
  std::vector<TensorRange> own;
  run_on_all(comm, save_operation, [&] {
    require_label(options.label);
    if (options.keep < 0) {
      refuse(fmt::format("keep is {}: it is 0 for all checkpoints, or their number", options.keep));
    }
    require_metadata(metadata);
    own = checked_ranges(ranges);
  });
  Save save(comm, directory, std::move(own));
  save.plan();
  save.begin(options.label);
  try {
    save.write();
    save.commit(metadata);
  } catch (...) {
    save.discard();
    throw;
  }
  run_on_all(
      comm, save_operation,
      fmt::format("Checkpoint '{}' is complete, but an older checkpoint could not be removed",
                  save.name()),
      [&] {
        if (comm.rank() != 0 || options.keep == 0) return;
        remove_old_checkpoints(directory, save.name(), options.keep);
      });
  return save.name();
}

}  // namespace hocket::training

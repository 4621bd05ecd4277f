// Ranks as a grid with named dimensions, and a communicator along each dimension.
//
// Hybrid sharding, for example: parameters are sharded over the ranks of a node, and the nodes are
// replicas of one another. 2 nodes x 4 ranks:
//
//   Mesh mesh(comm, {{"replicate", 2}, {"shard", 4}});
//
//   replicate \ shard   0  1  2  3
//                   0 | 0  1  2  3      rank 5 has the coordinates (1, 1)
//                   1 | 4  5  6  7
//
//   mesh.along("shard")        on rank 5: the communicator of ranks 4 5 6 7, where it is rank 1
//   mesh.along("replicate")    on rank 5: the communicator of ranks 1 5, where it is rank 1
#pragma once

#include <hocket/hocket.hpp>
#include <string>
#include <vector>

namespace hocket::training {

struct MeshDimension {
  std::string name;
  /// -1, in one dimension at most: as many as there are ranks for.
  int ranks = -1;
};

/// A grid of all ranks of a communicator. The last dimension varies fastest from rank to rank, so
/// it connects ranks of one node where the launcher numbers a node's ranks in a row. Any number of
/// dimensions.
class Mesh {
 public:
  /// Collective: a split for each dimension. comm may be destroyed afterwards.
  /// Throws on all ranks InvalidArgument if there is no dimension, a name is empty or occurs twice,
  /// or the numbers of ranks do not multiply to those of comm; Mismatch if ranks give different
  /// dimensions.
  Mesh(Communicator& comm, std::vector<MeshDimension> dimensions);

  [[nodiscard]] const std::vector<MeshDimension>& dimensions() const noexcept {
    return dimensions_;
  }
  // These throw InvalidArgument, with the names that there are, for a name that there is not.

  /// How many ranks the dimension has.
  [[nodiscard]] int ranks(const std::string& name) const;
  /// This rank's coordinate in the dimension: at least 0, less than ranks(name).
  [[nodiscard]] int coordinate(const std::string& name) const;
  /// The ranks with the same coordinates in all other dimensions, in the order of their coordinate
  /// in this dimension.
  [[nodiscard]] Communicator& along(const std::string& name);

  /// Collective: every rank gives the same names. A new communicator of the ranks with the same
  /// coordinates in all dimensions that are not named, in the order of their ranks in the mesh.
  [[nodiscard]] Communicator group(const std::vector<std::string>& names);

  /// The rank of the mesh's communicator at these coordinates, one for each dimension. Throws
  /// InvalidArgument if there is none.
  [[nodiscard]] int rank_at(const std::vector<int>& coordinates) const;

 private:
  [[nodiscard]] std::size_t index(const std::string& name) const;

  std::vector<MeshDimension> dimensions_;
  std::vector<int> coordinates_;     // of this rank, by dimension
  Communicator all_;                 // a duplicate
  std::vector<Communicator> along_;  // by dimension
};

}  // namespace hocket::training

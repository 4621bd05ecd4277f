#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <hocket/training/agreement.hpp>
#include <hocket/training/groups.hpp>
#include <set>
#include <string_view>

namespace hocket::training {
namespace {

constexpr const char* mesh_operation = "hocket::training::Mesh";

std::string text_of(const std::vector<MeshDimension>& dimensions) {
  std::vector<std::string> all;
  for (const MeshDimension& each : dimensions) {
    all.push_back(fmt::format("\"{}\" {}", each.name, each.ranks));
  }
  return fmt::format("{}", fmt::join(all, " x "));
}

/// With the number of ranks of each.
std::vector<MeshDimension> checked(std::vector<MeshDimension> dimensions, int ranks) {
  const auto refuse = [&](const std::string& what) {
    throw InvalidArgument(mesh_operation,
                          fmt::format("the dimensions {} {}", text_of(dimensions), what));
  };
  if (dimensions.empty())
    throw InvalidArgument(mesh_operation, "a mesh needs at least one dimension");
  std::set<std::string_view> names;
  MeshDimension* open = nullptr;
  std::int64_t product = 1;
  for (MeshDimension& each : dimensions) {
    if (each.name.empty() || !names.insert(each.name).second) {
      refuse("need a name each, and no name twice");
    }
    if (each.ranks == -1 && open == nullptr) {
      open = &each;
      continue;
    }
    if (each.ranks < 1) refuse("must have at least 1 rank each, and -1 at most once");
    product *= each.ranks;
    if (product > ranks) break;
  }
  if (open != nullptr && product <= ranks && ranks % product == 0) {
    open->ranks = static_cast<int>(ranks / product);
    product = ranks;
  }
  if (product != ranks) {
    refuse(fmt::format("do not multiply to {}, the number of ranks", ranks));
  }
  return dimensions;
}

/// The first 200 characters of each rank's dimensions.
void require_same(Communicator& comm, const std::vector<MeshDimension>& dimensions) {
  constexpr std::size_t length = 200;
  const std::string text = text_of(dimensions);
  std::vector<char> mine(length), all(length * static_cast<std::size_t>(comm.ranks()));
  std::copy_n(text.begin(), std::min(text.size(), length - 1), mine.begin());
  comm.all_gather(mine, all);
  for (std::size_t at = length; at < all.size(); at += length) {
    const std::string_view root(all.data()), other(all.data() + at);
    if (root == other) continue;
    const int rank = static_cast<int>(at / length);
    throw Mismatch(mesh_operation,
                   fmt::format("rank 0 has the dimensions {}, rank {} has {}: give all "
                               "ranks the same",
                               root, rank, other),
                   rank);
  }
}

std::vector<MeshDimension> agreed(Communicator& comm, std::vector<MeshDimension> dimensions) {
  require_same(comm, dimensions);
  return checked(std::move(dimensions), comm.ranks());  // so it throws on all ranks or on none
}

std::vector<int> coordinates_of(int rank, const std::vector<MeshDimension>& dimensions) {
  std::vector<int> coordinates(dimensions.size());
  for (std::size_t d = dimensions.size(); d-- > 0;) {
    coordinates[d] = rank % dimensions[d].ranks;
    rank /= dimensions[d].ranks;
  }
  return coordinates;
}

}  // namespace

Mesh::Mesh(Communicator& comm, std::vector<MeshDimension> dimensions)
    : dimensions_(agreed(comm, std::move(dimensions))),
      coordinates_(coordinates_of(comm.rank(), dimensions_)),
      all_(comm.duplicate({.name = "mesh"})) {
  for (const MeshDimension& each : dimensions_) along_.push_back(group({each.name}));
}

std::size_t Mesh::index(const std::string& name) const {
  const auto found = std::ranges::find(dimensions_, name, &MeshDimension::name);
  if (found == dimensions_.end()) {
    throw InvalidArgument(mesh_operation, fmt::format("there is no dimension \"{}\": there are {}",
                                                      name, text_of(dimensions_)));
  }
  return static_cast<std::size_t>(found - dimensions_.begin());
}

int Mesh::ranks(const std::string& name) const { return dimensions_[index(name)].ranks; }
int Mesh::coordinate(const std::string& name) const { return coordinates_[index(name)]; }
Communicator& Mesh::along(const std::string& name) { return along_[index(name)]; }

Communicator Mesh::group(const std::vector<std::string>& names) {
  std::vector<int> corner = coordinates_;  // the group's first rank
  for (const std::string& name : names) corner[index(name)] = 0;
  return all_.split(rank_at(corner), all_.rank());
}

int Mesh::rank_at(const std::vector<int>& coordinates) const {
  bool valid = coordinates.size() == dimensions_.size();
  int rank = 0;
  for (std::size_t d = 0; valid && d < dimensions_.size(); ++d) {
    valid = coordinates[d] >= 0 && coordinates[d] < dimensions_[d].ranks;
    rank = rank * dimensions_[d].ranks + coordinates[d];
  }
  if (!valid) {
    throw InvalidArgument(mesh_operation,
                          fmt::format("there is no rank at the coordinates ({}) of {}",
                                      fmt::join(coordinates, ", "), text_of(dimensions_)));
  }
  return rank;
}

}  // namespace hocket::training

// PMIx, the library by which the ranks of Open MPI's mpirun and of `srun --mpi=pmix` talk with
// their launcher. libpmix.so.2 is loaded at run time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "bootstrap/launchers/join_wait.h"

namespace hocket::internal {

struct PmixLibrary;

/// A reference to the PMIx client of this process, which counts its users: MPI may be another one.
class Pmix {
 public:
  /// keep: the reference lasts until the process exits, because an MPI_Init that follows must not
  /// find a client that has ended.
  static Status open(bool keep, std::unique_ptr<Pmix>* out);
  Pmix(const Pmix&) = delete;
  Pmix& operator=(const Pmix&) = delete;
  ~Pmix();

  int rank() const { return rank_; }
  Status ranks(int* out) const;
  /// Rank 0: the others can read the text from now on, until this object and the last other user of
  /// PMIx end.
  Status publish(const std::string& text);
  /// Another rank: waits until rank 0 has published its text.
  Status read(const JoinWait& wait, std::string* text) const;

 private:
  explicit Pmix(const PmixLibrary& library) : library_(library) {}
  Status read_once(const JoinWait& wait, std::string* text, bool* found) const;
  const PmixLibrary& library_;
  std::string name_space_;
  int rank_ = -1;
  bool keep_ = false;
};

}  // namespace hocket::internal

// The operators and datatypes that the program has made. Their handles are numbers. A number is
// never used again, so that a destroyed handle stays invalid.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/status.h"
#include "base/types.h"
#include "hocket/hocket.h"
#include "reduce/user_fold.h"

namespace hocket::internal::api {

// The first number of a handle.
inline constexpr int first_made = 1000;

class Operators {
 public:
  struct Made {
    std::shared_ptr<const UserOperator> op;  // null: PreMulSum
    bool commutative = true;
    Dtype dtype = Dtype::int8;  // of PreMulSum
    std::uint64_t scalar = 0;   // in the type of partial results
  };
  /// Sets *number to the handle of an operator of comm.
  Status add(const hocketComm* comm, const Made& made, int* number);
  /// Returns an error if comm has no operator with that number.
  Status find(const hocketComm* comm, int number, Made* out);
  Status end(const hocketComm* comm, int number);
  /// Ends all operators of a communicator that is destroyed.
  void end_all(const hocketComm* comm);

 private:
  struct Entry {
    const hocketComm* comm;
    Made made;
  };
  Status check(const hocketComm* comm, int number) const;

  std::mutex mutex_;
  std::map<int, Entry> live_;
  int next_ = first_made;
};

/// A datatype of the program: n elements of a type that hocket has.
struct MadeDatatype {
  Dtype base = Dtype::int8;
  std::uint32_t n = 1;
};

class Datatypes {
 public:
  Status add(const MadeDatatype& made, int* number);
  Status find(int number, MadeDatatype* out);
  Status end(int number);

 private:
  Status check(int number) const;

  std::mutex mutex_;
  std::map<int, MadeDatatype> live_;
  int next_ = first_made;
};

/// A datatype of hocket or of the program.
Status datatype_of(int datatype, MadeDatatype* out);

}  // namespace hocket::internal::api

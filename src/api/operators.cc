#include "api/operators.h"

#include <climits>
#include <cstring>

#include "api/process.h"
#include "base/checked.h"

namespace hocket::internal::api {
namespace {

/// The function of a program, with its context.
class FunctionOperator final : public UserOperator {
 public:
  FunctionOperator(hocketUserFunction_t function, void* context, const OperatorName& name)
      : function_(function), context_(context), name_(name) {}
  void apply(const void* in, void* inout, std::size_t count, int datatype) const override {
    function_(context_, in, inout, count, static_cast<hocketDataType_t>(datatype));
  }
  OperatorName name() const override { return name_; }

 private:
  hocketUserFunction_t function_;
  void* context_;
  OperatorName name_;
};

Status take_name(const char* name, OperatorName* out) {
  if (name == nullptr) return invalid_argument("name is NULL: errors quote the operator by it");
  const std::size_t length = ::strnlen(name, sizeof out->text + 1);
  if (length == 0) return invalid_argument("name is empty: errors quote the operator by it");
  if (length > sizeof out->text) {
    return invalid_argument("name has more than " + std::to_string(sizeof out->text) +
                            " characters");
  }
  for (std::size_t i = 0; i < length; ++i) {
    if (name[i] < ' ' || name[i] > '~') {
      return invalid_argument("name has a character that is not printable ASCII");
    }
    out->text[i] = name[i];
  }
  return {};
}

Status next_number(int* next, int* number) {
  if (*next == INT_MAX) {
    return {Code::system_error,
            "this process has made all the operators or datatypes that have "
            "numbers"};
  }
  *number = (*next)++;
  return {};
}

/// The scalar at that address, in the type of partial results.
std::uint64_t take_scalar(const void* scalar, Dtype dtype) {
  std::uint64_t bits = 0;
  void* const to = &bits;
  const FoldSource from{scalar, false};
  fold({.srcs = &from, .dsts = &to, .wide_dst = true, .count = 1, .dtype = dtype});
  return bits;
}

Status check_residence(int residence) {
  if (residence == hocketScalarHostImmediate) return {};
  if (residence == hocketScalarDevice) {
    return invalid_argument(
        "residence is hocketScalarDevice, but this version has no device memory: use "
        "hocketScalarHostImmediate, with which the call reads the scalar");
  }
  return invalid_argument("residence " + std::to_string(residence) +
                          " does not exist: use hocketScalarHostImmediate");
}

static_assert(sizeof(OperatorName::text) == HOCKET_OPERATOR_NAME_MAX);

}  // namespace

Status Operators::add(const hocketComm* comm, const Made& made, int* number) {
  const std::lock_guard lock(mutex_);
  HOCKET_RETURN_IF_ERROR(next_number(&next_, number));
  live_.emplace(*number, Entry{comm, made});
  return {};
}

Status Operators::check(const hocketComm* comm, int number) const {
  const std::string text = "operator " + std::to_string(number);
  const auto found = live_.find(number);
  if (found != live_.end() && found->second.comm == comm) return {};
  if (found != live_.end()) {
    return invalid_argument(text + " was made for another communicator: make one for this one");
  }
  if (number >= first_made && number < next_) {
    return invalid_argument(text + " was destroyed before");
  }
  return invalid_argument(text + " does not exist: use a hocketRedOp_t");
}

Status Operators::find(const hocketComm* comm, int number, Made* out) {
  const std::lock_guard lock(mutex_);
  HOCKET_RETURN_IF_ERROR(check(comm, number));
  *out = live_.at(number).made;
  return {};
}

Status Operators::end(const hocketComm* comm, int number) {
  const std::lock_guard lock(mutex_);
  HOCKET_RETURN_IF_ERROR(check(comm, number));
  live_.erase(number);
  return {};
}

void Operators::end_all(const hocketComm* comm) {
  const std::lock_guard lock(mutex_);
  std::erase_if(live_, [&](const auto& entry) { return entry.second.comm == comm; });
}

Status Datatypes::add(const MadeDatatype& made, int* number) {
  const std::lock_guard lock(mutex_);
  HOCKET_RETURN_IF_ERROR(next_number(&next_, number));
  live_.emplace(*number, made);
  return {};
}

Status Datatypes::check(int number) const {
  if (live_.contains(number)) return {};
  const std::string text = "datatype " + std::to_string(number);
  if (number >= first_made && number < next_) {
    return invalid_argument(text + " was destroyed before");
  }
  return invalid_argument(text + " does not exist: use a hocketDataType_t");
}

Status Datatypes::find(int number, MadeDatatype* out) {
  const std::lock_guard lock(mutex_);
  HOCKET_RETURN_IF_ERROR(check(number));
  *out = live_.at(number);
  return {};
}

Status Datatypes::end(int number) {
  const std::lock_guard lock(mutex_);
  HOCKET_RETURN_IF_ERROR(check(number));
  live_.erase(number);
  return {};
}

Status datatype_of(int datatype, MadeDatatype* out) {
  out->n = 1;
  if (datatype >= 0 && datatype < hocketNumTypes) {
    out->base = static_cast<Dtype>(datatype);
    return {};
  }
  if (datatype == hocketInt16 || datatype == hocketUint16) {
    out->base = datatype == hocketInt16 ? Dtype::int16 : Dtype::uint16;
    return {};
  }
  return Process::current().datatypes.find(datatype, out);
}

}  // namespace hocket::internal::api

using namespace hocket::internal;

hocketResult_t hocketRedOpCreateUser(hocketRedOp_t* op, hocketUserFunction_t fn, void* context,
                                     int commutative, const char* name, hocketComm_t comm) {
  return api::guarded(__func__, comm, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(api::check(comm));
    if (op == nullptr) return invalid_argument("op is NULL");
    if (fn == nullptr) return invalid_argument("fn is NULL");
    OperatorName kept;
    HOCKET_RETURN_IF_ERROR(api::take_name(name, &kept));
    int number = 0;
    HOCKET_RETURN_IF_ERROR(api::Process::current().operators.add(
        comm,
        {.op = std::make_shared<api::FunctionOperator>(fn, context, kept),
         .commutative = commutative != 0},
        &number));
    *op = static_cast<hocketRedOp_t>(number);
    return {};
  });
}

hocketResult_t hocketRedOpCreatePreMulSum(hocketRedOp_t* op, const void* scalar,
                                          hocketDataType_t datatype,
                                          hocketScalarResidence_t residence, hocketComm_t comm) {
  return api::guarded(__func__, comm, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(api::check(comm));
    if (op == nullptr) return invalid_argument("op is NULL");
    if (scalar == nullptr) return invalid_argument("scalar is NULL");
    // A C program may pass a number that the enumeration does not have, which C++ must not load.
    int place = 0;
    static_assert(sizeof place == sizeof residence);
    std::memcpy(&place, &residence, sizeof place);
    HOCKET_RETURN_IF_ERROR(api::check_residence(place));
    api::MadeDatatype type;
    HOCKET_RETURN_IF_ERROR(api::datatype_of(static_cast<int>(datatype), &type));
    if (type.n > 1) {
      return invalid_argument("datatype " + std::to_string(static_cast<int>(datatype)) + " has " +
                              std::to_string(type.n) + " elements, but the scalar is one: use " +
                              name_of(type.base));
    }
    int number = 0;
    HOCKET_RETURN_IF_ERROR(api::Process::current().operators.add(
        comm, {.op = nullptr, .dtype = type.base, .scalar = api::take_scalar(scalar, type.base)},
        &number));
    *op = static_cast<hocketRedOp_t>(number);
    return {};
  });
}

hocketResult_t hocketRedOpDestroy(hocketRedOp_t op, hocketComm_t comm) {
  return api::guarded(__func__, comm, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(api::check_handle(comm));
    if (static_cast<int>(op) >= 0 && static_cast<int>(op) < api::first_made) {
      return invalid_argument("operator " + std::to_string(static_cast<int>(op)) +
                              " was not made by hocketRedOpCreatePreMulSum or "
                              "hocketRedOpCreateUser");
    }
    return api::Process::current().operators.end(comm, static_cast<int>(op));
  });
}

hocketResult_t hocketTypeCreateContiguous(hocketDataType_t* type, int n, hocketDataType_t base) {
  return api::guarded(__func__, nullptr, [&]() -> Status {
    if (type == nullptr) return invalid_argument("type is NULL");
    if (n < 1) return invalid_argument("n is " + std::to_string(n) + ": it must be at least 1");
    api::MadeDatatype made;
    HOCKET_RETURN_IF_ERROR(api::datatype_of(static_cast<int>(base), &made));
    const auto elements = checked_mul(made.n, static_cast<std::uint64_t>(n));
    if (!elements || *elements * size_of(made.base) > INT_MAX) {
      return invalid_argument("an element of the datatype would have more than " +
                              std::to_string(INT_MAX) + " bytes");
    }
    made.n = static_cast<std::uint32_t>(*elements);
    int number = 0;
    HOCKET_RETURN_IF_ERROR(api::Process::current().datatypes.add(made, &number));
    *type = static_cast<hocketDataType_t>(number);
    return {};
  });
}

hocketResult_t hocketTypeDestroy(hocketDataType_t type) {
  return api::guarded(__func__, nullptr, [&]() -> Status {
    const int number = static_cast<int>(type);
    if (number >= 0 && number < api::first_made) {
      return invalid_argument("datatype " + std::to_string(number) +
                              " was not made by hocketTypeCreateContiguous");
    }
    return api::Process::current().datatypes.end(number);
  });
}

hocketResult_t hocketTypeSize(hocketDataType_t type, size_t* bytes) {
  return api::guarded(__func__, nullptr, [&]() -> Status {
    if (bytes == nullptr) return invalid_argument("bytes is NULL");
    api::MadeDatatype made;
    HOCKET_RETURN_IF_ERROR(api::datatype_of(static_cast<int>(type), &made));
    *bytes = made.n * size_of(made.base);
    return {};
  });
}

#include <cstring>

#include "api/handle.h"

using namespace hocket::internal;

hocketResult_t hocketCommLoadPlan(hocketComm_t comm, const char* json, int forced) {
  return api::guarded(__func__, comm, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(api::check(comm));
    if (json == nullptr) return invalid_argument("json is NULL");
    if (forced != 0 && forced != 1) return invalid_argument("forced is neither 0 nor 1");
    if (api::in_group()) return invalid_usage("plans are loaded outside of groups");
    Communicator& communicator = *comm->communicator;
    const api::CommGuard entered(communicator);
    if (!entered.ok()) {
      return invalid_usage("another thread is inside a call of this communicator");
    }
    return communicator.load_plan({json, ::strnlen(json, most_file_bytes + 1)}, forced == 1);
  });
}

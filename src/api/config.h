// The configuration of a communicator from hocketConfig_t and the environment. A variable of the
// environment has precedence over a field.
#pragma once

#include "base/settings.h"
#include "engine/comm_config.h"
#include "hocket/hocket.h"

namespace hocket::internal::api {

/// Fails if config was not initialized, on a bad field, and on an unknown HOCKET_* variable.
Status make_config(const hocketConfig_t* config, const CommConfig& defaults, CommConfig* out,
                   Settings* settings);

}  // namespace hocket::internal::api

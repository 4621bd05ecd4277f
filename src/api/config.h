// hocketConfig_t and the environment, worked out. A variable beats a field.
#pragma once

#include "base/settings.h"
#include "engine/comm_config.h"
#include "hocket/hocket.h"

namespace hocket::internal::api {

/// Fails on a config that is not one, on a bad field, and on a HOCKET_* variable that is not known.
Status make_config(const hocketConfig_t* config, const CommConfig& defaults, CommConfig* out,
                   Settings* settings);

}  // namespace hocket::internal::api

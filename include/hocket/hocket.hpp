// hocket for C++: RAII handles, spans and typed errors over hocket.h.
#pragma once

#include "hocket/hocket.h"

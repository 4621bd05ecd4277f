// The picture of an operation: a column for each rank, time downwards, an arrow for each message.
#pragma once

#include <string>

#include "walk.h"

namespace hocket::topo {

std::string svg_of(const std::string& title, std::uint32_t ranks, const Walk& walk);

}  // namespace hocket::topo

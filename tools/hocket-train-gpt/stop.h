// SIGINT and SIGTERM as a wish to stop.
#pragma once

namespace hocket::gpt {

/// From now on the first SIGINT or SIGTERM only sets stop_wished(); a second one ends the process.
void watch_signals();
bool stop_wished();

}  // namespace hocket::gpt

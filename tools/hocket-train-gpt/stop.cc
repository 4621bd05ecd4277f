#include "stop.h"

#include <signal.h>

#include <atomic>

namespace hocket::gpt {
namespace {

std::atomic<bool> wished = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // signal handlers may use it

}  // namespace

void watch_signals() {
  struct sigaction action = {};
  action.sa_handler = [](int) { wished = true; };
  action.sa_flags = SA_RESTART | SA_RESETHAND;
  for (const int number : {SIGINT, SIGTERM}) ::sigaction(number, &action, nullptr);
}

bool stop_wished() { return wished; }

}  // namespace hocket::gpt

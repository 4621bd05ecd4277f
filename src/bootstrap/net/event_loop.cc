#include "bootstrap/net/event_loop.h"

namespace hocket::internal {

bool EventLoop::tell_clients(const Status& failure) {
  bool all_done = true;
  for (std::size_t i = 0; i < clients_.size();) {
    Client* const client = clients_[i];
    bool done = false;
    best_effort([&] { done = client->fail(failure); });
    all_done &= done;
    if (i < clients_.size() && clients_[i] == client) ++i;  // else it has removed itself
  }
  return all_done;
}

void EventLoop::tell_clients_of_exit() {
  for (std::size_t i = 0; i < clients_.size();) {
    Client* const client = clients_[i];
    best_effort([&] { client->process_exits(); });
    if (i < clients_.size() && clients_[i] == client) ++i;
  }
}

bool EventLoop::spare_descriptor() {
  for (const bool any : {false, true}) {
    for (DescriptorHolder* holder : holders_) {
      if (holder->spare_descriptor(any)) return true;
    }
  }
  return false;
}

}  // namespace hocket::internal

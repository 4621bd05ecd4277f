#include "transport/self/transport.h"

#include <algorithm>
#include <cstring>

namespace hocket::internal {

void SelfTransport::post(Transfer& transfer, List& same, List& opposite, bool is_send) {
  if (!cancelled_.ok()) {
    transfer.status = cancelled_;
    transfer.done = true;
    return;
  }
  const auto match = std::find_if(opposite.begin(), opposite.end(), [&](const Transfer* other) {
    return other->key == transfer.key;
  });
  if (match == opposite.end()) {
    same.push_back(&transfer);
    return;
  }
  Transfer& other = **match;
  opposite.erase(match);
  Transfer& send = is_send ? transfer : other;
  Transfer& recv = is_send ? other : transfer;
  if (send.bytes != recv.bytes || send.signature->count != recv.signature->count ||
      send.signature->dtype != recv.signature->dtype) {
    send.status = recv.status = disagreement(rank_, *recv.signature, rank_, *send.signature);
  } else if (send.bytes > 0) {
    std::memmove(recv.data, send.data, send.bytes);
    send.moved = recv.moved = send.bytes;
  }
  send.done = recv.done = true;
}

void SelfTransport::cancel(const Status& why) {
  cancelled_ = why;
  for (List* list : {&sends_, &recvs_}) {
    for (Transfer* transfer : *list) {
      transfer->status = why;
      transfer->done = true;
    }
    list->clear();
  }
}

}  // namespace hocket::internal

// A connected, non-blocking socket with what its two ends say over it: plain bytes, or the same
// bytes over TLS. One thread at a time.
#pragma once

#include <sys/uio.h>

#include <memory>
#include <utility>

#include "base/tls.h"
#include "base/unique_fd.h"

namespace hocket::internal {

class ByteStream {
 public:
  ByteStream() = default;
  ByteStream(UniqueFd fd) : fd_(std::move(fd)) {}  // plain
  ByteStream(ByteStream&&) noexcept = default;
  ByteStream& operator=(ByteStream&& other) noexcept {
    tls_ = std::move(other.tls_);  // before the socket that it uses
    fd_ = std::move(other.fd_);
    return *this;
  }

  int fd() const { return fd_.get(); }
  explicit operator bool() const { return static_cast<bool>(fd_); }
  void reset() { *this = {}; }

  /// From now on all bytes go over TLS; shake_hands() comes first. Throws std::bad_alloc.
  void start_tls(Tls::Role role, const Tls::Secret& secret) {
    tls_ = std::make_unique<Tls>(role, fd(), secret);
  }
  Tls::Progress shake_hands() { return tls_->shake_hands(); }
  /// To be called when hocket's own handshake (bootstrap/auth) has ended. From then on receive()
  /// may take more bytes from the socket than it returns.
  void read_ahead() {
    if (tls_) tls_->read_ahead();
  }
  bool encrypted() const { return tls_ != nullptr; }
  /// Why send() or receive() failed with EBADMSG.
  const std::string& tls_error() const { return tls_->error(); }

  /// Like sendmsg() and recvmsg(), but never EINTR. The caller gives bytes that were not sent
  /// again, before other bytes; they may lie at another address then. If receive() returns fewer
  /// bytes than the parts have room for, nothing is left to read. EBADMSG: TLS has failed;
  /// tls_error() is why.
  ssize_t send(const iovec* parts, int count) {
    return tls_ == nullptr ? send_plain(parts, count) : tls_->send(parts, count);
  }
  /// from_socket: false: only bytes that this object has taken from the socket before; epoll sees
  /// only bytes that are in the socket.
  ssize_t receive(const iovec* parts, int count, bool from_socket = true) {
    return tls_ == nullptr ? receive_plain(parts, count, from_socket)
                           : tls_->receive(parts, count, from_socket);
  }

 private:
  ssize_t send_plain(const iovec* parts, int count);
  ssize_t receive_plain(const iovec* parts, int count, bool from_socket);

  UniqueFd fd_;
  std::unique_ptr<Tls> tls_;  // null: plain bytes
};

}  // namespace hocket::internal

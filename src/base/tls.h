// One end of a TLS 1.3 connection over a non-blocking socket. Both ends know a secret of this
// connection (an external pre-shared key); there are no certificates. A fresh Diffie-Hellman
// exchange makes the session's keys: a process that learns the secret later cannot decrypt earlier
// bytes of the connection.
//
// OpenSSL never makes a system call here: records that it has made wait in a buffer until the
// socket has taken them, and it reads the socket by receive_now(). One thread at a time.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// From OpenSSL, whose headers are needed in tls.cc only.
struct bio_st;
struct ssl_st;

namespace hocket::internal {

/// Sends and receives on a socket what is possible at once; no SIGPIPE, and no cancellation point:
/// a cancelled thread would leave half a frame in the socket. A cancellation point also costs two
/// locked instructions. Returns what the system call returns, but never EINTR.
ssize_t send_now(int fd, const void* data, std::size_t bytes);
ssize_t receive_now(int fd, void* data, std::size_t bytes);

class Tls {
 public:
  using Secret = std::array<std::uint8_t, 32>;
  enum class Role { client, server };
  enum class Progress { done, waits, failed };

  /// RFC 8446, 5.5: a key of AES-GCM is safe for 2^24.5 records.
  static constexpr std::uint64_t safe_records = std::uint64_t{1} << 23;

  /// fd: stays the caller's, who keeps it open as long as this object exists. records_per_key: how
  /// many are sent before the key for sending changes. Throws std::bad_alloc if OpenSSL cannot make
  /// a session.
  Tls(Role role, int fd, const Secret& secret, std::uint64_t records_per_key = safe_records);
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;
  ~Tls();

  /// Goes on with the TLS handshake; waits: to be called again when the socket can be read. Reads
  /// no byte behind the handshake.
  Progress shake_hands();
  /// From now on receive() may take more from the socket than it returns at once.
  void read_ahead();

  /// Like sendmsg(): returns how many bytes the socket has taken, or -1 with errno. After it
  /// returned fewer bytes than it was given, or EAGAIN, the rest is given again, in any memory,
  /// before other bytes. EBADMSG: error() says why.
  ssize_t send(const iovec* parts, int count);
  /// Like recvmsg(). If it returns fewer bytes than the parts have room for, nothing is left to
  /// read. from_socket: false: only what has been taken from the socket before, where no epoll sees
  /// it. The end of the stream is not authenticated: the bytes must say where they end.
  ssize_t receive(const iovec* parts, int count, bool from_socket);
  const std::string& error() const { return error_; }
  /// The number of keys that have encrypted sent records. For tests.
  std::uint64_t keys_used() const { return keys_used_; }

 private:
  struct Callbacks;
  bool encrypt(const void* data, std::size_t bytes);
  int flush();
  ssize_t stopped(std::size_t total);
  ssize_t fail();

  const int fd_;
  const std::uint64_t records_per_key_;
  Secret secret_;
  ssl_st* ssl_ = nullptr;
  bool connected_ = false;     // the TLS handshake has ended
  std::string error_;          // not empty: the connection cannot be used any more
  std::uint64_t records_ = 0;  // sent with the present key
  std::uint64_t keys_used_ = 1;

  // Records that the socket has not taken yet: from out_begin_ on.
  std::vector<std::uint8_t> out_;
  std::size_t out_begin_ = 0;
  std::size_t owed_ = 0;  // bytes of the caller that are in out_ and that send() has not returned

  // How the last attempt of OpenSSL to read the socket ended.
  enum class Input { bytes, blocked, end, failed };
  Input input_ = Input::bytes;
  bool from_socket_ = true;
  bool socket_empty_ = false;  // the last read brought less than it asked for
  int input_error_ = 0;        // Input::failed: errno
};

}  // namespace hocket::internal

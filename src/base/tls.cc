#include "base/tls.h"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

namespace hocket::internal {
namespace {

constexpr unsigned char identity[] = "hocket";         // of the pre-shared key
constexpr unsigned char aes_128_gcm[] = {0x13, 0x01};  // any suite with SHA-256 suits the key
constexpr std::size_t record_bytes = 16 << 10;
constexpr std::size_t send_piece = 4 * record_bytes;  // encrypted between two system calls
constexpr std::size_t receive_buffer = 4 * record_bytes;

bool cpu_has_aes() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("aes") != 0;
#elif defined(__aarch64__)
  return (::getauxval(AT_HWCAP) & HWCAP_AES) != 0;
#else
  return false;
#endif
}

/// Entries that this thread's error queue had before stay there for their owner.
class ErrorMark {
 public:
  ErrorMark() { ::ERR_set_mark(); }
  ErrorMark(const ErrorMark&) = delete;
  ErrorMark& operator=(const ErrorMark&) = delete;
  ~ErrorMark() { ::ERR_pop_to_mark(); }
};

/// A sentence for the latest error in OpenSSL's queue.
std::string reason(bool in_handshake) {
  const unsigned long error = ::ERR_peek_last_error();
  const int number = ERR_GET_REASON(error);
  if (number == ERR_R_MALLOC_FAILURE) return "OpenSSL has no memory left";
  const char* const text = ::ERR_reason_error_string(error);
  const std::string quoted = text == nullptr ? "" : std::string(" (") + text + ")";
  if (in_handshake) return "the TLS handshake failed" + quoted;
  return (number >= SSL_AD_REASON_OFFSET ? "the other end has found by TLS" : "TLS has found") +
         std::string(" that bytes were changed on the way") + quoted;
}

}  // namespace

ssize_t send_now(int fd, const void* data, std::size_t bytes) {
  for (;;) {
    const ssize_t sent =
        ::syscall(SYS_sendto, fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL, nullptr, 0);
    if (sent >= 0 || errno != EINTR) return sent;
  }
}

ssize_t receive_now(int fd, void* data, std::size_t bytes) {
  for (;;) {
    const ssize_t got = ::syscall(SYS_recvfrom, fd, data, bytes, MSG_DONTWAIT, nullptr, nullptr);
    if (got >= 0 || errno != EINTR) return got;
  }
}

// ---- What OpenSSL calls

struct Tls::Callbacks {
  static Tls& of(BIO* bio) { return *static_cast<Tls*>(::BIO_get_data(bio)); }

  static int write(BIO* bio, const char* data, int size) {
    Tls& tls = of(bio);
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(data);
    try {
      tls.out_.insert(tls.out_.end(), bytes, bytes + size);
    } catch (const std::bad_alloc&) {
      ERR_raise(ERR_LIB_USER, ERR_R_MALLOC_FAILURE);
      return -1;
    }
    return size;
  }

  static int read(BIO* bio, char* data, int size) {
    Tls& tls = of(bio);
    BIO_clear_retry_flags(bio);
    ssize_t got = -1;
    errno = EAGAIN;
    if (tls.from_socket_ && !tls.socket_empty_) {
      got = receive_now(tls.fd_, data, static_cast<std::size_t>(size));
    }
    if (got > 0) {
      tls.socket_empty_ = got < size;
      tls.input_ = Input::bytes;
    } else if (got == 0) {
      tls.input_ = Input::end;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      tls.input_ = Input::blocked;
      BIO_set_retry_read(bio);
    } else {
      tls.input_ = Input::failed;
      tls.input_error_ = errno;
    }
    return static_cast<int>(got);
  }

  static long control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

  static BIO_METHOD* method() {
    static BIO_METHOD* const made = [] {
      BIO_METHOD* const method =
          ::BIO_meth_new(::BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "hocket");
      if (method == nullptr) throw std::bad_alloc();
      ::BIO_meth_set_write(method, write);
      ::BIO_meth_set_read(method, read);
      ::BIO_meth_set_ctrl(method, control);
      return method;
    }();
    return made;
  }

  /// The pre-shared key as OpenSSL wants it; null: no memory.
  static SSL_SESSION* session(SSL* ssl) {
    const Tls& tls = *static_cast<Tls*>(SSL_get_app_data(ssl));
    SSL_SESSION* const made = ::SSL_SESSION_new();
    if (made == nullptr) return nullptr;
    if (::SSL_SESSION_set1_master_key(made, tls.secret_.data(), tls.secret_.size()) == 1 &&
        ::SSL_SESSION_set_cipher(made, ::SSL_CIPHER_find(ssl, aes_128_gcm)) == 1 &&
        ::SSL_SESSION_set_protocol_version(made, TLS1_3_VERSION) == 1) {
      return made;
    }
    ::SSL_SESSION_free(made);
    return nullptr;
  }
  static int client_key(SSL* ssl, const EVP_MD*, const unsigned char** id, std::size_t* id_bytes,
                        SSL_SESSION** out) {
    *id = identity;
    *id_bytes = sizeof identity - 1;
    *out = session(ssl);
    return *out != nullptr;
  }
  static int server_key(SSL* ssl, const unsigned char* id, std::size_t id_bytes,
                        SSL_SESSION** out) {
    *out = nullptr;
    if (id_bytes != sizeof identity - 1 || std::memcmp(id, identity, id_bytes) != 0) return 1;
    *out = session(ssl);
    return *out != nullptr;
  }

  /// What all sessions of the process have in common; nothing changes it once it is made.
  static SSL_CTX* context() {
    static SSL_CTX* const made = [] {
      SSL_CTX* const context = ::SSL_CTX_new(::TLS_method());
      // The client decides.
      const char* const suites = cpu_has_aes()
                                     ? "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256"
                                     : "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256";
      if (context == nullptr || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
          ::SSL_CTX_set_ciphersuites(context, suites) != 1 ||
          ::SSL_CTX_set_num_tickets(context, 0) != 1) {
        ::SSL_CTX_free(context);
        throw std::bad_alloc();
      }
      ::SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
      SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
      ::SSL_CTX_set_default_read_buffer_len(context, receive_buffer);
      ::SSL_CTX_set_psk_use_session_callback(context, client_key);
      ::SSL_CTX_set_psk_find_session_callback(context, server_key);
      return context;
    }();
    return made;
  }
};

// ---- The session

Tls::Tls(Role role, int fd, const Secret& secret, std::uint64_t records_per_key)
    : fd_(fd), records_per_key_(records_per_key), secret_(secret) {
  const ErrorMark mark;
  BIO_METHOD* const method = Callbacks::method();
  ssl_ = ::SSL_new(Callbacks::context());
  BIO* const bio = ssl_ == nullptr ? nullptr : ::BIO_new(method);
  if (bio == nullptr) {
    ::SSL_free(ssl_);
    throw std::bad_alloc();
  }
  ::BIO_set_data(bio, this);
  ::BIO_set_init(bio, 1);
  ::SSL_set_bio(ssl_, bio, bio);
  SSL_set_app_data(ssl_, this);
  if (role == Role::server) {
    ::SSL_set_accept_state(ssl_);
    return;
  }
  ::SSL_set_connect_state(ssl_);
  // A server that does not accept the pre-shared key would have to show a certificate, and no
  // certificate is trusted.
  ::SSL_set_verify(ssl_, SSL_VERIFY_PEER, nullptr);
}

// Without a close_notify: the frames of the library say where a stream ends.
Tls::~Tls() {
  ::SSL_free(ssl_);
  ::OPENSSL_cleanse(secret_.data(), secret_.size());
}

Tls::Progress Tls::shake_hands() {
  if (!error_.empty()) return Progress::failed;
  const ErrorMark mark;
  from_socket_ = true;
  socket_empty_ = false;
  input_ = Input::bytes;
  const int done = ::SSL_do_handshake(ssl_);
  const bool keyed = done == 1 && ::SSL_session_reused(ssl_) == 1;  // by the pre-shared key
  if (!keyed && (done == 1 || input_ != Input::blocked)) {
    if (input_ == Input::end) error_ = "it closed the connection during the TLS handshake";
    fail();
    return Progress::failed;
  }
  // The send buffer of a new socket has room for all bytes of the TLS handshake.
  if (flush() != 0) {
    error_ = "the socket took only a part of the TLS handshake";
    return Progress::failed;
  }
  connected_ = keyed;
  return keyed ? Progress::done : Progress::waits;
}

void Tls::read_ahead() {
  ::SSL_set_read_ahead(ssl_, 1);
  ::OPENSSL_cleanse(secret_.data(), secret_.size());
}

// Takes its text from OpenSSL's error queue, and tells the other end by TLS's alert.
ssize_t Tls::fail() {
  if (error_.empty()) error_ = reason(!connected_);
  static_cast<void>(flush());
  errno = EBADMSG;
  return -1;
}

/// Returns 0 when the socket has taken all records, else errno.
int Tls::flush() {
  while (out_begin_ < out_.size()) {
    const ssize_t sent = send_now(fd_, out_.data() + out_begin_, out_.size() - out_begin_);
    if (sent < 0) return errno;
    out_begin_ += static_cast<std::size_t>(sent);
  }
  out_.clear();
  out_begin_ = 0;
  return 0;
}

bool Tls::encrypt(const void* data, std::size_t bytes) {
  if (records_ >= records_per_key_) {
    if (::SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED) != 1) return false;
    records_ = 0;
    ++keys_used_;
  }
  records_ += 1 + bytes / record_bytes;
  std::size_t written = 0;
  return ::SSL_write_ex(ssl_, data, bytes, &written) == 1 && written == bytes;
}

ssize_t Tls::send(const iovec* parts, int count) {
  if (!error_.empty()) return fail();
  const ErrorMark mark;
  std::size_t sent = 0;   // what the socket has taken
  std::size_t taken = 0;  // and what has been encrypted
  std::size_t skip = owed_;
  int part = 0;
  for (; part < count && skip >= parts[part].iov_len; ++part) skip -= parts[part].iov_len;
  taken = part < count ? owed_ : owed_ - skip;
  while (true) {
    if (const int error = flush(); error != 0) {
      owed_ = taken - sent;
      if (sent > 0) return static_cast<ssize_t>(sent);
      errno = error;
      return -1;
    }
    sent = taken;
    owed_ = 0;
    if (part == count) return static_cast<ssize_t>(sent);
    while (part < count && taken - sent < send_piece) {
      const auto* const data = static_cast<const std::byte*>(parts[part].iov_base);
      const std::size_t bytes = std::min(parts[part].iov_len - skip, send_piece - (taken - sent));
      if (bytes > 0 && !encrypt(data + skip, bytes)) return fail();
      taken += bytes;
      skip += bytes;
      if (skip < parts[part].iov_len) continue;
      ++part;
      skip = 0;
    }
  }
}

ssize_t Tls::receive(const iovec* parts, int count, bool from_socket) {
  if (!error_.empty()) return fail();
  const ErrorMark mark;
  from_socket_ = from_socket;
  socket_empty_ = false;
  input_ = Input::bytes;
  std::size_t total = 0;
  for (int i = 0; i < count; ++i) {
    auto* const data = static_cast<std::byte*>(parts[i].iov_base);
    for (std::size_t at = 0; at < parts[i].iov_len;) {
      std::size_t got = 0;
      if (::SSL_read_ex(ssl_, data + at, parts[i].iov_len - at, &got) != 1) return stopped(total);
      at += got;
      total += got;
    }
  }
  return static_cast<ssize_t>(total);
}

/// OpenSSL has no more bytes. An error that came behind bytes is the result of the next call.
ssize_t Tls::stopped(std::size_t total) {
  if (input_ == Input::bytes) fail();
  if (total > 0) return static_cast<ssize_t>(total);
  if (!error_.empty()) return fail();
  if (input_ == Input::end) return 0;
  errno = input_ == Input::failed ? input_error_ : EAGAIN;
  return -1;
}

}  // namespace hocket::internal

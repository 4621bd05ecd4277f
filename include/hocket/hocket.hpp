// hocket for C++20: RAII handles, spans and typed errors over hocket.h, which says what each call
// does. Header only; the C library throws nothing, this header throws hocket::Error.
//
//   hocket::Communicator comm = hocket::Communicator::from_environment();
//   std::vector<float> x(1024, 1.0f);
//   comm.all_reduce(std::span(x), hocketSum);
#pragma once

#include <hocket/hocket.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace hocket {

/// What a call returned, the sentence that explains it, and the rank that caused it (-1: none).
/// Held by copy: it outlives the communicator.
class Error : public std::runtime_error {
 public:
  Error(hocketResult_t code, const std::string& sentence, int culprit)
      : std::runtime_error(sentence.empty() ? hocketGetErrorString(code) : sentence),
        code_(code),
        culprit_(culprit) {}
  hocketResult_t code() const { return code_; }
  int culprit() const { return culprit_; }

 private:
  hocketResult_t code_;
  int culprit_;
};

/// Throws Error unless result is a success or "in progress".
inline void check(hocketResult_t result, hocketComm_t comm = nullptr) {
  if (result == hocketSuccess || result == hocketInProgress) return;
  int culprit = -1;
  if (comm != nullptr) hocketCommGetCulprit(comm, &culprit);
  throw Error(result, hocketGetLastError(comm), culprit);
}

// ---- Element types. A 16- or 8-bit floating type of the caller's takes part by specialising this.
template <typename T>
struct DatatypeOf;
template <hocketDataType_t value_>
struct Datatype {
  static constexpr hocketDataType_t value = value_;
};
template <>
struct DatatypeOf<std::int8_t> : Datatype<hocketInt8> {};
template <>
struct DatatypeOf<std::uint8_t> : Datatype<hocketUint8> {};
template <>
struct DatatypeOf<std::int32_t> : Datatype<hocketInt32> {};
template <>
struct DatatypeOf<std::uint32_t> : Datatype<hocketUint32> {};
template <>
struct DatatypeOf<std::int64_t> : Datatype<hocketInt64> {};
template <>
struct DatatypeOf<std::uint64_t> : Datatype<hocketUint64> {};
template <>
struct DatatypeOf<float> : Datatype<hocketFloat32> {};
template <>
struct DatatypeOf<double> : Datatype<hocketFloat64> {};

template <typename T>
inline constexpr hocketDataType_t datatype_of = DatatypeOf<std::remove_const_t<T>>::value;

namespace detail {
/// One owner of a C handle, freed by destroy.
template <typename Handle, auto destroy>
class Owner {
 public:
  Owner() = default;
  explicit Owner(Handle handle) : handle_(handle) {}
  Owner(Owner&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owner& operator=(Owner&& other) noexcept {
    if (this != &other) reset(std::exchange(other.handle_, nullptr));
    return *this;
  }
  ~Owner() { reset(); }
  Handle get() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }
  void reset(Handle handle = nullptr) {
    if (handle_ != nullptr) destroy(handle_);
    handle_ = handle;
  }

 private:
  Handle handle_ = nullptr;
};
}  // namespace detail

/// A host stream with its worker. A default Stream is the caller's own thread.
class Stream {
 public:
  Stream() = default;
  static Stream create() {
    hocketStream_t handle = nullptr;
    check(hocketStreamCreate(&handle));
    Stream stream;
    stream.owner_.reset(handle);
    return stream;
  }
  hocketStream_t get() const { return owner_.get(); }
  void synchronize() const { check(hocketStreamSynchronize(get())); }
  bool done() const {
    const hocketResult_t result = hocketStreamQuery(get());
    check(result);
    return result == hocketSuccess;
  }

 private:
  detail::Owner<hocketStream_t, hocketStreamDestroy> owner_;
};

/// A point in a stream's order.
class Event {
 public:
  Event() {
    hocketEvent_t handle = nullptr;
    check(hocketEventCreate(&handle));
    owner_.reset(handle);
  }
  hocketEvent_t get() const { return owner_.get(); }
  void record(const Stream& stream) const { check(hocketEventRecord(get(), stream.get())); }
  void synchronize() const { check(hocketEventSynchronize(get())); }
  void hold_up(const Stream& stream) const { check(hocketStreamWaitEvent(stream.get(), get())); }

 private:
  detail::Owner<hocketEvent_t, hocketEventDestroy> owner_;
};

/// count elements of zeroed memory that local peers read and write in place.
template <typename T>
class Memory {
  static_assert(std::is_trivially_copyable_v<T>, "peers write these bytes");

 public:
  explicit Memory(std::size_t count) : count_(count) {
    if (count > SIZE_MAX / sizeof(T)) throw Error(hocketInvalidArgument, "count is too large", -1);
    void* memory = nullptr;
    check(hocketMemAlloc(&memory, count * sizeof(T)));
    owner_.reset(memory);
  }
  std::span<T> span() const { return {static_cast<T*>(owner_.get()), count_}; }
  T* data() const { return span().data(); }
  std::size_t size() const { return count_; }
  T& operator[](std::size_t index) const { return data()[index]; }

 private:
  detail::Owner<void*, hocketMemFree> owner_;
  std::size_t count_ = 0;
};

/// Everything called while it lives is one group; end() begins it. Without end(), because of an
/// exception, the group is begun and its result lost.
class Group {
 public:
  Group() : exceptions_(std::uncaught_exceptions()) { check(hocketGroupStart()); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group() noexcept(false) {
    if (!open_) return;
    const hocketResult_t result = hocketGroupEnd();
    if (std::uncaught_exceptions() == exceptions_) check(result);
  }
  void end() {
    open_ = false;
    check(hocketGroupEnd());
  }

 private:
  int exceptions_;
  bool open_ = true;
};

class Communicator {
 public:
  /// The launcher's job (hocketCommInitFromEnv).
  static Communicator from_environment(const hocketConfig_t* config = nullptr) {
    hocketComm_t handle = nullptr;
    const hocketResult_t result = hocketCommInitFromEnv(&handle, config);
    return adopt(handle, result);
  }
  static Communicator join(int ranks, const hocketUniqueId& id, int rank,
                           hocketConfig_t* config = nullptr) {
    hocketComm_t handle = nullptr;
    const hocketResult_t result = hocketCommInitRankConfig(&handle, ranks, id, rank, config);
    return adopt(handle, result);
  }
  /// Empty (false) for HOCKET_SPLIT_NOCOLOR.
  Communicator split(int color, int key, hocketConfig_t* config = nullptr) const {
    hocketComm_t handle = nullptr;
    check(hocketCommSplit(get(), color, key, &handle, config), get());
    return Communicator(handle);
  }

  hocketComm_t get() const { return owner_.get(); }
  explicit operator bool() const { return static_cast<bool>(owner_); }
  int rank() const { return query(hocketCommUserRank); }
  int ranks() const { return query(hocketCommCount); }
  int local_rank() const { return query(hocketCommLocalRank); }
  int local_ranks() const { return query(hocketCommLocalCount); }
  int nodes() const { return query(hocketCommNodeCount); }

  template <typename T>
  void all_reduce(std::span<const T> send, std::span<T> recv, hocketRedOp_t op,
                  const Stream& stream = {}) const {
    need(recv.size() == send.size(), "all_reduce: spans differ in size");
    check(hocketAllReduce(send.data(), recv.data(), send.size(), datatype_of<T>, op, get(),
                          stream.get()),
          get());
  }
  /// In place.
  template <typename T>
  void all_reduce(std::span<T> data, hocketRedOp_t op, const Stream& stream = {}) const {
    all_reduce(std::span<const T>(data), data, op, stream);
  }
  /// In place: data is sent by root and received by the others.
  template <typename T>
  void broadcast(std::span<T> data, int root, const Stream& stream = {}) const {
    check(hocketBroadcast(data.data(), data.data(), data.size(), datatype_of<T>, root, get(),
                          stream.get()),
          get());
  }
  template <typename T>
  void all_gather(std::span<const T> send, std::span<T> recv, const Stream& stream = {}) const {
    need(recv.size() == send.size() * ranks(), "all_gather: recv is not ranks x send");
    check(
        hocketAllGather(send.data(), recv.data(), send.size(), datatype_of<T>, get(), stream.get()),
        get());
  }
  template <typename T>
  void reduce_scatter(std::span<const T> send, std::span<T> recv, hocketRedOp_t op,
                      const Stream& stream = {}) const {
    need(send.size() == recv.size() * ranks(), "reduce_scatter: send is not ranks x recv");
    check(hocketReduceScatter(send.data(), recv.data(), recv.size(), datatype_of<T>, op, get(),
                              stream.get()),
          get());
  }
  void barrier(const Stream& stream = {}) const {
    check(hocketBarrier(get(), stream.get()), get());
  }
  template <typename T>
  void send(std::span<const T> data, int peer, const Stream& stream = {}) const {
    check(hocketSend(data.data(), data.size(), datatype_of<T>, peer, get(), stream.get()), get());
  }
  template <typename T>
  void recv(std::span<T> data, int peer, const Stream& stream = {}) const {
    check(hocketRecv(data.data(), data.size(), datatype_of<T>, peer, get(), stream.get()), get());
  }

  /// Collective; the destructor frees without it too.
  void finalize() const { check(hocketCommFinalize(get()), get()); }
  /// From any thread. The communicator is freed by its destructor, not by this.
  void abort() const { check(hocketCommAbort(get()), get()); }

 private:
  explicit Communicator(hocketComm_t handle) : owner_(handle) {}
  static Communicator adopt(hocketComm_t handle, hocketResult_t result) {
    Communicator comm(handle);  // freed even where check throws
    check(result, handle);
    return comm;
  }
  int query(hocketResult_t (*call)(hocketComm_t, int*)) const {
    int value = 0;
    check(call(get(), &value), get());
    return value;
  }
  static void need(bool condition, const char* sentence) {
    if (!condition) throw Error(hocketInvalidArgument, sentence, -1);
  }

  detail::Owner<hocketComm_t, hocketCommDestroy> owner_;
};

}  // namespace hocket

// The CPU executor: runs one rank's program for one operation, a step at a time. It never blocks.
// Collectives and messages of every size move their bytes through advance(). Only the measurements
// in engine/calibration.cc access memory without a program.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/execute/executor_host.h"
#include "collectives/plan/partition.h"
#include "collectives/plan/program.h"
#include "memory/regions.h"
#include "reduce/fold.h"
#include "transport/shm/board.h"
#include "transport/transport.h"

namespace hocket::internal {

/// The parts of a communicator that its programs use. A communicator has one such object, which
/// outlives the executions.
struct Links {
  int rank = 0;
  const Board* board = nullptr;          // for load/store programs: there ranks are local ranks
  std::vector<Transport*> transport_to;  // by rank, this rank too; null: unreachable
  Regions* regions = nullptr;            // of this process
  ExecutorHost* host = nullptr;
};

/// The arguments of one operation, in the form that a program needs.
struct Binding {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  Partition part;
  Dtype dtype = Dtype::int8;
  Op op = Op::sum;
  Stores stores = Stores::together;  // how results are stored into outputs
  bool far_scratch = false;          // stores to scratch bypass the caches
  bool p2p = false;
  std::uint64_t message_sequence = 0;  // in the keys of its messages
  std::uint64_t board_sequence = 0;    // load/store programs: number of the arrival, from 1
  std::uint64_t fingerprint = 0;
  Signature signature;
  RegionOffset input_region, output_region;
  std::uint64_t mapped = 0;  // bit 0: input_region is valid, bit 1: output_region
};

class Execution {
 public:
  /// staged: if `program` maps buffers, the program that runs after the same prologue instead, if a
  /// buffer of some rank is not mapped; else null. Both programs, the binding and the links outlive
  /// the execution.
  void start(const Program& program, const Program* staged, const Binding& binding,
             const Links& links);

  /// Does what can be done now. Returns true if anything moved.
  bool advance();
  bool done() const { return done_; }
  bool failed() const { return failed_; }
  const Status& status() const { return status_; }  // the error that ended the execution early
  const Program& program() const { return *program_; }
  const Binding& binding() const { return *binding_; }

  /// Returns true once after each publication to local peers: then the caller must ring the peers
  /// that sleep.
  bool take_published() { return std::exchange(published_, false); }
  /// True if peers may write into the output until they have ended too.
  bool exports_output() const { return exported_; }
  /// True if the ranks that this rank needs have arrived. Over messages: if the first bytes of a
  /// peer have come, or a peer has asked for the bytes of a large message.
  bool admitted() const;
  /// The ranks that the next steps wait for, for errors and logs.
  std::vector<int> waits_for() const;

 private:
  enum class Outcome { blocked, next, failed };
  struct Lane {
    Section section;
    std::uint32_t next = 0;  // index of an instruction of the section
    std::uint32_t peer = 0;  // the peer that a step over all peers handles next
    std::size_t chunk = 0;
    bool posted = false;
    bool done = false;
    Transfer transfer;
  };
  enum class Phase : std::uint8_t { prologue, body, epilogue };

  void enter(Phase phase);
  void enter_lanes(Phase phase, std::span<const Section> sections);
  bool run_lane(Lane& lane);
  Outcome step(Lane& lane, const Instruction& instruction);
  Outcome do_fold(Lane& lane, const Instruction& instruction);
  Outcome do_message(Lane& lane, const Instruction& instruction);
  Outcome do_await_arrival(Lane& lane, const Instruction& instruction);
  Outcome do_wait(Lane& lane, const Instruction& instruction);
  void arrive();
  Outcome fail(Status status);
  Outcome mismatch_with(int peer);
  bool reads_input_of(int peer) const;
  Outcome resolve_peers();
  Stores scratch_stores(Buffer first) const;
  std::byte* address_of(const Operand& operand, std::size_t chunk) const;
  std::size_t length_of(const Operand& operand, std::size_t chunk) const;
  std::uint64_t flag_value(std::uint64_t count) const;

  const Program* program_ = nullptr;
  const Program* staged_ = nullptr;
  const Links* links_ = nullptr;
  const Binding* binding_ = nullptr;
  std::size_t element_bytes_ = 1, wide_bytes_ = 1, stride_ = 0;
  std::byte* scratch_ = nullptr;  // of programs over messages
  int parity_ = 0;
  Phase phase_ = Phase::prologue;
  bool failed_ = false, done_ = true, published_ = false, exported_ = false, all_mapped_ = false;
  bool admitted_ = false;  // peers have arrived, or a message has come
  Status status_;
  std::vector<Lane> lanes_;
  std::size_t lanes_used_ = 0;
  std::vector<std::uint64_t> private_flags_;
  std::vector<FoldSource> fold_srcs_;
  std::vector<void*> fold_dsts_;
  struct PeerBuffers {
    std::byte* input = nullptr;
    std::byte* output = nullptr;
  };
  std::vector<PeerBuffers> peers_;
  int mapping_of_ = -1;  // the peer whose region is not mapped yet; -1: none
};

}  // namespace hocket::internal

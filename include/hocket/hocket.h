/* hocket: collective communication for CPU memory (GPU memory is planned). C99 and C++20.
 *
 * A call that NCCL has too has NCCL's name with the prefix changed (ncclAllReduce is
 * hocketAllReduce), and the same parameters in the same order. Constants of both have the same
 * numbers. docs/NCCL.md lists the calls of NCCL: most of them are here, some are not yet, among
 * them CommShrink and windows. Three things differ from NCCL: the NULL stream is the caller's
 * thread, hocketCommAbort frees nothing, and hocketConfig_t has other fields. This header is the
 * manual; it includes communicators.h, collectives.h and operators.h, which are the manual of
 * communicators, of collectives and messages, and of operators and datatypes of the program.
 *
 * A program that each of N processes (ranks) runs:
 *
 *   #include <hocket/hocket.h>
 *   #include <stdio.h>
 *   int main(void) {
 *     hocketComm_t comm;
 *     float x[4] = {1, 2, 3, 4};
 *     hocketResult_t result = hocketCommInitFromEnv(&comm, NULL);
 *     if (result == hocketSuccess) {
 *       result = hocketAllReduce(x, x, 4, hocketFloat32, hocketSum, comm, NULL);
 *       if (result == hocketSuccess) printf("%g %g %g %g\n", x[0], x[1], x[2], x[3]);
 *       hocketCommDestroy(comm);
 *     }
 *     if (result != hocketSuccess) fprintf(stderr, "%s\n", hocketGetLastError(NULL));
 *     return result != hocketSuccess;
 *   }
 *
 *   cc program.c $(pkg-config --cflags --libs hocket) && hocket-run -n 4 ./a.out
 *
 * Life of a communicator:
 *
 *   hocketCommInitFromEnv ----------+                       +-> hocketCommFinalize -+
 *   hocketGetUniqueId               |                       |   (all ranks; may be  |
 *     -> hocketCommInitRank[Config] |                       |   left out)           |
 *   hocketCommInitAll               +-> collectives,        |                       v
 *   of another communicator:        |   messages, groups ---+-----------> hocketCommDestroy
 *     hocketCommSplit               |                       |                       ^
 *     hocketCommDuplicate           |                       +-> error, or abort ----+
 *     hocketCommCreateGroup --------+
 *
 * Words:
 *
 *   rank            a process in a communicator; also its number, from 0 to n - 1
 *   node            the ranks that can share memory: normally those of one host
 *   local rank      the number of a rank among the ranks of its node
 *   launcher        a program that starts ranks, such as hocket-run
 *   job             all processes that a launcher starts together, or that share a unique id
 *   unique id       address and key by which the ranks of a job find one another (hocketUniqueId)
 *   join            all ranks of a job find one another and make a communicator
 *   operation       a collective or a message, from the call to its end
 *   collective      an operation that every rank of a communicator calls
 *   message         a hocketSend and the hocketRecv that matches it
 *   count, size     a number of elements; a number of bytes
 *   stream          operations in order; NULL is the caller's own thread
 *   deadline        the longest time that an operation or a join may take
 *   dead            a rank whose process ended before it finalized or destroyed the communicator
 *   silent          a rank that sent no heartbeat for silence_ms: stopped, or its host is cut off
 *   late            a rank that is alive, but has not made the call yet
 *   culprit         the rank that caused an error
 *   poisoned        a communicator on which an operation failed; later calls return that error
 *
 * Streams. With a NULL stream an operation runs in the caller's thread and has ended when the call
 * returns. With a host stream (hocketStreamCreate) the call returns at once. The operations of a
 * host stream run in order on its worker thread; hocketStreamSynchronize waits for them and returns
 * their first error. A communicator with blocking = 0 has a worker thread of its own for calls with
 * a NULL stream. Until an operation has ended, the caller must not write its send buffer, and must
 * not read or write its receive buffer.
 *
 * Buffers are memory that the processor reads and writes, at any alignment. What hocket can check
 * (NULL, sizes, overlaps) is refused with an error. What it cannot check can end the process, as in
 * any C program: memory that was freed, memory of a GPU that the processor cannot reach, buffers
 * shorter than the call says.
 *
 * Threads. One thread at a time may use a communicator; the worker threads of its streams do not
 * count. If a collective, message, split or finalize finds another thread inside such a call, it
 * fails with hocketInvalidUsage and changes nothing; if two threads begin such calls at the same
 * moment, both may fail so. hocketCommAbort, hocketCommGetAsyncError,
 * hocketCommGetCulprit, hocketCommDumpRecord, hocketGetLastError and the queries may be called from
 * any thread at any time before hocketCommDestroy. Different threads may use different
 * communicators at once.
 *
 * fork(). The child cannot use the communicators of its parent: each call on them except
 * hocketCommDestroy fails with hocketInvalidUsage. Calls on streams and events of the parent, and
 * hocketMemFree of its memory, fail with hocketInvalidArgument. The child can make its own. The
 * exit of the child changes nothing for the parent.
 *
 * Errors. Every call ends by its deadline: with correct data, or with an error. If a rank caused
 * the error, the error names that rank. An argument or a call that is invalid whatever the other
 * ranks do (hocketInvalidArgument, or hocketInvalidUsage from the call itself) changes nothing. Any
 * other error of an operation poisons the communicator:
 *
 *   - Receive buffers of operations that had not ended hold unspecified bytes. No peer writes to
 *     them any more.
 *   - Every later call on the communicator returns the same error at once, on this rank and soon
 *     on all others.
 *   - hocketCommDestroy still works. A program that goes on makes a new communicator, from a new
 *     unique id.
 *
 * hocketGetLastError returns a sentence with the call that failed, the rank, the operation, and
 * what to do next. "Operation n" is the n-th collective, message or finalize that the named rank
 * called on the communicator; operations that hocket runs to make or split a communicator are not
 * counted. All other ranks learn at once of a dead rank, and after silence_ms of a silent rank. A
 * late rank is logged every 10 s, and is an error only at the deadline of the operation. The
 * library prints nothing (except with HOCKET_LOG), never exits the process and never throws.
 *
 * Ranks that make different calls. A call may end before this rank can learn that a peer made a
 * different call; it then returns hocketSuccess, and one of the next 128 calls on the
 * communicator fails with hocketMismatch; its sentence quotes the calls that differed. This happens
 * to a rank that needs nothing of the others: to a broadcast or scatter on its root, a reduce or
 * gather on the other ranks, and a hocketSend, of small messages (over TCP of up to 64 KiB). In the
 * same way an error of another rank may come with a later call. The culprit is the rank whose call
 * was seen to differ from this rank's call. So each of two ranks names the other; if one of several
 * ranks is wrong, it may name any of the others.
 *
 * Numerics. fp16, bf16 and fp8 accumulate in fp32 and are rounded once, to nearest, ties to even,
 * whatever the algorithm. fp32, fp64 and integers accumulate in their own type; integer sums and
 * products wrap. avg is the sum divided by the number of ranks (integers: truncated towards zero).
 * NaN propagates through min and max, and -0 < +0. fp32 to fp8 overflow: e4m3 gives NaN, e5m2
 * infinity (OCP, not saturating). All-reduce, all-gather and broadcast leave the same bytes on all
 * ranks, signed zeros and NaN payloads included. The order of fp32 and fp64 additions may depend on
 * size, transport and placement, unless deterministic = 1.
 *
 * Environment. A variable overrides the field of the configuration, so that users can change the
 * settings of a program without changing the program. An empty variable counts as not set. A
 * HOCKET_* variable with an unknown name or value makes the init call fail with hocketInvalidUsage;
 * hocketGetLastError names the variable.
 *
 *   HOCKET_DEADLINE_MS        deadline_ms
 *   HOCKET_JOIN_DEADLINE_MS   join_deadline_ms
 *   HOCKET_SILENCE_MS         silence_ms
 *   HOCKET_DETERMINISTIC      deterministic: 0 or 1
 *   HOCKET_INTERFACE          interface_name
 *   HOCKET_TRANSPORT          transports that may be used: "shm,tcp" (default), "shm" or "tcp"
 *   HOCKET_ALGORITHM          for experiments, equal on all ranks: the algorithm that runs wherever
 *                             it can (names: docs/protocol/plans.md), or the name of a plan of
 *                             HOCKET_PLAN_FILES
 *   HOCKET_NODES              for experiments, equal on all ranks: ranks of one host are treated as
 *                             ranks of several nodes; "2,2": of two nodes with two ranks each
 *   HOCKET_CHECKSUM           1: every frame (tcp, shm) carries a CRC32C of its payload
 *   HOCKET_LOG                none, error, warn, info or debug: lines of this level and of more
 *                             severe levels go to standard error
 *   HOCKET_RECORD_OPERATIONS  how many operations hocketCommDumpRecord knows (default 64; 0: none)
 *   HOCKET_DUMP_FOLDER        folder for the dump of the record at an error or a signal; not set:
 *                             the record goes to the log
 *   HOCKET_DUMP_SIGNAL        USR1 or USR2: the signal at which all records are dumped
 *   HOCKET_TRACE              folder for the times of all operations (hocket-trace joins them)
 *   HOCKET_PLAN_FILES         user-defined plans (docs/PLANS.md): paths with colons between them
 *   HOCKET_JOB_KEY_FILE       file with the job key, for launchers other than hocket-run
 *   HOCKET_TRUST_NETWORK      1: ranks on several hosts may join without a secret
 *   HOCKET_TLS                1: TLS 1.3 on every TCP connection between ranks; equal on all ranks
 *   HOCKET_SSH                the command that hocket-run starts to reach another host
 *   HOCKET_LAUNCH_FD          hocket-run sets it for its ranks; do not set it
 *   HOCKET_RANK               rank; hocket-run sets it and the next three for scripts only
 *   HOCKET_RANKS              number of ranks
 *   HOCKET_LOCAL_RANK         rank among the ranks of the same host
 *   HOCKET_LOCAL_RANKS        number of ranks on the same host
 *
 * Each call below is documented by the same five lines: Effect; Needs (preconditions); Blocks
 * (blocking and stream rules); Threads; Errors (and what state remains). Calls that are declared
 * together share the lines above the first of them. */
#ifndef HOCKET_H_
#define HOCKET_H_

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#define HOCKET_MAJOR 0
#define HOCKET_MINOR 1
#define HOCKET_PATCH 0
#define HOCKET_VERSION(X, Y, Z) ((X)*10000 + (Y)*100 + (Z)) /* for #if HOCKET_VERSION_CODE >= */
#define HOCKET_VERSION_CODE HOCKET_VERSION(HOCKET_MAJOR, HOCKET_MINOR, HOCKET_PATCH)

#if defined(__GNUC__)
#define HOCKET_API __attribute__((visibility("default")))
#else
#define HOCKET_API
#endif

/* In C++ too, any int is a value of the enumerations below, so that a call can refuse it. */
#ifdef __cplusplus
#define HOCKET_ENUM_TYPE : int
#else
#define HOCKET_ENUM_TYPE
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hocketComm* hocketComm_t;
#define HOCKET_COMM_NULL NULL
typedef struct hocketStream* hocketStream_t; /* NULL: the caller's own thread */
typedef struct hocketEvent* hocketEvent_t;

#define HOCKET_UNIQUE_ID_BYTES 128
/* A unique id: the address at which the ranks of a job join, and the job's key. Keep it secret. */
typedef struct {
  char internal[HOCKET_UNIQUE_ID_BYTES];
} hocketUniqueId;

typedef enum HOCKET_ENUM_TYPE {
  hocketSuccess = 0,
  hocketUnhandledCudaError = 1, /* kept for NCCL's numbering; not returned */
  hocketSystemError = 2,        /* the operating system refused something; the sentence names it */
  hocketInternalError = 3,      /* a bug in hocket: please report it */
  hocketInvalidArgument = 4,    /* an argument is invalid whatever other ranks do */
  hocketInvalidUsage = 5,       /* a call at a wrong time, or a wrong HOCKET_* variable */
  hocketRemoteError = 6,        /* a rank is dead, silent, has left or broke the protocol */
  hocketInProgress = 7,         /* not an error: poll hocketCommGetAsyncError */
  hocketTimeout = 8,            /* the deadline passed while every rank was alive */
  hocketNumResults = 9,         /* how many results are numbered as in NCCL: 0 to 8 */
  hocketMismatch = 100,         /* ranks made different calls */
  hocketAborted = 101           /* hocketCommAbort, on this or another rank */
} hocketResult_t;

/* Element types: NCCL's numbers, and from 100 on types that NCCL does not have. */
typedef enum HOCKET_ENUM_TYPE {
  hocketInt8 = 0,
  hocketChar = 0,
  hocketUint8 = 1,
  hocketInt32 = 2,
  hocketInt = 2,
  hocketUint32 = 3,
  hocketInt64 = 4,
  hocketUint64 = 5,
  hocketFloat16 = 6,
  hocketHalf = 6,
  hocketFloat32 = 7,
  hocketFloat = 7,
  hocketFloat64 = 8,
  hocketDouble = 8,
  hocketBfloat16 = 9,
  hocketFloat8e4m3 = 10,
  hocketFloat8e5m2 = 11,
  hocketNumTypes = 12, /* how many types are numbered as in NCCL: 0 to 11 */
  hocketInt16 = 100,
  hocketUint16 = 101,
  hocketMaxDataType = 0x7fffffff /* the largest value of the type; no datatype */
} hocketDataType_t;

/* Operators: NCCL's numbers, and from 100 on operators that NCCL does not have. and, or, xor are
 * bitwise, and exist for integer types only. */
typedef enum HOCKET_ENUM_TYPE {
  hocketSum = 0,
  hocketProd = 1,
  hocketMax = 2,
  hocketMin = 3,
  hocketAvg = 4,
  hocketNumOps = 5, /* how many operators are numbered as in NCCL: 0 to 4 */
  hocketAnd = 100,
  hocketOr = 101,
  hocketXor = 102,
  hocketMaxRedOp = 0x7fffffff /* the largest value of the type; no operator */
} hocketRedOp_t;

#define HOCKET_CONFIG_UNDEF_INT INT_MIN
#define HOCKET_CONFIG_UNDEF_PTR NULL

/* How a communicator behaves. Begin with HOCKET_CONFIG_INITIALIZER, then set fields:
 *
 *   hocketConfig_t config = HOCKET_CONFIG_INITIALIZER;
 *   config.deadline_ms = 30000;
 *
 * The fields from size to commName have the same meaning as in ncclConfig_t; the other fields of
 * ncclConfig_t are for GPUs. Later versions only append fields, so programs compiled with an older
 * header still work. */
typedef struct {
  size_t size;          /* sizeof(hocketConfig_t) of the caller's header */
  unsigned int magic;   /* HOCKET_CONFIG_MAGIC */
  unsigned int version; /* HOCKET_VERSION_CODE of the caller's header */
  /* 1 (default): init and NULL-stream calls return when they have ended. 0: they return
   * hocketInProgress; poll hocketCommGetAsyncError until it reports another state:
   *
   *   do result = hocketCommGetAsyncError(comm, &state);
   *   while (result == hocketSuccess && state == hocketInProgress); */
  int blocking;
  /* Name of the communicator in errors and log lines; copied. NULL: "world", or after a split the
   * name of the parent. */
  const char* commName;
  /* Longest time that an operation may take, late ranks included. It counts from when the operation
   * begins to run (NULL stream: from the call; host stream: from when the worker reaches it).
   * Default 600000. */
  int deadline_ms;
  /* Longest time that a join may take, until all ranks have joined. Default 600000. */
  int join_deadline_ms;
  /* Longest time that a rank may send no heartbeat; then it is silent. At least 100. Default
   * 10000. */
  int silence_ms;
  /* 1: results depend only on the inputs and the number of ranks, bit for bit, and not on size,
   * transport and placement. Default 0. */
  int deterministic;
  /* Network interface ("eth0") or address to listen on. NULL: the interface that routes to the
   * other ranks. */
  const char* interface_name;
} hocketConfig_t;

#define HOCKET_CONFIG_MAGIC 0x686f636bU
#define HOCKET_CONFIG_INITIALIZER                                                              \
  {                                                                                            \
    sizeof(hocketConfig_t), HOCKET_CONFIG_MAGIC, HOCKET_VERSION_CODE, HOCKET_CONFIG_UNDEF_INT, \
        HOCKET_CONFIG_UNDEF_PTR, HOCKET_CONFIG_UNDEF_INT, HOCKET_CONFIG_UNDEF_INT,             \
        HOCKET_CONFIG_UNDEF_INT, HOCKET_CONFIG_UNDEF_INT, HOCKET_CONFIG_UNDEF_PTR              \
  }

/* ---- The library ----------------------------------------------------------------------------- */

/* Effect:  *version receives the library's HOCKET_VERSION_CODE; that of the header may differ.
 * Needs:   version not NULL.
 * Blocks:  no; uses no stream.
 * Threads: any, at any time.
 * Errors:  hocketInvalidArgument: version is NULL; nothing changes. */
HOCKET_API hocketResult_t hocketGetVersion(int* version);

/* Effect:  returns a few words for a result, such as "invalid argument"; static, never NULL.
 * Needs:   nothing; for a number that is no result, the words say so.
 * Blocks:  no; uses no stream.
 * Threads: any, at any time.
 * Errors:  none. */
HOCKET_API const char* hocketGetErrorString(hocketResult_t result);

/* Effect:  returns the sentence of an error: the call, the rank, the operation, and what to do
 *          next. With comm: of the error that poisoned comm or ended its join; if there is none,
 *          of the last call on comm that failed (queries do not count). With NULL: of the last call
 *          of this thread that did not return hocketSuccess. "" if there is none; never NULL.
 * Needs:   comm NULL or not yet destroyed. The text is valid until the calling thread calls this
 *          function again.
 * Blocks:  no; uses no stream.
 * Threads: any, at any time.
 * Errors:  none. */
HOCKET_API const char* hocketGetLastError(hocketComm_t comm);

/* Effect:  *rank receives the culprit of the last call of this thread that did not return
 *          hocketSuccess, including errors of joins, streams, events and groups. The number is its
 *          rank in the communicator of the failed operation; -1 if there is no error or no culprit.
 * Needs:   rank not NULL.
 * Blocks:  no; uses no stream.
 * Threads: any, at any time.
 * Errors:  hocketInvalidArgument: *rank is unchanged. */
HOCKET_API hocketResult_t hocketGetLastCulprit(int* rank);

/* level: 1 error, 2 warning, 3 information, 4 debugging. line: without a newline; valid during the
 * callback. user: the pointer that was given to hocketSetLogCallback. */
typedef void (*hocketLogCallback_t)(int level, const char* line, void* user);

/* Effect:  sets the callback that receives every log line of the process from now on, one line at
 *          a time, whatever HOCKET_LOG writes to standard error. NULL (the default): no callback.
 * Needs:   any thread may call callback; callback returns soon and does not call hocket.
 * Blocks:  until no thread is inside the callback that was set before; uses no stream.
 * Threads: any, at any time, but not from inside a callback.
 * Errors:  none. */
HOCKET_API hocketResult_t hocketSetLogCallback(hocketLogCallback_t callback, void* user);

/* ---- Groups ------------------------------------------------------------------------------------
 *
 * The collectives and messages that a group collects are declared in collectives.h. */

/* Effect:  opens a group: until the matching hocketGroupEnd, this thread's collectives and
 *          messages, on any communicators and streams, are collected instead of begun. Groups
 *          nest; only the end of the outermost group begins the operations.
 * Needs:   buffers stay allocated and untouched until the operations have ended. Ranks may group
 *          their calls differently: only the order of the collectives of each communicator must
 *          agree. Calls that make communicators are collected too, but not in the same group as
 *          operations: see communicators.h. In a group these fail with hocketInvalidUsage:
 *          hocketCommInitFromEnv, and calls that end communicators, wait for, query or record
 *          streams and events, or destroy streams.
 * Blocks:  no; uses no stream.
 * Threads: any; a group belongs to the thread that started it.
 * Errors:  hocketSystemError: no memory; no group is opened. A collected call with a wrong
 *          argument returns its error itself, and hocketGroupEnd returns it again. */
HOCKET_API hocketResult_t hocketGroupStart(void);

/* Effect:  begins all operations that were collected since hocketGroupStart. Messages progress all
 *          together, in whatever order peers receive them. Collectives of one communicator run in
 *          the order of the calls. Communicators that were collected are made all at once.
 * Needs:   a hocketGroupStart before, in this thread.
 * Blocks:  until all NULL-stream operations of the group have ended, and all operations on host
 *          streams that share a communicator with them, each by its deadline. The end of an inner
 *          group does not block.
 * Threads: one at a time on each communicator in the group.
 * Errors:  Nothing of the group has begun after hocketInvalidUsage (no group is open, another
 *          thread is inside one of its communicators, or a message of a rank to itself has only a
 *          send or only a receive), hocketInvalidArgument (a communicator was destroyed since), or
 *          the first error of a collected call.
 *          hocketInProgress: a communicator has blocking = 0.
 *          Otherwise the first error of the operations. A communicator with a failed operation is
 *          poisoned; the operations of the others have ended correctly. Host streams that share a
 *          communicator in the group run as one unit, and so do the communicators of one host
 *          stream: each stream of the unit returns the unit's first error. */
HOCKET_API hocketResult_t hocketGroupEnd(void);

/* Effect:  discards everything that this thread has collected since its outermost
 *          hocketGroupStart, and closes all its open groups. None of the discarded calls begins,
 *          and their buffers may be used again.
 * Needs:   a hocketGroupStart before, in this thread. Peers that wait for a discarded operation
 *          wait on: either all ranks discard a collective, or this rank calls it later.
 * Blocks:  no; uses no stream.
 * Threads: any; a group belongs to the thread that started it.
 * Errors:  hocketInvalidUsage: no group is open; nothing changes. */
HOCKET_API hocketResult_t hocketGroupCancel(void);

#define HOCKET_UNDEF_FLOAT -1.0f

/* What hocketGroupSimulateEnd returns. Begin with HOCKET_SIM_INFO_INITIALIZER. */
typedef struct {
  size_t size;          /* sizeof(hocketSimInfo_t) of the caller's header */
  unsigned int magic;   /* HOCKET_SIM_INFO_MAGIC */
  unsigned int version; /* HOCKET_VERSION_CODE of the caller's header */
  float estimatedTime;  /* microseconds; HOCKET_UNDEF_FLOAT: unknown */
} hocketSimInfo_t;

#define HOCKET_SIM_INFO_MAGIC 0x74685283U
#define HOCKET_SIM_INFO_INITIALIZER \
  { sizeof(hocketSimInfo_t), HOCKET_SIM_INFO_MAGIC, HOCKET_VERSION_CODE, HOCKET_UNDEF_FLOAT }

/* Effect:  ends the innermost open group as hocketGroupEnd does, but no call of the group begins.
 *          The end of the outermost group sets simInfo->estimatedTime to the time that its
 *          operations would take, from the figures that were measured when their communicators were
 *          made. Operations of one communicator run one after another, and different communicators
 *          run at the same time. An operation whose blocks only its root knows counts as 0. The end
 *          of an inner group, or of a group that makes communicators, sets HOCKET_UNDEF_FLOAT.
 * Needs:   a hocketGroupStart before, in this thread; simInfo begun with
 *          HOCKET_SIM_INFO_INITIALIZER. Other ranks need not call it.
 * Blocks:  until this rank's earlier operations on the communicators of the group have ended, each
 *          by its deadline; uses no stream.
 * Threads: one at a time on each communicator in the group.
 * Errors:  hocketInvalidUsage (no group is open), hocketInvalidArgument (simInfo): the group stays
 *          as it is. Otherwise the group has ended: hocketInvalidUsage (another thread is inside
 *          one of its communicators), the first error of a collected call, or the error of a
 *          communicator. */
HOCKET_API hocketResult_t hocketGroupSimulateEnd(hocketSimInfo_t* simInfo);

/* Effect:  *depth receives how many groups this thread has open; 0: its calls begin at once.
 * Needs:   depth not NULL.
 * Blocks:  no; uses no stream.
 * Threads: any, at any time; reports only the calling thread's groups.
 * Errors:  hocketInvalidArgument: *depth is unchanged. */
HOCKET_API hocketResult_t hocketGroupDepth(int* depth);

/* ---- Streams and events ------------------------------------------------------------------------
 *
 * Every call with a stream or event that was destroyed fails with hocketInvalidArgument, unless a
 * newer stream or event has been created at the same address. */

/* Effect:  *stream receives a new host stream. Its worker thread starts with its first operation.
 * Needs:   stream not NULL.
 * Blocks:  no.
 * Threads: any, at any time.
 * Errors:  hocketInvalidArgument, hocketSystemError: *stream receives NULL. If the system refuses
 *          the worker thread, the first operation fails with hocketSystemError. */
HOCKET_API hocketResult_t hocketStreamCreate(hocketStream_t* stream);

/* Effect:  hocketStreamSynchronize waits until all operations that were put on the stream before
 *          have ended. hocketStreamQuery returns hocketInProgress if some of them have not ended.
 * Needs:   a stream, or NULL: then the result is hocketSuccess. Not in a group.
 * Blocks:  hocketStreamSynchronize until the operations have ended, each by its deadline.
 *          hocketStreamQuery: no.
 * Threads: any, at any time.
 * Errors:  when all have ended: the first error among the stream's operations that no call has
 *          returned yet. The stream stays usable; the communicator of that operation is poisoned.
 *          hocketInvalidUsage: in a group, or hocketStreamSynchronize called by the stream's own
 *          worker (from a log callback, for example). hocketInvalidArgument: it is no stream. */
HOCKET_API hocketResult_t hocketStreamSynchronize(hocketStream_t stream);
HOCKET_API hocketResult_t hocketStreamQuery(hocketStream_t stream);

/* Effect:  operations that are put on the stream afterwards begin only when the event's last
 *          record has happened. They do not wait for an event that was never recorded.
 * Needs:   stream and event not destroyed; a NULL stream is the caller's thread. Not in a group.
 * Blocks:  NULL stream: until the event has happened. Host stream: no.
 * Threads: any, at any time.
 * Errors:  hocketInvalidArgument: event is NULL; hocketInvalidUsage: in a group; nothing
 *          changes. */
HOCKET_API hocketResult_t hocketStreamWaitEvent(hocketStream_t stream, hocketEvent_t event);

/* Effect:  calls function(context) when all operations that were put on the stream before have
 *          ended, with or without an error; what is put on the stream afterwards waits for it. As
 *          cudaLaunchHostFunc.
 * Needs:   function not NULL; it returns, throws nothing and calls nothing of hocket. Not in a
 *          group.
 * Blocks:  NULL stream: the function runs in this call. Host stream: no; it runs in the worker.
 * Threads: any, at any time.
 * Errors:  hocketInvalidArgument; hocketInvalidUsage: in a group; hocketSystemError: no worker
 *          thread. The function is not called. */
HOCKET_API hocketResult_t hocketLaunchHostFunc(hocketStream_t stream, void (*function)(void*),
                                               void* context);

/* Effect:  ends the worker thread and frees the stream.
 * Needs:   no other call uses the stream any more. NULL does nothing. Not in a group.
 * Blocks:  until all operations that were put on it have ended, each by its deadline.
 * Threads: any, once.
 * Errors:  the first error among its operations that no call has returned yet; the stream is freed
 *          all the same. hocketInvalidUsage: in a group, or called by the stream's own worker;
 *          nothing changes. */
HOCKET_API hocketResult_t hocketStreamDestroy(hocketStream_t stream);

/* Effect:  *event receives a new event: a point in the order of a stream. Until it is recorded it
 *          counts as happened.
 * Needs:   event not NULL.
 * Blocks:  no.
 * Threads: any, at any time.
 * Errors:  hocketInvalidArgument, hocketSystemError: *event receives NULL. */
HOCKET_API hocketResult_t hocketEventCreate(hocketEvent_t* event);

/* Effect:  records the event: it happens when all operations that were put on the stream before
 *          have ended. The new record replaces earlier ones. NULL stream: it has happened at once.
 * Needs:   event not NULL. Not in a group.
 * Blocks:  no.
 * Threads: any, at any time.
 * Errors:  hocketInvalidArgument; hocketInvalidUsage: in a group; nothing changes. */
HOCKET_API hocketResult_t hocketEventRecord(hocketEvent_t event, hocketStream_t stream);

/* Effect:  hocketEventSynchronize waits until the event's last record has happened.
 *          hocketEventQuery returns hocketSuccess if it has happened, else hocketInProgress.
 * Needs:   event not NULL. Not in a group.
 * Blocks:  hocketEventSynchronize until the record has happened; every operation before it ends by
 *          its deadline. hocketEventQuery: no.
 * Threads: any, at any time.
 * Errors:  hocketInvalidArgument; hocketInvalidUsage: in a group. Errors of operations are not
 *          returned here: hocketEventGetResult and hocketStreamSynchronize return them. */
HOCKET_API hocketResult_t hocketEventSynchronize(hocketEvent_t event);
HOCKET_API hocketResult_t hocketEventQuery(hocketEvent_t event);

/* Effect:  returns the result of the operation that was the last one on the stream before the
 *          event's last record, whatever other operations on the stream did: hocketInProgress while
 *          the event has not happened. The operations of a group that run as one unit (see
 *          hocketGroupEnd) count as one operation.
 * Needs:   event not NULL; if it was never recorded, or on a NULL stream, the result is
 *          hocketSuccess. Not in a group.
 * Blocks:  no.
 * Threads: any, at any time.
 * Errors:  hocketInvalidArgument; hocketInvalidUsage: in a group; or the operation's own error, if
 *          neither hocketStreamSynchronize nor hocketStreamQuery ended between the operation and
 *          the record. Every call returns this error again, and the stream still returns its first
 *          error. */
HOCKET_API hocketResult_t hocketEventGetResult(hocketEvent_t event);

/* Effect:  frees the event. Operations that wait for it by an earlier hocketStreamWaitEvent still
 *          wait for the same record.
 * Needs:   no thread inside a call on the event. NULL does nothing.
 * Blocks:  no.
 * Threads: any, once.
 * Errors:  hocketInvalidArgument: event was destroyed before, or is no event; nothing changes. */
HOCKET_API hocketResult_t hocketEventDestroy(hocketEvent_t event);

/* ---- Memory ----------------------------------------------------------------------------------
 *
 * Buffers may be any host memory. Local peers read and write mapped memory directly, which saves
 * copies. Three kinds of memory can be mapped: that of hocketMemAlloc, memfds of the caller
 * (hocketCommRegisterFd), and blocks of malloc of 16 KiB and more in a process with the shared heap
 * (libhocket_heap.so in LD_PRELOAD, which hocket-run --shared-heap sets). */

typedef enum HOCKET_ENUM_TYPE {
  hocketPathStaged = 0, /* copied through staging memory of the library */
  hocketPathMapped = 1  /* local peers read and write the buffer directly */
} hocketMemoryPath_t;

/* Effect:  *ptr receives the address of size bytes of zeroed, page-aligned memory that local peers
 *          of any of this process's communicators can map. The memory has no name in the file
 *          system, and nothing of it remains after the process.
 * Needs:   ptr not NULL, size > 0.
 * Blocks:  no; uses no stream. The system assigns a page when it is touched.
 * Threads: any, at any time.
 * Errors:  hocketInvalidArgument, hocketSystemError (no memory, no descriptors): *ptr receives
 *          NULL. */
HOCKET_API hocketResult_t hocketMemAlloc(void** ptr, size_t size);

/* Effect:  frees memory of hocketMemAlloc. Buffers of up to 16 MiB are kept for later calls of
 *          hocketMemAlloc, because peers have mapped them already: the last 64, of at most 64 MiB
 *          together. The pages of other buffers return to the system, even while a peer still has
 *          them mapped.
 * Needs:   ptr from hocketMemAlloc, and no operation that uses it under way. NULL does nothing. No
 *          later call may use the memory: as with free, hocket cannot tell its address from that of
 *          other memory.
 * Blocks:  no; uses no stream.
 * Threads: any, at any time.
 * Errors:  hocketInvalidArgument: ptr did not come from hocketMemAlloc, or was freed before;
 *          nothing changes. */
HOCKET_API hocketResult_t hocketMemFree(void* ptr);

/* Effect:  registers [buff, buff + size) with comm, so that later transports that pin memory (GPUs,
 *          NICs) pin it once. In this version it has no effect on speed. *handle receives the
 *          registration.
 * Needs:   size > 0; the memory stays allocated until hocketCommDeregister. Only this rank calls
 *          it; it is not a collective.
 * Blocks:  no; uses no stream.
 * Threads: one at a time on comm.
 * Errors:  hocketInvalidArgument, or the error that keeps comm from being used (not joined,
 *          finalized, poisoned): nothing is registered, *handle receives NULL. */
HOCKET_API hocketResult_t hocketCommRegister(const hocketComm_t comm, void* buff, size_t size,
                                             void** handle);

/* Effect:  lets local peers map [buff, buff + size), which the caller has mapped from fd: a memfd
 *          whose bytes [offset, offset + size) are mapped MAP_SHARED at buff. hocket duplicates the
 *          descriptor (the caller may close fd) and seals the memfd against shrinking, because a
 *          process that shrinks it would kill the others. *handle receives the registration.
 * Needs:   a memfd made with MFD_ALLOW_SEALING; size > 0; offset a multiple of the page size; no
 *          overlap with memory that is registered already. The mapping stays until
 *          hocketCommDeregister. Only this rank calls it; it is not a collective.
 * Blocks:  no; uses no stream.
 * Threads: one at a time on comm.
 * Errors:  hocketInvalidArgument (range, descriptor), hocketInvalidUsage (overlap),
 *          hocketSystemError, or the error that keeps comm from being used: nothing is
 *          registered, *handle receives NULL. */
HOCKET_API hocketResult_t hocketCommRegisterFd(const hocketComm_t comm, void* buff, size_t size,
                                               int fd, int64_t offset, void** handle);

/* Effect:  ends a registration.
 * Needs:   handle from a registration that has not ended; no operation that uses the memory under
 *          way. Works on a poisoned communicator too.
 * Blocks:  no; uses no stream.
 * Threads: one at a time on comm.
 * Errors:  hocketInvalidArgument: no such registration; nothing changes. */
HOCKET_API hocketResult_t hocketCommDeregister(const hocketComm_t comm, void* handle);

/* Effect:  *path receives the way by which local peers reach [buff, buff + size) in large
 *          collectives on comm. A collective uses the mapped path only if the buffers of every
 *          rank are mapped.
 * Needs:   comm joined and not finalized; buff and path not NULL, size > 0.
 * Blocks:  no; uses no stream.
 * Threads: one at a time on comm.
 * Errors:  hocketInvalidArgument, or the error that keeps comm from being used: *path is
 *          unchanged. */
HOCKET_API hocketResult_t hocketCommMemoryPath(const hocketComm_t comm, const void* buff,
                                               size_t size, hocketMemoryPath_t* path);

/* What hocketCommMemStats returns, in bytes. The first four are ncclStatGpuMemSuspend and so on. */
typedef enum HOCKET_ENUM_TYPE {
  hocketStatMemSuspend = 0,     /* always 0: no memory can be suspended */
  hocketStatMemSuspended = 1,   /* always 0 */
  hocketStatMemPersist = 2,     /* as hocketStatMemTotal */
  hocketStatMemTotal = 3,       /* hocketStatMemBoard + hocketStatMemScratch */
  hocketStatMemBoard = 100,     /* the memory that comm's ranks of this node share: it exists once
                                   for all of them, and each of them counts all of it */
  hocketStatMemFifos = 101,     /* the part of it through which messages pass */
  hocketStatMemScratch = 102,   /* of this rank alone; it grows with the operations that need it */
  hocketStatMemRegistered = 103 /* memory of the program that is registered with comm */
} hocketCommMemStat_t;

/* Effect:  *value receives a figure about the memory that comm holds. Buffers of messages under
 *          way, and what one process keeps for all of its communicators, are not counted. Pages of
 *          the board that no rank has touched take no memory yet, but count.
 * Needs:   comm joined (not hocketInProgress); value not NULL.
 * Blocks:  no; uses no stream.
 * Threads: any, at any time; works on a poisoned communicator too.
 * Errors:  hocketInvalidArgument, hocketInProgress (not joined yet), or the error of the join:
 *          *value is unchanged. */
HOCKET_API hocketResult_t hocketCommMemStats(hocketComm_t comm, hocketCommMemStat_t stat,
                                             uint64_t* value);

#ifdef __cplusplus
}
#endif

#include "collectives.h"
#include "communicators.h"
#include "operators.h"

#endif /* HOCKET_H_ */

/* hocket: collective communication for CPU memory (GPU memory to come). C99 and C++20.
 *
 * Where NCCL has a call, ours has its name with the prefix changed and the same parameters in the
 * same order; its constants likewise. This header is the manual.
 *
 * A program: each of N processes (ranks) runs
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
 *     -> hocketCommInitRank[Config] +-> collectives,        |   left out)           v
 *   hocketCommSplit ----------------+   messages, groups ---+-----------> hocketCommDestroy
 *                                                           |                       ^
 *                                                           +-> error, or abort ----+
 *
 * Words. rank: a process in a communicator, numbered from 0. peer: another rank. node: one host.
 * local rank: a rank's number among those of its node. collective: a call that every rank of the
 * communicator makes. operator: what a reduction does to two elements. count: elements; size:
 * bytes; names that end in _ms: milliseconds. stream: operations in order; NULL is the caller's own
 * thread. culprit: the rank that caused an error.
 *
 * Streams. With a NULL stream an operation runs in the caller's thread and has ended when the call
 * returns. With a host stream (hocketStreamCreate) the call returns at once; operations of a stream
 * run in order on its worker thread, and hocketStreamSynchronize waits for them and says how they
 * ended. With blocking = 0 a communicator has a worker of its own for NULL-stream calls. Until an
 * operation has ended its send buffer must not be written and its receive buffer must not be
 * touched.
 *
 * Threads. A communicator is used by one thread at a time; its streams' workers count as belonging
 * to it. A collective, message, split or finalize that finds another thread inside one of them
 * returns hocketInvalidUsage and changes nothing: an error, not a race. hocketCommAbort,
 * hocketCommGetAsyncError, hocketCommGetCulprit, hocketGetLastError and the queries may be called
 * from any thread at any time before hocketCommDestroy. Different communicators may be used
 * by different threads at once. After fork() the child's communicators are dead: each call on one
 * but hocketCommDestroy returns hocketInvalidUsage, and the child's exit touches nothing of the
 * parent's.
 *
 * Errors. Every call ends by its deadline: with correct data, or with an error that names the
 * culprit. An argument that is wrong on its face (hocketInvalidArgument, or hocketInvalidUsage from
 * the call itself) leaves everything as it was. Any other error of an operation poisons the
 * communicator: receive buffers of operations that had not ended hold unspecified bytes, no peer
 * writes to them any more, every later call on the communicator returns the same error at once, on
 * this rank and soon on all others, and hocketCommDestroy still works. hocketGetLastError has the
 * sentence: the call that returned the error, which rank, which operation, what to do. Operation n
 * is the n-th collective, message or finalize that the named rank called on the communicator; what
 * hocket runs by itself (to make or split a communicator) is not counted. A dead rank is reported
 * to all others at once; a silent one (stopped, cut off) after the silence limit; a late one
 * (alive, but elsewhere) is logged every 10 s and an error only at the operation's deadline. The
 * library never prints (but see HOCKET_LOG), never exits the process and never throws.
 *
 * Ranks that make different calls. A call that ends before this rank can know of the other call
 * returns hocketSuccess: a broadcast on its root, and a hocketSend, of up to 64 KiB. The next call
 * on the communicator then returns hocketMismatch. The culprit is the rank whose call was seen to
 * differ from this rank's: each side names the other, and of several ranks the one that is wrong
 * may name any that is right.
 *
 * Numerics. fp16, bf16 and fp8 accumulate in fp32 and are rounded once, to nearest even, whatever
 * the algorithm. fp32, fp64 and integers accumulate in their own type; integer sums and products
 * wrap. avg is the sum divided by the number of ranks (integers: truncated towards zero). NaN wins
 * in min and max, and -0 < +0. fp32 to fp8 overflow: e4m3 gives NaN, e5m2 infinity (OCP, not
 * saturating). All ranks always end up with the same bytes, signed zeros and NaN payloads included.
 * The order of the fp32 and fp64 additions may depend on size, transport and placement, unless the
 * configuration says deterministic.
 *
 * Environment. A variable beats the configuration's field, so that users can change a program's
 * settings without touching it; an empty one counts as not set. A HOCKET_* variable or value that
 * is not known makes the init call fail with hocketInvalidUsage and is named by hocketGetLastError.
 *
 *   HOCKET_DEADLINE_MS        deadline_ms
 *   HOCKET_JOIN_DEADLINE_MS   join_deadline_ms
 *   HOCKET_SILENCE_MS         silence_ms
 *   HOCKET_DETERMINISTIC      deterministic: 0 or 1
 *   HOCKET_INTERFACE          interface_name
 *   HOCKET_TRANSPORT          transports that may be used: shm,tcp (default), shm or tcp
 *   HOCKET_ALGORITHM          one algorithm wherever it is possible, for experiments: inline,
 *                             one-shot, staged, direct, ring, tree or owner-fold; equal on all
 *                             ranks
 *   HOCKET_CHECKSUM           1: every frame (tcp, shm) carries a CRC32C of its payload
 *   HOCKET_LOG                none, error, warn, info or debug: lines on standard error, without a
 *                             callback
 *   HOCKET_JOB_KEY_FILE       file of mode 0600 with the job key, for launchers that give their
 *                             ranks none: not yet read, because hocket-run and hocketUniqueId do
 *   HOCKET_SSH                what hocket-run calls to reach another host
 *   HOCKET_LAUNCH_FD          set by hocket-run for its ranks; not for people
 *   HOCKET_RANK               set by hocket-run for scripts, and not read here: rank,
 *   HOCKET_RANKS              number of ranks,
 *   HOCKET_LOCAL_RANK         rank among those of the same host,
 *   HOCKET_LOCAL_RANKS        number of ranks on the same host
 *
 * Each call below is documented by the same five lines: Effect; Needs (preconditions); Blocks
 * (blocking and stream rules); Threads; Errors (and what state remains). */
#ifndef HOCKET_H_
#define HOCKET_H_

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#define HOCKET_MAJOR 0
#define HOCKET_MINOR 1
#define HOCKET_PATCH 0
#define HOCKET_VERSION_CODE (HOCKET_MAJOR * 10000 + HOCKET_MINOR * 100 + HOCKET_PATCH)

#if defined(__GNUC__)
#define HOCKET_API __attribute__((visibility("default")))
#else
#define HOCKET_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hocketComm* hocketComm_t;
/* NULL: the caller's own thread; later also a CUDA stream. */
typedef struct hocketStream* hocketStream_t;
typedef struct hocketEvent* hocketEvent_t;

#define HOCKET_UNIQUE_ID_BYTES 128
/* The name of a job: address and key of its meeting place. A secret. */
typedef struct {
  char internal[HOCKET_UNIQUE_ID_BYTES];
} hocketUniqueId;

typedef enum {
  hocketSuccess = 0,
  hocketUnhandledCudaError = 1, /* kept for NCCL's numbering; not returned */
  hocketSystemError = 2,        /* the operating system refused something; the sentence says what */
  hocketInternalError = 3,      /* a bug in hocket: please report it */
  hocketInvalidArgument = 4,    /* an argument is wrong on its face */
  hocketInvalidUsage = 5,       /* right arguments at a wrong time, or a wrong HOCKET_* variable */
  hocketRemoteError = 6,        /* a rank died, left, fell silent or broke the protocol */
  hocketInProgress = 7,         /* not an error: ask again */
  hocketTimeout = 8,            /* the deadline passed with every rank alive */
  hocketMismatch = 100,         /* ranks made different calls */
  hocketAborted = 101           /* hocketCommAbort, here or on another rank */
} hocketResult_t;

/* Element types: NCCL's numbers. */
typedef enum {
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
  hocketNumTypes = 12
} hocketDataType_t;

/* Operators: NCCL's numbers. */
typedef enum {
  hocketSum = 0,
  hocketProd = 1,
  hocketMax = 2,
  hocketMin = 3,
  hocketAvg = 4,
  hocketNumOps = 5
} hocketRedOp_t;

#define HOCKET_CONFIG_UNDEF_INT INT_MIN
#define HOCKET_CONFIG_UNDEF_PTR NULL

/* How a communicator behaves. Begin with HOCKET_CONFIG_INITIALIZER, then set what matters:
 *
 *   hocketConfig_t config = HOCKET_CONFIG_INITIALIZER;
 *   config.deadline_ms = 30000;
 *
 * Fields are only ever appended: a program compiled against an older header runs on. */
typedef struct {
  size_t size;          /* sizeof(hocketConfig_t) of the caller's header */
  unsigned int magic;   /* HOCKET_CONFIG_MAGIC */
  unsigned int version; /* HOCKET_VERSION_CODE of the caller's header */
  /* 1 (default): calls return when done. 0: init and NULL-stream calls return hocketInProgress. */
  int blocking;
  /* Name of the communicator in errors and log lines; copied. NULL: "world", or after a split the
   * parent's. */
  const char* commName;
  /* Longest time an operation may take, from the start of its execution. Default 600000. */
  int deadline_ms;
  /* Longest time all ranks may take to meet. Default 600000. */
  int join_deadline_ms;
  /* A rank that gives no sign of life for so long is an error. At least 100. Default 10000. */
  int silence_ms;
  /* 1: the same bits for a rank count, whatever the size, transport and placement. Default 0. */
  int deterministic;
  /* Network interface ("eth0") or address to listen on; NULL: the one that routes to the others. */
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

/* Effect:  *version becomes the library's HOCKET_VERSION_CODE (the header's may differ).
 * Needs:   version not NULL.
 * Blocks:  no; uses no stream.
 * Threads: any, at any time.
 * Errors:  hocketInvalidArgument: version is NULL; nothing changes. */
HOCKET_API hocketResult_t hocketGetVersion(int* version);

/* Effect:  a few words for a result, such as "invalid argument": a static string, never NULL.
 * Needs:   nothing; a number that is no result gets words that say so.
 * Blocks:  no; uses no stream.
 * Threads: any, at any time.
 * Errors:  none. */
HOCKET_API const char* hocketGetErrorString(hocketResult_t result);

/* Effect:  the sentence behind the error that poisoned comm or ended its join, else behind the
 *          last one of a call on it (queries aside); where comm is NULL, behind the calling
 *          thread's last result that was not hocketSuccess: who, in which operation, and what to
 *          do next. "" where there was none; never NULL.
 * Needs:   comm NULL or not yet destroyed. The text is valid until the calling thread calls this
 *          function again.
 * Blocks:  no; uses no stream.
 * Threads: any, at any time.
 * Errors:  none. */
HOCKET_API const char* hocketGetLastError(hocketComm_t comm);

/* Effect:  *rank becomes the rank that caused the calling thread's last result that was not
 *          hocketSuccess, that of a join, a stream, an event or a group too: its number in the
 *          communicator of the failed operation; -1 where there was none or nobody to name.
 * Needs:   rank not NULL.
 * Blocks:  no; uses no stream.
 * Threads: any, at any time.
 * Errors:  hocketInvalidArgument: *rank is unchanged. */
HOCKET_API hocketResult_t hocketGetLastCulprit(int* rank);

/* level: 1 error, 2 warning, 3 information, 4 debugging. line: without a newline; valid during the
 * callback. user: as given. */
typedef void (*hocketLogCallback_t)(int level, const char* line, void* user);

/* Effect:  callback gets every log line of the process from now on, one at a time, whatever
 *          HOCKET_LOG puts on standard error; NULL: no callback, as at the start.
 * Needs:   callback may be called by any thread, returns soon and does not call hocket.
 * Blocks:  until no thread is inside the callback that was set before; uses no stream.
 * Threads: any, at any time, but not from inside a callback.
 * Errors:  none. */
HOCKET_API hocketResult_t hocketSetLogCallback(hocketLogCallback_t callback, void* user);

/* ---- Communicators --------------------------------------------------------------------------- */

/* Effect:  makes the name of a new job in *uniqueId: this process's address and a fresh 256-bit
 *          key. The process listens there for the first rank as long as HOCKET_JOIN_DEADLINE_MS
 *          says (600 s where it does not), then until all ranks have joined or the earliest of
 *          their join deadlines has passed, and up to a minute more to tell latecomers.
 * Needs:   uniqueId not NULL. One rank calls it and hands the bytes to the others by a way that
 *          strangers cannot read: whoever has them can join.
 * Blocks:  no; uses no stream.
 * Threads: any, at any time.
 * Errors:  hocketInvalidArgument, hocketInvalidUsage (a HOCKET_* variable), hocketSystemError (no
 *          address to listen on): *uniqueId is unspecified, nothing listens. */
HOCKET_API hocketResult_t hocketGetUniqueId(hocketUniqueId* uniqueId);

/* Effect:  joins rank `rank` of nranks to the job; *comm is a communicator of all of them.
 * Needs:   called once per rank, with the same commId and nranks (1 to 32767) and distinct ranks
 *          from 0 to nranks - 1; any order, minutes apart. Each commId serves one communicator. Not
 *          in a group.
 * Blocks:  until all ranks have joined, at most the join deadline and two seconds; then for the
 *          first operations among them, each at most the deadline. Uses no stream.
 * Threads: any; several communicators of one process may be joined by several threads.
 * Errors:  hocketInvalidArgument (an interface that does not exist too); hocketTimeout: the
 *          sentence lists the missing ranks; hocketInvalidUsage: two processes claim a rank,
 *          nranks differ, or a HOCKET_* variable is wrong; hocketMismatch: ranks have different
 *          settings; hocketAborted: another rank aborted its join; hocketRemoteError: a process
 *          was lost or does not know the key; hocketSystemError. A rank that is done earlier may
 *          go on to its first operations: an error of those (any result of hocketAllReduce) can
 *          be the result here. *comm becomes NULL and there is nothing to destroy. */
HOCKET_API hocketResult_t hocketCommInitRank(hocketComm_t* comm, int nranks, hocketUniqueId commId,
                                             int rank);

/* Effect:  hocketCommInitRank with a configuration (see hocketConfig_t).
 * Needs:   config NULL, or begun with HOCKET_CONFIG_INITIALIZER; fields that are left undefined
 *          have their defaults. deterministic equal on all ranks. Not in a group.
 * Blocks:  as hocketCommInitRank; with blocking = 0 not: it returns hocketInProgress and
 *          hocketCommGetAsyncError tells when the communicator may be used.
 * Threads: as hocketCommInitRank.
 * Errors:  as hocketCommInitRank; a bad size, magic or field of config is hocketInvalidArgument
 *          and named. With blocking = 0 errors of the join come by hocketCommGetAsyncError, and
 *          *comm must be destroyed. */
HOCKET_API hocketResult_t hocketCommInitRankConfig(hocketComm_t* comm, int nranks,
                                                   hocketUniqueId commId, int rank,
                                                   hocketConfig_t* config);

/* Effect:  joins this process to its job, rank and rank count as its launcher (hocket-run) gives
 *          them. Without a launcher: a communicator of this process alone.
 * Needs:   comm not NULL; config as for hocketCommInitRankConfig, or NULL. All processes of the
 *          job call it equally often, and end their communicators in the same places between
 *          these calls: communicators that live at the same time share what the first of them
 *          joined, its interface, transports and silence limit too. Not in a group.
 * Blocks:  as hocketCommInitRankConfig; uses no stream.
 * Threads: one at a time in a process.
 * Errors:  as hocketCommInitRankConfig; hocketInvalidUsage too where the launcher's data are
 *          damaged, or its descriptor was closed on the way here. */
HOCKET_API hocketResult_t hocketCommInitFromEnv(hocketComm_t* comm, const hocketConfig_t* config);

#define HOCKET_SPLIT_NOCOLOR -1

/* Effect:  makes a communicator for each color: ranks of one color, numbered by key, and by rank
 *          in comm where keys are equal. *newcomm is this rank's; NULL for HOCKET_SPLIT_NOCOLOR.
 * Needs:   a collective: every rank of comm calls it, in the same place among its calls. color not
 *          negative, or HOCKET_SPLIT_NOCOLOR. config as for hocketCommInitRankConfig; NULL:
 *          comm's. Not in a group.
 * Blocks:  until the calls already made on comm have ended and all ranks have split, at most
 *          comm's deadline, and then as hocketCommInitRank, with config's deadlines. With
 *          blocking = 0 in config (or inherited) it returns hocketInProgress, comm may be used
 *          and destroyed meanwhile, and *newcomm must be destroyed even where making it failed.
 *          A rank without a color waits for the split's turn on comm, unless comm itself has
 *          blocking = 0. Uses no stream.
 * Threads: one at a time on comm.
 * Errors:  hocketInvalidArgument, hocketInvalidUsage: comm stays usable. Others as
 *          hocketAllReduce, which poison comm; once all have split, as hocketCommInitRank, and
 *          comm stays usable. *newcomm becomes NULL. */
HOCKET_API hocketResult_t hocketCommSplit(hocketComm_t comm, int color, int key,
                                          hocketComm_t* newcomm, hocketConfig_t* config);

/* Effect:  ends the communicator's work: all operations of all ranks have ended when it returns.
 *          Afterwards only queries and hocketCommDestroy are allowed.
 * Needs:   a collective, each rank's last call on comm but those. Not in a group.
 * Blocks:  until all ranks have called it and this rank's streams are through with comm, at most
 *          the deadline.
 * Threads: one at a time on comm.
 * Errors:  hocketInvalidArgument; hocketInvalidUsage (in a group, another thread inside, finalized
 *          before) and hocketInProgress (not joined): nothing happened. The error that poisoned
 *          comm, or one met while waiting. With blocking = 0 it waits all the same.
 *          hocketCommDestroy is still needed, and works. */
HOCKET_API hocketResult_t hocketCommFinalize(hocketComm_t comm);

/* Effect:  frees comm and leaves the job with it. A peer that still waits for this rank gets
 *          hocketRemoteError, which names it. In a forked child it only forgets comm.
 * Needs:   no other thread inside a call on comm; every registration on it becomes invalid. A
 *          communicator and those split from it may be destroyed in any order. Not in a group.
 *          NULL does nothing.
 * Blocks:  until this rank's own operations on comm, and its join, have ended (each does, by its
 *          deadline, or by hocketCommAbort); waits for no other rank.
 * Threads: one at a time on comm.
 * Errors:  hocketInvalidArgument: comm was destroyed before, or is no communicator.
 *          hocketInvalidUsage: in a group; nothing changes. Otherwise hocketSuccess: a poisoned,
 *          aborted or finalized communicator is freed like any other. */
HOCKET_API hocketResult_t hocketCommDestroy(hocketComm_t comm);

/* Effect:  ends all operations on comm at once, its join too, on this rank and soon on all others;
 *          their calls and all later ones return hocketAborted. Unlike ncclCommAbort it frees
 *          nothing, because another thread may be inside: hocketCommDestroy is still needed.
 * Needs:   comm not yet destroyed, not NULL.
 * Blocks:  no; needs no peer's help; uses no stream.
 * Threads: any, at any time, while others are inside calls on comm.
 * Errors:  hocketInvalidArgument: no communicator. Aborting twice, or a poisoned communicator, is
 *          hocketSuccess. */
HOCKET_API hocketResult_t hocketCommAbort(hocketComm_t comm);

/* Effect:  *asyncError becomes comm's state: hocketSuccess; hocketInProgress while the init or a
 *          call (of any stream) of a communicator with blocking = 0 has not ended; else the error
 *          that poisoned it, or that of its join.
 * Needs:   comm and asyncError not NULL.
 * Blocks:  no; uses no stream.
 * Threads: any, at any time.
 * Errors:  hocketInvalidArgument: *asyncError is unchanged. Otherwise hocketSuccess, whatever
 *          *asyncError says. */
HOCKET_API hocketResult_t hocketCommGetAsyncError(hocketComm_t comm, hocketResult_t* asyncError);

/* Effect:  *rank becomes the rank of comm that caused its error or that of its join; where comm is
 *          NULL, the rank that caused the calling thread's last error, such as that of a join that
 *          made no communicator. -1 where there is no error or nobody to name.
 * Needs:   rank not NULL; comm NULL or not yet destroyed.
 * Blocks:  no; uses no stream.
 * Threads: any, at any time.
 * Errors:  hocketInvalidArgument: *rank is unchanged. */
HOCKET_API hocketResult_t hocketCommGetCulprit(hocketComm_t comm, int* rank);

/* Effect:  *count becomes the number of ranks.
 * Needs:   comm joined (no hocketInProgress), count not NULL.
 * Blocks:  no; uses no stream.
 * Threads: any, at any time; works on a poisoned communicator too.
 * Errors:  hocketInvalidArgument, hocketInProgress or the join's error (not joined): *count is
 *          unchanged. */
HOCKET_API hocketResult_t hocketCommCount(hocketComm_t comm, int* count);

/* Effect:  *rank becomes the caller's rank.
 * Needs:   comm joined, rank not NULL.
 * Blocks:  no; uses no stream.
 * Threads: any, at any time; works on a poisoned communicator too.
 * Errors:  hocketInvalidArgument, hocketInProgress or the join's error (not joined): *rank is
 *          unchanged. */
HOCKET_API hocketResult_t hocketCommUserRank(hocketComm_t comm, int* rank);

/* Effect:  *rank becomes the caller's number among comm's ranks on its node, in order of rank.
 * Needs:   comm joined, rank not NULL.
 * Blocks:  no; uses no stream.
 * Threads: any, at any time; works on a poisoned communicator too.
 * Errors:  hocketInvalidArgument, hocketInProgress or the join's error (not joined): *rank is
 *          unchanged. */
HOCKET_API hocketResult_t hocketCommLocalRank(hocketComm_t comm, int* rank);

/* Effect:  *count becomes the number of comm's ranks on the caller's node.
 * Needs:   comm joined, count not NULL.
 * Blocks:  no; uses no stream.
 * Threads: any, at any time; works on a poisoned communicator too.
 * Errors:  hocketInvalidArgument, hocketInProgress or the join's error (not joined): *count is
 *          unchanged. */
HOCKET_API hocketResult_t hocketCommLocalCount(hocketComm_t comm, int* count);

/* Effect:  *count becomes the number of nodes. Ranks share a node where memory can be shared
 *          between them, whatever their hosts are called; with HOCKET_TRANSPORT=tcp every rank
 *          counts as a node.
 * Needs:   comm joined, count not NULL.
 * Blocks:  no; uses no stream.
 * Threads: any, at any time; works on a poisoned communicator too.
 * Errors:  hocketInvalidArgument, hocketInProgress or the join's error (not joined): *count is
 *          unchanged. */
HOCKET_API hocketResult_t hocketCommNodeCount(hocketComm_t comm, int* count);

/* Effect:  *algorithm and *transport become the names of how this rank's last collective went,
 *          such as "staged" and "shm": static strings, "none" before the first; the transport is
 *          "none" too where comm has one rank.
 * Needs:   comm joined, algorithm and transport not NULL.
 * Blocks:  no; uses no stream.
 * Threads: any, at any time; works on a poisoned communicator too.
 * Errors:  hocketInvalidArgument, hocketInProgress or the join's error (not joined): both are
 *          unchanged. */
HOCKET_API hocketResult_t hocketCommLastAlgorithm(hocketComm_t comm, const char** algorithm,
                                                  const char** transport);

/* ---- Collectives and messages ------------------------------------------------------------------
 *
 * For all of them. Every rank of comm makes the same collectives in the same order, with the same
 * count, datatype, operator and root; ranks that disagree get hocketMismatch, and its sentence
 * quotes both. Calls on one communicator run in the order in which they were made, whatever their
 * streams. Buffers are host memory of any alignment and have at least count x size of datatype
 * bytes; where n times that is more than 2^63 - 1, or a buffer would end beyond the address space,
 * it is hocketInvalidArgument, n being comm's ranks. While operations on two communicators run at
 * once, their receive buffers should not share a memory page: where one fails, the other's may lose
 * what peers wrote to that page, and is then hocketRemoteError. Send and receive buffers are the
 * same where the call says "in place"; any other overlap is hocketInvalidArgument. With count 0
 * buffers may be NULL, and the ranks still have to make the call. */

/* Effect:  recvbuff on every rank := sendbuff of rank 0 op ... op sendbuff of rank n - 1, element
 *          by element. In place: sendbuff == recvbuff.
 * Needs:   count elements in sendbuff and in recvbuff; the same count, datatype and op on all
 *          ranks.
 * Blocks:  NULL stream: until recvbuff is right and sendbuff is the caller's again, at most the
 *          deadline (blocking = 0: returns hocketInProgress). Host stream: no; ends in its order.
 * Threads: one at a time on comm; the stream may be fed by several.
 * Errors:  hocketInvalidArgument, hocketInvalidUsage: nothing happened. hocketMismatch,
 *          hocketRemoteError, hocketTimeout, hocketAborted, hocketSystemError: recvbuff is
 *          unspecified and comm poisoned; on a host stream from hocketStreamSynchronize, but that
 *          its worker cannot be started (hocketSystemError) the first call on it says. */
HOCKET_API hocketResult_t hocketAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                          hocketDataType_t datatype, hocketRedOp_t op,
                                          hocketComm_t comm, hocketStream_t stream);

/* Effect:  recvbuff on every rank := sendbuff of rank root. In place: sendbuff == recvbuff, on
 *          root.
 * Needs:   count elements in recvbuff, and in sendbuff on root (elsewhere it is not looked at and
 *          may be NULL); the same count, datatype and root on all ranks.
 * Blocks:  as hocketAllReduce.
 * Threads: as hocketAllReduce.
 * Errors:  as hocketAllReduce; hocketInvalidArgument too where root is no rank of comm. */
HOCKET_API hocketResult_t hocketBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                                          hocketDataType_t datatype, int root, hocketComm_t comm,
                                          hocketStream_t stream);

/* Effect:  recvbuff on every rank := sendbuff of rank 0, of rank 1, ... of rank n - 1, end to end.
 *          In place: sendbuff == recvbuff + rank x sendcount elements.
 * Needs:   sendcount elements in sendbuff, n x sendcount in recvbuff; the same sendcount and
 *          datatype on all ranks.
 * Blocks:  as hocketAllReduce.
 * Threads: as hocketAllReduce.
 * Errors:  as hocketAllReduce. */
HOCKET_API hocketResult_t hocketAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                                          hocketDataType_t datatype, hocketComm_t comm,
                                          hocketStream_t stream);

/* Effect:  recvbuff on rank r := the r-th recvcount elements of what hocketAllReduce would give.
 *          In place: recvbuff == sendbuff + rank x recvcount elements; the rest of sendbuff is
 *          then unspecified.
 * Needs:   n x recvcount elements in sendbuff, recvcount in recvbuff; the same recvcount, datatype
 *          and op on all ranks.
 * Blocks:  as hocketAllReduce.
 * Threads: as hocketAllReduce.
 * Errors:  as hocketAllReduce. */
HOCKET_API hocketResult_t hocketReduceScatter(const void* sendbuff, void* recvbuff,
                                              size_t recvcount, hocketDataType_t datatype,
                                              hocketRedOp_t op, hocketComm_t comm,
                                              hocketStream_t stream);

/* Effect:  no rank's barrier ends before every rank's has begun.
 * Needs:   a collective: every rank calls it.
 * Blocks:  as hocketAllReduce.
 * Threads: as hocketAllReduce.
 * Errors:  as hocketAllReduce, without a buffer. */
HOCKET_API hocketResult_t hocketBarrier(hocketComm_t comm, hocketStream_t stream);

/* Effect:  the message in sendbuff goes to the hocketRecv of rank peer that is the same number in
 *          the order of messages from this rank to that.
 * Needs:   count elements in sendbuff; the same count and datatype on both sides.
 * Blocks:  NULL stream: until sendbuff is the caller's again, which for messages above 64 KiB is
 *          not before peer has called hocketRecv, at most the deadline. Two ranks that send to one
 *          another first and receive afterwards wait in vain: use a group. Host stream: no; ends in
 *          its order.
 * Threads: as hocketAllReduce.
 * Errors:  as hocketAllReduce; hocketInvalidArgument too where peer is no rank of comm;
 *          hocketInvalidUsage where peer is the caller's own rank and the group does not hold the
 *          hocketRecv too (hocketGroupEnd says so), or there is no group. */
HOCKET_API hocketResult_t hocketSend(const void* sendbuff, size_t count, hocketDataType_t datatype,
                                     int peer, hocketComm_t comm, hocketStream_t stream);

/* Effect:  recvbuff := the message of the hocketSend of rank peer that is the same number in the
 *          order of messages from that rank to this.
 * Needs:   count elements in recvbuff; the same count and datatype on both sides.
 * Blocks:  NULL stream: until recvbuff is right, at most the deadline. Host stream: no; ends in
 *          its order.
 * Threads: as hocketAllReduce.
 * Errors:  as hocketSend. */
HOCKET_API hocketResult_t hocketRecv(void* recvbuff, size_t count, hocketDataType_t datatype,
                                     int peer, hocketComm_t comm, hocketStream_t stream);

/* Effect:  from now on this thread's collectives and messages, on any communicators and streams,
 *          are collected instead of begun, until the matching hocketGroupEnd. Groups nest: the
 *          outermost one counts.
 * Needs:   buffers stay as they are until the operations have ended. All ranks of a communicator
 *          put the same collectives in a group. Communicators are neither made nor ended in a
 *          group (hocketInvalidUsage). Nor are streams or events waited for, asked, recorded, or
 *          streams destroyed: nothing that was collected has begun (hocketInvalidUsage).
 * Blocks:  no; uses no stream.
 * Threads: any; a group belongs to the thread that started it.
 * Errors:  hocketSystemError: no memory; no group is begun. A collected call with a wrong argument
 *          says so itself, and hocketGroupEnd again. */
HOCKET_API hocketResult_t hocketGroupStart(void);

/* Effect:  begins everything collected since hocketGroupStart: the messages progress all together,
 *          in whatever order peers take them; collectives of one communicator run in the order of
 *          the calls.
 * Needs:   a hocketGroupStart before, in this thread.
 * Blocks:  until all NULL-stream operations of the group have ended, each by its deadline, and
 *          those on host streams that share a communicator with them. The end of an inner group:
 *          no.
 * Threads: one at a time on each communicator in the group.
 * Errors:  hocketInvalidUsage: no group is open, another thread is inside one of its
 *          communicators, or a message to oneself lacks its other half; hocketInvalidArgument: a
 *          communicator was destroyed since; the first error of a collected call: nothing of the
 *          group has begun. hocketInProgress: blocking = 0. Otherwise the first error of its
 *          operations; each communicator with one is poisoned, the others' operations have ended
 *          as they should. Streams whose operations share a communicator, or a stream that has
 *          two, run as one: each tells the first error among them. */
HOCKET_API hocketResult_t hocketGroupEnd(void);

/* Effect:  discards everything that this thread has collected since its outermost
 *          hocketGroupStart; no group is open afterwards, however deep they were nested. None of
 *          the discarded calls begins, and their buffers are the caller's again.
 * Needs:   a hocketGroupStart before, in this thread. Peers whose calls these were to meet wait
 *          for them: either all ranks discard a collective, or this rank calls it later.
 * Blocks:  no; uses no stream.
 * Threads: any; a group belongs to the thread that started it.
 * Errors:  hocketInvalidUsage: no group is open; nothing changes. */
HOCKET_API hocketResult_t hocketGroupCancel(void);

/* Effect:  *depth becomes the number of groups that this thread has open, one inside the other; 0:
 *          its calls begin at once.
 * Needs:   depth not NULL.
 * Blocks:  no; uses no stream.
 * Threads: any, at any time; says nothing of other threads' groups.
 * Errors:  hocketInvalidArgument: *depth is unchanged. */
HOCKET_API hocketResult_t hocketGroupDepth(int* depth);

/* ---- Streams and events ------------------------------------------------------------------------
 *
 * A stream or event that was destroyed is hocketInvalidArgument in every call, as long as no other
 * one has been created in its place. */

/* Effect:  *stream becomes a new host stream, with a worker thread of its own from its first
 *          operation on.
 * Needs:   stream not NULL.
 * Blocks:  no.
 * Threads: any, at any time.
 * Errors:  hocketInvalidArgument, hocketSystemError: *stream becomes NULL. Where no thread can be
 *          had, the first operation says so (hocketSystemError). */
HOCKET_API hocketResult_t hocketStreamCreate(hocketStream_t* stream);

/* Effect:  waits until all that was put on the stream before has ended.
 * Needs:   a stream; NULL is allowed and does nothing. Not in a group.
 * Blocks:  until then; every operation ends by its deadline.
 * Threads: any, at any time.
 * Errors:  the first error among the stream's operations that no call has returned yet. The stream
 *          stays usable; the communicator of that operation is poisoned. hocketInvalidUsage:
 *          in a group, or called by the stream's own worker (a log callback, say).
 *          hocketInvalidArgument: the stream was destroyed before, or is no stream; so for every
 *          call with a stream or an event. */
HOCKET_API hocketResult_t hocketStreamSynchronize(hocketStream_t stream);

/* Effect:  says whether all that was put on the stream has ended: hocketSuccess, or
 *          hocketInProgress.
 * Needs:   a stream; NULL is allowed: hocketSuccess. Not in a group.
 * Blocks:  no.
 * Threads: any, at any time.
 * Errors:  when all has ended: as hocketStreamSynchronize. hocketInvalidUsage: in a group. */
HOCKET_API hocketResult_t hocketStreamQuery(hocketStream_t stream);

/* Effect:  what is put on the stream afterwards begins only when the event's last record has
 *          happened. An event that was never recorded holds nothing up.
 * Needs:   stream and event not destroyed; a NULL stream is the caller's thread. Not in a group.
 * Blocks:  NULL stream: until the event has happened. Host stream: no.
 * Threads: any, at any time.
 * Errors:  hocketInvalidArgument: event is NULL; hocketInvalidUsage: in a group; nothing
 *          changes. */
HOCKET_API hocketResult_t hocketStreamWaitEvent(hocketStream_t stream, hocketEvent_t event);

/* Effect:  ends the worker thread and frees the stream.
 * Needs:   nobody uses the stream any more. NULL does nothing. Not in a group.
 * Blocks:  until all that was put on it has ended; every operation does, by its deadline.
 * Threads: any, once.
 * Errors:  the first error among its operations that no call has returned yet; the stream is freed
 *          all the same. hocketInvalidUsage: in a group, or called by the stream's own worker;
 *          nothing changes. */
HOCKET_API hocketResult_t hocketStreamDestroy(hocketStream_t stream);

/* Effect:  *event becomes a new event: a point in a stream's order. It counts as happened until it
 *          is recorded.
 * Needs:   event not NULL.
 * Blocks:  no.
 * Threads: any, at any time.
 * Errors:  hocketInvalidArgument, hocketSystemError: *event becomes NULL. */
HOCKET_API hocketResult_t hocketEventCreate(hocketEvent_t* event);

/* Effect:  the event happens when all that was put on the stream before has ended; earlier records
 *          are forgotten. NULL stream: it has happened.
 * Needs:   event not NULL.
 * Blocks:  no.
 * Threads: any, at any time.
 * Errors:  hocketInvalidArgument; hocketInvalidUsage: in a group; nothing changes. */
HOCKET_API hocketResult_t hocketEventRecord(hocketEvent_t event, hocketStream_t stream);

/* Effect:  waits until the event's last record has happened.
 * Needs:   event not NULL.
 * Blocks:  until then; every operation before it ends by its deadline.
 * Threads: any, at any time.
 * Errors:  hocketInvalidArgument; hocketInvalidUsage: in a group. An operation's error is not
 *          returned here: hocketEventGetResult and hocketStreamSynchronize return it. */
HOCKET_API hocketResult_t hocketEventSynchronize(hocketEvent_t event);

/* Effect:  says whether the event's last record has happened: hocketSuccess, or hocketInProgress.
 * Needs:   event not NULL.
 * Blocks:  no.
 * Threads: any, at any time.
 * Errors:  hocketInvalidArgument; hocketInvalidUsage: in a group. */
HOCKET_API hocketResult_t hocketEventQuery(hocketEvent_t event);

/* Effect:  says how all that was put on the stream before the event's last record has ended:
 *          hocketSuccess, or hocketInProgress while the event has not happened.
 * Needs:   event not NULL. An event that was never recorded, or recorded on a NULL stream:
 *          hocketSuccess.
 * Blocks:  no.
 * Threads: any, at any time.
 * Errors:  hocketInvalidArgument; or the first error among the stream's operations before the
 *          record that hocketStreamSynchronize or hocketStreamQuery had not returned when the event
 *          happened. It is returned as often as asked for, and the stream still returns it too. */
HOCKET_API hocketResult_t hocketEventGetResult(hocketEvent_t event);

/* Effect:  frees the event; what already waits for it goes on waiting for what it stood for.
 * Needs:   no thread inside a call on the event. NULL does nothing.
 * Blocks:  no.
 * Threads: any, once.
 * Errors:  hocketInvalidArgument: event was destroyed before, or is none; nothing changes. */
HOCKET_API hocketResult_t hocketEventDestroy(hocketEvent_t event);

/* ---- Memory ----------------------------------------------------------------------------------
 *
 * Any host memory will do for buffers. Memory that local peers have mapped is read and written in
 * place by them, which saves copies: that is hocketMemAlloc's, and the caller's own memfds. */

typedef enum {
  hocketPathStaged = 0, /* copied through small staging areas */
  hocketPathMapped = 1  /* local peers read and write it in place */
} hocketMemoryPath_t;

/* Effect:  *ptr becomes size bytes of zeroed, page-aligned memory that local peers of any of this
 *          process's communicators can map. Nothing is named in the file system, nothing remains
 *          after the process.
 * Needs:   ptr not NULL, size > 0.
 * Blocks:  no; uses no stream. Pages are taken when touched.
 * Threads: any, at any time.
 * Errors:  hocketInvalidArgument, hocketSystemError (no memory, no descriptors): *ptr becomes
 *          NULL. */
HOCKET_API hocketResult_t hocketMemAlloc(void** ptr, size_t size);

/* Effect:  frees what hocketMemAlloc gave; the pages return to the system even where a peer still
 *          has them mapped.
 * Needs:   ptr from hocketMemAlloc, and no operation that uses it under way. NULL does nothing.
 * Blocks:  no; uses no stream.
 * Threads: any, at any time.
 * Errors:  hocketInvalidArgument: ptr did not come from hocketMemAlloc, or was freed before;
 *          nothing changes. */
HOCKET_API hocketResult_t hocketMemFree(void* ptr);

/* Effect:  tells comm about [buff, buff + size), so that transports that can pin memory (GPUs,
 *          NICs) do it once. *handle names the registration. Between CPUs of one node it changes
 *          no path: peers cannot map memory that somebody else allocated.
 * Needs:   size > 0; the memory stays as it is until hocketCommDeregister. Only this rank; not a
 *          collective.
 * Blocks:  no; uses no stream.
 * Threads: one at a time on comm.
 * Errors:  hocketInvalidArgument, or the error that keeps comm from being used (not joined,
 *          finalized, poisoned): nothing is registered, *handle becomes NULL. */
HOCKET_API hocketResult_t hocketCommRegister(const hocketComm_t comm, void* buff, size_t size,
                                             void** handle);

/* Effect:  lets local peers map [buff, buff + size), which the caller has mapped from fd: a memfd
 *          whose bytes [offset, offset + size) are mapped MAP_SHARED at buff. The descriptor is
 *          duplicated (the caller may close its own) and sealed against shrinking, by which one
 *          process could kill the others.
 * Needs:   a memfd made with MFD_ALLOW_SEALING; size > 0; offset a multiple of the page size; no
 *          overlap with memory that is registered already. The mapping stays until
 *          hocketCommDeregister. Only this rank; not a collective.
 * Blocks:  no; uses no stream.
 * Threads: one at a time on comm.
 * Errors:  hocketInvalidArgument (range, descriptor), hocketInvalidUsage (overlap),
 *          hocketSystemError, or the error that keeps comm from being used: nothing is
 *          registered, *handle becomes NULL. */
HOCKET_API hocketResult_t hocketCommRegisterFd(const hocketComm_t comm, void* buff, size_t size,
                                               int fd, int64_t offset, void** handle);

/* Effect:  ends a registration.
 * Needs:   handle from a registration that has not ended; no operation that uses the memory under
 *          way. Works on a poisoned communicator too.
 * Blocks:  no; uses no stream.
 * Threads: one at a time on comm.
 * Errors:  hocketInvalidArgument: no such registration; nothing changes. */
HOCKET_API hocketResult_t hocketCommDeregister(const hocketComm_t comm, void* handle);

/* Effect:  *path says how local peers reach [buff, buff + size) in large collectives on comm. In
 *          place needs the buffers of all ranks mapped: one staged buffer makes all of them so.
 * Needs:   comm joined and not finalized; buff and path not NULL, size > 0.
 * Blocks:  no; uses no stream.
 * Threads: one at a time on comm.
 * Errors:  hocketInvalidArgument, or the error that keeps comm from being used: *path is
 *          unchanged. */
HOCKET_API hocketResult_t hocketCommMemoryPath(const hocketComm_t comm, const void* buff,
                                               size_t size, hocketMemoryPath_t* path);

#ifdef __cplusplus
}
#endif

#endif /* HOCKET_H_ */

/* Communicators: how they are made, queried and ended. A part of hocket.h, which includes this
 * header. C99 and C++20.
 *
 * Communicators in a group. Between hocketGroupStart and hocketGroupEnd, the calls that make a
 * communicator (all except hocketCommInitFromEnv) are collected. *comm and *newcomm receive NULL,
 * and hocketGroupEnd makes all communicators at once, each in a temporary thread. So one thread can
 * make the communicators of several ranks. The variables to which comm and newcomm point must exist
 * until hocketGroupEnd. A group either makes communicators or runs operations; the call that would
 * mix them fails with hocketInvalidUsage. If a communicator with blocking = 1 cannot be made,
 * hocketGroupEnd returns the first error, and none of the group's communicators with blocking = 1
 * exists: each variable has NULL. A communicator with blocking = 0 reports its own error, as it
 * does outside of a group. */
#ifndef HOCKET_COMMUNICATORS_H_
#define HOCKET_COMMUNICATORS_H_

#include "hocket.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Effect:  *uniqueId receives the unique id of a new job: the address of this process and a fresh
 *          256-bit key. The process listens at that address for the first rank for
 *          HOCKET_JOIN_DEADLINE_MS (default 600 s; join_deadline_ms of a configuration does not
 *          matter). Then it listens until all ranks have joined or the earliest of their join
 *          deadlines has passed, and up to 60 s more to answer ranks that come too late.
 * Needs:   uniqueId not NULL. One rank calls it and gives the bytes to the others by a way that
 *          strangers cannot read, because every process that has the bytes can join.
 * Blocks:  no; uses no stream.
 * Threads: any, at any time.
 * Errors:  hocketInvalidArgument, hocketInvalidUsage (a HOCKET_* variable), hocketSystemError (no
 *          address to listen on): *uniqueId is unspecified, and the process does not listen. */
HOCKET_API hocketResult_t hocketGetUniqueId(hocketUniqueId* uniqueId);

/* Effect:  joins the job of commId as rank `rank` of nranks; *comm receives a communicator of all
 *          nranks ranks. hocketCommInitRankConfig also takes a configuration (see hocketConfig_t).
 * Needs:   called once per rank, with the same commId and nranks (1 to 65535) and distinct ranks
 *          from 0 to nranks - 1, in any order. Calls of different ranks may be minutes apart. Each
 *          commId serves one communicator. config NULL, or begun with HOCKET_CONFIG_INITIALIZER;
 *          undefined fields have their defaults. deterministic is equal on all ranks. In a group
 *          it is collected.
 * Blocks:  until all ranks have joined, at most join_deadline_ms + 2 s; then for a few operations
 *          that measure the machine, each at most deadline_ms. With blocking = 0 it does not block:
 *          it returns hocketInProgress, and the communicator may be used when
 *          hocketCommGetAsyncError reports hocketSuccess. Uses no stream.
 * Threads: any; several threads of a process may join several communicators at once.
 * Errors:  *comm receives NULL, and there is nothing to destroy. hocketInvalidArgument: an argument
 *          or field of config is wrong, or an interface does not exist; the sentence names it.
 *          hocketTimeout: the sentence lists the missing ranks. hocketInvalidUsage: two processes
 *          claim the same rank, nranks differ, or a HOCKET_* variable is wrong. hocketMismatch:
 *          ranks have different settings. hocketAborted: another rank aborted its join.
 *          hocketRemoteError: a process was lost, or does not know the key. hocketSystemError. A
 *          peer that has joined earlier may already call operations: an error of those (any result
 *          of hocketAllReduce) may be returned here. With blocking = 0 hocketCommGetAsyncError
 *          reports the errors of the join, and *comm must be destroyed even then. */
HOCKET_API hocketResult_t hocketCommInitRank(hocketComm_t* comm, int nranks, hocketUniqueId commId,
                                             int rank);
HOCKET_API hocketResult_t hocketCommInitRankConfig(hocketComm_t* comm, int nranks,
                                                   hocketUniqueId commId, int rank,
                                                   const hocketConfig_t* config);

/* Effect:  as hocketCommInitRankConfig, with nId unique ids, as ncclCommInitRankScalable. In this
 *          version the join uses commIds[0] only: one coordinator serves all ranks, and a tree of
 *          node leaders spreads the load. The other ids must be valid; the processes that made them
 *          stop listening by their own deadlines.
 * Needs:   as hocketCommInitRankConfig; nId from 1 to nranks, and the same ids in the same order on
 *          all ranks. In a group it is collected.
 * Blocks:  as hocketCommInitRankConfig.
 * Threads: any; several threads of a process may join several communicators at once.
 * Errors:  as hocketCommInitRankConfig. */
HOCKET_API hocketResult_t hocketCommInitRankScalable(hocketComm_t* newcomm, int nranks, int myrank,
                                                     int nId, hocketUniqueId* commIds,
                                                     const hocketConfig_t* config);

/* Effect:  joins all ndev ranks of a new job, all of them in this process: comms[i] receives the
 *          communicator of rank i. devlist is not read: a CPU rank has no device.
 * Needs:   comms with ndev (1 to 65535) places. In a group the joins are collected.
 * Blocks:  as hocketGroupEnd with ndev calls of hocketCommInitRank; uses no stream.
 * Threads: any.
 * Errors:  as hocketCommInitRank: each of the places receives NULL, and there is nothing to
 *          destroy. */
HOCKET_API hocketResult_t hocketCommInitAll(hocketComm_t* comms, int ndev, const int* devlist);

/* Effect:  joins this process to its job, with the rank and the number of ranks that the launcher
 *          gives: hocket-run, torchrun, mpirun of Open MPI or MPICH, srun, or RANK, WORLD_SIZE and
 *          MASTER_ADDR (docs/LAUNCHING.md). An MPI program may call it before or after MPI_Init.
 *          Without a launcher *comm receives a communicator of this process alone. While a
 *          communicator from this call lives, further ones reuse its connections, and its
 *          interface, transports and silence limit.
 * Needs:   comm not NULL; config as for hocketCommInitRankConfig, or NULL. All ranks of the job
 *          make the same sequence of calls to hocketCommInitFromEnv and hocketCommDestroy (of
 *          communicators from hocketCommInitFromEnv). Not in a group.
 * Blocks:  as hocketCommInitRankConfig; uses no stream.
 * Threads: one at a time in a process.
 * Errors:  as hocketCommInitRankConfig; hocketInvalidUsage also if the launcher's variables or
 *          data are damaged or contradict one another, or if ranks on several hosts have no key;
 *          hocketRemoteError if the launcher's server (PMI, PMIx) fails. The error names the
 *          launcher and the variables that gave the rank. */
HOCKET_API hocketResult_t hocketCommInitFromEnv(hocketComm_t* comm, const hocketConfig_t* config);

#define HOCKET_SPLIT_NOCOLOR -1

/* Effect:  makes a communicator for each color, of the ranks that give this color. Their new ranks
 *          follow key, and rank in comm if keys are equal. *newcomm receives this rank's
 *          communicator, or NULL if color is HOCKET_SPLIT_NOCOLOR.
 * Needs:   a collective: every rank of comm calls it, in the same place among its calls. color not
 *          negative, or HOCKET_SPLIT_NOCOLOR. config as for hocketCommInitRankConfig; NULL: that
 *          of comm. In a group it is collected.
 * Blocks:  first until the earlier calls on comm have ended and all ranks of comm have called it,
 *          at most deadline_ms of comm; then as hocketCommInitRank, with the deadlines of config.
 *          With blocking = 0 in config (or inherited from comm) it returns hocketInProgress
 *          instead; meanwhile comm may be used and destroyed.
 *          With HOCKET_SPLIT_NOCOLOR it blocks for the first part only; it returns
 *          hocketInProgress instead if comm has blocking = 0. Uses no stream.
 * Threads: one at a time on comm.
 * Errors:  *newcomm receives NULL. With blocking = 0 hocketCommGetAsyncError reports the errors,
 *          and *newcomm must be destroyed even then.
 *          From the call itself (hocketInvalidArgument, hocketInvalidUsage): comm stays usable.
 *          Until all ranks of comm have called it: as hocketAllReduce; comm is poisoned.
 *          Afterwards: as hocketCommInitRank; comm stays usable. */
HOCKET_API hocketResult_t hocketCommSplit(hocketComm_t comm, int color, int key,
                                          hocketComm_t* newcomm, const hocketConfig_t* config);

/* Effect:  makes a communicator of the same ranks, with the same numbers. Operations on one do not
 *          wait for, and do not match, operations on the other, and an error of one is not an
 *          error of the other. The new communicator is made without another join, and chooses
 *          algorithms by the times that were measured when comm was made.
 * Needs:   as hocketCommSplit: a collective. In a group it is collected.
 * Blocks:  as hocketCommSplit.
 * Threads: one at a time on comm.
 * Errors:  as hocketCommSplit. If some ranks call hocketCommSplit instead, all ranks get
 *          hocketMismatch, and comm stays usable. */
HOCKET_API hocketResult_t hocketCommDuplicate(hocketComm_t comm, hocketComm_t* newcomm,
                                              const hocketConfig_t* config);

/* Effect:  makes a communicator of some ranks of comm, by these ranks alone: rank ranks[i] of comm
 *          is rank i of *newcomm. It is no operation on comm: it takes no place among the calls on
 *          comm, and the other ranks of comm do not learn of it. As MPI_Comm_create_group.
 * Needs:   every member calls it with the same ranks in the same order and the same tag. ranks has
 *          nranks ranks of comm, each once, the caller among them. tag: 0 or more; calls that run
 *          at once with the same members have different tags, and calls with the same members and
 *          the same tag are made in the same order by all members. config as for
 *          hocketCommInitRankConfig; NULL: that of comm. In a group it is collected.
 * Blocks:  until all members have called it, at most the larger of deadline_ms and
 *          join_deadline_ms of config; then for a few operations by which they agree. With
 *          blocking = 0 in config (or inherited from comm) it returns hocketInProgress instead;
 *          meanwhile comm may be used and destroyed. Uses no stream.
 * Threads: one at a time on comm.
 * Errors:  *newcomm receives NULL. From the call itself (hocketInvalidArgument,
 *          hocketInvalidUsage): nothing has happened. Otherwise as hocketCommInitRank: comm stays
 *          usable, and the culprit is a rank of *newcomm (hocketGetLastCulprit). It fails if a
 *          member has not called it by the deadline, or gives other ranks, another order or another
 *          tag; the sentence then has what this rank gave. If it fails on one member, it fails on
 *          the other members too; members that try again use another tag. An abort of comm ends it.
 *          With blocking = 0 hocketCommGetAsyncError reports the errors, and *newcomm must be
 *          destroyed even then. */
HOCKET_API hocketResult_t hocketCommCreateGroup(hocketComm_t comm, const int* ranks, int nranks,
                                                int tag, hocketComm_t* newcomm,
                                                const hocketConfig_t* config);

/* Effect:  ends the work of the communicator: when it returns hocketSuccess, all operations of all
 *          ranks have ended. Afterwards only queries and hocketCommDestroy are allowed.
 * Needs:   a collective, and the last operation that each rank calls on comm. Not in a group: a
 *          thread that has several ranks leaves it out.
 * Blocks:  until all ranks have called it and this rank's streams have ended their operations on
 *          comm, at most the deadline. It blocks with blocking = 0 too.
 * Threads: one at a time on comm.
 * Errors:  hocketInvalidArgument; hocketInvalidUsage (in a group, another thread inside, finalized
 *          before) and hocketInProgress (not joined): nothing changes. Otherwise the error that
 *          poisoned comm before or while this call waited. After an error too, comm must be
 *          destroyed. */
HOCKET_API hocketResult_t hocketCommFinalize(hocketComm_t comm);

/* Effect:  frees comm; this rank leaves the communicator. A peer that still waits for this rank
 *          fails with hocketRemoteError, which names this rank. In a forked child it frees only
 *          the child's copy.
 * Needs:   no other thread inside a call on comm. Every registration on comm becomes invalid. A
 *          communicator and those split from it may be destroyed in any order. Not in a group.
 *          NULL does nothing.
 * Blocks:  until this rank's own operations on comm, and its join, have ended (by their deadlines,
 *          or by hocketCommAbort). It waits for no other rank.
 * Threads: one at a time on comm.
 * Errors:  hocketInvalidArgument: comm was destroyed before, or is no communicator.
 *          hocketInvalidUsage: in a group; nothing changes. Otherwise hocketSuccess: a poisoned,
 *          aborted or finalized communicator is freed like any other. */
HOCKET_API hocketResult_t hocketCommDestroy(hocketComm_t comm);

/* Effect:  ends all operations on comm, and its join, at once on this rank and soon on all others;
 *          these calls and all later ones return hocketAborted. Unlike ncclCommAbort it frees
 *          nothing, because another thread may be inside a call: comm must still be destroyed.
 * Needs:   comm not yet destroyed, not NULL.
 * Blocks:  no; it needs no answer from a peer; uses no stream.
 * Threads: any, at any time, while others are inside calls on comm.
 * Errors:  hocketInvalidArgument: comm is no communicator. It returns hocketSuccess for a
 *          communicator that is aborted or poisoned already. */
HOCKET_API hocketResult_t hocketCommAbort(hocketComm_t comm);

/* Effect:  *asyncError receives the state of comm: hocketSuccess; hocketInProgress while the init
 *          or a call (of any stream) of a communicator with blocking = 0 has not ended; or the
 *          error that poisoned comm or ended its join.
 * Needs:   comm and asyncError not NULL.
 * Blocks:  no; uses no stream.
 * Threads: any, at any time.
 * Errors:  hocketInvalidArgument: *asyncError is unchanged. Otherwise hocketSuccess, whatever the
 *          state is. */
HOCKET_API hocketResult_t hocketCommGetAsyncError(hocketComm_t comm, hocketResult_t* asyncError);

/* Effect:  *rank receives the culprit of the error that poisoned comm or ended its join. If comm
 *          is NULL: that of the last error of this thread, such as a join that made no
 *          communicator. -1 if there is no error or no culprit.
 * Needs:   rank not NULL; comm NULL or not yet destroyed.
 * Blocks:  no; uses no stream.
 * Threads: any, at any time.
 * Errors:  hocketInvalidArgument: *rank is unchanged. */
HOCKET_API hocketResult_t hocketCommGetCulprit(hocketComm_t comm, int* rank);

/* Effect:  hocketCommCount: *count receives the number of ranks.
 *          hocketCommUserRank: *rank receives the rank of the caller.
 *          hocketCommLocalRank: *rank receives the local rank of the caller; local ranks are in
 *          the order of the ranks.
 *          hocketCommLocalCount: *count receives the number of comm's ranks on the caller's node.
 *          hocketCommNodeCount: *count receives the number of nodes. Two ranks are on one node if
 *          they can share memory, whatever the names of their hosts. With HOCKET_TRANSPORT=tcp
 *          every rank is a node of its own.
 *          hocketCommLastAlgorithm: the algorithm and the transport of this rank's last collective,
 *          such as "staged" and "shm": static strings. Both are "none" before the first collective;
 *          *transport is "none" also if comm has only one rank.
 * Needs:   comm joined (not hocketInProgress); pointers not NULL.
 * Blocks:  no; uses no stream.
 * Threads: any, at any time; works on a poisoned communicator too.
 * Errors:  hocketInvalidArgument, hocketInProgress (not joined yet), or the error of the join: the
 *          outputs are unchanged. */
HOCKET_API hocketResult_t hocketCommCount(hocketComm_t comm, int* count);
HOCKET_API hocketResult_t hocketCommUserRank(hocketComm_t comm, int* rank);
HOCKET_API hocketResult_t hocketCommLocalRank(hocketComm_t comm, int* rank);
HOCKET_API hocketResult_t hocketCommLocalCount(hocketComm_t comm, int* count);
HOCKET_API hocketResult_t hocketCommNodeCount(hocketComm_t comm, int* count);
HOCKET_API hocketResult_t hocketCommLastAlgorithm(hocketComm_t comm, const char** algorithm,
                                                  const char** transport);

#define HOCKET_HOST_BYTES 65

/* A member of a communicator. */
typedef struct {
  int jobRank;   /* its rank in the job: in the first communicator of all ranks that joined */
  int node;      /* nodes are numbered from 0, in the order of their lowest ranks in comm */
  int localRank; /* its local rank in comm */
  int pid;       /* its process number, as the process itself sees it */
  char host[HOCKET_HOST_BYTES]; /* the name of its host; ends with a zero byte */
} hocketMember_t;

/* Effect:  members[i] receives what is known of rank i of comm.
 * Needs:   comm joined (not hocketInProgress); members has count places, and count is the number of
 *          ranks of comm (hocketCommCount).
 * Blocks:  no; uses no stream.
 * Threads: any, at any time; works on a poisoned communicator too.
 * Errors:  hocketInvalidArgument, hocketInProgress (not joined yet), or the error of the join:
 *          members is unchanged. */
HOCKET_API hocketResult_t hocketCommMembers(hocketComm_t comm, hocketMember_t* members, int count);

/* Effect:  appends the record of comm's latest operations as text to the file at path: which are
 *          under way, which ranks they wait for, and which have ended. path NULL: to the log.
 * Needs:   comm joined (not hocketInProgress); path NULL, or a file that can be written or made.
 * Blocks:  only while it writes the file; uses no stream.
 * Threads: any, at any time, while others are inside calls on comm.
 * Errors:  hocketSystemError: the file cannot be written. hocketInvalidArgument, hocketInProgress,
 *          or the error of the join. No operation is disturbed. */
HOCKET_API hocketResult_t hocketCommDumpRecord(hocketComm_t comm, const char* path);

/* Effect:  reads a plan of the user's own from JSON (docs/PLANS.md), verifies it for the ranks of
 *          comm, and adds it to the algorithms from which comm chooses by price. With forced = 1
 *          comm runs it in every call that the plan can serve, unless HOCKET_ALGORITHM is set; of
 *          several forced plans that can serve a call, comm runs the plan that was loaded last.
 *          Communicators that are split from comm do not inherit it, but load the plans of
 *          HOCKET_PLAN_FILES.
 * Needs:   a collective: every rank of comm calls it, in the same place among its calls, with equal
 *          plans and equal forced. json: text that ends with 0, not NULL. comm has 2 to 64 ranks,
 *          and the plan serves that number. Not in a group.
 * Blocks:  until the earlier calls on comm have ended and all ranks have called it, at most
 *          deadline_ms; uses no stream.
 * Threads: one at a time on comm.
 * Errors:  hocketInvalidArgument: the plan is wrong (the sentence names the lane and the step), or
 *          a plan of the same name, collective and links is loaded already.
 *          hocketMismatch: another rank's plan is wrong or differs; the culprit is that rank. After
 *          these two errors no rank has loaded the plan, and comm stays usable.
 *          hocketInvalidArgument because comm, json or forced is wrong, and hocketInvalidUsage,
 *          come from this rank alone; nothing changes. Any other error is as in hocketAllReduce,
 *          and comm is poisoned. */
HOCKET_API hocketResult_t hocketCommLoadPlan(hocketComm_t comm, const char* json, int forced);

#ifdef __cplusplus
}
#endif

#endif /* HOCKET_COMMUNICATORS_H_ */

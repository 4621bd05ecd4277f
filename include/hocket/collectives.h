/* Collectives and messages: a part of hocket.h, which includes this header. C99 and C++20.
 *
 * Rules for all of them; n is the number of ranks of comm.
 *
 * Order. Every rank of comm calls the same collectives in the same order, with the same count,
 * datatype, operator and root. Ranks that disagree fail with hocketMismatch, and the sentence
 * quotes both calls. The collectives on one communicator run in the order in which they were made,
 * whatever their streams: each begins when the one before has ended. Messages begin in the order in
 * which they were made. A message does not wait for a collective on another stream, and a
 * collective does not wait for a message on another stream. If a message sends the result of a
 * collective, put both on one stream, or let the stream of the message wait for an event.
 *
 * Buffers. A buffer is host memory of any alignment. It has at least count x (size of datatype)
 * bytes. A call fails with hocketInvalidArgument if n times that size is more than 2^63 - 1 bytes,
 * or if a buffer would end beyond the address space. Send and receive buffer may overlap only as
 * "In place" says in the comment of the call; any other overlap fails with hocketInvalidArgument.
 * With count 0 buffers may be NULL, and every rank must still make the call. If operations run at
 * once on two communicators, keep their receive buffers on different memory pages: otherwise, if
 * one of the two fails, the other may lose data on the shared page and fail with hocketRemoteError.
 *
 * Counts of blocks. The calls whose names end in V have a block for each rank in one or both
 * buffers, and each block has a count of its own. They have the parameters of MPI's v-variants in
 * MPI's order, with one datatype, and with arrays of size_t. Each array has n entries. counts[r] is
 * the number of elements of the block of rank r, and displs[r] the element of the buffer at which
 * that block begins. displs NULL: each block follows the block of the rank before it. Blocks that
 * are received must not overlap; blocks that are sent may. The call copies the arrays before it
 * returns. It fails with hocketInvalidArgument if counts are NULL, if blocks that are received
 * overlap, if a block would end beyond 2^63 - 1 bytes, or if the two counts of the block that a
 * rank sends to itself differ. If sender and receiver of a block give different counts for it, both
 * fail with hocketMismatch. */
#ifndef HOCKET_COLLECTIVES_H_
#define HOCKET_COLLECTIVES_H_

#include "hocket.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Effect:  recvbuff on every rank receives, element by element, sendbuff of rank 0 op ... op
 *          sendbuff of rank n - 1. In place: sendbuff == recvbuff.
 * Needs:   count elements in sendbuff and in recvbuff; the same count, datatype and op on all
 *          ranks.
 * Blocks:  NULL stream: until recvbuff holds the result and sendbuff may be written again, at most
 *          the deadline (blocking = 0: no; returns hocketInProgress). Host stream: no; the
 *          operation ends in its order.
 * Threads: one at a time on comm; several threads may put operations on the stream.
 * Errors:  hocketInvalidArgument, hocketInvalidUsage: nothing changes. hocketMismatch,
 *          hocketRemoteError, hocketTimeout, hocketAborted, hocketSystemError: recvbuff is
 *          unspecified and comm poisoned. On a host stream hocketStreamSynchronize returns these
 *          errors; only "cannot start the worker" (hocketSystemError) comes from the call itself,
 *          the first on the stream. */
HOCKET_API hocketResult_t hocketAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                          hocketDataType_t datatype, hocketRedOp_t op,
                                          hocketComm_t comm, hocketStream_t stream);

/* Effect:  recvbuff on every rank receives sendbuff of rank root. In place: sendbuff == recvbuff,
 *          on root.
 * Needs:   count elements in recvbuff, and in sendbuff on root (other ranks' sendbuff is ignored
 *          and may be NULL); the same count, datatype and root on all ranks.
 * Blocks:  as hocketAllReduce.
 * Threads: as hocketAllReduce.
 * Errors:  as hocketAllReduce; hocketInvalidArgument also if root is no rank of comm. */
HOCKET_API hocketResult_t hocketBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                                          hocketDataType_t datatype, int root, hocketComm_t comm,
                                          hocketStream_t stream);

/* Effect:  buff on every rank receives buff of rank root: hocketBroadcast in place.
 * Needs:   count elements in buff; the same count, datatype and root on all ranks.
 * Blocks:  as hocketAllReduce.
 * Threads: as hocketAllReduce.
 * Errors:  as hocketBroadcast. */
HOCKET_API hocketResult_t hocketBcast(void* buff, size_t count, hocketDataType_t datatype, int root,
                                      hocketComm_t comm, hocketStream_t stream);

/* Effect:  recvbuff on rank root receives the result that hocketAllReduce would give. In place:
 *          sendbuff == recvbuff, on root.
 * Needs:   count elements in sendbuff, and in recvbuff on root (other ranks' recvbuff is ignored
 *          and may be NULL); the same count, datatype, op and root on all ranks.
 * Blocks:  as hocketAllReduce; other ranks than root may end before root.
 * Threads: as hocketAllReduce.
 * Errors:  as hocketAllReduce; hocketInvalidArgument also if root is no rank of comm. */
HOCKET_API hocketResult_t hocketReduce(const void* sendbuff, void* recvbuff, size_t count,
                                       hocketDataType_t datatype, hocketRedOp_t op, int root,
                                       hocketComm_t comm, hocketStream_t stream);

/* Effect:  recvbuff on every rank receives sendbuff of rank 0, of rank 1, ... of rank n - 1, end
 *          to end. In place: sendbuff == recvbuff + rank x sendcount elements.
 * Needs:   sendcount elements in sendbuff, n x sendcount in recvbuff; the same sendcount and
 *          datatype on all ranks.
 * Blocks:  as hocketAllReduce.
 * Threads: as hocketAllReduce.
 * Errors:  as hocketAllReduce. */
HOCKET_API hocketResult_t hocketAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                                          hocketDataType_t datatype, hocketComm_t comm,
                                          hocketStream_t stream);

/* Effect:  recvbuff on rank r receives elements r x recvcount to (r + 1) x recvcount - 1 of the
 *          result that hocketAllReduce would give. In place: recvbuff == sendbuff + rank x
 *          recvcount elements; the rest of sendbuff is then unspecified.
 * Needs:   n x recvcount elements in sendbuff, recvcount in recvbuff; the same recvcount, datatype
 *          and op on all ranks.
 * Blocks:  as hocketAllReduce.
 * Threads: as hocketAllReduce.
 * Errors:  as hocketAllReduce. */
HOCKET_API hocketResult_t hocketReduceScatter(const void* sendbuff, void* recvbuff,
                                              size_t recvcount, hocketDataType_t datatype,
                                              hocketRedOp_t op, hocketComm_t comm,
                                              hocketStream_t stream);

/* Effect:  recvbuff on rank root receives sendbuff of rank 0, of rank 1, ... of rank n - 1, end to
 *          end. In place: sendbuff == recvbuff + rank x count elements, on root.
 * Needs:   count elements in sendbuff, and n x count in recvbuff on root (other ranks' recvbuff is
 *          ignored and may be NULL); the same count, datatype and root on all ranks.
 * Blocks:  as hocketReduce.
 * Threads: as hocketAllReduce.
 * Errors:  as hocketReduce. */
HOCKET_API hocketResult_t hocketGather(const void* sendbuff, void* recvbuff, size_t count,
                                       hocketDataType_t datatype, int root, hocketComm_t comm,
                                       hocketStream_t stream);

/* Effect:  recvbuff on rank r receives elements r x count to (r + 1) x count - 1 of sendbuff of
 *          rank root. In place: recvbuff == sendbuff + rank x count elements, on root.
 * Needs:   count elements in recvbuff, and n x count in sendbuff on root (other ranks' sendbuff is
 *          ignored and may be NULL); the same count, datatype and root on all ranks.
 * Blocks:  as hocketAllReduce; root may end before the other ranks.
 * Threads: as hocketAllReduce.
 * Errors:  as hocketReduce. */
HOCKET_API hocketResult_t hocketScatter(const void* sendbuff, void* recvbuff, size_t count,
                                        hocketDataType_t datatype, int root, hocketComm_t comm,
                                        hocketStream_t stream);

/* Effect:  block q of recvbuff on rank r receives block r of sendbuff of rank q. Block b of a
 *          buffer is its elements b x count to (b + 1) x count - 1. It cannot be in place.
 * Needs:   n x count elements in sendbuff and in recvbuff; the same count and datatype on all
 *          ranks.
 * Blocks:  as hocketAllReduce.
 * Threads: as hocketAllReduce.
 * Errors:  as hocketAllReduce. */
HOCKET_API hocketResult_t hocketAlltoAll(const void* sendbuff, void* recvbuff, size_t count,
                                         hocketDataType_t datatype, hocketComm_t comm,
                                         hocketStream_t stream);

/* Effect:  block r of recvbuff on every rank receives sendbuff of rank r. In place: sendbuff ==
 *          recvbuff + displs[rank] elements.
 * Needs:   sendcount elements in sendbuff; the same recvcounts and datatype on all ranks, and
 *          sendcount == recvcounts[rank]. displs may differ between ranks.
 * Blocks:  as hocketAllReduce.
 * Threads: as hocketAllReduce.
 * Errors:  as hocketAllReduce; hocketInvalidArgument also as "Counts of blocks" above says. */
HOCKET_API hocketResult_t hocketAllGatherV(const void* sendbuff, size_t sendcount, void* recvbuff,
                                           const size_t* recvcounts, const size_t* displs,
                                           hocketDataType_t datatype, hocketComm_t comm,
                                           hocketStream_t stream);

/* Effect:  block r of recvbuff on rank root receives sendbuff of rank r. In place: sendbuff ==
 *          recvbuff + displs[rank] elements, on root.
 * Needs:   sendcount elements in sendbuff; on root recvcounts[r] == sendcount of rank r (other
 *          ranks' recvbuff, recvcounts and displs are ignored and may be NULL); the same datatype
 *          and root on all ranks.
 * Blocks:  as hocketReduce.
 * Threads: as hocketAllReduce.
 * Errors:  as hocketReduce; hocketInvalidArgument also as "Counts of blocks" above says. */
HOCKET_API hocketResult_t hocketGatherV(const void* sendbuff, size_t sendcount, void* recvbuff,
                                        const size_t* recvcounts, const size_t* displs,
                                        hocketDataType_t datatype, int root, hocketComm_t comm,
                                        hocketStream_t stream);

/* Effect:  recvbuff on rank r receives block r of sendbuff of rank root. In place: recvbuff ==
 *          sendbuff + displs[rank] elements, on root.
 * Needs:   recvcount elements in recvbuff; on root sendcounts[r] == recvcount of rank r (other
 *          ranks' sendbuff, sendcounts and displs are ignored and may be NULL); the same datatype
 *          and root on all ranks.
 * Blocks:  as hocketScatter.
 * Threads: as hocketAllReduce.
 * Errors:  as hocketReduce; hocketInvalidArgument also as "Counts of blocks" above says. */
HOCKET_API hocketResult_t hocketScatterV(const void* sendbuff, const size_t* sendcounts,
                                         const size_t* displs, void* recvbuff, size_t recvcount,
                                         hocketDataType_t datatype, int root, hocketComm_t comm,
                                         hocketStream_t stream);

/* Effect:  recvbuff on rank r receives block r of the result that hocketAllReduce would give; the
 *          blocks of sendbuff follow one another. In place: recvbuff is block `rank` of sendbuff;
 *          the rest of sendbuff is then unspecified.
 * Needs:   as many elements in sendbuff as all recvcounts together, recvcounts[rank] in recvbuff;
 *          the same recvcounts, datatype and op on all ranks.
 * Blocks:  as hocketAllReduce.
 * Threads: as hocketAllReduce.
 * Errors:  as hocketAllReduce; hocketInvalidArgument also as "Counts of blocks" above says. */
HOCKET_API hocketResult_t hocketReduceScatterV(const void* sendbuff, void* recvbuff,
                                               const size_t* recvcounts, hocketDataType_t datatype,
                                               hocketRedOp_t op, hocketComm_t comm,
                                               hocketStream_t stream);

/* Effect:  block q of recvbuff on rank r receives block r of sendbuff of rank q. It cannot be in
 *          place.
 * Needs:   sendcounts[r] on rank q == recvcounts[q] on rank r; the same datatype on all ranks.
 * Blocks:  as hocketAllReduce.
 * Threads: as hocketAllReduce.
 * Errors:  as hocketAllReduce; hocketInvalidArgument also as "Counts of blocks" above says. */
HOCKET_API hocketResult_t hocketAlltoAllV(const void* sendbuff, const size_t* sendcounts,
                                          const size_t* sdispls, void* recvbuff,
                                          const size_t* recvcounts, const size_t* rdispls,
                                          hocketDataType_t datatype, hocketComm_t comm,
                                          hocketStream_t stream);

/* Effect:  the barrier ends on no rank before every rank has begun it.
 * Needs:   a collective: every rank calls it.
 * Blocks:  as hocketAllReduce.
 * Threads: as hocketAllReduce.
 * Errors:  as hocketAllReduce, without a buffer. */
HOCKET_API hocketResult_t hocketBarrier(hocketComm_t comm, hocketStream_t stream);

/* Effect:  hocketSend sends sendbuff to rank peer; hocketRecv receives a message of rank peer into
 *          recvbuff. The k-th hocketSend to a peer matches that peer's k-th hocketRecv from this
 *          rank.
 * Needs:   count elements in the buffer; the same count and datatype on both sides.
 * Blocks:  NULL stream: hocketRecv until recvbuff holds the message, hocketSend until sendbuff may
 *          be written again, at most the deadline. hocketSend of more than 64 KiB (over TCP: 256
 *          KiB) waits until peer has called hocketRecv: if two ranks both send to each other first
 *          and receive afterwards, they deadlock until the deadline. Use a group for that. Host
 *          stream: no; the message waits only for the operations before it on that stream.
 * Threads: as hocketAllReduce.
 * Errors:  as hocketAllReduce; hocketInvalidArgument also if peer is no rank of comm;
 *          hocketInvalidUsage also if peer is the caller's own rank outside a group, or in a group
 *          (then from hocketGroupEnd) that does not hold both the send and the receive. */
HOCKET_API hocketResult_t hocketSend(const void* sendbuff, size_t count, hocketDataType_t datatype,
                                     int peer, hocketComm_t comm, hocketStream_t stream);
HOCKET_API hocketResult_t hocketRecv(void* recvbuff, size_t count, hocketDataType_t datatype,
                                     int peer, hocketComm_t comm, hocketStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* HOCKET_COLLECTIVES_H_ */

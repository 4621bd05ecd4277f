/* hocket: operators and datatypes of the program. Part of hocket.h: include that. */
#ifndef HOCKET_OPERATORS_H_
#define HOCKET_OPERATORS_H_

#include "hocket.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An operator of the program: inout[i] = in[i] op inout[i], for i from 0 to count - 1. datatype is
 * that of the collective, and in and inout are arrays of its elements; they do not overlap. The
 * operator must be associative. hocket calls the function with parts of the buffers, of any count;
 * it never splits an element.
 *
 * The order of the operands is that of the ranks: the result is x0 op (x1 op (x2 op ...)), where xr
 * is the element of rank r. If the operator is commutative, hocket may exchange operands and group
 * them differently. Partial results have the datatype too, so floating-point types of 16 and 8 bits
 * are rounded by each call.
 *
 * The function runs on the thread that runs the operation: the caller's thread, or the worker of
 * the stream. It must return: while it runs, deadlines are not checked. It must not throw, and must
 * not call hocket: such a call fails with hocketInvalidUsage and changes nothing. */
typedef void (*hocketUserFunction_t)(void* context, const void* in, void* inout, size_t count,
                                     hocketDataType_t datatype);

/* The greatest number of characters in the name of an operator of the program. */
#define HOCKET_OPERATOR_NAME_MAX 18

/* Effect:  *op receives an operator for the reductions of comm, of any datatype: hocketAllReduce,
 *          hocketReduce, hocketReduceScatter, hocketReduceScatterV. hocket calls fn(context, ...).
 *          commutative != 0: a op b == b op a. The name is copied. Ranks that give operators with
 *          different names, or only one of which is commutative, to one collective fail with
 *          hocketMismatch, and the sentence quotes both names.
 * Needs:   op, fn and name not NULL; a name of 1 to HOCKET_OPERATOR_NAME_MAX printable ASCII
 *          characters; a communicator that has joined. Every rank makes its own operator. fn and
 *          context stay valid until the last operation with the operator has ended.
 * Blocks:  no; uses no stream.
 * Threads: any.
 * Errors:  hocketInvalidArgument, hocketInvalidUsage, or the communicator's error: *op is not
 *          written. */
HOCKET_API hocketResult_t hocketRedOpCreateUser(hocketRedOp_t* op, hocketUserFunction_t fn,
                                                void* context, int commutative, const char* name,
                                                hocketComm_t comm);

/* Where the scalar of hocketRedOpCreatePreMulSum is: NCCL's names and numbers. */
typedef enum HOCKET_ENUM_TYPE {
  hocketScalarDevice = 0,       /* in memory of a GPU: not in this version */
  hocketScalarHostImmediate = 1 /* in host memory, read by the call */
} hocketScalarResidence_t;

/* Effect:  *op receives an operator for the reductions of comm: the sum of the inputs, each
 *          multiplied by the scalar of the rank that gives it. An input and its scalar are
 *          multiplied in the type in which sums are accumulated ("Numerics" in hocket.h): fp16,
 *          bf16 and fp8 in fp32, and only the sum is rounded; integer products wrap.
 * Needs:   op not NULL; scalar points to one element of datatype, which is a type of hocket or
 *          consists of one element of such a type; residence hocketScalarHostImmediate; a
 *          communicator that has joined. Every rank makes its own operator, with a scalar of its
 *          own, for the same datatype. A collective with the operator has elements of that
 *          datatype.
 * Blocks:  no; uses no stream.
 * Threads: any.
 * Errors:  hocketInvalidArgument, hocketInvalidUsage, or the communicator's error: *op is not
 *          written. */
HOCKET_API hocketResult_t hocketRedOpCreatePreMulSum(hocketRedOp_t* op, const void* scalar,
                                                     hocketDataType_t datatype,
                                                     hocketScalarResidence_t residence,
                                                     hocketComm_t comm);

/* Effect:  ends an operator of comm: a later call with it fails with hocketInvalidArgument.
 *          Operations that were called before end as usual. hocketCommDestroy ends the operators
 *          that are left.
 * Needs:   an operator of hocketRedOpCreatePreMulSum or hocketRedOpCreateUser on comm, not
 *          destroyed.
 * Blocks:  no.
 * Threads: any.
 * Errors:  hocketInvalidArgument: it is no operator of comm; nothing changes. */
HOCKET_API hocketResult_t hocketRedOpDestroy(hocketRedOp_t op, hocketComm_t comm);

/* Effect:  *type receives a datatype of n elements of base, which lie one after another. It may be
 *          used wherever a hocketDataType_t is asked for; counts and displacements then count its
 *          elements. Collectives that move data, and messages, move n x count elements of base; a
 *          rank that uses base itself, with that count, makes the same call. Operators of hocket
 *          work on the elements of base. An operator of the program gets whole elements of the
 *          datatype; all ranks must then use the same n.
 * Needs:   type not NULL; n at least 1; base a datatype, which may be made by this call too.
 * Blocks:  no; uses no stream.
 * Threads: any. A datatype belongs to the process and serves all communicators.
 * Errors:  hocketInvalidArgument: *type is not written. */
HOCKET_API hocketResult_t hocketTypeCreateContiguous(hocketDataType_t* type, int n,
                                                     hocketDataType_t base);

/* Effect:  ends a datatype: a later call with it fails with hocketInvalidArgument. Operations that
 *          were called before, and datatypes that were made of it, are not affected.
 * Needs:   a datatype of hocketTypeCreateContiguous, not destroyed.
 * Blocks:  no.
 * Threads: any.
 * Errors:  hocketInvalidArgument: it is no such datatype; nothing changes. */
HOCKET_API hocketResult_t hocketTypeDestroy(hocketDataType_t type);

/* Effect:  *bytes receives the size of an element of the datatype.
 * Needs:   a datatype; bytes not NULL.
 * Blocks:  no.
 * Threads: any.
 * Errors:  hocketInvalidArgument: *bytes is not written. */
HOCKET_API hocketResult_t hocketTypeSize(hocketDataType_t type, size_t* bytes);

#ifdef __cplusplus
}
#endif

#endif /* HOCKET_OPERATORS_H_ */

/* hocket: collective communication for CPU memory (GPU memory to come). C99 and C++20.
 *
 * Where NCCL has a call, ours has its name with the prefix changed and the same parameters in the
 * same order. */
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
typedef struct hocketStream*
    hocketStream_t; /* NULL: the caller's own thread; later also a CUDA stream */
typedef struct hocketEvent* hocketEvent_t;

#define HOCKET_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[HOCKET_UNIQUE_ID_BYTES];
} hocketUniqueId;

typedef enum {
  hocketSuccess = 0,
  hocketUnhandledCudaError = 1,
  hocketSystemError = 2,
  hocketInternalError = 3,
  hocketInvalidArgument = 4,
  hocketInvalidUsage = 5,
  hocketRemoteError = 6, /* a rank died, fell silent or broke the protocol */
  hocketInProgress = 7,
  hocketTimeout = 8,    /* the deadline passed with every rank alive */
  hocketMismatch = 100, /* ranks made different calls */
  hocketAborted = 101   /* hocketCommAbort, here or on another rank */
} hocketResult_t;

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
typedef struct {
  size_t size;          /* sizeof(hocketConfig_t) of the caller's header */
  unsigned int magic;   /* HOCKET_CONFIG_MAGIC */
  unsigned int version; /* HOCKET_VERSION_CODE of the caller's header */
  int blocking;         /* 1 (default): calls return when done; 0: init and NULL-stream calls return
                           hocketInProgress */
  const char* commName; /* for messages; copied */
  int deadline_ms; /* longest time an operation may take, from the start of its execution. Default
                      600000 */
  int join_deadline_ms; /* longest time all ranks may take to meet. Default 600000 */
  int silence_ms;    /* a rank that gives no sign of life for so long is an error. Default 10000 */
  int deterministic; /* 1: the same bits for a rank count, whatever the size, transport and
                        placement. Default 0 */
  const char* interface_name; /* network interface ("eth0") or address to listen on; NULL: chosen */
} hocketConfig_t;

#define HOCKET_CONFIG_MAGIC 0x686f636bU
#define HOCKET_CONFIG_INITIALIZER                                                              \
  {                                                                                            \
    sizeof(hocketConfig_t), HOCKET_CONFIG_MAGIC, HOCKET_VERSION_CODE, HOCKET_CONFIG_UNDEF_INT, \
        HOCKET_CONFIG_UNDEF_PTR, HOCKET_CONFIG_UNDEF_INT, HOCKET_CONFIG_UNDEF_INT,             \
        HOCKET_CONFIG_UNDEF_INT, HOCKET_CONFIG_UNDEF_INT, HOCKET_CONFIG_UNDEF_PTR              \
  }

HOCKET_API hocketResult_t hocketGetVersion(int* version);
HOCKET_API const char* hocketGetErrorString(hocketResult_t result);
/* comm may be NULL: the calling thread's last error. */
HOCKET_API const char* hocketGetLastError(hocketComm_t comm);
typedef void (*hocketLogCallback_t)(int level, const char* line, void* user);
HOCKET_API hocketResult_t hocketSetLogCallback(hocketLogCallback_t callback, void* user);

/* Communicators */
HOCKET_API hocketResult_t hocketGetUniqueId(hocketUniqueId* uniqueId);
HOCKET_API hocketResult_t hocketCommInitRank(hocketComm_t* comm, int nranks, hocketUniqueId commId,
                                             int rank);
HOCKET_API hocketResult_t hocketCommInitRankConfig(hocketComm_t* comm, int nranks,
                                                   hocketUniqueId commId, int rank,
                                                   hocketConfig_t* config);
HOCKET_API hocketResult_t hocketCommInitFromEnv(hocketComm_t* comm, const hocketConfig_t* config);
#define HOCKET_SPLIT_NOCOLOR -1
HOCKET_API hocketResult_t hocketCommSplit(hocketComm_t comm, int color, int key,
                                          hocketComm_t* newcomm, hocketConfig_t* config);
HOCKET_API hocketResult_t hocketCommFinalize(hocketComm_t comm);
HOCKET_API hocketResult_t hocketCommDestroy(hocketComm_t comm);
HOCKET_API hocketResult_t hocketCommAbort(hocketComm_t comm);
HOCKET_API hocketResult_t hocketCommGetAsyncError(hocketComm_t comm, hocketResult_t* asyncError);
/* The rank that caused the communicator's error, -1 where there is none. */
HOCKET_API hocketResult_t hocketCommGetCulprit(hocketComm_t comm, int* rank);
HOCKET_API hocketResult_t hocketCommCount(hocketComm_t comm, int* count);
HOCKET_API hocketResult_t hocketCommUserRank(hocketComm_t comm, int* rank);
HOCKET_API hocketResult_t hocketCommLocalRank(hocketComm_t comm, int* rank);
HOCKET_API hocketResult_t hocketCommLocalCount(hocketComm_t comm, int* count);
HOCKET_API hocketResult_t hocketCommNodeCount(hocketComm_t comm, int* count);
/* The algorithm and transport of this rank's last collective, as "staged" and "shm": static
 * strings. */
HOCKET_API hocketResult_t hocketCommLastAlgorithm(hocketComm_t comm, const char** algorithm,
                                                  const char** transport);

/* Collectives and messages */
HOCKET_API hocketResult_t hocketAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                          hocketDataType_t datatype, hocketRedOp_t op,
                                          hocketComm_t comm, hocketStream_t stream);
HOCKET_API hocketResult_t hocketBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                                          hocketDataType_t datatype, int root, hocketComm_t comm,
                                          hocketStream_t stream);
HOCKET_API hocketResult_t hocketAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                                          hocketDataType_t datatype, hocketComm_t comm,
                                          hocketStream_t stream);
HOCKET_API hocketResult_t hocketReduceScatter(const void* sendbuff, void* recvbuff,
                                              size_t recvcount, hocketDataType_t datatype,
                                              hocketRedOp_t op, hocketComm_t comm,
                                              hocketStream_t stream);
HOCKET_API hocketResult_t hocketBarrier(hocketComm_t comm, hocketStream_t stream);
HOCKET_API hocketResult_t hocketSend(const void* sendbuff, size_t count, hocketDataType_t datatype,
                                     int peer, hocketComm_t comm, hocketStream_t stream);
HOCKET_API hocketResult_t hocketRecv(void* recvbuff, size_t count, hocketDataType_t datatype,
                                     int peer, hocketComm_t comm, hocketStream_t stream);
HOCKET_API hocketResult_t hocketGroupStart(void);
HOCKET_API hocketResult_t hocketGroupEnd(void);

/* Streams and events */
HOCKET_API hocketResult_t hocketStreamCreate(hocketStream_t* stream);
HOCKET_API hocketResult_t hocketStreamSynchronize(hocketStream_t stream);
HOCKET_API hocketResult_t hocketStreamQuery(hocketStream_t stream);
HOCKET_API hocketResult_t hocketStreamWaitEvent(hocketStream_t stream, hocketEvent_t event);
HOCKET_API hocketResult_t hocketStreamDestroy(hocketStream_t stream);
HOCKET_API hocketResult_t hocketEventCreate(hocketEvent_t* event);
HOCKET_API hocketResult_t hocketEventRecord(hocketEvent_t event, hocketStream_t stream);
HOCKET_API hocketResult_t hocketEventSynchronize(hocketEvent_t event);
HOCKET_API hocketResult_t hocketEventQuery(hocketEvent_t event);
HOCKET_API hocketResult_t hocketEventDestroy(hocketEvent_t event);

/* Memory */
typedef enum {
  hocketPathStaged = 0, /* copied through small staging areas */
  hocketPathMapped = 1  /* local peers read and write it in place */
} hocketMemoryPath_t;
HOCKET_API hocketResult_t hocketMemAlloc(void** ptr, size_t size);
HOCKET_API hocketResult_t hocketMemFree(void* ptr);
HOCKET_API hocketResult_t hocketCommRegister(const hocketComm_t comm, void* buff, size_t size,
                                             void** handle);
/* fd: a memfd (or any mappable file) whose bytes [offset, offset + size) are mapped MAP_SHARED at
 * buff. */
HOCKET_API hocketResult_t hocketCommRegisterFd(const hocketComm_t comm, void* buff, size_t size,
                                               int fd, int64_t offset, void** handle);
HOCKET_API hocketResult_t hocketCommDeregister(const hocketComm_t comm, void* handle);
HOCKET_API hocketResult_t hocketCommMemoryPath(const hocketComm_t comm, const void* buff,
                                               size_t size, hocketMemoryPath_t* path);

#ifdef __cplusplus
}
#endif

#endif /* HOCKET_H_ */

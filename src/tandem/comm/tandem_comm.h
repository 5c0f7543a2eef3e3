// tandem's communicator for programs in C, and in all languages that call C. The interface
// resembles NCCL's, with host memory and without streams. It is a thin layer over communicator.h;
// see docs/collectives.md.
//
//   tdmComm_t comm;
//   tdmCommInitFromEnvironment(&comm, NULL);                 // under mpirun, torchrun, srun
//   tdmAllReduce(x, x, n, tdmFloat32, tdmSum, comm);
//   tdmCommDestroy(comm);
//
// Every function returns a result code; no function prints, ends the process or throws. Collectives
// block until this rank's part is done, at most for the configured timeout. Every rank calls the
// same collectives in the same order; after a difference all ranks get an error that names it.
// After tdmRemoteError the communicator stays failed, on all ranks: destroy it, or continue with
// the survivors (tdmCommShrink).
//
// Thread-safety: one thread at a time uses a communicator and those split from it. tdmCommAbort,
// tdmCommGetAsyncError and tdmGetLastError may be called by any thread, except while the
// communicator is destroyed.
//
// Buffers: `count` elements of the type, aligned as C aligns it. A buffer may be null only if no
// data is read or written. Buffers do not overlap unless a function allows it.
#pragma once

#include <stddef.h>

#if defined(__GNUC__)
#define TDM_API __attribute__((visibility("default")))
#else
#define TDM_API
#endif

// A caller in C may pass any int for an enumeration; in C++ that is defined only if its underlying
// type is int.
#ifdef __cplusplus
#define TDM_OF_INT : int
extern "C" {
#else
#define TDM_OF_INT
#endif

// Version of this header: 10000 × major + 100 × minor + patch.
#define TDM_VERSION 100

// ---- errors ----

// The numbers are NCCL's; 1 and 7 are not used.
typedef enum TDM_OF_INT {
  tdmSuccess = 0,
  tdmSystemError = 2,      // the operating system refused: memory, descriptors, files
  tdmInternalError = 3,    // an unexpected error
  tdmInvalidArgument = 4,  // a value of this call is wrong
  tdmInvalidUsage = 5,     // wrong environment, configuration or order of calls
  tdmRemoteError = 6       // a rank or the network failed, or a wait passed its deadline
} tdmResult_t;

typedef struct tdmComm* tdmComm_t;

// The library's version, which may be newer. Errors: tdmInvalidArgument.
TDM_API tdmResult_t tdmGetVersion(int* version);

// The meaning of a code as text; never null. The text is valid as long as the library is loaded.
TDM_API const char* tdmGetErrorString(tdmResult_t result);
// The message of the last call that failed on `comm`: the value found, the value expected, a
// suggestion. Null: the last failure of this thread in a call without a communicator. Empty
// without a failure; never null. The text is valid until this thread calls tdmGetLastError again.
TDM_API const char* tdmGetLastError(tdmComm_t comm);

// ---- configuration ----

// A field with this value keeps its default.
#define TDM_UNDEFINED (-1)

// Always initialized with TDM_CONFIG_INITIALIZER. New fields are only added at the end; `size`
// shows the library which fields the program has.
typedef struct {
  size_t size;           // set by the initializer
  unsigned int magic;    // set by the initializer
  unsigned int version;  // set by the initializer
  int timeout_ms;        // timeout of any wait, start included; 1,800,000
  int host_timeout_ms;   // allowed silence of a host; 2,000 or TANDEM_HOST_TIMEOUT
  // Allowed time for which a process is stopped; 0: no limit; 10,000 or TANDEM_STALL_TIMEOUT.
  int stall_timeout_ms;
  const char* backend;  // transport: "ccl", "mpi" or "gloo"; null: "ccl"
  // Directory for the last operations, written after a failure; null: TANDEM_FLIGHT_RECORD, not
  // written if that is unset.
  const char* flight_record_folder;
} tdmConfig_t;

#define TDM_CONFIG_MAGIC 0x7d3c0f16u
#define TDM_CONFIG_INITIALIZER                                                        \
  {                                                                                   \
    sizeof(tdmConfig_t), TDM_CONFIG_MAGIC, TDM_VERSION, TDM_UNDEFINED, TDM_UNDEFINED, \
        TDM_UNDEFINED, NULL, NULL                                                     \
  }

// ---- start and end ----

// Address for the bootstrap: bytes that rank 0 creates and the program sends to the other ranks (in
// a file, by MPI, through a pipe). They contain a secret: only processes that have them can join.
#define TDM_UNIQUE_ID_BYTES 512
typedef struct {
  char internal[TDM_UNIQUE_ID_BYTES];
} tdmUniqueId;

// Called by the process that will be rank 0: opens a port, which waits until tdmCommInitRank takes
// it (or for the end of the process). An id serves one communicator. TANDEM_IFNAME selects the
// interfaces.
// Errors: tdmInvalidArgument, tdmInvalidUsage, tdmSystemError.
TDM_API tdmResult_t tdmGetUniqueId(tdmUniqueId* id);

// Collective over `nranks` processes (or threads): connects to the others through `id`. `config`
// may be null. `*comm` is written only on success. Errors: tdmInvalidArgument (rank out of range,
// not an id, not an initialized configuration), tdmInvalidUsage (rank 0 is not the process that
// created the id; environment), tdmRemoteError (ranks missing at the deadline).
TDM_API tdmResult_t tdmCommInitRank(tdmComm_t* comm, int nranks, tdmUniqueId id, int rank,
                                    const tdmConfig_t* config);
// The same for ranks that a launcher started (mpirun of MPICH, Intel MPI or Open MPI, torchrun,
// srun, or RANK, WORLD_SIZE and MASTER_ADDR by hand; docs/environment_variables.md). Without a
// launcher: a communicator of one.
TDM_API tdmResult_t tdmCommInitFromEnvironment(tdmComm_t* comm, const tdmConfig_t* config);

// The ranks with the same `color` become a new communicator, ordered by (key, rank). A negative
// color: none, and `*newcomm` is null. Collective. It shares the connections of `comm` and fails
// with it; `comm` is destroyed after it. At most 50.
TDM_API tdmResult_t tdmCommSplit(tdmComm_t comm, int color, int key, tdmComm_t* newcomm);

// Returns a communicator of the survivors: all but the `exclude_count` ranks of `comm` in `exclude`
// and those that died, in the order of `comm`. It is the way to continue after tdmRemoteError:
// every survivor calls it on the failed communicator. Collective over the ranks that continue, with
// equal lists; excluded ranks do not call it. `comm` keeps its state, failed or not, with its
// memory; its owner destroys it before or after the new one. `config` belongs to the new
// communicator, and its timeout_ms limits this call; null: the configuration of `comm`.
// TDM_SHRINK_ABORT fails `comm` first: calls in progress on any rank end, and live ranks that do
// not arrive in time are left out (as always if `comm` has failed) instead of being an error.
// Errors: tdmInvalidArgument (this rank is excluded, invalid rank), tdmInvalidUsage (different
// lists, inside a group, or messages use an MPI, whose world cannot shrink), tdmRemoteError (a rank
// did not arrive, or this rank was left out).
#define TDM_SHRINK_DEFAULT 0
#define TDM_SHRINK_ABORT 1
TDM_API tdmResult_t tdmCommShrink(tdmComm_t comm, const int* exclude, int exclude_count,
                                  tdmComm_t* newcomm, const tdmConfig_t* config, int flags);

// Sends the goodbye: after it the end of this rank is not a failure for the others. Only
// tdmCommDestroy may follow. Errors: tdmInvalidUsage inside a group or while communicators split
// from it exist.
TDM_API tdmResult_t tdmCommFinalize(tdmComm_t comm);
// Calls tdmCommFinalize if that has not been called, then frees the communicator and its memory
// (tdmMemAlloc). Null is allowed. After tdmInvalidUsage, as of tdmCommFinalize, the communicator
// still exists.
TDM_API tdmResult_t tdmCommDestroy(tdmComm_t comm);
// Notifies all ranks that this one gives up. Their calls, and calls of this rank in progress,
// return tdmRemoteError. Unlike NCCL's function it does not free the communicator: call
// tdmCommDestroy when no call is in progress any more. Any thread.
TDM_API tdmResult_t tdmCommAbort(tdmComm_t comm);
// Reports without waiting whether the communicator has failed: `*error` becomes tdmSuccess or
// tdmRemoteError, and tdmGetLastError returns the reason. Any thread.
TDM_API tdmResult_t tdmCommGetAsyncError(tdmComm_t comm, tdmResult_t* error);

TDM_API tdmResult_t tdmCommCount(tdmComm_t comm, int* count);
TDM_API tdmResult_t tdmCommUserRank(tdmComm_t comm, int* rank);

// ---- memory ----

// Page-aligned zeroed memory that all ranks of the node have mapped; collectives inside a node use
// it without copies. Collective; ranks may request different sizes. Zero bytes: `*memory` is null.
TDM_API tdmResult_t tdmMemAlloc(tdmComm_t comm, void** memory, size_t bytes);
// Replaces [memory, memory + bytes), whole pages that the caller has mapped, by memory like that of
// tdmMemAlloc. Their contents stay; no thread may write to them meanwhile. `*file` becomes a
// descriptor of the memory file mapped there; the caller closes it. The caller unmaps the pages
// after tdmMemFree (or the communicator's end), which leaves them mapped. Collective; ranks may
// pass different sizes. Operations may be in progress, but they do not advance meanwhile. Errors:
// tdmInvalidArgument (not the beginning of a page), tdmSystemError, tdmRemoteError.
TDM_API tdmResult_t tdmMemReplace(tdmComm_t comm, void* memory, size_t bytes, int* file);
// Not collective; operations may be in progress on other memory. Null is allowed; any other pointer
// that is not memory of tdmMemAlloc or tdmMemReplace is tdmInvalidArgument.
TDM_API tdmResult_t tdmMemFree(tdmComm_t comm, void* memory);

// ---- collectives ----

// The numbers are NCCL's; there is no type of unsigned 32 bits. float16 and bfloat16 are summed in
// f32 and rounded once.
typedef enum TDM_OF_INT {
  tdmInt8 = 0,
  tdmUint8 = 1,
  tdmInt32 = 2,
  tdmInt64 = 4,
  tdmUint64 = 5,
  tdmFloat16 = 6,
  tdmFloat32 = 7,
  tdmFloat64 = 8,
  tdmBfloat16 = 9
} tdmDataType_t;

// Sums follow one binary tree over the ranks, so that the result has the same bits on all ranks and
// in every run. tdmAvg: the sum divided by the number of ranks; integers round towards zero.
typedef enum TDM_OF_INT { tdmSum = 0, tdmProd = 1, tdmMax = 2, tdmMin = 3, tdmAvg = 4 } tdmRedOp_t;

// Errors of all functions below: tdmInvalidArgument, tdmRemoteError, tdmInvalidUsage after
// tdmCommFinalize.

// Returns when every rank has called it.
TDM_API tdmResult_t tdmBarrier(tdmComm_t comm);
// recv[i] = op over the ranks' send[i], i < count. May be the same buffer.
TDM_API tdmResult_t tdmAllReduce(const void* send, void* recv, size_t count, tdmDataType_t type,
                                 tdmRedOp_t op, tdmComm_t comm);
// The same for `root` only; `recv` is unused on other ranks.
TDM_API tdmResult_t tdmReduce(const void* send, void* recv, size_t count, tdmDataType_t type,
                              tdmRedOp_t op, int root, tdmComm_t comm);
// recv[i] = op over the ranks' send[rank · recvcount + i]; `send` has nranks · recvcount elements.
// `recv` may be this rank's block of `send`.
TDM_API tdmResult_t tdmReduceScatter(const void* send, void* recv, size_t recvcount,
                                     tdmDataType_t type, tdmRedOp_t op, tdmComm_t comm);
// Block r of `recv` = `send` of rank r; `recv` has nranks · sendcount elements. `send` may be this
// rank's block of `recv`.
TDM_API tdmResult_t tdmAllGather(const void* send, void* recv, size_t sendcount, tdmDataType_t type,
                                 tdmComm_t comm);
// `send` of `root` replaces `recv` on all ranks; `send` is unused on other ranks. At the root both
// may be the same.
TDM_API tdmResult_t tdmBroadcast(const void* send, void* recv, size_t count, tdmDataType_t type,
                                 int root, tdmComm_t comm);
// Block s of `recv` = block `rank` of `send` of rank s; blocks of `count` elements. Not in place.
TDM_API tdmResult_t tdmAllToAll(const void* send, void* recv, size_t count, tdmDataType_t type,
                                tdmComm_t comm);
// tdmAllGather for `root` only; `recv` is unused on other ranks.
TDM_API tdmResult_t tdmGather(const void* send, void* recv, size_t sendcount, tdmDataType_t type,
                              int root, tdmComm_t comm);
// `recv` = block `rank` of `send` of `root`, which has nranks · recvcount elements and is unused on
// other ranks.
TDM_API tdmResult_t tdmScatter(const void* send, void* recv, size_t recvcount, tdmDataType_t type,
                               int root, tdmComm_t comm);

// ---- messages between two ranks ----

// Messages from one rank to another arrive in the order sent; the receive must have exactly the
// type and count of the send. Outside a group both block: two ranks that send each other large
// messages at the same time put them into a group.
TDM_API tdmResult_t tdmSend(const void* send, size_t count, tdmDataType_t type, int peer,
                            tdmComm_t comm);
TDM_API tdmResult_t tdmRecv(void* recv, size_t count, tdmDataType_t type, int peer, tdmComm_t comm);

// ---- blocks of different sizes ----

// `counts[r]` elements belong to rank r, at element `displs[r]` of the buffer with all blocks. Both
// arrays have nranks entries. Each function states which of them must be equal on all ranks. Blocks
// that are written do not overlap. Null `displs`: one block after the other.

// Block r of `recv` = `send` of rank r, which has recvcounts[r] elements. Equal `recvcounts` on all
// ranks. `send` may be this rank's block of `recv`. Runs as one broadcast per rank.
TDM_API tdmResult_t tdmAllGatherV(const void* send, void* recv, const size_t* recvcounts,
                                  const size_t* displs, tdmDataType_t type, tdmComm_t comm);
// `recv` = op over the ranks' blocks `rank` of `send`. Equal `sendcounts` on all ranks. `recv` may
// be this rank's block of `send`. Runs as one reduce per rank.
TDM_API tdmResult_t tdmReduceScatterV(const void* send, const size_t* sendcounts,
                                      const size_t* displs, void* recv, tdmDataType_t type,
                                      tdmRedOp_t op, tdmComm_t comm);
// Block s of `recv` = block `rank` of `send` of rank s. recvcounts[s] here equals sendcounts[rank]
// there; otherwise both ranks get an error. Not in place. Runs as a barrier and messages.
TDM_API tdmResult_t tdmAllToAllV(const void* send, const size_t* sendcounts, const size_t* sdispls,
                                 void* recv, const size_t* recvcounts, const size_t* rdispls,
                                 tdmDataType_t type, tdmComm_t comm);

// ---- operations that are started ----

// A started operation; null: none. Its buffers stay valid and unchanged until it has ended: until
// tdmWait, tdmTest or tdmWaitFor has set the request to null, or the communicator has failed or is
// destroyed. Collectives of a communicator run in the order in which they were started, and each
// rank starts (or calls) the same ones in the same order. Work happens inside the functions of this
// section, other calls of the communicator, and in a progress thread if there is one
// (CCL_WORKER_COUNT).
//
// Thread-safety: several threads may start, test and wait at once, on one communicator and those
// split from it, as long as no thread is inside another function of these communicators. Each
// request is used by one thread at a time. A waiting thread admits others every 0.2 ms.
//
// Not allowed inside a group (tdmInvalidUsage). Arguments as for the function without I.
typedef struct tdmRequest* tdmRequest_t;

TDM_API tdmResult_t tdmIBarrier(tdmComm_t comm, tdmRequest_t* request);
TDM_API tdmResult_t tdmIAllReduce(const void* send, void* recv, size_t count, tdmDataType_t type,
                                  tdmRedOp_t op, tdmComm_t comm, tdmRequest_t* request);
TDM_API tdmResult_t tdmIReduce(const void* send, void* recv, size_t count, tdmDataType_t type,
                               tdmRedOp_t op, int root, tdmComm_t comm, tdmRequest_t* request);
TDM_API tdmResult_t tdmIReduceScatter(const void* send, void* recv, size_t recvcount,
                                      tdmDataType_t type, tdmRedOp_t op, tdmComm_t comm,
                                      tdmRequest_t* request);
TDM_API tdmResult_t tdmIAllGather(const void* send, void* recv, size_t sendcount,
                                  tdmDataType_t type, tdmComm_t comm, tdmRequest_t* request);
TDM_API tdmResult_t tdmIBroadcast(const void* send, void* recv, size_t count, tdmDataType_t type,
                                  int root, tdmComm_t comm, tdmRequest_t* request);
TDM_API tdmResult_t tdmIAllToAll(const void* send, void* recv, size_t count, tdmDataType_t type,
                                 tdmComm_t comm, tdmRequest_t* request);
TDM_API tdmResult_t tdmIGather(const void* send, void* recv, size_t sendcount, tdmDataType_t type,
                               int root, tdmComm_t comm, tdmRequest_t* request);
TDM_API tdmResult_t tdmIScatter(const void* send, void* recv, size_t recvcount, tdmDataType_t type,
                                int root, tdmComm_t comm, tdmRequest_t* request);
TDM_API tdmResult_t tdmIAllGatherV(const void* send, void* recv, const size_t* recvcounts,
                                   const size_t* displs, tdmDataType_t type, tdmComm_t comm,
                                   tdmRequest_t* request);
TDM_API tdmResult_t tdmIReduceScatterV(const void* send, const size_t* sendcounts,
                                       const size_t* displs, void* recv, tdmDataType_t type,
                                       tdmRedOp_t op, tdmComm_t comm, tdmRequest_t* request);
TDM_API tdmResult_t tdmIAllToAllV(const void* send, const size_t* sendcounts, const size_t* sdispls,
                                  void* recv, const size_t* recvcounts, const size_t* rdispls,
                                  tdmDataType_t type, tdmComm_t comm, tdmRequest_t* request);

// A message with a tag, which only a receive below matches (tdmRecv has a separate stream).
// Messages of one rank with one tag are received in the order sent. Type and count must equal those
// of the receive; otherwise the communicator fails, and the error names both.
#define TDM_ANY_SOURCE (-1)
#define TDM_ANY_TAG (-1)
// `tag` >= 0.
TDM_API tdmResult_t tdmISend(const void* send, size_t count, tdmDataType_t type, int peer, int tag,
                             tdmComm_t comm, tdmRequest_t* request);
// From `peer` or TDM_ANY_SOURCE, with `tag` or TDM_ANY_TAG. `source` may be null; it receives the
// sender's rank when the request ends, and must stay valid until then.
TDM_API tdmResult_t tdmIRecv(void* recv, size_t count, tdmDataType_t type, int peer, int tag,
                             int* source, tdmComm_t comm, tdmRequest_t* request);

// Null requests have ended. All three functions free a request that has ended, in success or
// failure, and set it to null. Errors: those of the operation.
// Waits for the operation, at most for the communicator's timeout.
TDM_API tdmResult_t tdmWait(tdmRequest_t* request);
// Moves as much as possible; `*ended` becomes 1 or 0.
TDM_API tdmResult_t tdmTest(tdmRequest_t* request, int* ended);
// Waits at most `timeout_us`; `*ended` becomes 1 or 0. All waits for this request together may
// take `limit_ms` (TDM_UNDEFINED: the communicator's timeout), counted from the first. A longer
// wait fails the communicator on all ranks, as with any other wait.
TDM_API tdmResult_t tdmWaitFor(tdmRequest_t* request, int timeout_us, int limit_ms, int* ended);

// ---- groups ----

// Between the two calls, collectives are only recorded and messages only started. tdmGroupEnd runs
// all of them, and merges small all_reduces of one type and operation into one. Buffers stay
// unchanged until it returns, and results are complete then. Groups may be nested; the outermost
// end runs everything. Every rank groups the same collectives; sends and receives may differ.
// Unlike NCCL's, a group belongs to one communicator. Not allowed inside: tdmMemAlloc,
// tdmCommSplit, tdmCommShrink, tdmCommFinalize, tdmCommDestroy (tdmInvalidUsage).
TDM_API tdmResult_t tdmGroupBegin(tdmComm_t comm);
TDM_API tdmResult_t tdmGroupEnd(tdmComm_t comm);

#ifdef __cplusplus
}
#endif

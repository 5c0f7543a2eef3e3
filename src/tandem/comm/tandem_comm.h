// tandem's communicator for programs in C, and in all languages that call C: the shape of NCCL's
// interface, with host memory and without streams. It is a thin layer over communicator.h;
// docs/collectives.md tells what happens below.
//
//   tdmComm_t comm;
//   tdmCommInitFromEnvironment(&comm, NULL);                 // under mpirun, torchrun, srun
//   tdmAllReduce(x, x, n, tdmFloat32, tdmSum, comm);
//   tdmCommDestroy(comm);
//
// Every function returns a result code; nothing prints, ends the process or throws. Collectives
// block until this rank's part is done, at most for the configured timeout. Every rank calls the
// same collectives in the same order; who does not is told so on all ranks. After tdmRemoteError
// the communicator stays failed, on all ranks: destroy it, or go on with the ranks that are left
// (tdmCommShrink).
//
// Thread-safety: one thread at a time uses a communicator and those split from it. tdmCommAbort,
// tdmCommGetAsyncError and tdmGetLastError may be called by any thread, except while the
// communicator is destroyed.
//
// Buffers: `count` elements of the type, aligned as C aligns it, null only where nothing is read or
// written. They do not overlap unless a function says so.
#pragma once

#include <stddef.h>

#if defined(__GNUC__)
#define TDM_API __attribute__((visibility("default")))
#else
#define TDM_API
#endif

// A caller in C may pass any int for an enumeration; in C++ that is defined only if int is the type
// under it.
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
  tdmInternalError = 3,    // an error that nobody expected
  tdmInvalidArgument = 4,  // a value of this call is wrong
  tdmInvalidUsage = 5,     // wrong environment, configuration or order of calls
  tdmRemoteError = 6       // a rank or the network failed, or a wait passed its deadline
} tdmResult_t;

typedef struct tdmComm* tdmComm_t;

// The library's version, which may be newer. Errors: tdmInvalidArgument.
TDM_API tdmResult_t tdmGetVersion(int* version);

// What a code means, for people; never null. The text lives as long as the library.
TDM_API const char* tdmGetErrorString(tdmResult_t result);
// The message of the last call that failed on `comm`: what was found, what was expected, what to
// try. Null: the last failure of this thread in a call that had no communicator yet. Empty without
// one; never null. The text is valid until this thread calls tdmGetLastError again.
TDM_API const char* tdmGetLastError(tdmComm_t comm);

// ---- configuration ----

// A field that keeps its default.
#define TDM_UNDEFINED (-1)

// Always begins as TDM_CONFIG_INITIALIZER. Fields are only ever added at the end, and `size` tells
// the library which ones the program knows.
typedef struct {
  size_t size;           // set by the initializer
  unsigned int magic;    // set by the initializer
  unsigned int version;  // set by the initializer
  int timeout_ms;        // how long any wait may take, start included; 1,800,000
  int host_timeout_ms;   // how long a host may be silent; 2,000 or TANDEM_HOST_TIMEOUT
  // How long a process may be stopped; 0: no limit; 10,000 or TANDEM_STALL_TIMEOUT.
  int stall_timeout_ms;
  const char* backend;  // what carries messages: "ccl", "mpi" or "gloo"; null: "ccl"
  // Where the last operations are written on failure; null: TANDEM_FLIGHT_RECORD, and nowhere
  // without it.
  const char* flight_record_folder;
} tdmConfig_t;

#define TDM_CONFIG_MAGIC 0x7d3c0f16u
#define TDM_CONFIG_INITIALIZER                                                        \
  {                                                                                   \
    sizeof(tdmConfig_t), TDM_CONFIG_MAGIC, TDM_VERSION, TDM_UNDEFINED, TDM_UNDEFINED, \
        TDM_UNDEFINED, NULL, NULL                                                     \
  }

// ---- start and end ----

// Where the ranks meet: bytes that rank 0 makes and the program carries to the others (in a file,
// by MPI, through a pipe). They hold a secret: only who has them may join.
#define TDM_UNIQUE_ID_BYTES 512
typedef struct {
  char internal[TDM_UNIQUE_ID_BYTES];
} tdmUniqueId;

// Called by the process that will be rank 0: opens a port there, which waits until tdmCommInitRank
// takes it (or for the end of the process). An id serves one communicator. TANDEM_IFNAME chooses
// the interfaces.
// Errors: tdmInvalidArgument, tdmInvalidUsage, tdmSystemError.
TDM_API tdmResult_t tdmGetUniqueId(tdmUniqueId* id);

// Collective over `nranks` processes (or threads): meets the others at `id`. `config` may be null.
// `*comm` is written on success only. Errors: tdmInvalidArgument (rank out of range, not an id, not
// an initialized configuration), tdmInvalidUsage (rank 0 is not the process that made the id;
// environment), tdmRemoteError (ranks missing at the deadline).
TDM_API tdmResult_t tdmCommInitRank(tdmComm_t* comm, int nranks, tdmUniqueId id, int rank,
                                    const tdmConfig_t* config);
// The same for ranks that a launcher started (mpirun of MPICH, Intel MPI or Open MPI, torchrun,
// srun, or RANK, WORLD_SIZE and MASTER_ADDR by hand; docs/environment_variables.md). Without a
// launcher: a communicator of one.
TDM_API tdmResult_t tdmCommInitFromEnvironment(tdmComm_t* comm, const tdmConfig_t* config);

// The ranks that give the same `color` become a communicator of their own, ordered by (key, rank).
// A negative color: none, and `*newcomm` is null. Collective. It shares the connections and the
// fate of `comm`, which is destroyed after it. At most 50.
TDM_API tdmResult_t tdmCommSplit(tdmComm_t comm, int color, int key, tdmComm_t* newcomm);

// A communicator of the ranks that are left: all but the `exclude_count` ranks of `comm` in
// `exclude` and those that died, in the order of `comm`. The way on after tdmRemoteError: every
// rank that is left calls it on the failed communicator. Collective over the ranks that go on, with
// equal lists; excluded ranks do not call it. `comm` stays as it was, failed or not, with its
// memory, and is destroyed by its owner before or after the new one. `config` is that of the new
// communicator, and its timeout_ms the limit of this call; null: those of `comm`.
// TDM_SHRINK_ABORT fails `comm` first: calls under way on any rank end, and ranks that live but do
// not come in time are left behind (as always when `comm` has failed) instead of being an error.
// Errors: tdmInvalidArgument (this rank is excluded, no such rank), tdmInvalidUsage (different
// lists, inside a group, messages travel through an MPI, whose world cannot shrink), tdmRemoteError
// (who does not come, or was left behind).
#define TDM_SHRINK_DEFAULT 0
#define TDM_SHRINK_ABORT 1
TDM_API tdmResult_t tdmCommShrink(tdmComm_t comm, const int* exclude, int exclude_count,
                                  tdmComm_t* newcomm, const tdmConfig_t* config, int flags);

// Says goodbye: from here on the end of this rank is no failure for the others. Only tdmCommDestroy
// may follow. Errors: tdmInvalidUsage inside a group or while communicators split from it exist.
TDM_API tdmResult_t tdmCommFinalize(tdmComm_t comm);
// tdmCommFinalize if that has not been called, then frees the communicator and its memory
// (tdmMemAlloc). Null is allowed. On tdmInvalidUsage, as of tdmCommFinalize, the communicator is
// still there.
TDM_API tdmResult_t tdmCommDestroy(tdmComm_t comm);
// Tells all ranks that this one gives up; their calls, and those of this rank that are under way,
// return tdmRemoteError. Unlike NCCL's it does not free the communicator: tdmCommDestroy does, when
// no call is under way any more. Any thread.
TDM_API tdmResult_t tdmCommAbort(tdmComm_t comm);
// Whether the communicator has failed, without waiting for anything: `*error` becomes tdmSuccess or
// tdmRemoteError, and tdmGetLastError tells why. Any thread.
TDM_API tdmResult_t tdmCommGetAsyncError(tdmComm_t comm, tdmResult_t* error);

TDM_API tdmResult_t tdmCommCount(tdmComm_t comm, int* count);
TDM_API tdmResult_t tdmCommUserRank(tdmComm_t comm, int* rank);

// ---- memory ----

// Page-aligned zeros that all ranks of the node have mapped; collectives inside a node work in it
// without copies. Collective; ranks may ask for different sizes. Zero bytes: `*memory` is null.
TDM_API tdmResult_t tdmMemAlloc(tdmComm_t comm, void** memory, size_t bytes);
// Puts memory as tdmMemAlloc's in the place of [memory, memory + bytes): whole pages that the
// caller has mapped by itself. Their contents stay; nobody writes to them meanwhile. `*file`
// becomes a descriptor of the memory file that lies there; the caller closes it. The caller unmaps
// the pages after tdmMemFree (or the communicator's end), which leaves them mapped. Collective;
// ranks may give different sizes. Operations may be under way, but they do not move meanwhile.
// Errors: tdmInvalidArgument (not the beginning of a page), tdmSystemError, tdmRemoteError.
TDM_API tdmResult_t tdmMemReplace(tdmComm_t comm, void* memory, size_t bytes, int* file);
// Not collective; operations may be under way on other memory. Null is allowed; anything else that
// is not memory of tdmMemAlloc or tdmMemReplace is tdmInvalidArgument.
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
// from run to run. tdmAvg: the sum divided by the number of ranks; of integers towards zero.
typedef enum TDM_OF_INT { tdmSum = 0, tdmProd = 1, tdmMax = 2, tdmMin = 3, tdmAvg = 4 } tdmRedOp_t;

// Errors of all functions below: tdmInvalidArgument, tdmRemoteError, tdmInvalidUsage after
// tdmCommFinalize.

// Returns when every rank has called it.
TDM_API tdmResult_t tdmBarrier(tdmComm_t comm);
// recv[i] = op over the ranks' send[i], i < count. May be the same buffer.
TDM_API tdmResult_t tdmAllReduce(const void* send, void* recv, size_t count, tdmDataType_t type,
                                 tdmRedOp_t op, tdmComm_t comm);
// The same for `root` only; `recv` is not used elsewhere.
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
// `send` of `root` replaces `recv` everywhere; `send` is not used elsewhere. At the root both may
// be the same.
TDM_API tdmResult_t tdmBroadcast(const void* send, void* recv, size_t count, tdmDataType_t type,
                                 int root, tdmComm_t comm);
// Block s of `recv` = block `rank` of `send` of rank s; blocks of `count` elements. Not in place.
TDM_API tdmResult_t tdmAllToAll(const void* send, void* recv, size_t count, tdmDataType_t type,
                                tdmComm_t comm);
// tdmAllGather for `root` only; `recv` is not used elsewhere.
TDM_API tdmResult_t tdmGather(const void* send, void* recv, size_t sendcount, tdmDataType_t type,
                              int root, tdmComm_t comm);
// `recv` = block `rank` of `send` of `root`, which has nranks · recvcount elements and is not used
// elsewhere.
TDM_API tdmResult_t tdmScatter(const void* send, void* recv, size_t recvcount, tdmDataType_t type,
                               int root, tdmComm_t comm);

// ---- messages between two ranks ----

// Messages from one rank to another arrive in the order sent; the receiver asks for exactly the
// type and count sent. Outside a group both block: two ranks that send each other large messages at
// the same time put them into a group.
TDM_API tdmResult_t tdmSend(const void* send, size_t count, tdmDataType_t type, int peer,
                            tdmComm_t comm);
TDM_API tdmResult_t tdmRecv(void* recv, size_t count, tdmDataType_t type, int peer, tdmComm_t comm);

// ---- blocks of different sizes ----

// `counts[r]` elements belong to rank r, at element `displs[r]` of the buffer that holds all of
// them; both arrays have nranks entries, of which each function says whose must be equal on all
// ranks. Blocks that are written do not overlap. Null `displs`: one block after the other.

// Block r of `recv` = `send` of rank r, which has recvcounts[r] elements. Equal `recvcounts` on all
// ranks. `send` may be this rank's block of `recv`. Runs as one broadcast per rank.
TDM_API tdmResult_t tdmAllGatherV(const void* send, void* recv, const size_t* recvcounts,
                                  const size_t* displs, tdmDataType_t type, tdmComm_t comm);
// `recv` = op over the ranks' blocks `rank` of `send`. Equal `sendcounts` on all ranks. `recv` may
// be this rank's block of `send`. Runs as one reduce per rank.
TDM_API tdmResult_t tdmReduceScatterV(const void* send, const size_t* sendcounts,
                                      const size_t* displs, void* recv, tdmDataType_t type,
                                      tdmRedOp_t op, tdmComm_t comm);
// Block s of `recv` = block `rank` of `send` of rank s: recvcounts[s] here is sendcounts[rank]
// there, and if not, both ranks are told. Not in place. Runs as a barrier and messages.
TDM_API tdmResult_t tdmAllToAllV(const void* send, const size_t* sendcounts, const size_t* sdispls,
                                 void* recv, const size_t* recvcounts, const size_t* rdispls,
                                 tdmDataType_t type, tdmComm_t comm);

// ---- operations that are started ----

// A started operation; null: none. Its buffers stay valid and untouched until it has ended: until
// tdmWait, tdmTest or tdmWaitFor has set the request to null, or the communicator has failed or is
// destroyed. Collectives of a communicator run in the order in which they were started, and each
// rank starts (or calls) the same in the same order. Work happens inside the functions of this
// section, other calls of the communicator, and in a helper thread if there is one
// (CCL_WORKER_COUNT).
//
// Thread-safety: several threads may start, test and wait at once, on one communicator and those
// split from it, as long as none is inside another function of these communicators. Each request is
// used by one thread at a time. A thread that waits lets others in every 0.2 ms.
//
// Not allowed inside a group (tdmInvalidUsage). Arguments as those of the function without I.
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

// A message with a tag, which only a receive below matches (tdmRecv has a stream of its own). Of
// the messages of one rank with one tag the first sent is received first. Type and count are those
// that the receive asks for; else the communicator fails, and the error names both.
#define TDM_ANY_SOURCE (-1)
#define TDM_ANY_TAG (-1)
// `tag` >= 0.
TDM_API tdmResult_t tdmISend(const void* send, size_t count, tdmDataType_t type, int peer, int tag,
                             tdmComm_t comm, tdmRequest_t* request);
// From `peer` or TDM_ANY_SOURCE, with `tag` or TDM_ANY_TAG. `source` may be null; it becomes the
// sender's rank when the request ends, and stays valid until then.
TDM_API tdmResult_t tdmIRecv(void* recv, size_t count, tdmDataType_t type, int peer, int tag,
                             int* source, tdmComm_t comm, tdmRequest_t* request);

// Null requests have ended. All three free a request that has ended, in success or failure, and set
// it to null. Errors: those of the operation.
// Waits for the operation, at most for the communicator's timeout.
TDM_API tdmResult_t tdmWait(tdmRequest_t* request);
// Moves what can be moved; `*ended` becomes 1 or 0.
TDM_API tdmResult_t tdmTest(tdmRequest_t* request, int* ended);
// Waits at most `patience_us`; `*ended` becomes 1 or 0. All waits for this request together may
// take `limit_ms` (TDM_UNDEFINED: the communicator's timeout), counted from the first; longer fails
// the communicator on all ranks, as with any other wait.
TDM_API tdmResult_t tdmWaitFor(tdmRequest_t* request, int patience_us, int limit_ms, int* ended);

// ---- groups ----

// Between the two, collectives are only noted and messages only started; tdmGroupEnd runs all of
// them, small all_reduces of one type and operation together as one. Buffers stay untouched, and
// results are there, when it returns. Groups may be nested; the outermost end runs everything.
// Every rank groups the same collectives; each may send and receive what it likes. Unlike NCCL's a
// group is of one communicator. Not allowed inside: tdmMemAlloc, tdmCommSplit, tdmCommShrink,
// tdmCommFinalize, tdmCommDestroy (tdmInvalidUsage).
TDM_API tdmResult_t tdmGroupBegin(tdmComm_t comm);
TDM_API tdmResult_t tdmGroupEnd(tdmComm_t comm);

#ifdef __cplusplus
}
#endif

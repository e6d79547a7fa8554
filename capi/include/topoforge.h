/* The C interface of topoforge: all-reduce over GPUs by proven kernels.
 *
 * Every function that can fail returns TF_OK (0) or another TfResult and leaves words in tf_last_error(), which are
 * valid until the next call on the same thread. No function throws, exits or unwinds into its caller. A communicator is
 * called from one thread at a time (any thread); a second one at the same time is told TF_BUSY.
 *
 * Made by cbindgen from capi/src: to change it, change that and run
 *   TOPOFORGE_BLESS=1 cargo test -p topoforge-capi --test header
 */

#ifndef TOPOFORGE_H
#define TOPOFORGE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

// What a function returns.
typedef enum TfResult {
  // It worked.
  TF_OK = 0,
  // An argument is null, no number that has a meaning, or does not fit the others.
  TF_INVALID = 1,
  // No driver, no GPU, no kernels for it, or no NCCL where only NCCL could serve.
  TF_UNAVAILABLE = 2,
  // A rank is missing or gone: it is named in tf_last_error().
  TF_TIMEOUT = 3,
  // The communicator died in an earlier call: destroy it and make another one.
  TF_DEAD = 4,
  // The driver or NCCL refused a call.
  TF_DEVICE = 5,
  // The machine, its routes or another rank are not as the settings demand.
  TF_REFUSED = 6,
  // The call cannot be put behind the earlier ones.
  TF_ORDER = 7,
  // Another thread is in a call of this communicator.
  TF_BUSY = 8,
  // A fault of topoforge itself.
  TF_INTERNAL = 99,
} TfResult;

// Types of elements; the numbers are NCCL's.
typedef enum TfDtype {
  // Signed, 8 bits.
  TF_I8 = 0,
  // Unsigned, 8 bits.
  TF_U8 = 1,
  // Signed, 32 bits.
  TF_I32 = 2,
  // Unsigned, 32 bits.
  TF_U32 = 3,
  // Signed, 64 bits.
  TF_I64 = 4,
  // Unsigned, 64 bits.
  TF_U64 = 5,
  // IEEE binary16.
  TF_F16 = 6,
  // IEEE binary32.
  TF_F32 = 7,
  // IEEE binary64.
  TF_F64 = 8,
  // The upper half of an IEEE binary32.
  TF_BF16 = 9,
} TfDtype;

// Reductions; the numbers are NCCL's.
typedef enum TfOp {
  // Addition: what compiled routes serve.
  TF_SUM = 0,
  // Multiplication.
  TF_PROD = 1,
  // The largest.
  TF_MAX = 2,
  // The smallest.
  TF_MIN = 3,
  // The mean.
  TF_AVG = 4,
} TfOp;

// A communicator: one rank's part.
typedef struct TfComm TfComm;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// What went wrong in the last failed call of this thread, in words that name the next step; empty before the first.
// Valid until the next failure on this thread. Never null.
const char *tf_last_error(void);

// Version of the library, e.g. "0.1.0". Never null, valid for ever.
const char *tf_version(void);

// Reduces `count` elements at `src` over all ranks into `dst`, which may be `src`.
//
// On a GPU both are device addresses of this rank's GPU; the call is enqueued on `stream` (a cudaStream_t; null is the
// legacy default stream) and returns at once. It may be captured into a graph. Sums go by proven routes, everything else
// by NCCL. All ranks call alike. On a communicator of tf_comm_init_host both are host addresses, `stream` is ignored, sums
// only, and the call waits for the other ranks.
//
// # Safety
// `comm` came from tf_comm_init*. Both addresses are valid for `count` elements until the call has ended on the device,
// and are equal or do not overlap. `stream` and the stream of the call before are alive. All communicators
// of the group outlive every graph that captured a call.
enum TfResult tf_all_reduce(struct TfComm *comm,
                            const void *src,
                            void *dst,
                            size_t count,
                            int dtype,
                            int op,
                            void *stream);

// Whether everything that has ended so far has ended in time: call it after synchronising, and after replaying a graph,
// whose kernels can tell nobody else. TF_TIMEOUT names the missing rank.
//
// # Safety
// `comm` came from tf_comm_init*.
enum TfResult tf_check(struct TfComm *comm);

// Writes this rank and the number of ranks; either may be null.
//
// # Safety
// `comm` came from tf_comm_init*; what is not null can be written.
enum TfResult tf_comm_rank(struct TfComm *comm, int *rank, int *world);

// Writes which route serves which size, how often and why, zero-ended, into `buffer` of `room` bytes, cut off if it is
// longer. `needed`, if not null, gets the bytes that all of it takes, the zero included; so a first call with no
// room asks for the size.
//
// # Safety
// `comm` came from tf_comm_init*; `buffer` has `room` bytes, or `room` is 0.
enum TfResult tf_explain(struct TfComm *comm,
                         char *buffer,
                         size_t room,
                         size_t *needed);

// Ends a communicator. Null is no error; a handle that was destroyed already is TF_INVALID. Not while its calls or
// graphs run, on any rank.
//
// # Safety
// `comm` is null or came from tf_comm_init*.
enum TfResult tf_comm_destroy(struct TfComm *comm);

// Joins `ranks` GPUs of this process; `comms` gets one communicator a rank, rank r on `devices[r]`. Proves and times routes
// unless TOPOFORGE_ROUTES names a table: some seconds. One thread that calls several ranks gives each call a stream of
// its GPU and calls none of NCCL's types or operations.
//
// # Safety
// `devices` and `comms` have `ranks` entries.
enum TfResult tf_comm_init_devices(size_t ranks,
                                   const int *devices,
                                   struct TfComm **comms);

// Writes 128 bytes by which ranks find each other: one rank makes them and gives them to all. Whoever knows them may
// join.
//
// # Safety
// `id` has room for 128 bytes.
enum TfResult tf_id_new(uint8_t *id);

// Joins as `rank` of `world` processes of this machine, each on a GPU of its own: `device`, counted from 0 among those
// that are visible. All ranks give the same 128 bytes of tf_id_new. Waits for the others, up to a minute.
//
// # Safety
// `id` has 128 bytes; `comm` can be written.
enum TfResult tf_comm_init(const uint8_t *id,
                           int rank,
                           int world,
                           int device,
                           struct TfComm **comm);

// Joins by what torchrun puts into the environment: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT. `device` is
// taken instead of LOCAL_RANK unless it is negative.
//
// # Safety
// `comm` can be written.
enum TfResult tf_comm_init_torchrun(int device,
                                    struct TfComm **comm);

// Joins the ranks of a family on the host executor: host memory, exact bits, no GPU, for tests of what calls this
// library. `comms` gets `ranks` communicators, which must be as many as the family has; each is called from a thread of
// its own. TF_UNAVAILABLE in a build without the host executor.
//
// # Safety
// `family` is a zero-ended string; `comms` has `ranks` entries.
enum TfResult tf_comm_init_host(const char *family,
                                size_t ranks,
                                struct TfComm **comms);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TOPOFORGE_H */

// What the host hands to a kernel. Mirrored in src/device/abi.rs: change both together.
//
// A kernel's parameter block is one TfHeader followed by its ports, all by value, so that a captured graph replays
// without touching host memory. Everything that changes from call to call lives in device memory (counters), never here.
#pragma once

typedef unsigned char tf_u8;
typedef unsigned int tf_u32;
typedef unsigned long long tf_u64;

// Written once by the first thread that gives up waiting; lives in mapped host memory.
struct TfStatus {
  tf_u32 state;    // 0 nothing, 1 a wait ran past its deadline; written last
  tf_u32 rank;     // who waited
  tf_u32 port;     // on which port; the host knows the peer behind it
  tf_u32 stage;    // in which stage of the schedule
  tf_u32 counter;  // the use of the slot that never came
  tf_u32 column;   // the column or tile
};

// Cold: read only by a thread that has already waited for long. Lives in the rank's own memory.
struct TfControl {
  tf_u64 deadline_ns;
  TfStatus *status;
  tf_u32 claimed;  // 0 until a thread of this rank has reported
  tf_u32 peers;    // entries of peer_abort
  tf_u32 *peer_abort[64];
};

struct TfHeader {
  const tf_u8 *input;
  tf_u8 *output;
  tf_u32 *counters;    // one per column (packet), tile (flag) or block (pull): how often it was used
  tf_u32 *abort;       // sticky: not zero means that this communicator is dead
  TfControl *control;
  tf_u64 bytes;        // payload; a whole number of elements
  tf_u32 columns;      // 16-byte vectors a chunk, rounded up
  tf_u32 stride;       // columns that a slot region has room for
  tf_u32 rank;         // for the status word only
  tf_u32 program;      // which of the kernel's rank programs this rank runs
  tf_u32 flags;        // TF_EARLY
  tf_u32 reserved;
};

// Lets the next programmatically launched grid of the stream become resident while this one runs.
#define TF_EARLY 1u

template <int PORTS>
struct TfParams {
  TfHeader h;
  tf_u8 *port[PORTS];
};

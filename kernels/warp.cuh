// What the 32 threads of a warp do together: a vote, words handed over eight threads, and 128-byte lines.
//
// Only `packet128` needs it. Every thread of the warp calls every function, in the same order: none may have returned, and
// whether a warp goes on or gives up is decided by a vote, so that all decide alike. That is how the rule "no warp-wide step
// while a thread still polls" is kept: the vote is the end of each poll, and nobody leaves the loop alone. The mask names
// the whole warp since the compiler wraps a vote of half a warp into two more synchronisations.
#pragma once
#include "arch.cuh"

#define TF_WARP 32u
// Threads of a line, 16 bytes each.
#define TF_LINE 8u

#ifdef TF_HOST
// Behind TfHostOps in the executor's table: one step of a warp. `value` is 16 bytes, in and out; `at` is for lines only.
enum : tf_u32 { TF_STEP_ANY = 0, TF_STEP_FROM_BELOW = 1, TF_STEP_FROM_ABOVE = 2, TF_STEP_STORE_LINE = 3, TF_STEP_LOAD_LINE = 4 };
struct TfHostWarpOps {
  TfHostOps ops;
  void (*meet)(TfHostThread *, tf_u32 step, void *at, void *value);
};
TF_FN void tf_meet(const TfThread &t, tf_u32 step, const void *at, TfVec &value) {
  reinterpret_cast<const TfHostWarpOps *>(t.host->ops)->meet(t.host, step, const_cast<void *>(at), &value);
}

TF_FN void tf_warp_gather(const TfThread &) {}
TF_FN bool tf_warp_split(const TfThread &) { return false; }
TF_FN bool tf_warp_any(const TfThread &t, bool mine) {
  TfVec v = tf_vec(mine ? 1 : 0, 0, 0, 0);
  tf_meet(t, TF_STEP_ANY, nullptr, v);
  return v.x != 0;
}
TF_FN void tf_warp_from_below(const TfThread &t, tf_u32 &a, tf_u32 &b) {
  TfVec v = tf_vec(a, b, 0, 0);
  tf_meet(t, TF_STEP_FROM_BELOW, nullptr, v);
  a = v.x, b = v.y;
}
TF_FN void tf_warp_from_above(const TfThread &t, tf_u32 &a, tf_u32 &b) {
  TfVec v = tf_vec(a, b, 0, 0);
  tf_meet(t, TF_STEP_FROM_ABOVE, nullptr, v);
  a = v.x, b = v.y;
}
TF_FN void tf_store_line(const TfThread &t, void *at, TfVec v) { tf_meet(t, TF_STEP_STORE_LINE, at, v); }
TF_FN TfVec tf_load_line(const TfThread &t, const void *at) {
  TfVec v = tf_vec(0, 0, 0, 0);
  tf_meet(t, TF_STEP_LOAD_LINE, at, v);
  return v;
}
#else
#define TF_WHOLE_WARP 0xffffffffu

// Brings the warp's threads together again after branches that some took and some did not.
TF_FN void tf_warp_gather(const TfThread &) { __syncwarp(TF_WHOLE_WARP); }
TF_FN bool tf_warp_any(const TfThread &, bool mine) { return __any_sync(TF_WHOLE_WARP, mine) != 0; }
// Whether the hardware runs this thread apart from others of its warp just now. Both answers are right: all else here works
// either way, only lines are not whole where it is so.
TF_FN bool tf_warp_split(const TfThread &) {
  tf_u32 here;
  asm volatile("activemask.b32 %0;" : "=r"(here)::"memory");
  return here != TF_WHOLE_WARP;
}
// What the thread eight below (above) has; a thread without one keeps its own.
TF_FN void tf_warp_from_below(const TfThread &, tf_u32 &a, tf_u32 &b) {
  a = __shfl_up_sync(TF_WHOLE_WARP, a, TF_LINE);
  b = __shfl_up_sync(TF_WHOLE_WARP, b, TF_LINE);
}
TF_FN void tf_warp_from_above(const TfThread &, tf_u32 &a, tf_u32 &b) {
  a = __shfl_down_sync(TF_WHOLE_WARP, a, TF_LINE);
  b = __shfl_down_sync(TF_WHOLE_WARP, b, TF_LINE);
}

// Eight threads in a row store (load) the eight parts of an aligned 128-byte line in one instruction. To PTX these are 32
// relaxed words in no order. The hardware moves such an access as one line, and NVLink and a GPU's own memory deliver it
// whole; PCIe may cut it. Relaxed, system scope; orders nothing else.
TF_FN void tf_store_line(const TfThread &t, void *at, TfVec v) { tf_store_relaxed_4x32(t, at, v); }
TF_FN TfVec tf_load_line(const TfThread &t, const void *at) { return tf_load_relaxed_4x32(t, at); }
#endif

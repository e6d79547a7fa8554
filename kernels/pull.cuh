// Protocol `pull`: barrier, read the peers' registered inputs where they are, barrier. The peer-read baseline; no copy.
//
// open   release and acquire at system scope: a peer's input, written by an earlier grid there, is whole when read.
// close  keeps every input in place until all peers have read it; without it the next grid may overwrite it. Relaxed: it
//        hands over no data, and the loads before it have returned, since their sums were stored before the block barrier.
// Counters and flags belong to the block's index; all ranks launch the same grid, so both ends use them equally often.
#pragma once
#include "deadline.cuh"
#include "payload.cuh"

#define TF_PULL_FLAG_BYTES 32ull

TF_FN tf_u32 *tf_pull_word(tf_u8 *region, tf_u32 block, tf_u32 side) {
  return reinterpret_cast<tf_u32 *>(region + TF_PULL_FLAG_BYTES * (2ull * block + side));
}

// Thread k speaks to the peer behind port k and listens on port PEERS + k. False: given up, for the whole block.
template <int PEERS, bool OPEN>
TF_FN bool tf_pull_meet(const TfThread &t, const TfHeader &h, tf_u8 *const *port, tf_u32 counter) {
  bool failed = false;
  const tf_u32 k = t.thread();
  if (k < PEERS) {
    const tf_u32 side = OPEN ? 0 : 1;
    if (OPEN) tf_fence_system(t);
    tf_store_relaxed_u32(t, tf_pull_word(port[k], t.block(), side), counter);
    const tf_u32 *const word = tf_pull_word(port[PEERS + k], t.block(), side);
    // Behind the signal: the load would hold up the fence.
    failed = tf_aborted(t, h);
    TfWait wait = {0, 0};
    while (!failed && static_cast<int>((OPEN ? tf_load_acquire_u32(t, word) : tf_load_relaxed_u32(t, word)) - counter) < 0)
      failed = tf_wait_failed(t, wait, h, PEERS + k, side, counter, t.block());
  }
  return !tf_barrier_any(t, failed);
}
template <typename E>
TF_FN E tf_pull_read(const TfThread &t, const TfHeader &h, const tf_u8 *input, tf_u64 at) {
  E r;
  r.v = at + 16 > h.bytes ? tf_cut<true>(t, input, at, h.bytes) : tf_load_weak(t, input + at);
  return r;
}

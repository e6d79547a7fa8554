// Protocol `flag`: a block copies a tile of columns, then one thread says so with one word. Bytes cross once, any pattern;
// costs a system fence and a block barrier a stage.
//
// put     weak: promises nothing until the signal.
// signal  after a block barrier: a system fence, then a relaxed store of the counter. Release for the whole tile.
// wait    a thread a port polls with acquire loads; then the block barrier. Acquire for the whole tile.
// read    weak: only after wait.
// A tile is as many columns as the block has threads; its counter belongs to the tile, so the number of blocks may
// change from call to call but the number of threads is fixed when scratch is made. Flags compare by age, not equality.
#pragma once
#include "columns.cuh"

#define TF_FLAG_BYTES 32ull

// Flags lie behind both buffers, a sector each.
template <int PLANES>
TF_FN tf_u32 *tf_flag_word(tf_u8 *region, const TfHeader &h, tf_u32 tile) {
  return reinterpret_cast<tf_u32 *>(region + 16ull * 2 * PLANES * h.stride + TF_FLAG_BYTES * tile);
}

template <int PLANES, typename V>
TF_FN void tf_flag_put(const TfThread &t, const TfHeader &h, tf_u8 *region, tf_u32 column, tf_u32 counter, const V &value) {
  TfVec w[V::VECTORS];
  tf_pack(value, w);
  TF_UNROLL
  for (int i = 0; i < V::VECTORS; i++) tf_store_weak(t, tf_column_slot<PLANES>(region, h, column, counter, i), w[i]);
}
template <int PLANES, typename V>
TF_FN void tf_flag_read(const TfThread &t, const TfHeader &h, tf_u8 *region, tf_u32 column, tf_u32 counter, V &value) {
  TfVec w[V::VECTORS];
  TF_UNROLL
  for (int i = 0; i < V::VECTORS; i++) w[i] = tf_load_weak(t, tf_column_slot<PLANES>(region, h, column, counter, i));
  tf_unpack(w, value);
}

// Thread k signals the k-th of N ports; each fence covers the whole tile, which the barrier before made this thread see.
template <int PLANES, int N>
TF_FN void tf_flag_signal(const TfThread &t, const TfHeader &h, tf_u8 *const *regions, tf_u32 tile, tf_u32 counter) {
  for (tf_u32 k = t.thread(); k < N; k += t.threads()) {
    tf_fence_system(t);
    tf_store_relaxed_u32(t, tf_flag_word<PLANES>(regions[k], h, tile), counter);
  }
}
// Thread k waits for the k-th of N ports. False: given up. Only a block barrier makes it everybody's.
template <int PLANES, int N>
TF_FN bool tf_flag_wait(const TfThread &t, const TfHeader &h, tf_u8 *const *regions, tf_u32 tile, tf_u32 counter,
                        tf_u32 first_port, tf_u32 stage) {
  for (tf_u32 k = t.thread(); k < N; k += t.threads()) {
    const tf_u32 *const word = tf_flag_word<PLANES>(regions[k], h, tile);
    TfWait wait = {0, 0};
    while (static_cast<int>(tf_load_acquire_u32(t, word) - counter) < 0)
      if (tf_wait_failed(t, wait, h, first_port + k, stage, counter, tile)) return false;
  }
  return true;
}

// Protocol `sentinel` (Lamport): the payload is its own signal. A word of all ones, which is a NaN in f16, bf16 and f32,
// means "not yet"; everything else is data. Bytes cross once; no fence, no barrier.
//
// put    relaxed, system scope, after turning a word of all ones into the NaN 0x7fff... (only that word).
// gather polls every 32-bit word of this rank's own slots, then writes "not yet" back in the same thread.
// The two buffers alternate with the counter; between a slot's reset and its next put lie a whole call and a grid's end.
// Bit-exact for everything but that NaN's payload: only for f16, bf16 and f32 values, never for opaque bytes.
#pragma once
#include "columns.cuh"

#define TF_NOT_YET 0xffffffffu

// A word of all ones is two NaNs of 16-bit elements or one f32 NaN; V::SPARE is one too.
template <typename V>
TF_FN tf_u32 tf_sentinel_word(tf_u32 w) { return w == TF_NOT_YET ? static_cast<tf_u32>(V::SPARE) : w; }

template <int PLANES, typename V>
TF_FN void tf_sentinel_put(const TfThread &t, const TfHeader &h, tf_u8 *region, tf_u32 column, tf_u32 counter, const V &value) {
  TfVec w[V::VECTORS];
  tf_pack(value, w);
  TF_UNROLL
  for (int i = 0; i < V::VECTORS; i++) {
    const TfVec safe = tf_vec(tf_sentinel_word<V>(w[i].x), tf_sentinel_word<V>(w[i].y),
                              tf_sentinel_word<V>(w[i].z), tf_sentinel_word<V>(w[i].w));
    tf_store_relaxed_4x32(t, tf_column_slot<PLANES>(region, h, column, counter, i), safe);
  }
}

// Receives from N ports that lie side by side, polled together. False: given up and `values` means nothing.
template <int PLANES, int N, typename V>
TF_FN bool tf_sentinel_gather(const TfThread &t, const TfHeader &h, tf_u8 *const *regions, tf_u32 column, tf_u32 counter,
                              tf_u32 first_port, tf_u32 stage, V (&values)[N]) {
  TfVec w[N][V::VECTORS];
  tf_u32 missing = N;
  for (tf_u64 since = 0;;) {
    TF_ROLLED
    for (tf_u32 polls = 0; polls < TF_POLLS_BETWEEN_CHECKS; polls++) {
      missing = N;
      TF_UNROLL
      for (int k = 0; k < N; k++) {
        TF_UNROLL
        for (int i = 0; i < V::VECTORS; i++)
          w[k][i] = tf_load_relaxed_4x32(t, tf_column_slot<PLANES>(regions[k], h, column, counter, i));
      }
      TF_UNROLL
      for (int k = N - 1; k >= 0; k--) {
        TF_UNROLL
        for (int i = 0; i < V::VECTORS; i++)
          if (w[k][i].x == TF_NOT_YET || w[k][i].y == TF_NOT_YET || w[k][i].z == TF_NOT_YET || w[k][i].w == TF_NOT_YET) missing = k;
      }
      if (missing == N) break;
      tf_relax(t);
    }
    if (missing == N) break;
    since = tf_wait_check(t, since, h.abort, h.control, h.rank, first_port + missing, stage, counter, column);
    if (since == TF_GIVE_UP) return false;
  }
  TF_UNROLL
  for (int k = 0; k < N; k++) {
    TF_UNROLL
    for (int i = 0; i < V::VECTORS; i++)
      tf_store_own(t, tf_column_slot<PLANES>(regions[k], h, column, counter, i),
                   tf_vec(TF_NOT_YET, TF_NOT_YET, TF_NOT_YET, TF_NOT_YET));
    tf_unpack(w[k], values[k]);
  }
  return true;
}

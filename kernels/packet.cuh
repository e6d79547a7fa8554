// Protocol `packet` (LL): every 64-bit word carries 32 bits of data and the 32-bit use counter of its slot, so data says
// by itself that it is there. Bit-exact for any pattern; twice the bytes; no fence, no barrier.
//
// put    relaxed, system scope: promises nothing about other columns.
// gather polls this rank's own memory until both words carry the counter; orders nothing else.
// The two buffers alternate with the counter. Why a slot may be written again is in docs/architecture.md (slot reuse).
#pragma once
#include "columns.cuh"

template <int PLANES, typename V>
TF_FN void tf_packet_put(const TfThread &t, const TfHeader &h, tf_u8 *region, tf_u32 column, tf_u32 counter, const V &value) {
  TfVec w[V::VECTORS];
  tf_pack(value, w);
  const tf_u64 tag = static_cast<tf_u64>(counter) << 32;
  TF_UNROLL
  for (int i = 0; i < V::VECTORS; i++) {
    tf_store_relaxed_2x64(t, tf_column_slot<PLANES>(region, h, column, counter, 2 * i), tag | w[i].x, tag | w[i].y);
    tf_store_relaxed_2x64(t, tf_column_slot<PLANES>(region, h, column, counter, 2 * i + 1), tag | w[i].z, tag | w[i].w);
  }
}

// Receives from N ports that lie side by side. All are polled together: one after the other would pay each port's load
// latency in turn. False: the wait was given up and `values` means nothing.
template <int PLANES, int N, typename V>
TF_FN bool tf_packet_gather(const TfThread &t, const TfHeader &h, tf_u8 *const *regions, tf_u32 column, tf_u32 counter,
                            tf_u32 first_port, tf_u32 stage, V (&values)[N]) {
  tf_u64 a[N][V::VECTORS][4];
  tf_u32 missing = N;
  for (tf_u64 since = 0;;) {
    TF_ROLLED
    for (tf_u32 polls = 0; polls < TF_POLLS_BETWEEN_CHECKS; polls++) {
      missing = N;
      TF_UNROLL
      for (int k = 0; k < N; k++) {
        TF_UNROLL
        for (int i = 0; i < V::VECTORS; i++) {
          tf_load_relaxed_2x64(t, tf_column_slot<PLANES>(regions[k], h, column, counter, 2 * i), a[k][i][0], a[k][i][1]);
          tf_load_relaxed_2x64(t, tf_column_slot<PLANES>(regions[k], h, column, counter, 2 * i + 1), a[k][i][2], a[k][i][3]);
        }
      }
      TF_UNROLL
      for (int k = N - 1; k >= 0; k--) {
        TF_UNROLL
        for (int i = 0; i < V::VECTORS; i++) {
          TF_UNROLL
          for (int j = 0; j < 4; j++)
            if (static_cast<tf_u32>(a[k][i][j] >> 32) != counter) missing = k;
        }
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
    TfVec w[V::VECTORS];
    TF_UNROLL
    for (int i = 0; i < V::VECTORS; i++)
      w[i] = tf_vec(static_cast<tf_u32>(a[k][i][0]), static_cast<tf_u32>(a[k][i][1]), static_cast<tf_u32>(a[k][i][2]),
                    static_cast<tf_u32>(a[k][i][3]));
    tf_unpack(w, values[k]);
  }
  return true;
}

// Protocol `packet128`: 128-byte lines of 120 bytes of data and the 8-byte use counter of their slot. Any bit pattern; 1.07
// times the bytes; no reset, no fence, no barrier.
//
// put    relaxed, system scope, a line at a time: promises nothing about other lines.
// gather polls this rank's own memory until every line of the warp carries the counter; orders nothing else.
// Data is there when the counter is there only because a line is stored, delivered and loaded whole. That holds on NVLink
// and within a GPU, never over PCIe or in host memory: the planner's verifier refuses other links, doctor tests the edge.
//
// Cells. A warp has 32 cells of 16 bytes, four lines. Lines come in pairs: fifteen threads hold a column each and the
// sixteenth none. Threads 0-6 and 8-14 put their own column into their own cell. The eighth's column is cut: its lower half
// goes beside the counter of the first line, its upper half beside that of the second, by way of the sixteenth thread. So a
// thread loads, sums and stores whole aligned vectors of the payload, side by side with its neighbours':
//
//   cell    0  1  2  3  4  5  6  7       8  9 10 11 12 13 14 15
//   column  0  1  2  3  4  5  6  7 low   8  9 10 11 12 13 14  7 high
//                                + counter                    + counter
//
// Blocks are whole warps. A warp takes part whole if its first column is in the payload; cells behind the end carry zeros.
// The two buffers alternate with the counter. Why a slot may be written again is in docs/architecture.md (slot reuse).
#pragma once
#include "columns.cuh"
#include "warp.cuh"

// Both cells that share the cut column carry their line's counter: the last of each eight.
TF_FN bool tf_cell_counts(tf_u32 cell) { return (cell & 7u) == 7u; }
// The column of a cell; the sixteenth cell's is its neighbour's and not its own.
TF_FN tf_u32 tf_cell_column(tf_u32 cell) { return cell - (cell >> 4); }
TF_FN bool tf_cell_live(const TfHeader &h, tf_u32 cell) { return (cell & 15u) != 15u && tf_cell_column(cell) < h.columns; }
// Whether the warp of this cell takes part; the same for all of its threads.
TF_FN bool tf_warp_live(const TfHeader &h, tf_u32 cell) { return tf_cell_column(cell & ~(TF_WARP - 1u)) < h.columns; }

// As tf_input and tf_output, for every thread of a warp and without branches that threads take apart: a warp that has come
// apart does not always come together again where its ways meet, and would then move its lines in pieces.
template <typename E>
TF_FN E tf_cell_input(const TfThread &t, const TfHeader &h, tf_u32 chunk, tf_u32 column, bool live) {
  const tf_u32 vector = chunk * h.columns + column, whole = tf_whole_vectors(h), rest = static_cast<tf_u32>(h.bytes) & 15u;
  const tf_u8 *const at = h.input + 16ull * vector;
  E r;
  r.v = tf_vec(0, 0, 0, 0);
  if (live && vector < whole) r.v = tf_load_own(t, at);
  if (rest != 0) {  // the same for all
    const bool cut = live && vector == whole;
    tf_u32 w[8];
    TF_UNROLL
    for (tf_u32 i = 0; i < 8; i++) {
      w[i] = 0;
      if (cut && 2 * i < rest) w[i] = tf_load_own_u16(t, at + 2 * i);
    }
    if (cut) r.v = tf_vec(w[0] | w[1] << 16, w[2] | w[3] << 16, w[4] | w[5] << 16, w[6] | w[7] << 16);
  }
  return r;
}
template <typename E>
TF_FN void tf_cell_output(const TfThread &t, const TfHeader &h, tf_u32 chunk, tf_u32 column, const E &value, bool live) {
  const tf_u32 vector = chunk * h.columns + column, whole = tf_whole_vectors(h), rest = static_cast<tf_u32>(h.bytes) & 15u;
  tf_u8 *const at = h.output + 16ull * vector;
  if (live && vector < whole) tf_store_own(t, at, value.v);
  if (rest != 0) {
    const bool cut = live && vector == whole;
    const tf_u32 w[4] = {value.v.x, value.v.y, value.v.z, value.v.w};
    TF_UNROLL
    for (tf_u32 i = 0; i < 8; i++)
      if (cut && 2 * i < rest) tf_store_own_u16(t, at + 2 * i, (w[i / 2] >> (16 * (i & 1))) & 0xffffu);
  }
}

// What a thread puts into its cell: made once a value, whatever the number of ports.
template <typename V>
struct TfCell {
  TfVec w[V::VECTORS];
  bool split;  // the same for all: the warp has come apart
};
template <typename V>
TF_FN TfCell<V> tf_packet128_pack(const TfThread &t, tf_u32 cell, tf_u32 counter, const V &value) {
  TfCell<V> r;
  r.split = tf_warp_any(t, tf_warp_split(t));
  tf_pack(value, r.w);
  TF_UNROLL
  for (int i = 0; i < V::VECTORS; i++) {
    tf_u32 a = r.w[i].z, b = r.w[i].w;
    tf_warp_from_below(t, a, b);
    const bool high = (cell & 15u) == 15u, counts = tf_cell_counts(cell);
    r.w[i] = tf_vec(high ? a : r.w[i].x, high ? b : r.w[i].y, counts ? counter : r.w[i].z, counts ? counter : r.w[i].w);
  }
  return r;
}

template <int PLANES, typename V>
TF_FN void tf_packet128_put(const TfThread &t, const TfHeader &h, tf_u8 *region, tf_u32 cell, tf_u32 counter, const TfCell<V> &value) {
  if (!value.split) {
    TF_UNROLL
    for (int i = 0; i < V::VECTORS; i++) tf_store_line(t, tf_column_slot<PLANES>(region, h, cell, counter, i), value.w[i]);
    return;
  }
  // Threads apart store their parts one by one: first what has no counter, then, ordered behind it, what has one.
  TF_ROLLED
  for (int last = 0; last < 2; last++) {
    TF_UNROLL
    for (int i = 0; i < V::VECTORS; i++)
      if (tf_cell_counts(cell) == (last == 1)) tf_store_line(t, tf_column_slot<PLANES>(region, h, cell, counter, i), value.w[i]);
    tf_fence_system(t);
    tf_warp_gather(t);
    tf_fence_system(t);
  }
}

// Receives from N ports that lie side by side, polled together. False, for the whole warp: given up, and `values` means
// nothing.
template <int PLANES, int N, typename V>
TF_FN bool tf_packet128_gather(const TfThread &t, const TfHeader &h, tf_u8 *const *regions, tf_u32 cell, tf_u32 counter,
                               tf_u32 first_port, tf_u32 stage, V (&values)[N]) {
  TfVec w[N][V::VECTORS];
  const bool counts = tf_cell_counts(cell);
  bool split = false;
  for (tf_u64 since = 0;;) {
    tf_u32 missing = N;
    bool waiting = true;
    TF_ROLLED
    for (tf_u32 polls = 0; polls < TF_POLLS_BETWEEN_CHECKS; polls++) {
      missing = N;
      split = tf_warp_split(t);
      TF_UNROLL
      for (int k = 0; k < N; k++) {
        TF_UNROLL
        for (int i = 0; i < V::VECTORS; i++) w[k][i] = tf_load_line(t, tf_column_slot<PLANES>(regions[k], h, cell, counter, i));
      }
      TF_UNROLL
      for (int k = N - 1; k >= 0; k--) {
        TF_UNROLL
        for (int i = 0; i < V::VECTORS; i++)
          if (counts && w[k][i].w != counter) missing = k;
      }
      waiting = tf_warp_any(t, missing != N);
      if (!waiting) break;
      tf_relax(t);
    }
    if (!waiting) break;
    // All ask together, for the first port that any of them misses: whoever asks apart may stay apart.
    tf_u32 first = N;
    TF_UNROLL
    for (int k = N - 1; k >= 0; k--)
      if (tf_warp_any(t, missing == static_cast<tf_u32>(k))) first = k;
    since = tf_wait_check(t, since, h.abort, h.control, h.rank, first_port + first, stage, counter, tf_cell_column(cell & ~7u));
    if (tf_warp_any(t, since == TF_GIVE_UP)) return false;
  }
  // Threads apart loaded at different times, perhaps a part of a line before its counter was there. By now all are.
  if (tf_warp_any(t, split)) {
    TF_UNROLL
    for (int k = 0; k < N; k++) {
      TF_UNROLL
      for (int i = 0; i < V::VECTORS; i++) w[k][i] = tf_load_line(t, tf_column_slot<PLANES>(regions[k], h, cell, counter, i));
    }
  }
  TF_UNROLL
  for (int k = 0; k < N; k++) {
    TF_UNROLL
    for (int i = 0; i < V::VECTORS; i++) {
      tf_u32 a = w[k][i].x, b = w[k][i].y;
      tf_warp_from_above(t, a, b);
      if (counts) w[k][i] = tf_vec(w[k][i].x, w[k][i].y, a, b);
    }
    tf_unpack(w[k], values[k]);
  }
  return true;
}

// Reads the caller's input and writes the caller's output, a 16-byte vector at a time.
//
// The payload is `chunks` parts of `columns` vectors. The last vector may be cut and, with several chunks, whole vectors
// may lie behind the end: those are read as zeros and never written, so that every port carries every column of a call
// and both ends' counters stay equal.
#pragma once
#include "numerics.cuh"

TF_COLD TfF16 tf_input_cut(TfThread t, const tf_u8 *base, tf_u64 at, tf_u64 bytes) {
  tf_u32 w[4] = {0, 0, 0, 0};
  for (tf_u32 i = 0; i < 8; i++)
    if (at + 2 * i + 2 <= bytes) w[i / 2] |= tf_load_own_u16(t, base + at + 2 * i) << (16 * (i & 1));
  TfF16 r;
  r.v = tf_vec(w[0], w[1], w[2], w[3]);
  return r;
}
TF_COLD void tf_output_cut(TfThread t, tf_u8 *base, tf_u64 at, tf_u64 bytes, TfF16 v) {
  const tf_u32 w[4] = {v.v.x, v.v.y, v.v.z, v.v.w};
  for (tf_u32 i = 0; i < 8; i++)
    if (at + 2 * i + 2 <= bytes) tf_store_own_u16(t, base + at + 2 * i, (w[i / 2] >> (16 * (i & 1))) & 0xffffu);
}

// 32 bits say it: half the instructions of a 64-bit comparison, for payloads to 64 GiB.
TF_FN tf_u32 tf_whole_vectors(const TfHeader &h) { return static_cast<tf_u32>(h.bytes >> 4); }
TF_FN TfF16 tf_input(const TfThread &t, const TfHeader &h, tf_u32 chunk, tf_u32 column) {
  const tf_u32 vector = chunk * h.columns + column;
  const tf_u64 at = 16ull * vector;
  if (vector >= tf_whole_vectors(h)) return tf_input_cut(t, h.input, at, h.bytes);
  TfF16 r;
  r.v = tf_load_own(t, h.input + at);
  return r;
}
TF_FN void tf_output(const TfThread &t, const TfHeader &h, tf_u32 chunk, tf_u32 column, const TfF16 &v) {
  const tf_u32 vector = chunk * h.columns + column;
  const tf_u64 at = 16ull * vector;
  if (vector >= tf_whole_vectors(h)) return tf_output_cut(t, h.output, at, h.bytes, v);
  tf_store_own(t, h.output + at, v.v);
}

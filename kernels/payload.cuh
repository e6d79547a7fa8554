// Reads the caller's input and writes the caller's output, a 16-byte vector at a time.
//
// The payload is `chunks` parts of `columns` vectors. The last vector may be cut and, with several chunks, whole vectors
// may lie behind the end: those are read as zeros and never written, so that every port carries every column of a call
// and both ends' counters stay equal. A cut vector is moved 16 bits at a time, whatever the elements: all are whole
// multiples of that.
#pragma once
#include "numerics.cuh"

// PEER: the memory is another rank's, to be read between the barriers of a pull.
template <bool PEER>
TF_COLD TfVec tf_cut(TfThread t, const tf_u8 *base, tf_u64 at, tf_u64 bytes) {
  tf_u32 w[4] = {0, 0, 0, 0};
  for (tf_u32 i = 0; i < 8; i++) {
    if (at + 2 * i + 2 > bytes) break;
    const tf_u8 *const from = base + at + 2 * i;
    w[i / 2] |= (PEER ? tf_load_weak_u16(t, from) : tf_load_own_u16(t, from)) << (16 * (i & 1));
  }
  return tf_vec(w[0], w[1], w[2], w[3]);
}
TF_COLD void tf_output_cut(TfThread t, tf_u8 *base, tf_u64 at, tf_u64 bytes, TfVec v) {
  const tf_u32 w[4] = {v.x, v.y, v.z, v.w};
  for (tf_u32 i = 0; i < 8; i++)
    if (at + 2 * i + 2 <= bytes) tf_store_own_u16(t, base + at + 2 * i, (w[i / 2] >> (16 * (i & 1))) & 0xffffu);
}

// 32 bits say it: half the instructions of a 64-bit comparison, for payloads to 64 GiB.
TF_FN tf_u32 tf_whole_vectors(const TfHeader &h) { return static_cast<tf_u32>(h.bytes >> 4); }
// E is the type of elements: TfF16, TfBf16 or TfF32x4.
template <typename E>
TF_FN E tf_input(const TfThread &t, const TfHeader &h, tf_u32 chunk, tf_u32 column) {
  const tf_u32 vector = chunk * h.columns + column;
  const tf_u64 at = 16ull * vector;
  E r;
  if (vector >= tf_whole_vectors(h)) {
    r.v = tf_cut<false>(t, h.input, at, h.bytes);
    return r;
  }
  r.v = tf_load_own(t, h.input + at);
  return r;
}
template <typename E>
TF_FN void tf_output(const TfThread &t, const TfHeader &h, tf_u32 chunk, tf_u32 column, const E &value) {
  const tf_u32 vector = chunk * h.columns + column;
  const tf_u64 at = 16ull * vector;
  if (vector >= tf_whole_vectors(h)) return tf_output_cut(t, h.output, at, h.bytes, value.v);
  tf_store_own(t, h.output + at, value.v);
}

// Values of a column: eight f16 elements, or their eight f32 partials; sums and roundings as schedules declare them.
//
// Knows elements, never slots or peers. A sum starts from its first operand, never from +0, which would lose -0.
#pragma once
#include "arch.cuh"

// Eight f16 elements, 16 bytes on the wire.
struct TfF16 {
  TfVec v;
  enum { VECTORS = 1 };
};
// Eight f32 partials, 32 bytes on the wire.
struct TfF32 {
  float x[8];
  enum { VECTORS = 2 };
};

TF_FN TfF16 tf_sum_f16(const TfF16 &a, const TfF16 &b) {
  TfF16 r;
  r.v = tf_vec(tf_add_2xf16(a.v.x, b.v.x), tf_add_2xf16(a.v.y, b.v.y), tf_add_2xf16(a.v.z, b.v.z), tf_add_2xf16(a.v.w, b.v.w));
  return r;
}

TF_FN TfF32 tf_widen(const TfF32 &a) { return a; }
TF_FN TfF32 tf_widen(const TfF16 &a) {
  TfF32 r;
  const tf_u32 w[4] = {a.v.x, a.v.y, a.v.z, a.v.w};
  TF_UNROLL
  for (int i = 0; i < 4; i++) {
    r.x[2 * i] = tf_f32_of_f16(w[i] & 0xffffu);
    r.x[2 * i + 1] = tf_f32_of_f16(w[i] >> 16);
  }
  return r;
}
TF_FN TfF32 tf_sum_f32(const TfF32 &a, const TfF32 &b) {
  TfF32 r;
  TF_UNROLL
  for (int i = 0; i < 8; i++) r.x[i] = tf_add_f32(a.x[i], b.x[i]);
  return r;
}

// Byte `at` of a table word: rank data that lets ranks share a program.
TF_FN tf_u32 tf_table(const tf_u8 *word, tf_u32 at) {
  return static_cast<tf_u32>(reinterpret_cast<tf_u64>(word) >> (8 * at)) & 0xffu;
}

// Left fold ((v0+v1)+v2)+... over `others` with `own` standing at `place`.
TF_FN const TfF16 &tf_pick(bool first, const TfF16 &a, const TfF16 &b, TfF16 &out) {
  out.v = tf_vec(first ? a.v.x : b.v.x, first ? a.v.y : b.v.y, first ? a.v.z : b.v.z, first ? a.v.w : b.v.w);
  return out;
}
TF_FN const TfF32 &tf_pick(bool first, const TfF32 &a, const TfF32 &b, TfF32 &out) {
  TF_UNROLL
  for (int i = 0; i < 8; i++) out.x[i] = first ? a.x[i] : b.x[i];
  return out;
}
template <int N, typename V>
TF_FN V tf_operand(const V &own, const V (&others)[N], tf_u32 place, int at) {
  V late, r;
  tf_pick(at == static_cast<int>(place), own, others[at > 0 ? at - 1 : 0], late);
  if (at == N) return late;
  tf_pick(at < static_cast<int>(place), others[at < N ? at : N - 1], late, r);
  return r;
}
template <int N>
TF_FN TfF16 tf_fold_f16(const TfF16 &own, const TfF16 (&others)[N], tf_u32 place) {
  TfF16 sum = tf_operand(own, others, place, 0);
  TF_UNROLL
  for (int i = 1; i <= N; i++) sum = tf_sum_f16(sum, tf_operand(own, others, place, i));
  return sum;
}
template <int N, typename V>
TF_FN TfF32 tf_fold_f32(const V &own, const V (&others)[N], tf_u32 place) {
  TfF32 sum = tf_widen(tf_operand(own, others, place, 0));
  TF_UNROLL
  for (int i = 1; i <= N; i++) sum = tf_sum_f32(sum, tf_widen(tf_operand(own, others, place, i)));
  return sum;
}

TF_FN TfF16 tf_round(const TfF16 &a) { return a; }
TF_FN TfF16 tf_round(const TfF32 &a) {
  tf_u32 w[4];
  TF_UNROLL
  for (int i = 0; i < 4; i++) w[i] = tf_f16_of_f32(a.x[2 * i]) | (tf_f16_of_f32(a.x[2 * i + 1]) << 16);
  TfF16 r;
  r.v = tf_vec(w[0], w[1], w[2], w[3]);
  return r;
}

// The value as the vectors that cross an edge.
TF_FN void tf_pack(const TfF16 &a, TfVec *out) { out[0] = a.v; }
TF_FN void tf_pack(const TfF32 &a, TfVec *out) {
  TF_UNROLL
  for (int i = 0; i < 2; i++)
    out[i] = tf_vec(tf_bits_of_f32(a.x[4 * i]), tf_bits_of_f32(a.x[4 * i + 1]), tf_bits_of_f32(a.x[4 * i + 2]),
                    tf_bits_of_f32(a.x[4 * i + 3]));
}
TF_FN void tf_unpack(const TfVec *in, TfF16 &a) { a.v = in[0]; }
TF_FN void tf_unpack(const TfVec *in, TfF32 &a) {
  TF_UNROLL
  for (int i = 0; i < 2; i++) {
    a.x[4 * i] = tf_f32_of_bits(in[i].x);
    a.x[4 * i + 1] = tf_f32_of_bits(in[i].y);
    a.x[4 * i + 2] = tf_f32_of_bits(in[i].z);
    a.x[4 * i + 3] = tf_f32_of_bits(in[i].w);
  }
}

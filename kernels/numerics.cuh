// Values of a column: the elements of a 16-byte vector, or their f32 partials; sums and roundings as schedules declare them.
//
// Knows elements, never slots or peers. A sum starts from its first operand, never from +0, which would lose -0.
#pragma once
#include "arch.cuh"

// Eight f16 elements, 16 bytes on the wire. SPARE is what a word of all ones becomes where a protocol has reserved that
// NaN for itself; a NaN too.
struct TfF16 {
  TfVec v;
  enum { VECTORS = 1 };
  enum : tf_u32 { SPARE = 0x7fff7fffu };
};
// Eight bf16 elements, 16 bytes on the wire.
struct TfBf16 {
  TfVec v;
  enum { VECTORS = 1 };
  enum : tf_u32 { SPARE = 0x7fff7fffu };
};
// Four f32 elements, 16 bytes on the wire.
struct TfF32x4 {
  TfVec v;
  enum { VECTORS = 1 };
  enum : tf_u32 { SPARE = 0x7fffffffu };
};
// Eight f32 partials of 16-bit elements, 32 bytes on the wire.
struct TfF32 {
  float x[8];
  enum { VECTORS = 2 };
  enum : tf_u32 { SPARE = 0x7fffffffu };
};

// bf16 is the upper half of an f32.
TF_FN float tf_f32_of_bf16(tf_u32 bits) { return tf_f32_of_bits(bits << 16); }
// Round to nearest even on the bits: a carry out of the fraction runs into the exponent, as it should, and from the largest
// finite number into infinity. A NaN would be rounded too, perhaps to infinity, so it becomes the one that GPUs make.
TF_FN tf_u32 tf_bf16_of_f32(float x) {
  const tf_u32 bits = tf_bits_of_f32(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}
TF_FN tf_u32 tf_2xbf16_of_f32(float low, float high) {
#ifdef TF_ROUNDS_BF16
  return tf_round_2xbf16(low, high);
#else
  return tf_bf16_of_f32(low) | (tf_bf16_of_f32(high) << 16);
#endif
}
// The correctly rounded sum, with or without an instruction for it: adding in f32 and rounding once more changes nothing,
// as for f16 (24 bits are at least 2 * 8 + 2). A sum too small for a normal number is a multiple of 2^-133, as all bf16
// are, hence exact; and f32 has the same exponents, so both roundings overflow at the same value.
TF_FN tf_u32 tf_sum_2xbf16(tf_u32 a, tf_u32 b) {
#ifdef TF_ADDS_BF16
  return tf_add_2xbf16(a, b);
#else
  return tf_2xbf16_of_f32(tf_add_f32(tf_f32_of_bf16(a & 0xffffu), tf_f32_of_bf16(b & 0xffffu)),
                          tf_add_f32(tf_f32_of_bf16(a >> 16), tf_f32_of_bf16(b >> 16)));
#endif
}
TF_FN tf_u32 tf_sum_bits_f32(tf_u32 a, tf_u32 b) { return tf_bits_of_f32(tf_add_f32(tf_f32_of_bits(a), tf_f32_of_bits(b))); }

TF_FN TfF16 tf_sum(const TfF16 &a, const TfF16 &b) {
  TfF16 r;
  r.v = tf_vec(tf_add_2xf16(a.v.x, b.v.x), tf_add_2xf16(a.v.y, b.v.y), tf_add_2xf16(a.v.z, b.v.z), tf_add_2xf16(a.v.w, b.v.w));
  return r;
}
TF_FN TfBf16 tf_sum(const TfBf16 &a, const TfBf16 &b) {
  TfBf16 r;
  r.v = tf_vec(tf_sum_2xbf16(a.v.x, b.v.x), tf_sum_2xbf16(a.v.y, b.v.y), tf_sum_2xbf16(a.v.z, b.v.z),
               tf_sum_2xbf16(a.v.w, b.v.w));
  return r;
}
TF_FN TfF32x4 tf_sum(const TfF32x4 &a, const TfF32x4 &b) {
  TfF32x4 r;
  r.v = tf_vec(tf_sum_bits_f32(a.v.x, b.v.x), tf_sum_bits_f32(a.v.y, b.v.y), tf_sum_bits_f32(a.v.z, b.v.z),
               tf_sum_bits_f32(a.v.w, b.v.w));
  return r;
}
TF_FN TfF32 tf_sum(const TfF32 &a, const TfF32 &b) {
  TfF32 r;
  TF_UNROLL
  for (int i = 0; i < 8; i++) r.x[i] = tf_add_f32(a.x[i], b.x[i]);
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
TF_FN TfF32 tf_widen(const TfBf16 &a) {
  TfF32 r;
  const tf_u32 w[4] = {a.v.x, a.v.y, a.v.z, a.v.w};
  TF_UNROLL
  for (int i = 0; i < 4; i++) {
    r.x[2 * i] = tf_f32_of_bf16(w[i] & 0xffffu);
    r.x[2 * i + 1] = tf_f32_of_bf16(w[i] >> 16);
  }
  return r;
}
TF_FN TfF16 tf_round_f16(const TfF32 &a) {
  tf_u32 w[4];
  TF_UNROLL
  for (int i = 0; i < 4; i++) w[i] = tf_f16_of_f32(a.x[2 * i]) | (tf_f16_of_f32(a.x[2 * i + 1]) << 16);
  TfF16 r;
  r.v = tf_vec(w[0], w[1], w[2], w[3]);
  return r;
}
TF_FN TfBf16 tf_round_bf16(const TfF32 &a) {
  TfBf16 r;
  r.v = tf_vec(tf_2xbf16_of_f32(a.x[0], a.x[1]), tf_2xbf16_of_f32(a.x[2], a.x[3]), tf_2xbf16_of_f32(a.x[4], a.x[5]),
               tf_2xbf16_of_f32(a.x[6], a.x[7]));
  return r;
}

// Byte `at` of a table word: rank data that lets ranks share a program.
TF_FN tf_u32 tf_table(const tf_u8 *word, tf_u32 at) {
  return static_cast<tf_u32>(reinterpret_cast<tf_u64>(word) >> (8 * at)) & 0xffu;
}

// An operand in the type of its sum.
template <typename E>
TF_FN void tf_operand_as(const E &a, E &r, int) { r = a; }
template <typename E>
TF_FN void tf_operand_as(const E &a, TfF32 &r, long) { r = tf_widen(a); }

// Left fold ((v0+v1)+v2)+... over `others` with `own` standing at `place`.
template <typename E>
TF_FN void tf_pick(bool first, const E &a, const E &b, E &out) {
  out.v = tf_vec(first ? a.v.x : b.v.x, first ? a.v.y : b.v.y, first ? a.v.z : b.v.z, first ? a.v.w : b.v.w);
}
TF_FN void tf_pick(bool first, const TfF32 &a, const TfF32 &b, TfF32 &out) {
  TF_UNROLL
  for (int i = 0; i < 8; i++) out.x[i] = first ? a.x[i] : b.x[i];
}
template <int N, typename V>
TF_FN V tf_operand(const V &own, const V (&others)[N], tf_u32 place, int at) {
  V late, r;
  tf_pick(at == static_cast<int>(place), own, others[at > 0 ? at - 1 : 0], late);
  if (at == N) return late;
  tf_pick(at < static_cast<int>(place), others[at < N ? at : N - 1], late, r);
  return r;
}
// `Sum` is the type in which sums are rounded: V itself, or f32 partials.
template <typename Sum, int N, typename V>
TF_FN Sum tf_fold(const V &own, const V (&others)[N], tf_u32 place) {
  Sum sum;
  tf_operand_as(tf_operand(own, others, place, 0), sum, 0);
  TF_UNROLL
  for (int i = 1; i <= N; i++) {
    Sum next;
    tf_operand_as(tf_operand(own, others, place, i), next, 0);
    sum = tf_sum(sum, next);
  }
  return sum;
}

// The value as the vectors that cross an edge.
template <typename E>
TF_FN void tf_pack(const E &a, TfVec *out) { out[0] = a.v; }
TF_FN void tf_pack(const TfF32 &a, TfVec *out) {
  TF_UNROLL
  for (int i = 0; i < 2; i++)
    out[i] = tf_vec(tf_bits_of_f32(a.x[4 * i]), tf_bits_of_f32(a.x[4 * i + 1]), tf_bits_of_f32(a.x[4 * i + 2]),
                    tf_bits_of_f32(a.x[4 * i + 3]));
}
template <typename E>
TF_FN void tf_unpack(const TfVec *in, E &a) { a.v = in[0]; }
TF_FN void tf_unpack(const TfVec *in, TfF32 &a) {
  TF_UNROLL
  for (int i = 0; i < 2; i++) {
    a.x[4 * i] = tf_f32_of_bits(in[i].x);
    a.x[4 * i + 1] = tf_f32_of_bits(in[i].y);
    a.x[4 * i + 2] = tf_f32_of_bits(in[i].z);
    a.x[4 * i + 3] = tf_f32_of_bits(in[i].w);
  }
}

// The host twin of arch.cuh: every access that another rank can see goes through the executor, which delays and
// reorders it as far as the promised memory order allows. Needs no C++ library, exceptions or run-time types.
// The executor's side is src/device/host/ffi.rs: change both together.
#pragma once

#define TF_FN static inline
#define TF_COLD static __attribute__((noinline))
#define TF_UNROLL
#define TF_ROLLED

struct TfHostThread;

struct TfHostOps {
  void (*store)(TfHostThread *, void *at, const void *from, tf_u32 bytes, tf_u32 order);       // order: 0 weak, 1 relaxed, 2 acquire
  void (*load)(TfHostThread *, const void *at, void *to, tf_u32 bytes, tf_u32 order);
  void (*fence)(TfHostThread *);
  tf_u32 (*barrier)(TfHostThread *, tf_u32 mine);   // block barrier; the OR of all `mine`
  void (*relax)(TfHostThread *);                    // an unsuccessful poll: let others run
  tf_u64 (*clock_ns)(TfHostThread *);
};

struct TfHostThread {
  tf_u32 thread, threads, block, blocks;
  const TfHostOps *ops;
  void *executor;
};

struct TfThread {
  TfHostThread *host;
  tf_u32 thread() const { return host->thread; }
  tf_u32 threads() const { return host->threads; }
  tf_u32 block() const { return host->block; }
  tf_u32 blocks() const { return host->blocks; }
};

#define TF_KERNEL(name, Params) \
  static void name##_body(TfHostThread *, const Params &); \
  extern "C" void name(TfHostThread *host, const void *params) { name##_body(host, *static_cast<const Params *>(params)); } \
  static void name##_body(TfHostThread *tf_host, const Params &p)
// Grids follow each other whole here, so there is nothing to enter.
#define TF_ENTER \
  const TfThread t{tf_host}; \
  const tf_u32 first = t.block() * t.threads() + t.thread();

struct TfVec { tf_u32 x, y, z, w; };
TF_FN TfVec tf_vec(tf_u32 x, tf_u32 y, tf_u32 z, tf_u32 w) { TfVec v = {x, y, z, w}; return v; }

TF_FN TfVec tf_load_own(const TfThread &, const void *at) { TfVec v; __builtin_memcpy(&v, at, 16); return v; }
TF_FN void tf_store_own(const TfThread &, void *at, TfVec v) { __builtin_memcpy(at, &v, 16); }
TF_FN tf_u32 tf_load_own_u16(const TfThread &, const void *at) { unsigned short v; __builtin_memcpy(&v, at, 2); return v; }
TF_FN void tf_store_own_u16(const TfThread &, void *at, tf_u32 v) { unsigned short s = (unsigned short)v; __builtin_memcpy(at, &s, 2); }
TF_FN tf_u32 tf_load_own_u32(const TfThread &, const tf_u32 *at) { return *static_cast<const volatile tf_u32 *>(at); }
TF_FN void tf_store_own_u32(const TfThread &, tf_u32 *at, tf_u32 v) { *static_cast<volatile tf_u32 *>(at) = v; }
TF_FN tf_u32 tf_next(tf_u32 used) { return used + 1; }

// The two halves are delivered apart, as PTX allows.
TF_FN void tf_store_relaxed_2x64(const TfThread &t, void *at, tf_u64 a, tf_u64 b) {
  t.host->ops->store(t.host, at, &a, 8, 1);
  t.host->ops->store(t.host, static_cast<tf_u8 *>(at) + 8, &b, 8, 1);
}
TF_FN void tf_load_relaxed_2x64(const TfThread &t, const void *at, tf_u64 &a, tf_u64 &b) {
  t.host->ops->load(t.host, at, &a, 8, 1);
  t.host->ops->load(t.host, static_cast<const tf_u8 *>(at) + 8, &b, 8, 1);
}
TF_FN void tf_store_relaxed_u32(const TfThread &t, tf_u32 *at, tf_u32 v) { t.host->ops->store(t.host, at, &v, 4, 1); }
TF_FN tf_u32 tf_load_relaxed_u32(const TfThread &t, const tf_u32 *at) {
  tf_u32 v;
  t.host->ops->load(t.host, at, &v, 4, 1);
  return v;
}
TF_FN void tf_store_relaxed_4x32(const TfThread &t, void *at, TfVec v) {
  tf_u8 *const word = static_cast<tf_u8 *>(at);
  t.host->ops->store(t.host, word, &v.x, 4, 1);
  t.host->ops->store(t.host, word + 4, &v.y, 4, 1);
  t.host->ops->store(t.host, word + 8, &v.z, 4, 1);
  t.host->ops->store(t.host, word + 12, &v.w, 4, 1);
}
TF_FN TfVec tf_load_relaxed_4x32(const TfThread &t, const void *at) {
  const tf_u8 *const word = static_cast<const tf_u8 *>(at);
  TfVec v;
  t.host->ops->load(t.host, word, &v.x, 4, 1);
  t.host->ops->load(t.host, word + 4, &v.y, 4, 1);
  t.host->ops->load(t.host, word + 8, &v.z, 4, 1);
  t.host->ops->load(t.host, word + 12, &v.w, 4, 1);
  return v;
}
TF_FN tf_u32 tf_load_acquire_u32(const TfThread &t, const tf_u32 *at) {
  tf_u32 v;
  t.host->ops->load(t.host, at, &v, 4, 2);
  return v;
}
TF_FN void tf_store_weak(const TfThread &t, void *at, TfVec v) { t.host->ops->store(t.host, at, &v, 16, 0); }
TF_FN TfVec tf_load_weak(const TfThread &t, const void *at) {
  TfVec v;
  t.host->ops->load(t.host, at, &v, 16, 0);
  return v;
}
TF_FN tf_u32 tf_load_weak_u16(const TfThread &t, const void *at) {
  unsigned short v;
  t.host->ops->load(t.host, at, &v, 2, 0);
  return v;
}
TF_FN void tf_fence_system(const TfThread &t) { t.host->ops->fence(t.host); }
TF_FN void tf_barrier(const TfThread &t) { t.host->ops->barrier(t.host, 0); }
TF_FN bool tf_barrier_any(const TfThread &t, bool mine) { return t.host->ops->barrier(t.host, mine ? 1 : 0) != 0; }
TF_FN tf_u64 tf_clock_ns(const TfThread &t) { return t.host->ops->clock_ns(t.host); }
TF_FN bool tf_claim(const TfThread &, tf_u32 *word) {
  if (*word != 0) return false;
  *word = 1;
  return true;
}
TF_FN void tf_relax(const TfThread &t) { t.host->ops->relax(t.host); }

TF_FN tf_u32 tf_bits_of_f32(float x) { tf_u32 b; __builtin_memcpy(&b, &x, 4); return b; }
TF_FN float tf_f32_of_bits(tf_u32 b) { float x; __builtin_memcpy(&x, &b, 4); return x; }
TF_FN float tf_f32_of_f16(tf_u32 h) {
  const tf_u32 sign = (h & 0x8000u) << 16, exponent = (h >> 10) & 31u, mantissa = h & 0x3ffu;
  if (exponent == 31) return tf_f32_of_bits(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return tf_f32_of_bits(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  const float subnormal = static_cast<float>(mantissa) * 5.9604644775390625e-8f;  // exact: 10 bits times 2^-24
  return tf_f32_of_bits(sign | tf_bits_of_f32(subnormal));
}
TF_FN tf_u32 tf_f16_of_f32(float x) {
  const tf_u32 bits = tf_bits_of_f32(x), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fffu;                    // the NaN that the device gives
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;            // 65520 and beyond round to infinity
  if (magnitude < 0x38800000u) {                                  // below 2^-14: a subnormal or zero
    const float scaled = tf_f32_of_bits(magnitude) + 0.5f;        // aligns the last bit at 2^-24: the adder rounds to even
    return sign | (tf_bits_of_f32(scaled) - 0x3f000000u);
  }
  const tf_u32 odd = (magnitude >> 13) & 1u;
  return sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13);
}
TF_FN float tf_add_f32(float a, float b) { return a + b; }
// Adding in f32 and rounding once gives the f16 sum: 24 bits are at least 2 * 11 + 2.
TF_FN tf_u32 tf_add_2xf16(tf_u32 a, tf_u32 b) {
  const tf_u32 low = tf_f16_of_f32(tf_f32_of_f16(a & 0xffffu) + tf_f32_of_f16(b & 0xffffu));
  const tf_u32 high = tf_f16_of_f32(tf_f32_of_f16(a >> 16) + tf_f32_of_f16(b >> 16));
  return low | (high << 16);
}

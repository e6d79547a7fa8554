// Kernels that measure and check collectives but are none: mixing node, copy node, start gate, delay, conversions.
// tf_mix holds the same function as src/qualify/mix.rs: change both together.
#include "arch.cuh"

static __device__ tf_u32 tf_scramble(tf_u32 h) {
  h ^= h >> 16;
  h *= 0x85ebca6bu;
  h ^= h >> 13;
  h *= 0xc2b2ae35u;
  return h ^ (h >> 16);
}

static __constant__ unsigned short tf_specials[16] = {0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x83ff, 0x7bff, 0xfbff,
                                                      0x7c00, 0xfc00, 0x7e00, 0x7fff, 0x0400, 0x8400, 0x3c00, 0xbc00};

// input[i] from output[i]; count elements; the two buffers may be one.
extern "C" __global__ void tf_mix(unsigned short *input, const unsigned short *output, tf_u32 count, tf_u32 rank, tf_u32 call,
                                  tf_u32 seed, tf_u32 specials, tf_u32 flags) {
  tf_enter_grid(flags);
  const tf_u32 who = rank * 0x85ebca77u + call * 0xc2b2ae3du;
  for (tf_u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    tf_u32 bits = output[i];
    if ((bits & 0x7fffu) > 0x7c00u) bits = 0x7fffu;
    const tf_u32 hash = tf_scramble(tf_scramble(tf_scramble(seed ^ (i * 0x9e3779b1u)) ^ who) ^ (bits * 0x27d4eb2fu));
    if (specials && ((hash >> 17) & 0x7fu) == 0)
      input[i] = tf_specials[(hash >> 13) & 0xfu];
    else
      input[i] = static_cast<unsigned short>(((hash >> 31) << 15) | ((10u + ((hash >> 10) & 7u)) << 10) | (hash & 0x3ffu));
  }
}

// The dependent copy node of the floor: 16-byte vectors.
extern "C" __global__ void tf_copy(const uint4 *input, uint4 *output, tf_u32 vectors, tf_u32 flags) {
  tf_enter_grid(flags);
  for (tf_u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += gridDim.x * blockDim.x) output[i] = input[i];
}

// Holds a stream until the host writes `go` into the mapped word, so that all ranks start together. Bounded.
extern "C" __global__ void tf_gate(const volatile tf_u32 *word, tf_u32 go, tf_u64 deadline_ns) {
  const TfThread t{};
  const tf_u64 since = tf_clock_ns(t);
  while (*word != go && tf_clock_ns(t) - since < deadline_ns) {
  }
}

// Holds a stream for a while: skew between ranks.
extern "C" __global__ void tf_delay(tf_u64 ns) {
  const TfThread t{};
  const tf_u64 since = tf_clock_ns(t);
  while (tf_clock_ns(t) - since < ns) {
  }
}

// Conversions that a comparator with f32 partials pays for.
extern "C" __global__ void tf_widen_f16(const unsigned short *input, float *output, tf_u32 count) {
  for (tf_u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    output[i] = tf_f32_of_f16(input[i]);
}
extern "C" __global__ void tf_narrow_f32(const float *input, unsigned short *output, tf_u32 count) {
  for (tf_u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    output[i] = static_cast<unsigned short>(tf_f16_of_f32(input[i]));
}

// A node that does nothing: what a launch costs.
extern "C" __global__ void tf_nop(tf_u32 flags) { tf_enter_grid(flags); }

// One word back and forth between two ranks: one-way latency is the time over twice the rounds. Bounded.
extern "C" __global__ void tf_ping(tf_u32 *mine, tf_u32 *peer, tf_u32 rounds, tf_u32 first, tf_u64 deadline_ns) {
  const TfThread t{};
  const tf_u64 since = tf_clock_ns(t);
  for (tf_u32 i = 1; i <= rounds; i++) {
    if (first) tf_store_relaxed_u32(t, peer, i);
    for (tf_u32 polls = 1; tf_load_relaxed_u32(t, mine) < i; polls++)
      if (polls % 1024u == 0 && tf_clock_ns(t) - since > deadline_ns) return;
    if (!first) tf_store_relaxed_u32(t, peer, i);
  }
}

// Dependent loads from one word of zeros: read latency is the time over the rounds.
extern "C" __global__ void tf_chase(const tf_u32 *at, tf_u32 rounds, tf_u32 *sink) {
  const TfThread t{};
  tf_u32 next = 0;
  for (tf_u32 i = 0; i < rounds; i++) next = tf_load_relaxed_u32(t, at + next);
  *sink = next;
}

// Stores a buffer into up to eight peers at once; block b serves peer b modulo their number.
extern "C" __global__ void tf_fan(const uint4 *from, tf_u32 vectors, tf_u32 peers, uint4 *p0, uint4 *p1, uint4 *p2, uint4 *p3,
                                  uint4 *p4, uint4 *p5, uint4 *p6, uint4 *p7) {
  const tf_u32 peer = blockIdx.x % peers, blocks = gridDim.x / peers;
  uint4 *const to = peer == 0 ? p0 : peer == 1 ? p1 : peer == 2 ? p2 : peer == 3 ? p3 : peer == 4 ? p4 : peer == 5 ? p5 : peer == 6 ? p6 : p7;
  for (tf_u32 i = blockIdx.x / peers * blockDim.x + threadIdx.x; i < vectors; i += blocks * blockDim.x) to[i] = from[i];
}

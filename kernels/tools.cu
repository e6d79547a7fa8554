// Kernels that measure and check collectives but are none: mixing node, copy node, start gate, delay, conversions, load, soak, lines.
// tf_mix holds the same function as src/qualify/mix.rs: change both together.
#include "numerics.cuh"
#include "warp.cuh"

static __device__ tf_u32 tf_scramble(tf_u32 h) {
  h ^= h >> 16;
  h *= 0x85ebca6bu;
  h ^= h >> 13;
  h *= 0xc2b2ae35u;
  return h ^ (h >> 16);
}

// Both zeros, subnormals, the ends of the range, infinities, a NaN and the reserved pattern.
template <int EXPONENT, int FRACTION>
static __device__ tf_u32 tf_special(tf_u32 index) {
  const tf_u32 sign = 1u << (EXPONENT + FRACTION), infinity = ((1u << EXPONENT) - 1) << FRACTION;
  const tf_u32 minus = (index & 1u) ? sign : 0u;
  switch (index >> 1) {
    case 0: return minus;
    case 1: return minus | 1u;
    case 2: return minus | ((1u << FRACTION) - 1);
    case 3: return minus | (infinity - 1);
    case 4: return minus | infinity;
    case 5: return (index & 1u) ? sign - 1 : infinity | (1u << (FRACTION - 1));
    case 6: return minus | (1u << FRACTION);
    default: return minus | (((1u << (EXPONENT - 1)) - 1) << FRACTION);
  }
}

template <typename U, int EXPONENT, int FRACTION>
static __device__ void tf_mix(U *input, const U *output, tf_u32 count, tf_u32 rank, tf_u32 call, tf_u32 seed, tf_u32 specials) {
  const tf_u32 sign = 1u << (EXPONENT + FRACTION), infinity = ((1u << EXPONENT) - 1) << FRACTION;
  const tf_u32 least = ((1u << (EXPONENT - 1)) - 1 - 5) << FRACTION;  // 2^-5
  const tf_u32 who = rank * 0x85ebca77u + call * 0xc2b2ae3du;
  for (tf_u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    tf_u32 bits = output[i];
    if ((bits & (sign - 1)) > infinity) bits = sign - 1;
    const tf_u32 hash = tf_scramble(tf_scramble(tf_scramble(seed ^ (i * 0x9e3779b1u)) ^ who) ^ (bits * 0x27d4eb2fu));
    const tf_u32 fraction = (FRACTION > 10 ? tf_scramble(hash ^ 0x5bd1e995u) : hash) & ((1u << FRACTION) - 1);
    if (specials && ((hash >> 17) & 0x7fu) == 0)
      input[i] = static_cast<U>(tf_special<EXPONENT, FRACTION>((hash >> 13) & 0xfu));
    else
      input[i] = static_cast<U>((hash >> 31) * sign | (least + (((hash >> 10) & 7u) << FRACTION)) | fraction);
  }
}

// input[i] from output[i]; count elements; the two buffers may be one.
#define TF_MIX(name, U, exponent, fraction) \
  extern "C" __global__ void name(U *input, const U *output, tf_u32 count, tf_u32 rank, tf_u32 call, tf_u32 seed, \
                                  tf_u32 specials, tf_u32 flags) { \
    tf_enter_grid(flags); \
    tf_mix<U, exponent, fraction>(input, output, count, rank, call, seed, specials); \
  }
TF_MIX(tf_mix_f16, unsigned short, 5, 10)
TF_MIX(tf_mix_bf16, unsigned short, 8, 7)
TF_MIX(tf_mix_f32, unsigned int, 8, 23)

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
extern "C" __global__ void tf_widen_bf16(const unsigned short *input, float *output, tf_u32 count) {
  for (tf_u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    output[i] = tf_f32_of_bf16(input[i]);
}
extern "C" __global__ void tf_narrow_f16(const float *input, unsigned short *output, tf_u32 count) {
  for (tf_u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    output[i] = static_cast<unsigned short>(tf_f16_of_f32(input[i]));
}
extern "C" __global__ void tf_narrow_bf16(const float *input, unsigned short *output, tf_u32 count) {
  for (tf_u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    output[i] = static_cast<unsigned short>(tf_bf16_of_f32(input[i]));
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

// The litmus of lines: all 32 words of a line are stored as one number, which grows, as often as the line can be stored.
extern "C" __global__ void tf_lines_put(tf_u8 *lines, tf_u32 rounds) {
  const TfThread t{};
  tf_u8 *const at = lines + 16ull * (blockIdx.x * blockDim.x + threadIdx.x);
  for (tf_u32 n = 1; n <= rounds; n++) tf_store_line(t, at, tf_vec(n, n, n, n));
}

// What the reader saw. Mirrored in src/device/cuda/lines.rs.
struct TfLines {
  unsigned long long seen;   // changes of lines
  unsigned long long torn;   // loads of a line whose words were not all the same
  unsigned long long whole;  // lines whose last number came
};

// Loads lines in a loop and compares their words. Ends when every line of the warp holds the last number, or past the deadline.
extern "C" __global__ void tf_lines_watch(const tf_u8 *lines, tf_u32 rounds, tf_u64 deadline_ns, TfLines *tally) {
  const TfThread t{};
  const tf_u8 *const at = lines + 16ull * (blockIdx.x * blockDim.x + threadIdx.x);
  const tf_u32 lead = threadIdx.x & 24u;
  const tf_u64 since = tf_clock_ns(t);
  tf_u32 last = 0;
  unsigned long long seen = 0, torn = 0;
  for (tf_u32 polls = 1;; polls++) {
    const TfVec v = tf_load_line(t, at);
    const tf_u32 first = __shfl_sync(TF_WHOLE_WARP, v.x, lead);
    const tf_u32 odd = __ballot_sync(TF_WHOLE_WARP, v.x != first || v.y != first || v.z != first || v.w != first);
    if ((odd >> lead) & 0xffu) torn++;
    if (first != last) seen++;
    last = first;
    if (!tf_warp_any(t, first != rounds)) break;
    if (polls % 1024u == 0 && tf_warp_any(t, tf_clock_ns(t) - since > deadline_ns)) break;
  }
  if ((threadIdx.x & 7u) == 0) {
    atomicAdd(&tally->seen, seen);
    atomicAdd(&tally->torn, torn);
    if (last == rounds) atomicAdd(&tally->whole, 1ull);
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

// Lets so many clocks go by.
static __device__ void tf_hold(tf_u32 clocks) {
  for (const tf_u32 since = clock(); static_cast<tf_u32>(clock()) - since < clocks;) {
  }
}

// Two ranks play with one word through memory that is far from the poller, e.g. the host's. With `gap` two polls are in
// flight, so many clocks apart, so that a word that has just been missed is seen half a round trip earlier. Bounded.
extern "C" __global__ void tf_ping_far(tf_u32 *mine, tf_u32 *peer, tf_u32 rounds, tf_u32 first, tf_u64 deadline_ns, tf_u32 gap) {
  const TfThread t{};
  const tf_u64 since = tf_clock_ns(t);
  for (tf_u32 i = 1; i <= rounds; i++) {
    if (first) tf_store_relaxed_u32(t, peer, i);
    tf_u32 a = tf_load_relaxed_u32(t, mine);
    if (gap) {
      tf_hold(gap);
      for (tf_u32 polls = 1;; polls++) {
        const tf_u32 b = tf_load_relaxed_u32(t, mine);
        if (a >= i) break;
        a = tf_load_relaxed_u32(t, mine);
        if (b >= i) break;
        if (polls % 1024u == 0 && tf_clock_ns(t) - since > deadline_ns) return;
      }
    } else {
      for (tf_u32 polls = 1; a < i; polls++) {
        a = tf_load_relaxed_u32(t, mine);
        if (polls % 1024u == 0 && tf_clock_ns(t) - since > deadline_ns) return;
      }
    }
    if (!first) tf_store_relaxed_u32(t, peer, i);
  }
}

// Reads a buffer of 16-byte vectors, one after the other in a thread: how = 0 relaxed at system scope as a poll does, 1
// weak, 2 weak with two vectors in flight, 3 weak with four. Only all ones in every vector would write to the sink.
extern "C" __global__ void tf_read(const uint4 *from, tf_u32 vectors, tf_u32 how, tf_u32 *sink) {
  const TfThread t{};
  const tf_u32 step = gridDim.x * blockDim.x;
  tf_u32 all = ~0u;
  const tf_u32 flight = how == 3 ? 4 : how == 2 ? 2 : 1;
  for (tf_u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += flight * step) {
    uint4 v[4] = {};
    TF_UNROLL
    for (tf_u32 k = 0; k < 4; k++)
      if (k < flight && i + k * step < vectors) v[k] = how == 0 ? tf_load_relaxed_4x32(t, from + i) : tf_load_weak(t, from + i + k * step);
    TF_UNROLL
    for (tf_u32 k = 0; k < 4; k++)
      if (k < flight) all &= v[k].x & v[k].y & v[k].z & v[k].w;
  }
  if (all == ~0u) *sink = all;
}

// Load beside collectives: each thread rewrites its part of a buffer so many times. Does nothing once the host has set
// the word, so that whatever is still enqueued drains at once.
extern "C" __global__ void tf_busy(float4 *data, tf_u32 vectors, tf_u32 rounds, const volatile tf_u32 *stop) {
  __shared__ tf_u32 stopped;
  if (threadIdx.x == 0) stopped = *stop;
  __syncthreads();
  if (stopped) return;
  for (tf_u32 round = 0; round < rounds; round++)
    for (tf_u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += gridDim.x * blockDim.x) {
      float4 v = data[i];
      v.x = v.x * 0.5f + 1.0f;
      v.y = v.y * 0.5f + 1.0f;
      v.z = v.z * 0.5f + 1.0f;
      v.w = v.w * 0.5f + 1.0f;
      data[i] = v;
    }
}

// One rank's state of a soak, in its own memory. Mirrored in src/device/cuda/soak.rs.
struct TfSoak {
  tf_u64 call;      // the call that the next node checks
  tf_u64 wrong;     // words that were not the declared sum
  tf_u64 words;     // words compared
  tf_u32 arrived;   // blocks of the node under way that have ended
  tf_u32 claimed;   // 0 until a thread has described the first wrong word
  tf_u64 at_call;
  tf_u32 element;
  tf_u32 expected;
  tf_u32 got;
  tf_u32 reserved;
};

// An element type of a soak: its word, and the way to f32 and back.
struct TfSoakF16 {
  typedef unsigned short Word;
  enum { EXPONENT = 5, FRACTION = 10 };
  static __device__ float wide(tf_u32 bits) { return tf_f32_of_f16(bits); }
  static __device__ tf_u32 narrow(float x) { return tf_f16_of_f32(x); }
};
struct TfSoakBf16 {
  typedef unsigned short Word;
  enum { EXPONENT = 8, FRACTION = 7 };
  static __device__ float wide(tf_u32 bits) { return tf_f32_of_bf16(bits); }
  static __device__ tf_u32 narrow(float x) { return tf_bf16_of_f32(x); }
};
struct TfSoakF32 {
  typedef unsigned int Word;
  enum { EXPONENT = 8, FRACTION = 23 };
  static __device__ float wide(tf_u32 bits) { return tf_f32_of_bits(bits); }
  static __device__ tf_u32 narrow(float x) { return tf_bits_of_f32(x); }
};

// The input of a rank: a pure function, so that every rank can say what every other one sent. As src/qualify/soak.rs.
template <typename E>
static __device__ tf_u32 tf_soak_input(tf_u32 seed, tf_u32 rank, tf_u64 call, tf_u32 i) {
  const tf_u32 low = static_cast<tf_u32>(call), high = static_cast<tf_u32>(call >> 32);
  const tf_u32 who = rank * 0x85ebca77u + low * 0xc2b2ae3du + high * 0x27d4eb2fu;
  const tf_u32 hash = tf_scramble(tf_scramble(seed ^ (i * 0x9e3779b1u)) ^ who);
  const tf_u32 fraction = (E::FRACTION > 10 ? tf_scramble(hash ^ 0x5bd1e995u) : hash) & ((1u << E::FRACTION) - 1);
  const tf_u32 exponent = (1u << (E::EXPONENT - 1)) - 1 - 5 + ((hash >> 10) & 7u);
  return ((hash >> 31) << (E::EXPONENT + E::FRACTION)) | (exponent << E::FRACTION) | fraction;
}

#define TF_SOAK_SUM 0xfeu
#define TF_SOAK_ROUND 0xfdu
#define TF_SOAK_END 0xffu
#define TF_SOAK_DEPTH 8

// The declared expression over that call's inputs, in reverse Polish notation: a rank's number or an operation a byte.
template <typename E>
static __device__ tf_u32 tf_soak_sum(const tf_u8 *program, tf_u32 seed, tf_u64 call, tf_u32 i, tf_u32 narrow) {
  float stack[TF_SOAK_DEPTH];
  tf_u32 depth = 0;
  for (; *program != TF_SOAK_END; program++) {
    const tf_u32 step = *program;
    if (step == TF_SOAK_SUM) {
      depth--;
      stack[depth - 1] = tf_add_f32(stack[depth - 1], stack[depth]);
      // A 16-bit sum through f32 is the 16-bit sum: src/qualify/reference.rs says why. f32 narrowed is f32.
      if (narrow) stack[depth - 1] = E::wide(E::narrow(stack[depth - 1]));
    } else if (step == TF_SOAK_ROUND) {
      stack[depth - 1] = E::wide(E::narrow(stack[depth - 1]));
    } else {
      stack[depth++] = E::wide(tf_soak_input<E>(seed, step, call, i));
    }
  }
  return E::narrow(stack[0]);
}

// Between two calls of a soak: compares every word of the call that has ended, overwrites it so that nothing of it can
// pass for a later call's, and makes the inputs of the next call. `programs` holds this rank's expressions, `starts` where
// each chunk's begins, `chunk` the elements of a chunk.
template <typename E>
static __device__ void tf_soak(typename E::Word *output, tf_u32 checked, typename E::Word *input, tf_u32 made, tf_u32 rank,
                               TfSoak *state, tf_u32 seed, const tf_u8 *programs, const tf_u32 *starts, tf_u32 chunk,
                               tf_u32 narrow, tf_u32 flags) {
  tf_enter_grid(flags);
  const tf_u64 call = state->call;
  const tf_u32 first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
  tf_u64 wrong = 0, words = 0;
  for (tf_u32 i = first; i < checked; i += step) {
    const tf_u32 expected = tf_soak_sum<E>(programs + starts[i / chunk], seed, call, i, narrow);
    const tf_u32 got = output[i];
    words++;
    if (got != expected) {
      wrong++;
      if (atomicCAS(&state->claimed, 0u, 1u) == 0u) {
        state->at_call = call;
        state->element = i;
        state->expected = expected;
        state->got = got;
      }
    }
    output[i] = static_cast<typename E::Word>(0xa5a5a5a5u);
  }
  for (tf_u32 i = first; i < made; i += step)
    input[i] = static_cast<typename E::Word>(tf_soak_input<E>(seed, rank, call + (checked != 0), i));
  if (words) atomicAdd(&state->words, words);
  if (wrong) atomicAdd(&state->wrong, wrong);
  __syncthreads();
  if (threadIdx.x == 0 && checked != 0) {
    __threadfence();
    if (atomicAdd(&state->arrived, 1u) == gridDim.x - 1) {
      state->arrived = 0;
      state->call = call + 1;
    }
  }
}

#define TF_SOAK(name, E)                                                                                                   \
  extern "C" __global__ void name(E::Word *output, tf_u32 checked, E::Word *input, tf_u32 made, tf_u32 rank, TfSoak *state, \
                                  tf_u32 seed, const tf_u8 *programs, const tf_u32 *starts, tf_u32 chunk, tf_u32 narrow,    \
                                  tf_u32 flags) {                                                                           \
    tf_soak<E>(output, checked, input, made, rank, state, seed, programs, starts, chunk, narrow, flags);                    \
  }
TF_SOAK(tf_soak_f16, TfSoakF16)
TF_SOAK(tf_soak_bf16, TfSoakBf16)
TF_SOAK(tf_soak_f32, TfSoakF32)

// A barrier of the blocks of one number on all ranks, for peer reads in two stages. Everything that the block wrote before is
// seen by every peer's block behind it. False: somebody never came.
static __device__ bool tf_pull2_meet(tf_u32 *const *signals, const tf_u32 *words, tf_u32 *dead, tf_u32 *status, tf_u64 deadline_ns,
                                     tf_u32 ranks, tf_u32 rank, tf_u32 turn) {
  const TfThread t{};
  __syncthreads();
  bool late = false;
  const tf_u32 q = threadIdx.x;
  if (q < ranks && q != rank) {
    tf_fence_system(t);
    tf_store_relaxed_u32(t, signals[q] + blockIdx.x * 8u + rank, turn);
    const tf_u64 since = tf_clock_ns(t);
    for (tf_u32 polls = 1; static_cast<int>(tf_load_acquire_u32(t, words + blockIdx.x * 8u + q) - turn) < 0; polls++)
      if (polls % 1024u == 0 && tf_clock_ns(t) - since > deadline_ns) {
        tf_store_relaxed_u32(t, dead, 1);
        tf_store_relaxed_u32(t, status, q + 1);
        late = true;
        break;
      }
  }
  return !tf_barrier_any(t, late);
}

static __device__ uint4 tf_pull2_sum(const uint4 *const *inputs, tf_u32 ranks, tf_u32 at, tf_u32 wide) {
  const TfThread t{};
  uint4 v[8];
  TF_UNROLL
  for (tf_u32 q = 0; q < 8; q++)
    if (q < ranks) v[q] = tf_load_weak(t, inputs[q] + at);
  tf_u32 words[4];
  TF_UNROLL
  for (int w = 0; w < 4; w++) {
    const tf_u32 first = w == 0 ? v[0].x : w == 1 ? v[0].y : w == 2 ? v[0].z : v[0].w;
    tf_u32 sum = first;
    float low = tf_f32_of_f16(first & 0xffffu), high = tf_f32_of_f16(first >> 16);
    TF_UNROLL
    for (tf_u32 q = 1; q < 8; q++)
      if (q < ranks) {
        const tf_u32 next = w == 0 ? v[q].x : w == 1 ? v[q].y : w == 2 ? v[q].z : v[q].w;
        if (wide) {
          low = tf_add_f32(low, tf_f32_of_f16(next & 0xffffu));
          high = tf_add_f32(high, tf_f32_of_f16(next >> 16));
        } else {
          sum = tf_add_2xf16(sum, next);
        }
      }
    words[w] = wide ? (tf_f16_of_f32(low) | tf_f16_of_f32(high) << 16) : sum;
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// All-reduce by peer reads in two stages: each rank sums its chunk of all inputs into its own scratch, then reads the others'
// chunks. To compare with; src/device/cuda/two_stage_pull.rs makes the state. `words` is this rank's own signals.
extern "C" __global__ void tf_pull2(uint4 *const *temps, tf_u32 *const *signals, tf_u32 *counters, const tf_u32 *words, tf_u32 *dead,
                                    tf_u32 *status, tf_u64 deadline_ns, unsigned short *output, tf_u32 count, tf_u32 ranks,
                                    tf_u32 rank, tf_u32 wide, const uint4 *i0, const uint4 *i1, const uint4 *i2, const uint4 *i3,
                                    const uint4 *i4, const uint4 *i5, const uint4 *i6, const uint4 *i7) {
  const TfThread t{};
  const uint4 *const inputs[8] = {i0, i1, i2, i3, i4, i5, i6, i7};
  if (tf_load_relaxed_u32(t, dead) != 0) return;
  const tf_u32 turn = counters[blockIdx.x];
  const tf_u32 vectors = count / 8u, chunk = (vectors + ranks - 1u) / ranks;
  const tf_u32 first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
  if (!tf_pull2_meet(signals, words, dead, status, deadline_ns, ranks, rank, turn + 1u)) return;
  for (tf_u32 i = first; i < chunk && rank * chunk + i < vectors; i += step)
    temps[rank][i] = tf_pull2_sum(inputs, ranks, rank * chunk + i, wide);
  // Elements behind the last whole vector: block 0 of every rank sums them itself, and stores them once nobody reads inputs.
  const tf_u32 odd = vectors * 8u + threadIdx.x;
  const bool mine = blockIdx.x == 0 && odd < count;
  tf_u32 tail = 0;
  if (mine) {
    tail = tf_load_weak_u16(t, reinterpret_cast<const unsigned short *>(inputs[0]) + odd);
    float sum = tf_f32_of_f16(tail);
    for (tf_u32 q = 1; q < ranks; q++) {
      sum = tf_add_f32(sum, tf_f32_of_f16(tf_load_weak_u16(t, reinterpret_cast<const unsigned short *>(inputs[q]) + odd)));
      if (!wide) sum = tf_f32_of_f16(tf_f16_of_f32(sum));
    }
    tail = tf_f16_of_f32(sum);
  }
  if (!tf_pull2_meet(signals, words, dead, status, deadline_ns, ranks, rank, turn + 2u)) return;
  for (tf_u32 q = 0; q < ranks; q++)
    for (tf_u32 i = first; i < chunk && q * chunk + i < vectors; i += step)
      tf_store_own(t, reinterpret_cast<uint4 *>(output) + q * chunk + i, tf_load_weak(t, temps[q] + i));
  if (mine) output[odd] = static_cast<unsigned short>(tail);
  if (threadIdx.x == 0) counters[blockIdx.x] = turn + 2u;
}

// A prototype, timed by the floor and never served: a pair's sum by sentinels through host memory, a 16-byte vector a thread,
// with a hold before the first poll (`hold` clocks) or two polls in flight (`gap` clocks apart). Bounded.
extern "C" __global__ void tf_staged(const uint4 *input, uint4 *output, tf_u32 *counters, uint4 *theirs, uint4 *mine, tf_u32 vectors,
                                     tf_u32 stride, tf_u32 hold, tf_u32 gap, tf_u64 deadline_ns, tf_u32 flags) {
  tf_enter_grid(flags);
  const TfThread t{};
  const tf_u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= vectors) return;
  const uint4 v = tf_load_own(t, input + i);
  const tf_u32 turn = tf_load_own_u32(t, counters + i) + 1u;
  const tf_u32 slot = (turn & 1u) * stride + i;
  tf_store_relaxed_4x32(t, theirs + slot, v);
  if (hold) tf_hold(hold);
  uint4 a = tf_load_relaxed_4x32(t, mine + slot), b = a;
  if (gap) {
    tf_hold(gap);
    b = tf_load_relaxed_4x32(t, mine + slot);
  }
  const tf_u32 none = ~0u;
  const tf_u64 since = tf_clock_ns(t);
  for (tf_u32 polls = 1; a.x == none || a.y == none || a.z == none || a.w == none; polls++) {
    a = b;
    b = tf_load_relaxed_4x32(t, mine + slot);
    if (!gap) a = b;
    if (polls % 1024u == 0 && tf_clock_ns(t) - since > deadline_ns) return;
  }
  tf_store_own(t, mine + slot, make_uint4(none, none, none, none));
  tf_store_own_u32(t, counters + i, turn);
  tf_store_own(t, output + i, make_uint4(tf_add_2xf16(v.x, a.x), tf_add_2xf16(v.y, a.y), tf_add_2xf16(v.z, a.z), tf_add_2xf16(v.w, a.w)));
}

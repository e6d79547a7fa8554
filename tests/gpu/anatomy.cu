// Where the time of a one-shot call goes: the same call built up step by step, on two GPUs with peer access.
//
//   nvcc -O3 -std=c++17 -arch=native -o anatomy tests/gpu/anatomy.cu && ./anatomy
//
// Every column is a chain of 128 dependent nodes in a graph on each GPU, best block size, median of nine, microseconds a node,
// slowest GPU. Nothing here is the product's code: `topoforge bench` beside it shows what the product takes. Waits give up
// after a second; the status is then 1. Takes about half a minute.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <vector>

#define CK(call)                                                                                              \
  do {                                                                                                        \
    cudaError_t e = (call);                                                                                   \
    if (e != cudaSuccess) {                                                                                   \
      fprintf(stderr, "%s in line %d: %s\n", #call, __LINE__, cudaGetErrorString(e));                         \
      exit(2);                                                                                                \
    }                                                                                                         \
  } while (0)

constexpr unsigned NODES = 128, ROOM = 1 << 16, EMPTY = 0xffffffffu;

// What a node does besides waiting for the one before it; each step keeps the earlier ones.
enum Step {
  NODE,     // nothing
  COPY,     // input to output
  COUNT,    // the column's counter read, its successor written
  PUT,      // and the input written to the peer
  LOOK,     // and the own slot read once, whatever it holds
  CALL,     // and waited for, reset, added: a whole call
  FIXED,    // a whole call without counters: slots are arguments, so a graph could not be replayed at other sizes
  TAGGED,   // as FIXED, but a word of the sixteen bytes is the call's number: no reset, the most that packet128 could save
};

struct Args {
  const uint4 *in;
  uint4 *out, *peer, *own;
  unsigned *counters, *failed;
  unsigned n, rank, node;
};

__device__ uint4 load(const uint4 *p) {
  uint4 v;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0,%1,%2,%3},[%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
  return v;
}
__device__ void store(uint4 *p, uint4 v) {
  asm volatile("st.relaxed.sys.global.v4.u32 [%0],{%1,%2,%3,%4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
__device__ unsigned add(unsigned a, unsigned b) {
  __half2 r = __hadd2(*reinterpret_cast<__half2 *>(&a), *reinterpret_cast<__half2 *>(&b));
  return *reinterpret_cast<unsigned *>(&r);
}
__device__ bool empty(uint4 v) { return v.x == EMPTY || v.y == EMPTY || v.z == EMPTY || v.w == EMPTY; }

template <int STEP, int TRIGGER> __global__ void node(Args a) {
#if __CUDA_ARCH__ >= 900
  if (TRIGGER == 1) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  if (STEP == NODE || i >= a.n) return;
  constexpr bool counted = STEP >= COUNT && STEP <= CALL;
  unsigned count = 0;
  if (counted) count = __ldcg(a.counters + i);
  uint4 v = __ldcg(a.in + i);
  if (STEP == COPY) { a.out[i] = v; return; }
  const unsigned at = (counted ? count & 1u : a.node & 1u) * ROOM + i;
  if (STEP == TAGGED) v.w = a.node;
  if (STEP >= PUT) store(a.peer + at, v);
  uint4 w = make_uint4(0, 0, 0, 0);
  if (STEP == LOOK) w = load(a.own + at);
  if (STEP >= CALL) {
    w = load(a.own + at);
    for (unsigned tries = 0; STEP == TAGGED ? w.w != a.node : empty(w); w = load(a.own + at))
      if (++tries == 1u << 21) { *a.failed = 1; return; }
    if (STEP != TAGGED) store(a.own + at, make_uint4(EMPTY, EMPTY, EMPTY, EMPTY));
  }
  if (STEP >= LOOK) v = a.rank ? make_uint4(add(w.x, v.x), add(w.y, v.y), add(w.z, v.z), add(w.w, v.w))
                               : make_uint4(add(v.x, w.x), add(v.y, w.y), add(v.z, w.z), add(v.w, w.w));
  a.out[i] = v;
  if (counted) a.counters[i] = count + 1;
}

// A word to and fro between the GPUs within one grid: no launches. Half a round trip is what the product's floor calls the wire.
__global__ void ping(unsigned *peer, unsigned *own, unsigned rounds, unsigned rank, unsigned *failed) {
  for (unsigned r = 1; r <= rounds; r++) {
    if (rank == 0) asm volatile("st.relaxed.sys.global.u32 [%0],%1;" ::"l"(peer), "r"(r) : "memory");
    unsigned seen = 0;
    for (unsigned tries = 0; seen != r;) {
      asm volatile("ld.relaxed.sys.global.u32 %0,[%1];" : "=r"(seen) : "l"(own) : "memory");
      if (++tries == 1u << 21) { *failed = 1; return; }
    }
    if (rank == 1) asm volatile("st.relaxed.sys.global.u32 [%0],%1;" ::"l"(peer), "r"(r) : "memory");
  }
}

// Both send and both wait, over and over within one grid, a thread a vector: what a call costs without its launch.
__global__ void swap(Args a, unsigned rounds) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= a.n) return;
  uint4 v = a.in[i];
  for (unsigned r = 0; r < rounds; r++) {
    const unsigned at = (r & 1u) * ROOM + i;
    store(a.peer + at, v);
    uint4 w = load(a.own + at);
    for (unsigned tries = 0; empty(w); w = load(a.own + at))
      if (++tries == 1u << 21) { *a.failed = 1; return; }
    store(a.own + at, make_uint4(EMPTY, EMPTY, EMPTY, EMPTY));
    v = make_uint4(w.x ^ 1u, w.y, w.z, w.w);
  }
  a.out[i] = v;
}

struct Rank {
  uint4 *x, *y, *slots;
  unsigned *counters, *failed;
  cudaStream_t stream;
  cudaEvent_t begin, end;
} ranks[2];

void clean() {
  for (int r = 0; r < 2; r++) {
    CK(cudaSetDevice(r));
    CK(cudaMemset(ranks[r].slots, 0xff, 3 * 16 * ROOM));
    CK(cudaMemset(ranks[r].counters, 0, 4 * ROOM));
    CK(cudaMemset(ranks[r].x, 0, 16 * ROOM));
    CK(cudaMemset(ranks[r].y, 0, 16 * ROOM));
    CK(cudaDeviceSynchronize());
  }
}

// Seconds by events of what `enqueue` puts on both streams, slowest GPU, median of nine after three, in microseconds.
template <typename F> double median(F enqueue) {
  std::vector<double> all;
  for (int sample = 0; sample < 12; sample++) {
    float slowest = 0;
    for (int r = 0; r < 2; r++) {
      CK(cudaSetDevice(r));
      CK(cudaEventRecord(ranks[r].begin, ranks[r].stream));
      enqueue(r);
      CK(cudaEventRecord(ranks[r].end, ranks[r].stream));
    }
    for (int r = 0; r < 2; r++) {
      CK(cudaSetDevice(r));
      CK(cudaEventSynchronize(ranks[r].end));
      float ms = 0;
      CK(cudaEventElapsedTime(&ms, ranks[r].begin, ranks[r].end));
      slowest = std::max(slowest, ms);
      if (*ranks[r].failed) { fprintf(stderr, "a wait was given up\n"); exit(1); }
    }
    if (sample >= 3) all.push_back(slowest * 1000.0);
  }
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

template <int STEP, int TRIGGER> double chain(unsigned n, unsigned block, bool programmatic) {
  clean();
  cudaGraphExec_t graphs[2];
  for (int r = 0; r < 2; r++) {
    Rank &k = ranks[r], &other = ranks[1 - r];
    CK(cudaSetDevice(r));
    CK(cudaStreamBeginCapture(k.stream, cudaStreamCaptureModeRelaxed));
    for (unsigned i = 0; i < NODES; i++) {
      Args a{i & 1 ? k.y : k.x, i & 1 ? k.x : k.y, other.slots, k.slots, k.counters, k.failed, n, unsigned(r), i};
      cudaLaunchAttribute attribute[1];
      attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attribute[0].val.programmaticStreamSerializationAllowed = 1;
      cudaLaunchConfig_t config{};
      config.gridDim = (n + block - 1) / block;
      config.blockDim = block;
      config.stream = k.stream;
      config.attrs = attribute;
      config.numAttrs = programmatic;
      CK(cudaLaunchKernelEx(&config, node<STEP, TRIGGER>, a));
    }
    cudaGraph_t graph;
    CK(cudaStreamEndCapture(k.stream, &graph));
    CK(cudaGraphInstantiateWithFlags(&graphs[r], graph, 0));
    CK(cudaGraphUpload(graphs[r], k.stream));
    CK(cudaStreamSynchronize(k.stream));
    CK(cudaGraphDestroy(graph));
  }
  const double t = median([&](int r) { CK(cudaGraphLaunch(graphs[r], ranks[r].stream)); }) / NODES;
  for (auto graph : graphs) CK(cudaGraphExecDestroy(graph));
  return t;
}

template <int STEP, int TRIGGER> double best(unsigned n, bool programmatic) {
  double t = 1e9;
  for (unsigned block : {32u, 64u, 128u, 256u}) t = std::min(t, chain<STEP, TRIGGER>(n, block, programmatic));
  return t;
}

template <int TRIGGER> void table(const char *name, bool programmatic) {
  printf("\n%s\n  KiB    node    copy  +count    +put   +look    call   fixed  tagged\n", name);
  for (unsigned kib : {1, 5, 10, 25, 40, 80, 128, 256}) {
    const unsigned n = kib * 64;
    printf("%5u %7.3f %7.3f %7.3f %7.3f %7.3f %7.3f %7.3f %7.3f\n", kib, best<NODE, TRIGGER>(n, programmatic), best<COPY, TRIGGER>(n, programmatic),
           best<COUNT, TRIGGER>(n, programmatic), best<PUT, TRIGGER>(n, programmatic), best<LOOK, TRIGGER>(n, programmatic),
           best<CALL, TRIGGER>(n, programmatic), best<FIXED, TRIGGER>(n, programmatic), best<TAGGED, TRIGGER>(n, programmatic));
  }
}

int main() {
  int count = 0;
  CK(cudaGetDeviceCount(&count));
  if (count < 2) { fprintf(stderr, "two GPUs are needed, %d is here\n", count); return 2; }
  for (int r = 0; r < 2; r++) {
    Rank &k = ranks[r];
    CK(cudaSetDevice(r));
    CK(cudaDeviceEnablePeerAccess(1 - r, 0));
    for (uint4 **p : {&k.x, &k.y}) CK(cudaMalloc(p, 16 * ROOM));
    CK(cudaMalloc(&k.slots, 3 * 16 * ROOM));
    CK(cudaMalloc(&k.counters, 4 * ROOM));
    CK(cudaHostAlloc(&k.failed, 4, cudaHostAllocPortable));
    *k.failed = 0;
    CK(cudaStreamCreateWithFlags(&k.stream, cudaStreamNonBlocking));
    CK(cudaEventCreate(&k.begin));
    CK(cudaEventCreate(&k.end));
  }
  constexpr unsigned ROUNDS = 1000;
  const double word = median([&](int r) {
    CK(cudaMemsetAsync(ranks[r].counters, 0, 4, ranks[r].stream));
    CK(cudaStreamSynchronize(ranks[r].stream));
    CK(cudaSetDevice(r));
    if (r == 1) {
      CK(cudaSetDevice(0));
      ping<<<1, 1, 0, ranks[0].stream>>>(ranks[1].counters, ranks[0].counters, ROUNDS, 0, ranks[0].failed);
      CK(cudaEventRecord(ranks[0].end, ranks[0].stream));
      CK(cudaSetDevice(1));
      ping<<<1, 1, 0, ranks[1].stream>>>(ranks[0].counters, ranks[1].counters, ROUNDS, 1, ranks[1].failed);
    }
  });
  printf("a word, half a round trip: %.3f\n", word / ROUNDS / 2);
  printf("an exchange without a launch:");
  for (unsigned kib : {1, 5, 25, 80, 256}) {
    double t = 1e9;
    for (unsigned block : {32, 64, 128, 256}) {
      clean();
      t = std::min(t, median([&](int r) {
                     Rank &k = ranks[r];
                     const unsigned n = kib * 64;
                     Args a{k.x, k.y, ranks[1 - r].slots, k.slots, k.counters, k.failed, n, unsigned(r), 0};
                     swap<<<(n + block - 1) / block, block, 0, k.stream>>>(a, ROUNDS);
                   }));
    }
    printf("  %u KiB %.3f", kib, t / ROUNDS);
  }
  printf("\n");
  table<0>("plain launches", false);
  table<0>("programmatic launches", true);
  table<1>("programmatic launches, the next grid let in at the start", true);
  return 0;
}

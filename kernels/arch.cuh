// The handful of instructions that primitives are made of, each with the memory order it promises.
//
// This file is the CUDA half; arch_host.h is its twin for the host executor. Generated text and the other headers use
// these names only, so that the same text runs on both. No __restrict__ and no ld.nc anywhere: peers and earlier grids
// write what is read here.
#pragma once
#include "abi.cuh"

#ifdef TF_HOST
#include "arch_host.h"
#else
#include <cuda_fp16.h>

#define TF_FN __device__ __forceinline__
#define TF_COLD __device__ __noinline__
#define TF_UNROLL _Pragma("unroll")
#define TF_ROLLED _Pragma("unroll 1")

// Names the running thread. Empty on the device, where the hardware knows.
struct TfThread {
  TF_FN tf_u32 thread() const { return threadIdx.x; }
  TF_FN tf_u32 threads() const { return blockDim.x; }
  TF_FN tf_u32 block() const { return blockIdx.x; }
  TF_FN tf_u32 blocks() const { return gridDim.x; }
};

// At most 512 threads and one block a multiprocessor asked for: with more, ptxas spills what a gather holds.
#define TF_KERNEL(name, Params) extern "C" __global__ void __launch_bounds__(512, 1) name(const __grid_constant__ Params p)
// `first` is the thread's first column. It is worked out before the wait, while the grid before still runs.
#define TF_ENTER \
  const TfThread t{}; \
  const tf_u32 first = t.block() * t.threads() + t.thread(); \
  asm volatile("" ::"r"(first)); \
  tf_enter_grid(p.h.flags);

// Before the first access to anything but parameters. A no-op for plain launches: the grid before has ended. With a
// programmatic launch it waits for that; TF_EARLY says that the grid behind may come in already and wait here.
TF_FN void tf_enter_grid(tf_u32 flags) {
#if __CUDA_ARCH__ >= 900
  if (flags & TF_EARLY) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// 16 bytes, four 32-bit words.
typedef uint4 TfVec;
TF_FN TfVec tf_vec(tf_u32 x, tf_u32 y, tf_u32 z, tf_u32 w) { return make_uint4(x, y, z, w); }

// The rank's own memory, written by earlier grids of its stream or by this thread: weak order is enough.
TF_FN TfVec tf_load_own(const TfThread &, const void *at) {
  TfVec v;
  asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at) : "memory");
  return v;
}
TF_FN void tf_store_own(const TfThread &, void *at, TfVec v) {
  asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
TF_FN tf_u32 tf_load_own_u16(const TfThread &, const void *at) { return *static_cast<const volatile unsigned short *>(at); }
TF_FN void tf_store_own_u16(const TfThread &, void *at, tf_u32 v) {
  *static_cast<volatile unsigned short *>(at) = static_cast<unsigned short>(v);
}
TF_FN tf_u32 tf_load_own_u32(const TfThread &, const tf_u32 *at) {
  tf_u32 v;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
  return v;
}
TF_FN void tf_store_own_u32(const TfThread &, tf_u32 *at, tf_u32 v) {
  asm volatile("st.global.u32 [%0], %1;" ::"l"(at), "r"(v) : "memory");
}

// One more than the counter that was loaded. Opaque, so that the addition stays behind the loads that the text puts before
// it: pulled forward, it would wait for the counter before the input is even asked for.
TF_FN tf_u32 tf_next(tf_u32 used) {
  tf_u32 next;
  asm volatile("add.u32 %0, %1, 1;" : "=r"(next) : "r"(used));
  return next;
}

// Relaxed, system scope. Each 64-bit half is one access; the two halves are NOT one access (PTX: a vector access is
// treated as scalars in no order), so whatever says "ready" must sit in the same half as the data.
TF_FN void tf_store_relaxed_2x64(const TfThread &, void *at, tf_u64 a, tf_u64 b) {
  asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1,%2};" ::"l"(at), "l"(a), "l"(b) : "memory");
}
TF_FN void tf_load_relaxed_2x64(const TfThread &, const void *at, tf_u64 &a, tf_u64 &b) {
  asm volatile("ld.relaxed.sys.global.v2.b64 {%0,%1}, [%2];" : "=l"(a), "=l"(b) : "l"(at) : "memory");
}
// Relaxed, system scope, one 32-bit access.
TF_FN void tf_store_relaxed_u32(const TfThread &, tf_u32 *at, tf_u32 v) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(at), "r"(v) : "memory");
}
TF_FN tf_u32 tf_load_relaxed_u32(const TfThread &, const tf_u32 *at) {
  tf_u32 v;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
  return v;
}
// Relaxed, system scope, four 32-bit accesses in no order: each word must say by itself whether it is there.
TF_FN void tf_store_relaxed_4x32(const TfThread &, void *at, TfVec v) {
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
TF_FN TfVec tf_load_relaxed_4x32(const TfThread &, const void *at) {
  TfVec v;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at) : "memory");
  return v;
}
// Acquire, system scope: what the writer released before it wrote this word is seen by everything after.
TF_FN tf_u32 tf_load_acquire_u32(const TfThread &, const tf_u32 *at) {
  tf_u32 v;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
  return v;
}
// Weak: says nothing about when or in which order a peer sees it. Only between a fence and a flag.
TF_FN void tf_store_weak(const TfThread &, void *at, TfVec v) {
  asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
TF_FN TfVec tf_load_weak(const TfThread &, const void *at) {
  TfVec v;
  asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at) : "memory");
  return v;
}
TF_FN tf_u32 tf_load_weak_u16(const TfThread &, const void *at) {
  unsigned short v;
  asm volatile("ld.global.u16 %0, [%1];" : "=h"(v) : "l"(at) : "memory");
  return v;
}
// Orders everything this thread did or saw before against everything it does after, for all observers.
TF_FN void tf_fence_system(const TfThread &) { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

// Block barriers. All threads of the block, none of which is polling (a poll ends before its thread comes here).
TF_FN void tf_barrier(const TfThread &) { __syncthreads(); }
TF_FN bool tf_barrier_any(const TfThread &, bool mine) { return __syncthreads_or(mine) != 0; }

TF_FN tf_u64 tf_clock_ns(const TfThread &) {
  tf_u64 ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}
TF_FN bool tf_claim(const TfThread &, tf_u32 *word) { return atomicCAS(word, 0u, 1u) == 0u; }
// One unsuccessful poll. Nothing to do on the device.
TF_FN void tf_relax(const TfThread &) {}

// Halves. Round to nearest even; subnormals, infinities and the sign of zero kept; no contraction.
TF_FN tf_u32 tf_add_2xf16(tf_u32 a, tf_u32 b) {
  const __half2 s = __hadd2_rn(*reinterpret_cast<const __half2 *>(&a), *reinterpret_cast<const __half2 *>(&b));
  return *reinterpret_cast<const tf_u32 *>(&s);
}
TF_FN float tf_f32_of_f16(tf_u32 bits) { return __half2float(__ushort_as_half(static_cast<unsigned short>(bits))); }
TF_FN tf_u32 tf_f16_of_f32(float x) { return __half_as_ushort(__float2half_rn(x)); }
TF_FN float tf_add_f32(float a, float b) { return __fadd_rn(a, b); }
// bf16 where there are instructions for it; what they give is what numerics.cuh works out without them, bit for bit.
#if __CUDA_ARCH__ >= 800
#define TF_ROUNDS_BF16
TF_FN tf_u32 tf_round_2xbf16(float low, float high) {
  tf_u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
#endif
#if __CUDA_ARCH__ >= 900
#define TF_ADDS_BF16
TF_FN tf_u32 tf_add_2xbf16(tf_u32 a, tf_u32 b) {
  tf_u32 r;
  asm("add.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}
#endif
TF_FN tf_u32 tf_bits_of_f32(float x) { return __float_as_uint(x); }
TF_FN float tf_f32_of_bits(tf_u32 b) { return __uint_as_float(b); }
#endif

// Bounded waits. No poll loop exists without a TfWait: a thread that has waited past the deadline reports, kills the
// communicator everywhere it can reach and gives up; a thread that finds it killed gives up at once.
#pragma once
#include "arch.cuh"

#ifndef TF_POLLS_BETWEEN_CHECKS
#define TF_POLLS_BETWEEN_CHECKS 1024u
#endif

struct TfWait {
  tf_u32 polls;
  tf_u64 since;  // 0 until the first check
};

TF_FN bool tf_aborted(const TfThread &t, const TfHeader &h) { return tf_load_relaxed_u32(t, h.abort) != 0; }

#define TF_GIVE_UP (~0ull)

// What a failed poll costs once in a thousand times. Returns since when the thread waits, or TF_GIVE_UP. Cold functions
// take values only: a reference would force its object, parameters included, out of registers in the hot path too.
TF_COLD tf_u64 tf_wait_check(TfThread t, tf_u64 since, tf_u32 *abort, TfControl *c, tf_u32 rank, tf_u32 port, tf_u32 stage,
                             tf_u32 counter, tf_u32 column) {
  if (tf_load_relaxed_u32(t, abort) != 0) return TF_GIVE_UP;
  const tf_u64 now = tf_clock_ns(t);
  if (since == 0) return now;
  if (now - since < c->deadline_ns) return since;
  if (tf_claim(t, &c->claimed)) {
    TfStatus *const s = c->status;
    tf_store_relaxed_u32(t, &s->rank, rank);
    tf_store_relaxed_u32(t, &s->port, port);
    tf_store_relaxed_u32(t, &s->stage, stage);
    tf_store_relaxed_u32(t, &s->counter, counter);
    tf_store_relaxed_u32(t, &s->column, column);
    tf_fence_system(t);
    tf_store_relaxed_u32(t, &s->state, 1);
    for (tf_u32 i = 0; i < c->peers; i++) tf_store_relaxed_u32(t, c->peer_abort[i], 1);
  }
  tf_store_relaxed_u32(t, abort, 1);
  tf_fence_system(t);
  return TF_GIVE_UP;
}

// After each unsuccessful poll. True: give up.
TF_FN bool tf_wait_failed(const TfThread &t, TfWait &w, const TfHeader &h, tf_u32 port, tf_u32 stage, tf_u32 counter, tf_u32 column) {
  tf_relax(t);
  if (++w.polls % TF_POLLS_BETWEEN_CHECKS != 0) return false;
  w.since = tf_wait_check(t, w.since, h.abort, h.control, h.rank, port, stage, counter, column);
  return w.since == TF_GIVE_UP;
}

// One-shot all-reduce by reading peers' inputs, written by hand for the host executor's tests. RANKS is given on the
// command line.
#include "pull.cuh"
#define PEERS (RANKS - 1)
typedef TfParams<2 * PEERS + RANKS> Params;

TF_KERNEL(tf_test_pull, Params) {
  TF_ENTER
  const tf_u32 counter = tf_load_own_u32(t, p.h.counters + t.block()) + 1;
  if (!tf_pull_meet<PEERS, true>(t, p.h, p.port, counter)) return;
  for (tf_u32 column = t.block() * t.threads() + t.thread(); column < p.h.columns; column += t.blocks() * t.threads()) {
    TfF16 sum = tf_pull_read<TfF16>(t, p.h, p.port[2 * PEERS], 16ull * column);
    for (tf_u32 r = 1; r < RANKS; r++)
      sum = tf_sum(sum, tf_pull_read<TfF16>(t, p.h, p.port[2 * PEERS + r], 16ull * column));
    tf_output(t, p.h, 0, column, sum);
  }
  tf_barrier(t);
#ifndef WITHOUT_CLOSE
  if (!tf_pull_meet<PEERS, false>(t, p.h, p.port, counter)) return;
#endif
  if (t.thread() == 0) tf_store_own_u32(t, p.h.counters + t.block(), counter);
}

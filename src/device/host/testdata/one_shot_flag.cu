// One-shot all-reduce by flags, written by hand for the host executor's tests. RANKS is given on the command line.
#include "flag.cuh"
#define PEERS (RANKS - 1)
typedef TfParams<2 * PEERS> Params;

TF_KERNEL(tf_test_flag, Params) {
  TF_ENTER
  const tf_u32 me = p.h.program;
  const tf_u32 tiles = (p.h.columns + t.threads() - 1) / t.threads();
  for (tf_u32 tile = t.block(); tile < tiles; tile += t.blocks()) {
    const tf_u32 counter = tf_load_own_u32(t, p.h.counters + tile) + 1;
    const tf_u32 column = tile * t.threads() + t.thread();
    const bool live = column < p.h.columns;
    TfF16 own;
    if (live) {
      own = tf_input<TfF16>(t, p.h, 0, column);
      for (tf_u32 k = 0; k < PEERS; k++) tf_flag_put<1>(t, p.h, p.port[k], column, counter, own);
    }
    tf_barrier(t);
#ifdef WITHOUT_RELEASE
    for (tf_u32 k = t.thread(); k < PEERS; k += t.threads())
      tf_store_relaxed_u32(t, tf_flag_word<1>(p.port[k], p.h, tile), counter);
#else
    tf_flag_signal<1, PEERS>(t, p.h, p.port, tile, counter);
#endif
#ifdef WITHOUT_ACQUIRE
    bool failed = false;
    for (tf_u32 k = t.thread(); k < PEERS && !failed; k += t.threads()) {
      TfWait wait = {0, 0};
      while (!failed && static_cast<int>(tf_load_relaxed_u32(t, tf_flag_word<1>(p.port[PEERS + k], p.h, tile)) - counter) < 0)
        failed = tf_wait_failed(t, wait, p.h, PEERS + k, 0, counter, tile);
    }
#else
    const bool failed = !tf_flag_wait<1, PEERS>(t, p.h, p.port + PEERS, tile, counter, PEERS, 0);
#endif
    if (tf_barrier_any(t, failed)) return;
    if (t.thread() == 0) tf_store_own_u32(t, p.h.counters + tile, counter);
    if (live) {
      TfF16 others[PEERS];
      for (tf_u32 k = 0; k < PEERS; k++) tf_flag_read<1>(t, p.h, p.port[PEERS + k], column, counter, others[k]);
      tf_output(t, p.h, 0, column, tf_fold<TfF16>(own, others, me));
    }
  }
}

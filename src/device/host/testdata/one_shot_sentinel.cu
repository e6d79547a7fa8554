// One-shot all-reduce by sentinels, written by hand for the host executor's tests. RANKS is given on the command line.
#include "sentinel.cuh"
#define PEERS (RANKS - 1)
typedef TfParams<2 * PEERS> Params;

TF_KERNEL(tf_test_sentinel, Params) {
  TF_ENTER
  const tf_u32 me = p.h.program;
  for (tf_u32 column = t.block() * t.threads() + t.thread(); column < p.h.columns; column += t.blocks() * t.threads()) {
    const tf_u32 counter = tf_next(tf_column_begin(t, p.h, column));
    const TfF16 own = tf_input<TfF16>(t, p.h, 0, column);
    for (tf_u32 k = 0; k < PEERS; k++) tf_sentinel_put<1>(t, p.h, p.port[k], column, counter, own);
    TfF16 others[PEERS];
    if (!tf_sentinel_gather<1>(t, p.h, p.port + PEERS, column, counter, PEERS, 0, others)) return;
    tf_output(t, p.h, 0, column, tf_fold<TfF16>(own, others, me));
    tf_column_end(t, p.h, column, counter);
#ifdef OVERRUN
    if (column == 0 && me == 1) p.h.output[p.h.bytes + OVERRUN] = 0;
#endif
#ifdef WILD
    if (column == 0 && me == 1) tf_store_relaxed_u32(t, reinterpret_cast<tf_u32 *>(16), 1);
#endif
  }
}

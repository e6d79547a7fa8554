// One-shot all-reduce by 128-byte lines, written by hand for the host executor's tests. RANKS is given on the command line.
#include "packet128.cuh"
#define PEERS (RANKS - 1)
typedef TfParams<2 * PEERS> Params;

TF_KERNEL(tf_test_packet128, Params) {
  TF_ENTER
  const tf_u32 me = p.h.program;
  for (tf_u32 cell = first; tf_warp_live(p.h, cell); cell += t.blocks() * t.threads()) {
    const tf_u32 column = tf_cell_column(cell);
    const bool live = tf_cell_live(p.h, cell);
    const tf_u32 counter = tf_next(tf_column_begin(t, p.h, cell));
    const TfF16 own = tf_cell_input<TfF16>(t, p.h, 0, column, live);
    const TfCell<TfF16> packed = tf_packet128_pack(t, cell, counter, own);
    for (tf_u32 k = 0; k < PEERS; k++) tf_packet128_put<1>(t, p.h, p.port[k], cell, counter, packed);
    TfF16 others[PEERS];
    if (!tf_packet128_gather<1>(t, p.h, p.port + PEERS, cell, counter, PEERS, 0, others)) return;
    tf_cell_output(t, p.h, 0, column, tf_fold<TfF16>(own, others, me), live);
    tf_column_end(t, p.h, cell, counter);
#ifdef LEAVES_ALONE
    if (cell == 3) return;
#endif
#ifdef VOTES_ALONE
    if (cell == 3) tf_warp_any(t, true);
    else tf_store_line(t, tf_column_slot<1>(p.port[0], p.h, cell, counter, 0), own.v);
#endif
  }
}

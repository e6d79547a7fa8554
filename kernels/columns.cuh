// Slot columns, shared by the protocols that keep slots: use counters and where a slot lies.
//
// A column's counter belongs to the column: both ends keep it, only the column's thread touches it, so sizes and grids may
// change from call to call. The two buffers alternate with its lowest bit. Knows no protocol and no elements.
#pragma once
#include "deadline.cuh"
#include "payload.cuh"

// How often the column was used; tf_next of it is this use.
TF_FN tf_u32 tf_column_begin(const TfThread &t, const TfHeader &h, tf_u32 column) {
  return tf_load_own_u32(t, h.counters + column);
}
TF_FN void tf_column_end(const TfThread &t, const TfHeader &h, tf_u32 column, tf_u32 counter) {
  tf_store_own_u32(t, h.counters + column, counter);
}

// Planes of 16 bytes, so that neighbouring columns lie side by side: [buffer][plane][column].
template <int PLANES>
TF_FN tf_u8 *tf_column_slot(tf_u8 *region, const TfHeader &h, tf_u32 column, tf_u32 counter, tf_u32 plane) {
  return region + 16ull * (static_cast<tf_u64>((counter & 1u) * PLANES + plane) * h.stride + column);
}

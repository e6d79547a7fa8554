//! Finds nvcc.

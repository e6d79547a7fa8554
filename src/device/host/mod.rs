//! Host executor.

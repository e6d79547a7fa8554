//! matching.

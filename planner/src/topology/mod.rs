//! topology.

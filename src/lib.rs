//! topoforge.

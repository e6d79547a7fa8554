//! Procedural macros of topoforge.

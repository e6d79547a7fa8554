//! One file of calls, compiled twice; between the two, one `use` line differs.

/// With cudarc's NCCL.
pub mod before {
    use cudarc::nccl;
    #[path = "../calls.rs"]
    pub mod calls;
}

/// With topoforge.
pub mod after {
    use topoforge::nccl;
    #[path = "../calls.rs"]
    pub mod calls;
}

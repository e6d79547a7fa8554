//! One file of calls, compiled twice; between the two, one `use` line differs. And a program that changes over in part.

/// With cudarc's NCCL.
#[path = "."]
pub mod before {
    use cudarc::nccl;
    #[path = "calls.rs"]
    pub mod calls;
}

/// With topoforge.
#[path = "."]
pub mod after {
    use topoforge::nccl;
    #[path = "calls.rs"]
    pub mod calls;
}

/// Modules as in mistral.rs, each of which brings cudarc in by itself: only the one with the `Comm` changes over.
pub mod mixed {
    /// With cudarc's NCCL.
    pub mod ids {
        pub use cudarc::nccl::Id;
    }

    /// With topoforge: the line that changes is the first.
    pub mod comms {
        use topoforge as cudarc;

        use cudarc::nccl::result::NcclError;

        #[derive(Debug)]
        pub struct Rank {
            comm: cudarc::nccl::Comm,
        }

        impl Rank {
            pub fn join(
                id: super::ids::Id,
                stream: std::sync::Arc<::cudarc::driver::CudaStream>,
                rank: usize,
                world: usize,
            ) -> Result<Self, NcclError> {
                let comm = cudarc::nccl::Comm::from_rank(stream, rank, world, id)?;
                Ok(Self { comm })
            }

            pub fn inner(&self) -> &cudarc::nccl::Comm {
                &self.comm
            }
        }
    }

    /// With cudarc's NCCL.
    pub mod sums {
        use cudarc::driver::CudaSlice;
        use cudarc::nccl::ReduceOp;
        use half::bf16;

        pub fn sum(rank: &super::comms::Rank, s: &CudaSlice<bf16>, dst: &mut CudaSlice<bf16>) -> Result<(), String> {
            rank.inner()
                .all_reduce(s, dst, &ReduceOp::Sum)
                .map_err(|e| format!("{e:?}"))
        }
    }
}

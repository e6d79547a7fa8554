//! cudarc's own ids and operations in calls of [`Comm`](super::Comm): a program that names `cudarc::nccl` in several modules
//! changes over only where it names `Comm`.
//!
//! Only values are turned into ours; nothing of NCCL is called.

use super::{Id, ReduceOp};

impl From<cudarc::nccl::Id> for Id {
    fn from(id: cudarc::nccl::Id) -> Self {
        Self::uninit(*id.internal())
    }
}

impl From<&cudarc::nccl::ReduceOp> for ReduceOp {
    fn from(op: &cudarc::nccl::ReduceOp) -> Self {
        match op {
            cudarc::nccl::ReduceOp::Sum => Self::Sum,
            cudarc::nccl::ReduceOp::Prod => Self::Prod,
            cudarc::nccl::ReduceOp::Max => Self::Max,
            cudarc::nccl::ReduceOp::Min => Self::Min,
            cudarc::nccl::ReduceOp::Avg => Self::Avg,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_cudarc_keeps_its_bytes() {
        let bytes: [std::ffi::c_char; 128] = std::array::from_fn(|i| i as std::ffi::c_char);
        let id = Id::from(cudarc::nccl::Id::uninit(bytes));
        assert_eq!(*id.internal(), bytes);
        assert_eq!(ReduceOp::from(&cudarc::nccl::ReduceOp::Max), ReduceOp::Max);
    }
}

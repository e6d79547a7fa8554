//! Element types and operations by NCCL's numbers.

use crate::result::Failure;
use engine::comm::{Dtype, ReduceOp};

/// Types of elements; the numbers are NCCL's.
#[repr(C)]
pub enum TfDtype {
    /// Signed, 8 bits.
    TF_I8 = 0,
    /// Unsigned, 8 bits.
    TF_U8 = 1,
    /// Signed, 32 bits.
    TF_I32 = 2,
    /// Unsigned, 32 bits.
    TF_U32 = 3,
    /// Signed, 64 bits.
    TF_I64 = 4,
    /// Unsigned, 64 bits.
    TF_U64 = 5,
    /// IEEE binary16.
    TF_F16 = 6,
    /// IEEE binary32.
    TF_F32 = 7,
    /// IEEE binary64.
    TF_F64 = 8,
    /// The upper half of an IEEE binary32.
    TF_BF16 = 9,
}

/// Reductions; the numbers are NCCL's.
#[repr(C)]
pub enum TfOp {
    /// Addition: what compiled routes serve.
    TF_SUM = 0,
    /// Multiplication.
    TF_PROD = 1,
    /// The largest.
    TF_MAX = 2,
    /// The smallest.
    TF_MIN = 3,
    /// The mean.
    TF_AVG = 4,
}

pub(crate) fn dtype(number: i32) -> Result<Dtype, Failure> {
    Dtype::from_number(number)
        .ok_or_else(|| Failure::invalid(format!("{number} is no TfDtype: give 0 to {}", Dtype::ALL.len() - 1)))
}

pub(crate) fn op(number: i32) -> Result<ReduceOp, Failure> {
    ReduceOp::from_number(number)
        .ok_or_else(|| Failure::invalid(format!("{number} is no TfOp: give 0 to {}", ReduceOp::ALL.len() - 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_the_header_are_those_of_the_library() {
        let named = |t: TfDtype| dtype(t as i32).ok().map(Dtype::name);
        let names = [
            TfDtype::TF_I8,
            TfDtype::TF_F16,
            TfDtype::TF_F32,
            TfDtype::TF_F64,
            TfDtype::TF_BF16,
        ]
        .map(named);
        assert_eq!(
            names.map(Option::unwrap_or_default),
            ["i8", "f16", "f32", "f64", "bf16"]
        );
        assert_eq!(op(TfOp::TF_AVG as i32).ok(), Some(ReduceOp::Avg));
        assert_eq!(op(TfOp::TF_SUM as i32).ok(), Some(ReduceOp::Sum));
        for garbage in [-1, 10, i32::MAX, i32::MIN] {
            assert!(dtype(garbage).is_err() && op(garbage).is_err());
        }
    }
}

//! The reduction of a call.

use std::fmt;

/// What is done with the ranks' values. Compiled routes sum; everything else is NCCL's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum ReduceOp {
    /// Addition.
    Sum = 0,
    /// Multiplication.
    Prod = 1,
    /// The largest.
    Max = 2,
    /// The smallest.
    Min = 3,
    /// The mean.
    Avg = 4,
}

impl ReduceOp {
    /// Every value, in the order of NCCL's numbers.
    pub const ALL: [Self; 5] = [Self::Sum, Self::Prod, Self::Max, Self::Min, Self::Avg];

    /// The operation of NCCL's number, if there is one.
    pub fn from_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|op| *op as i32 == number)
    }

    /// The name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Prod => "product",
            Self::Max => "maximum",
            Self::Min => "minimum",
            Self::Avg => "mean",
        }
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

//! Why a collective is not served, in words.

use super::bits::Bits;
use super::bound::Outlier;
use super::case::Case;
use super::reference::BadExpression;
use crate::device::DeviceError;
use std::fmt;

/// A collective that did not qualify.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// Name of the variant or comparator.
    pub variant: String,
    /// Chains that had passed before.
    pub passed: u32,
    /// What was wrong.
    pub reason: Reason,
}

/// What was wrong with it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Reason {
    /// A word is not what the declared expression gives.
    WrongBits {
        /// Where.
        chain: Box<Case>,
        /// Call of the chain, replays counted through.
        call: u32,
        /// Whose output.
        rank: usize,
        /// The first wrong element there.
        element: usize,
        /// Bits by the declared expression.
        expected: Bits,
        /// Bits that came.
        got: Bits,
        /// Wrong elements of that call on all ranks.
        count: usize,
    },
    /// A result that no order of sums gives.
    OutOfBound {
        /// Where.
        chain: Box<Case>,
        /// Call of the chain, replays counted through.
        call: u32,
        /// Whose output.
        rank: usize,
        /// The first such element.
        outlier: Outlier,
    },
    /// Two ranks got different results from a comparator.
    ReplicasDiffer {
        /// Where.
        chain: Box<Case>,
        /// Call of the chain, replays counted through.
        call: u32,
        /// This rank differs from rank 0.
        rank: usize,
        /// The first such element.
        element: usize,
        /// Rank 0's bits.
        first: Bits,
        /// That rank's bits.
        other: Bits,
    },
    /// Outputs of the wrong number or length: the executor's fault.
    Shape {
        /// Where.
        chain: Box<Case>,
        /// What is missing.
        what: String,
    },
    /// A wait ran past its deadline.
    Timeout {
        /// Where.
        chain: Box<Case>,
        /// The executor's words: who waited for whom.
        error: DeviceError,
    },
    /// The device or the driver refused.
    Device(DeviceError),
    /// The registry declares something that is no all-reduce.
    BadExpression(BadExpression),
    /// The plan has no chains that can run here, so it proves nothing.
    EmptyPlan,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} (after {} good chains)",
            self.variant, self.reason, self.passed
        )
    }
}

impl std::error::Error for Refusal {}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongBits {
                chain,
                call,
                rank,
                element,
                expected,
                got,
                count,
            } => write!(
                f,
                "wrong bits on rank {rank}: element {element} of call {call} is {got}, declared is {expected}; {count} wrong in that call, {chain}"
            ),
            Self::OutOfBound {
                chain,
                call,
                rank,
                outlier,
            } => {
                write!(f, "out of bound on rank {rank} in call {call}: {outlier}, {chain}")
            }
            Self::ReplicasDiffer {
                chain,
                call,
                rank,
                element,
                first,
                other,
            } => write!(
                f,
                "ranks 0 and {rank} differ: element {element} of call {call} is {first} and {other}, {chain}"
            ),
            Self::Shape { chain, what } => write!(f, "the executor returned {what}, {chain}"),
            Self::Timeout { chain, error } => write!(f, "{error}, {chain}"),
            Self::Device(error) => write!(f, "{error}"),
            Self::BadExpression(error) => write!(f, "{error}"),
            Self::EmptyPlan => f.write_str("the qualification plan has no chain that fits here, so nothing was proven"),
        }
    }
}

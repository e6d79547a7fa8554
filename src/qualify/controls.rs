//! Negative controls: faults planted on purpose that the checks must catch.
//!
//! A check that has never failed proves nothing. It judges only whether a fault was seen; which faults an executor must
//! catch is for the tests to say. Start at [`controls`].

use super::check::qualify_with;
use super::plan::QualifyPlan;
use super::refusal::Reason;
use crate::device::{DeviceError, Executor, Fault};
use crate::registry::Variant;
use std::fmt;

/// Every fault, in declaration order.
pub const FAULTS: [Fault; 9] = [
    Fault::DroppedContribution,
    Fault::SingleBuffer,
    Fault::StaleHalf,
    Fault::SwappedCounter,
    Fault::NoFence,
    Fault::NoBarrier,
    Fault::NoWait,
    Fault::FrozenCounter,
    Fault::TornLine,
];

/// The name of a fault in reports.
pub const fn fault_name(fault: Fault) -> &'static str {
    match fault {
        Fault::DroppedContribution => "dropped contribution",
        Fault::SingleBuffer => "single buffer",
        Fault::StaleHalf => "stale half",
        Fault::SwappedCounter => "swapped counter",
        Fault::NoFence => "no fence",
        Fault::NoBarrier => "no barrier",
        Fault::NoWait => "no wait",
        Fault::FrozenCounter => "frozen counter",
        Fault::TornLine => "torn line",
    }
}

/// One planted fault and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Control {
    /// Name of the variant.
    pub variant: &'static str,
    /// What was planted.
    pub fault: Fault,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of a planted fault.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The checks refused.
    Caught {
        /// Chains that had passed before.
        after: u32,
        /// What they saw.
        how: Reason,
    },
    /// Every chain passed.
    Missed {
        /// How many.
        chains: u32,
    },
    /// It could not be planted in this variant, or nothing could be run.
    NotRun {
        /// Why.
        reason: Reason,
    },
}

impl Outcome {
    /// Whether the checks saw the fault.
    pub const fn caught(&self) -> bool {
        matches!(self, Self::Caught { .. })
    }
}

impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {}: ", self.variant, fault_name(self.fault))?;
        match &self.outcome {
            Outcome::Caught { after, how } => write!(f, "caught after {after} good chains: {how}"),
            Outcome::Missed { chains } => write!(f, "missed in {chains} chains"),
            Outcome::NotRun { reason } => write!(f, "not run: {reason}"),
        }
    }
}

/// Plants every fault that `exec` can plant, one at a time, and runs `plan` until it is seen.
pub fn controls(exec: &mut dyn Executor, variant: &'static Variant, plan: &QualifyPlan) -> Vec<Control> {
    let plants: Vec<Fault> = FAULTS.into_iter().filter(|f| exec.plants(*f)).collect();
    plants
        .into_iter()
        .map(|fault| control(exec, variant, plan, fault))
        .collect()
}

/// Plants one fault and runs `plan` until it is seen.
pub fn control(exec: &mut dyn Executor, variant: &'static Variant, plan: &QualifyPlan, fault: Fault) -> Control {
    let outcome = match qualify_with(exec, variant, plan, Some(fault)) {
        Ok(proof) => Outcome::Missed { chains: proof.chains },
        Err(refusal) => match refusal.reason {
            // These say nothing about the fault.
            reason @ (Reason::BadExpression(_)
            | Reason::EmptyPlan
            | Reason::Shape { .. }
            | Reason::Device(
                DeviceError::Misuse { .. } | DeviceError::Unavailable { .. } | DeviceError::Driver { .. },
            )) => Outcome::NotRun { reason },
            how => Outcome::Caught {
                after: refusal.passed,
                how,
            },
        },
    };
    Control {
        variant: variant.name,
        fault,
        outcome,
    }
}

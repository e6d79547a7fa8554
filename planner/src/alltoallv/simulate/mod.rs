//! A simulator of traffic over a fabric's resources, under three laws of what happens when lanes meet.
//!
//! It predicts; it never decides what is planned. Plans, and what others would do, come to it as [`Traffic`]: flows that
//! wait for one another. Start at [`simulate`].

mod engine;
mod filling;
mod svg;
mod traffic;

pub use svg::svg;
pub use traffic::{Flow, Traffic};

use super::fabric::Fabric;
use std::fmt;

/// What happens when several lanes meet at a resource.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Law {
    /// An exclusive resource serves one lane after the other; lanes that meet wait. What plans assume.
    Serial,
    /// Lanes share rates without loss, as max-min fairness has it.
    Fluid,
    /// The same, but where two or more meet only this part of the rate is left.
    Lossy(f64),
}

impl Law {
    /// The three laws as they are reported.
    pub const ALL: [Self; 3] = [Self::Serial, Self::Fluid, Self::Lossy(0.85)];

    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Serial => "serial",
            Self::Fluid => "fluid",
            Self::Lossy(_) => "lossy",
        }
    }
}

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How busy each resource was over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Usage {
    /// Length of a step, nanoseconds.
    pub step_ns: f64,
    /// For each resource, the part of its rate that was used in each step.
    pub busy: Vec<Vec<f32>>,
}

/// What came of a simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// When the last byte arrives, nanoseconds.
    pub total_ns: f64,
    /// Bytes that crossed an egress port or a NIC, forwarded ones each time.
    pub moved: f64,
    /// Where it was asked for.
    pub usage: Option<Usage>,
}

/// Runs traffic under a law; with `steps`, says how busy resources were in so many steps.
pub fn simulate(fabric: &Fabric, traffic: &Traffic, law: Law, steps: Option<usize>) -> Outcome {
    let first = engine::run(fabric, traffic, law, None);
    let usage = steps.filter(|&steps| steps > 0 && first > 0.0).map(|steps| {
        let mut usage = Usage {
            step_ns: first / steps as f64,
            busy: vec![vec![0.0; steps]; fabric.resources()],
        };
        engine::run(fabric, traffic, law, Some(&mut usage));
        usage
    });
    Outcome {
        total_ns: first,
        moved: traffic.flows.iter().map(|flow| flow.bytes).sum(),
        usage,
    }
}

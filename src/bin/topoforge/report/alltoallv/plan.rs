//! The report of an AlltoAllv plan.
//!
//! Start at [`PlanReport`].

use super::heading;
use crate::report::Report;
use crate::report::table::{Table, count};
use serde::Serialize;
use std::fmt::Write;
use topoforge::planner::alltoallv::profile::UNIFORM;

/// `topoforge alltoallv plan`
#[derive(Debug, Serialize)]
pub struct PlanReport {
    /// Of the plan.
    pub activations: usize,
    /// When resources are handed from lane to lane: what is executed.
    pub predicted_us: f64,
    /// No plan is faster.
    pub lower_bound_us: f64,
    /// 0.01 is 1 %.
    pub gap: f64,
    /// The whole plan, one core, the shortest of five times.
    pub planning_us: f64,
    /// Equal on all ranks.
    pub plan_hash: String,
    /// The descriptor's name.
    pub topology: String,
    /// Of the machine.
    pub ranks: usize,
    /// As it was asked for.
    pub demand: String,
    /// Of all pairs.
    pub bytes: u64,
    /// How the plan was made.
    pub strategy: &'static str,
    /// Of a base plan: `uniform`, or the name of the profile whose recorded sequence serves.
    pub sequence: Option<String>,
    /// Fewer cannot do.
    pub fewest_activations: u64,
    /// Lanes of all activations.
    pub lanes: usize,
    /// Which bound it is.
    pub bound: &'static str,
    /// With a barrier before each activation.
    pub barrier_us: f64,
    /// No plan with barriers is faster.
    pub barrier_lower_bound_us: f64,
    /// 0.01 is 1 %.
    pub barrier_gap: f64,
    /// The whole plan's time for each activation.
    pub planning_us_per_activation: f64,
    #[serde(skip)]
    pub lines: Vec<ActivationLine>,
}

/// One activation.
#[derive(Debug)]
pub struct ActivationLine {
    pub number: usize,
    pub lanes: usize,
    pub bytes: u64,
    /// The first lanes.
    pub text: String,
}

impl Report for PlanReport {
    fn text(&self) -> String {
        let mut out = heading(&self.topology, self.ranks, &self.demand, self.bytes);
        // Writing to a String cannot fail.
        let made = match self.sequence.as_deref() {
            None => self.strategy.to_owned(),
            Some(UNIFORM) => format!("{}, {UNIFORM}", self.strategy),
            Some(profile) => format!("{}, profile {profile}", self.strategy),
        };
        let _ = writeln!(
            out,
            "{made}: {} activations (at least {}), {} lanes, hash {}",
            self.activations, self.fewest_activations, self.lanes, self.plan_hash
        );
        let mut table = Table::default()
            .text("")
            .figure("us")
            .figure("lower bound")
            .figure("gap");
        let mut row = |name: &str, time: f64, bound: f64, gap: f64| {
            table.row([
                name.to_owned(),
                format!("{time:.2}"),
                format!("{bound:.2}"),
                format!("{:.2} %", 100.0 * gap),
            ]);
        };
        row("handed on", self.predicted_us, self.lower_bound_us, self.gap);
        row(
            "with barriers",
            self.barrier_us,
            self.barrier_lower_bound_us,
            self.barrier_gap,
        );
        let _ = write!(out, "\n{}", table.render(0));
        let _ = writeln!(out, "bound: {}", self.bound);
        let _ = writeln!(
            out,
            "planning: {:.1} us, {:.2} us an activation, on one core\n",
            self.planning_us, self.planning_us_per_activation
        );
        let mut table = Table::default()
            .figure("activation")
            .figure("lanes")
            .figure("bytes")
            .text("from>to/path");
        for line in &self.lines {
            table.row([
                line.number.to_string(),
                line.lanes.to_string(),
                count(line.bytes),
                line.text.clone(),
            ]);
        }
        out.push_str(&table.render(0));
        if self.activations > self.lines.len() {
            let _ = writeln!(out, "and {} more", self.activations - self.lines.len());
        }
        out
    }
}

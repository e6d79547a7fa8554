//! The report of a predicted timeline.
//!
//! Start at [`SimulationReport`].

use super::Report;
use serde::Serialize;

/// `topoforge simulate`
#[derive(Debug, Serialize)]
pub struct SimulationReport {
    /// The topology's name.
    pub topology: String,
    /// The schedule's name.
    pub schedule: String,
    /// The protocol predicted to be fastest for it.
    pub protocol: String,
    /// Payload a rank.
    pub bytes: u64,
    /// Of the whole call.
    pub predicted_us: f64,
    /// Before the first stage.
    pub launch_us: f64,
    /// In order.
    pub stages: Vec<StageLine>,
    /// Of a pull; 0 else.
    pub barriers_us: f64,
    /// Reading, summing, resetting; behind the last stage.
    pub sums_us: f64,
    /// Busy longest over all stages.
    pub most_loaded: Option<LoadLine>,
    #[serde(skip)]
    pub text: String,
}

/// One stage.
#[derive(Debug, Serialize)]
pub struct StageLine {
    /// From the start of the call.
    pub begins_us: f64,
    /// From the start of the call.
    pub ends_us: f64,
    /// Messages under way.
    pub transfers: usize,
    /// Issuing, polling, the protocol's own.
    pub overhead_us: f64,
    /// Of the slowest link.
    pub latency_us: f64,
    /// What its bytes wait for.
    pub busiest: Option<LoadLine>,
}

/// A loaded link, port or shared capacity.
#[derive(Debug, Serialize)]
pub struct LoadLine {
    /// In words.
    pub place: String,
    /// On the wire.
    pub bytes: f64,
    /// How long they take.
    pub busy_us: f64,
}

impl Report for SimulationReport {
    fn text(&self) -> String {
        self.text.clone()
    }
}

//! What tuning found, as plain data. Tables and files are made elsewhere, from these.

use super::phases::Phases;
use crate::device::{DeviceInfo, Geometry, Sampling};
use crate::registry::{Element, Memory, Partials};
use std::fmt;

/// A finished tuning.
#[derive(Clone, Debug, PartialEq)]
pub struct TuneReport {
    /// The family's name.
    pub family: String,
    /// What it ran on.
    pub device: DeviceInfo,
    /// The times mean nothing, and no routes are made of them.
    pub emulation: bool,
    /// Type of inputs and outputs.
    pub element: Element,
    /// In which type sums are rounded.
    pub partials: Partials,
    /// Where slots lie.
    pub memory: Memory,
    /// How the last round was sampled.
    pub sampling: Sampling,
    /// One a payload, ascending.
    pub rows: Vec<Row>,
    /// Variants and comparators that took no part, with the reason.
    pub left_out: Vec<LeftOut>,
    /// Where the time went.
    pub phases: Phases,
}

/// What was found for one payload.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Payload a rank.
    pub bytes: u64,
    /// The fastest proven variant; none where no variant passed.
    pub route: Option<String>,
    /// Its geometry.
    pub geometry: Option<Geometry>,
    /// Its median, microseconds a call.
    pub us: Option<f64>,
    /// The fastest of the comparators that were asked for.
    pub comparator: Option<String>,
    /// Its median.
    pub comparator_us: Option<f64>,
    /// `comparator_us / us`.
    pub ratio: Option<f64>,
    /// Whether the route serves this payload.
    pub selected: bool,
    /// Why, or why not.
    pub reason: String,
    /// Every comparator that was timed, asked for or not, fastest first.
    pub comparators: Vec<ComparatorTime>,
    /// Variants with geometries that were timed for it, peer reads included.
    pub candidates: usize,
    /// The same two under load; none where that was not tried.
    pub loaded: Option<Loaded>,
}

/// Figures beside busy streams.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// Busy streams on every GPU.
    pub streams: u32,
    /// The route's median, microseconds a call.
    pub us: f64,
    /// The comparator that was the fastest there.
    pub comparator: Option<String>,
    /// Its median.
    pub comparator_us: Option<f64>,
}

/// One comparator's figure.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparatorTime {
    /// `nccl/f16`, or the name of a peer-read variant.
    pub name: String,
    /// Its median, microseconds a call.
    pub us: f64,
    /// Whether it was asked for.
    pub requested: bool,
}

/// Somebody who took no part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Name of the variant or comparator.
    pub name: String,
    /// Why.
    pub reason: String,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} left out: {}", self.name, self.reason)
    }
}

//! How much work goes into a plan.
//!
//! More work makes shorter plans, never other bytes. Start at [`Effort`].

use super::Selector;

/// How long an activation must last, nanoseconds for each rank, for full effort to pay where plans are streamed: about
/// three times what it costs, since the first activation is waited for and a busy machine plans more slowly.
const FULL_NS: f32 = 4_500.0;

/// How much work a step may do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// How lanes are selected.
    pub selector: Selector,
    /// Durations tried, in quanta, longest first.
    pub caps: [f32; 4],
    /// How many of them.
    pub tried: usize,
    /// Improve the best selection by exchanging lanes.
    pub swap: bool,
    /// Even out the volumes of a plan that is long enough to be worth it.
    pub polish: bool,
    /// Quanta in which the busiest resource would be done: `rho` times the most peers of a rank.
    pub rho: f32,
    /// Durations compared for each selection: 4 or 8.
    pub durations: usize,
    /// Sweeps of the path plan before the first step, at most.
    pub initial_sweeps: usize,
    /// Steps from one sweep of the path plan to the next.
    pub sweep_every: usize,
    /// Plans made with other quanta, of which the one predicted to be shortest is taken; 1 to 6.
    pub tries: usize,
}

impl Effort {
    /// Two durations and no exchanges.
    pub const CHEAP: Self = Self {
        selector: Selector::Critical,
        caps: [3.0, 1.0, 0.0, 0.0],
        tried: 2,
        swap: false,
        polish: false,
        rho: 3.0,
        durations: 4,
        initial_sweeps: 4,
        sweep_every: 4,
        tries: 1,
    };
    /// Four durations and exchanges.
    pub const FULL: Self = Self {
        selector: Selector::Critical,
        caps: [4.0, 2.0, 1.0, 0.5],
        tried: 4,
        swap: true,
        polish: true,
        rho: 3.0,
        durations: 8,
        initial_sweeps: 12,
        sweep_every: 1,
        tries: 1,
    };

    /// The best of six: for demands that come again, or machines that are hard to fill.
    pub const THOROUGH: Self = Self { tries: 6, ..Self::FULL };

    /// The least that gives good plans: one duration where there are many lanes to select from.
    pub fn cheap(ranks: usize) -> Self {
        if ranks <= 16 {
            return Self::CHEAP;
        }
        Self {
            caps: [2.0, 0.0, 0.0, 0.0],
            tried: 1,
            ..Self::CHEAP
        }
    }

    /// What keeps ahead of sending where each activation is made while those before it are under way, given the busiest
    /// resource's load in nanoseconds.
    ///
    /// Full where activations last long for this number of ranks, else cheap; one lasts about a quantum.
    pub fn streamed(ranks: usize, load_ns: f32) -> Self {
        let peers = ranks.saturating_sub(1).max(1) as f32;
        let lasts = load_ns / (Self::FULL.rho * peers);
        if lasts >= FULL_NS * ranks as f32 {
            Self::FULL
        } else {
            Self::cheap(ranks)
        }
    }

    /// What a number of ranks can afford.
    pub fn for_ranks(ranks: usize) -> Self {
        Self {
            tries: if ranks <= 4 { 4 } else { 1 },
            ..Self::FULL
        }
    }
}

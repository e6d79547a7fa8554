//! The base sequence of a machine: the best of several plans for uniform demand in one node, made by the planner.
//!
//! It is recorded when a catalogue is built and scaled to a demand without planning. Start at [`recorded`] and [`scaled`];
//! [`super::Planner::with_base`] plans with it.

use super::choose::Planner;
use super::demand::Demand;
use super::fabric::Fabric;
use super::net::Net;
use super::peel::Effort;
use super::plan::{ALIGN, Chunk, Plan, PlanFault};
use super::sequence::{Activations, Lane, Step, WHOLE, base_sequences};
use super::spec::Machine;
use super::strategy::Strategy;

/// Bytes of each pair that the plans are made for: enough that time goes into transfers.
pub(super) const BYTES: u64 = 8 << 20;
/// Ranks up to which a node gets a sequence: the planner peels no more.
const MAX_RANKS: usize = 64;
/// Durations that a plan may try, in quanta, and rounds it aims at; every pairing is one plan.
const CAPS: [[f32; 4]; 3] = [[4.0, 2.0, 1.0, 0.5], [2.0, 1.0, 0.5, 0.25], [8.0, 4.0, 2.0, 1.0]];
const ROUNDS: [f32; 4] = [3.0, 2.0, 1.5, 1.0];

/// The sequence of a machine that may be a single node; empty for others, and where nothing needs an order.
pub fn recorded(machine: &Machine) -> Vec<Step> {
    let single = machine.any_nodes || machine.spec.nodes == 1;
    let Some(node) = machine.fabric(Some(1)).ok().filter(|_| single) else {
        return Vec::new();
    };
    if node.is_fluid() || !(2..=MAX_RANKS).contains(&node.ranks()) {
        return Vec::new();
    }
    // A plan of a larger node takes longer, and a build should not.
    let plans = if node.ranks() <= 8 {
        CAPS.len() * ROUNDS.len()
    } else {
        CAPS.len()
    };
    base_sequences(&node, BYTES, 0..plans as u64, one)
}

/// One plan for uniform demand and what it is predicted to take, nanoseconds.
fn one(node: &Fabric, bytes: u64, seed: u64) -> Option<(u64, Activations)> {
    let n = node.ranks();
    let pair = |at: usize| if at / n == at % n { 0 } else { bytes };
    let demand = Demand::new(n, (0..n * n).map(pair).collect()).ok()?;
    let effort = Effort {
        caps: CAPS[seed as usize % CAPS.len()],
        rho: ROUNDS[seed as usize / CAPS.len() % ROUNDS.len()],
        ..Effort::FULL
    };
    let mut planner = Planner::new(node).with_effort(effort);
    let plan = planner.plan_by(&demand, Strategy::Peel).ok()?;
    let lane = |chunk: &super::Chunk| {
        let lane = Lane {
            from: chunk.from.into(),
            to: chunk.to.into(),
            class: u8::try_from(chunk.path).ok()?,
        };
        // Lanes that take turns are no channel.
        (chunk.turn == 0).then_some((lane, chunk.bytes))
    };
    let steps: Option<Activations> = plan
        .activations()
        .map(|lanes| lanes.iter().map(lane).collect())
        .collect();
    Some((planner.predict().hand_off_ns as u64, steps?))
}

/// How much of each pair has been handed out.
#[derive(Clone, Debug)]
struct Given {
    shares: Vec<u32>,
    bytes: Vec<u64>,
}

impl Given {
    fn new(pairs: usize) -> Self {
        Self {
            shares: vec![0; pairs],
            bytes: vec![0; pairs],
        }
    }

    /// Where a pair's next chunk begins, and its bytes: the last share takes what rounding leaves.
    #[inline]
    fn next(&mut self, pair: usize, share: u32, whole: u64) -> (u64, u64) {
        let given = self.bytes[pair];
        self.shares[pair] = (self.shares[pair] + share).min(WHOLE);
        let until = if self.shares[pair] == WHOLE {
            whole
        } else {
            (u128::from(whole) * u128::from(self.shares[pair]) / u128::from(WHOLE)) as u64 / ALIGN * ALIGN
        };
        let until = until.max(given);
        self.bytes[pair] = until;
        (given, until - given)
    }
}

/// A sequence as lanes of a planner's tables, with room to scale it.
#[derive(Clone, Debug)]
pub(super) struct Base {
    /// Lane and share; a step ends where the lane is no lane.
    lanes: Vec<(u32, u32)>,
    given: Given,
}

const END: u32 = u32::MAX;

impl Base {
    /// Of a machine of one node.
    ///
    /// # Errors
    /// Another number of nodes, or a lane that the machine lacks.
    pub fn new(net: &Net, nodes: usize, steps: &[Step]) -> Result<Self, PlanFault> {
        let mut lanes = Vec::new();
        for (activation, step) in steps.iter().enumerate() {
            for share in &step.lanes {
                let (from, to, class) = (usize::from(share.from), usize::from(share.to), usize::from(share.class));
                let known = nodes == 1 && from.max(to) < net.ranks && class < net.lanes(from * net.ranks + to).len();
                if !known {
                    return Err(PlanFault(format!(
                        "step {activation}, lane {from} to {to} by path {class}: not of this machine's {nodes} nodes"
                    )));
                }
                lanes.push(((net.first[from * net.ranks + to] as usize + class) as u32, share.share));
            }
            lanes.push((END, 0));
        }
        Ok(Self {
            lanes,
            given: Given::new(net.ranks * net.ranks),
        })
    }

    /// At most so many lanes, and activations.
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Appends the whole demand in the order of the sequence.
    pub fn run(&mut self, net: &Net, bytes: &[u64], plan: &mut Plan) {
        self.given.shares.fill(0);
        self.given.bytes.fill(0);
        for &(lane, share) in &self.lanes {
            if lane == END {
                plan.end();
                continue;
            }
            let lane = lane as usize;
            let pair = net.pair[lane] as usize;
            let (offset, bytes) = self.given.next(pair, share, bytes[pair]);
            if bytes > 0 {
                plan.lanes.push(Chunk {
                    from: net.from[lane],
                    to: net.to[lane],
                    path: (lane - net.first[pair] as usize) as u16,
                    turn: 0,
                    offset,
                    bytes,
                });
            }
        }
    }
}

/// The lanes of a sequence with their bytes for a demand in the same node: every byte of every pair once, in chunks that begin
/// at multiples of [`ALIGN`] and follow each other. Lanes without bytes are left out.
///
/// It is exact for any demand; how fast it is depends on how uniform the demand is.
pub fn scaled(base: &[Step], demand: &Demand) -> Activations {
    let n = demand.ranks();
    let mut given = Given::new(n * n);
    let mut steps = Vec::with_capacity(base.len());
    for step in base {
        let mut lanes = Vec::with_capacity(step.lanes.len());
        for share in &step.lanes {
            let (from, to) = (usize::from(share.from), usize::from(share.to));
            if from >= n || to >= n {
                continue;
            }
            let (_, bytes) = given.next(from * n + to, share.share, demand.get(from, to));
            if bytes > 0 {
                let lane = Lane {
                    from: from as u32,
                    to: to as u32,
                    class: share.class,
                };
                lanes.push((lane, bytes));
            }
        }
        if !lanes.is_empty() {
            steps.push(lanes);
        }
    }
    steps
}

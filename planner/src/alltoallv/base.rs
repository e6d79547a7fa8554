//! The base sequence of a machine: the best of several plans for uniform demand in one node, made by the planner.
//!
//! It is recorded when a catalogue is built and scaled to a demand without planning. Start at [`recorded`] and [`scaled`].

use super::choose::{Planner, Strategy};
use super::demand::Demand;
use super::fabric::Fabric;
use super::peel::Effort;
use super::plan::ALIGN;
use super::sequence::{Activations, Lane, Step, WHOLE, base_sequences};
use super::spec::Machine;

/// Bytes of each pair that the plans are made for: enough that time goes into transfers.
const BYTES: u64 = 8 << 20;
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

/// The lanes of a sequence with their bytes for a demand in the same node: every byte of every pair once, in chunks that begin
/// at multiples of [`ALIGN`] and follow each other. Lanes without bytes are left out.
///
/// It is exact for any demand; how fast it is depends on how uniform the demand is.
pub fn scaled(base: &[Step], demand: &Demand) -> Activations {
    let n = demand.ranks();
    let mut shares = vec![0_u32; n * n];
    let mut given = vec![0_u64; n * n];
    let mut steps = Vec::with_capacity(base.len());
    for step in base {
        let mut lanes = Vec::with_capacity(step.lanes.len());
        for share in &step.lanes {
            let (from, to) = (usize::from(share.from), usize::from(share.to));
            let pair = from * n + to;
            if from >= n || to >= n {
                continue;
            }
            shares[pair] = (shares[pair] + share.share).min(WHOLE);
            let whole = demand.get(from, to);
            let until = if shares[pair] == WHOLE {
                whole
            } else {
                (u128::from(whole) * u128::from(shares[pair]) / u128::from(WHOLE)) as u64 / ALIGN * ALIGN
            };
            if until > given[pair] {
                let lane = Lane {
                    from: from as u32,
                    to: to as u32,
                    class: share.class,
                };
                lanes.push((lane, until - given[pair]));
                given[pair] = until;
            }
        }
        if !lanes.is_empty() {
            steps.push(lanes);
        }
    }
    steps
}

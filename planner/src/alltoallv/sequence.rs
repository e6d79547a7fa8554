//! Sequences of lanes that are made ahead of time: the rotation, which needs no demand, and those recorded for a known demand.
//!
//! The rotation is a formula and serves any number of nodes; recorded sequences come from the planner and are kept in the
//! catalogue. Start reading at [`rotation`] and [`best_sequence`].

use super::base::{Recorded, Sequences};
use super::catalogue::Catalogue;
use super::demand::Demand;
use super::fabric::Fabric;

/// A path of a pair of ranks in use: `class` is its number among [`Fabric::paths`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane {
    /// Sending rank.
    pub from: u32,
    /// Receiving rank.
    pub to: u32,
    /// Which path.
    pub class: u8,
}

/// One whole of a pair's demand, in the unit of [`Share::share`].
pub const WHOLE: u32 = 1 << 16;

/// The lanes of each activation with their bytes.
pub type Activations = Vec<Vec<(Lane, u64)>>;

/// Part of a pair's demand on one lane of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Sending rank.
    pub from: u8,
    /// Receiving rank.
    pub to: u8,
    /// Which path.
    pub class: u8,
    /// How much of the pair's demand: 1 to [`WHOLE`] of [`WHOLE`].
    pub share: u32,
}

/// Lanes that are under way together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Each with its share of the pair's demand.
    pub lanes: Vec<Share>,
}

/// Every lane of a uniform exchange, in steps that need no demand: lanes of one step share no exclusive resource.
///
/// Step `(s, r, x)`: the member `x` of every group sends to the member `x + r` of the group `s` further, over the first path
/// that the step leaves free; what finds none goes into a step of its own behind it. Every ordered pair comes exactly once.
/// With groups of equal size there are at least `groups * size * size - size` steps.
pub fn rotation(fabric: &Fabric) -> impl Iterator<Item = Vec<Lane>> + '_ {
    let groups = fabric.groups();
    let size = (0..fabric.groups_per_node())
        .map(|g| fabric.group(g).ranks.len())
        .max()
        .unwrap_or(0);
    let steps = (0..groups).flat_map(move |s| (0..size).flat_map(move |r| (0..size).map(move |x| (s, r, x))));
    let mut used = vec![0_u32; fabric.resources()];
    steps.flat_map(move |(s, r, x)| {
        let pair = |g: usize| {
            let (from, to) = (fabric.group(g).ranks, fabric.group((g + s) % groups).ranks);
            // Members beyond a smaller group's last one are left out, which keeps every pair to one step.
            let (a, b) = (x, (x + r) % size);
            let pair = (from.start + a, to.start + b);
            (a < from.len() && b < to.len() && pair.0 != pair.1).then_some(pair)
        };
        let mut left: Vec<(usize, usize)> = (0..groups).filter_map(pair).collect();
        let mut out = Vec::new();
        while !left.is_empty() {
            let mut step = Vec::new();
            let mut touched = Vec::new();
            left.retain(|&(from, to)| {
                let free = |class: &usize| {
                    let path = fabric.path(from, to, *class);
                    path.resources()
                        .iter()
                        .all(|&id| fabric.lanes_at_once(id).is_none_or(|most| used[id as usize] < most))
                };
                let Some(class) = (0..fabric.path_count(from, to)).find(free) else {
                    return true;
                };
                for &id in fabric.path(from, to, class).resources() {
                    used[id as usize] += 1;
                    touched.push(id);
                }
                step.push(Lane {
                    from: from as u32,
                    to: to as u32,
                    class: class as u8,
                });
                false
            });
            touched.iter().for_each(|&id| used[id as usize] = 0);
            out.push(step);
        }
        out
    })
}

/// The best of several plans for a demand of one node, as shares of each pair's bytes.
///
/// `plan` gets a seed, and returns what it predicts (any unit, smaller is better) and the lanes of each activation with their
/// bytes; the best of `seeds` is kept, of equals the first. Plans that do not carry every byte exactly give no sequence.
pub fn best_sequence<P>(demand: &Demand, seeds: std::ops::Range<u64>, mut plan: P) -> Vec<Step>
where
    P: FnMut(u64) -> Option<(u64, Activations)>,
{
    let mut best: Option<(u64, Vec<Step>)> = None;
    for seed in seeds {
        let Some((predicted, activations)) = plan(seed) else {
            continue;
        };
        if best.as_ref().is_some_and(|(least, _)| predicted >= *least) {
            continue;
        }
        if let Some(steps) = shares(demand, &activations) {
            best = Some((predicted, steps));
        }
    }
    best.map(|(_, steps)| steps).unwrap_or_default()
}

/// Bytes as shares of the pair's demand; none unless every pair is carried exactly.
fn shares(demand: &Demand, activations: &[Vec<(Lane, u64)>]) -> Option<Vec<Step>> {
    let (ranks, wanted) = (demand.ranks(), demand.bytes());
    let mut carried = vec![0_u64; ranks * ranks];
    let mut given = vec![0_u32; ranks * ranks];
    let mut steps = Vec::new();
    for lanes in activations {
        let mut step = Step::default();
        for (lane, volume) in lanes {
            let pair = lane.from as usize * ranks + lane.to as usize;
            *carried.get_mut(pair)? += volume;
            if carried[pair] > wanted[pair] {
                return None;
            }
            // Rounding the sum, not the part, makes the parts add up to the whole.
            let until = (u128::from(carried[pair]) * u128::from(WHOLE) / u128::from(wanted[pair].max(1))) as u32;
            let share = until - given[pair];
            given[pair] = until;
            if share > 0 {
                step.lanes.push(Share {
                    from: u8::try_from(lane.from).ok()?,
                    to: u8::try_from(lane.to).ok()?,
                    class: lane.class,
                    share,
                });
            }
        }
        if !step.lanes.is_empty() {
            steps.push(step);
        }
    }
    (carried == wanted).then_some(steps)
}

impl Catalogue {
    /// Checks every sequence: each step lies in a family, and every pair that it is for is carried exactly.
    pub(super) fn check_sequences(&self, node: &Fabric) -> Result<(), String> {
        let n = node.ranks();
        let Sequences { uniform, profiles } = &self.sequences;
        if !uniform.is_empty() {
            let fault = |e| format!("the base sequence does not fit: {e}");
            self.check_steps(node, uniform, |pair| pair / n != pair % n)
                .map_err(fault)?;
        }
        for Recorded { profile, steps } in profiles {
            let fault = |e| format!("the sequence of profile {:?} does not fit: {e}", profile.name());
            let bytes = profile.demand().bytes();
            if bytes.len() != n * n {
                return Err(fault(format!(
                    "it is for {} ranks, the node has {n}",
                    profile.demand().ranks()
                )));
            }
            self.check_steps(node, steps, |pair| bytes[pair] > 0).map_err(fault)?;
        }
        Ok(())
    }

    fn check_steps(&self, node: &Fabric, steps: &[Step], wanted: impl Fn(usize) -> bool) -> Result<(), String> {
        let ranks = node.ranks();
        let mut given = vec![0_u32; ranks * ranks];
        for (k, step) in steps.iter().enumerate() {
            let lanes = step.lanes.iter().map(|share| Lane {
                from: share.from.into(),
                to: share.to.into(),
                class: share.class,
            });
            let lanes: Vec<Lane> = lanes.collect();
            self.admits(node, &lanes).map_err(|e| format!("step {k}: {e}"))?;
            for share in &step.lanes {
                let pair = &mut given[usize::from(share.from) * ranks + usize::from(share.to)];
                *pair = pair.saturating_add(share.share);
            }
        }
        let due = |pair: usize| if wanted(pair) { WHOLE } else { 0 };
        match (0..ranks * ranks).find(|&pair| given[pair] != due(pair)) {
            None => Ok(()),
            Some(pair) => Err(format!(
                "rank {} to {} gets {} of {} parts",
                pair / ranks,
                pair % ranks,
                given[pair],
                due(pair)
            )),
        }
    }
}

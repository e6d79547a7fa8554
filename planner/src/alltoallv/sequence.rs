//! Sequences of lanes that are made ahead of time: the rotation, which needs no demand, and base sequences for uniform demand.
//!
//! The rotation is a formula and serves any number of nodes; base sequences come from the planner and are kept in the
//! catalogue. Start reading at [`rotation`] and [`base_sequences`].

use super::catalogue::Catalogue;
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
                        .all(|&id| fabric.resource(id).slots().is_none_or(|most| used[id as usize] < most))
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

/// A base sequence for uniform demand in a fabric's node, by a planner.
///
/// `plan` gets the fabric of a single node, the bytes of every pair and a seed, and returns the lanes of each activation with
/// their bytes; the best of `seeds` by `predicted` (any unit, smaller is better) is kept. Nodes of more than 64 ranks, and
/// plans that do not carry every byte exactly, give no sequence.
pub fn base_sequences<P>(fabric: &Fabric, bytes: u64, seeds: std::ops::Range<u64>, mut plan: P) -> Vec<Step>
where
    P: FnMut(&Fabric, u64, u64) -> Option<(u64, Activations)>,
{
    let Ok(node) = Fabric::new(&fabric.spec().clone().cluster(1)) else {
        return Vec::new();
    };
    let mut best: Option<(u64, Vec<Step>)> = None;
    for seed in seeds {
        let Some((predicted, activations)) = plan(&node, bytes, seed) else {
            continue;
        };
        if best.as_ref().is_some_and(|(least, _)| predicted >= *least) {
            continue;
        }
        if let Some(steps) = shares(node.ranks(), bytes, &activations) {
            best = Some((predicted, steps));
        }
    }
    best.map(|(_, steps)| steps).unwrap_or_default()
}

/// Bytes as shares of the pair's demand; none unless every pair is carried exactly.
fn shares(ranks: usize, bytes: u64, activations: &[Vec<(Lane, u64)>]) -> Option<Vec<Step>> {
    let mut carried = vec![0_u64; ranks * ranks];
    let mut given = vec![0_u32; ranks * ranks];
    let mut steps = Vec::new();
    for lanes in activations {
        let mut step = Step::default();
        for (lane, volume) in lanes {
            let pair = lane.from as usize * ranks + lane.to as usize;
            *carried.get_mut(pair)? += volume;
            if carried[pair] > bytes {
                return None;
            }
            // Rounding the sum, not the part, makes the parts add up to the whole.
            let until = (u128::from(carried[pair]) * u128::from(WHOLE) / u128::from(bytes.max(1))) as u32;
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
    let exact = |pair: usize| pair / ranks == pair % ranks || given[pair] == WHOLE;
    (0..ranks * ranks).all(exact).then_some(steps)
}

impl Catalogue {
    /// Checks the base sequence: every step lies in a family, and every pair is carried exactly.
    pub(super) fn check_base(&self, node: &Fabric) -> Result<(), String> {
        let ranks = node.ranks();
        let mut given = vec![0_u32; ranks * ranks];
        for (k, step) in self.base.iter().enumerate() {
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
        let exact = |pair: &usize| pair / ranks == pair % ranks || given[*pair] == WHOLE;
        match (0..ranks * ranks).find(|pair| !exact(pair)) {
            None => Ok(()),
            Some(pair) => Err(format!(
                "rank {} to {} gets {} of {WHOLE} parts",
                pair / ranks,
                pair % ranks,
                given[pair]
            )),
        }
    }
}

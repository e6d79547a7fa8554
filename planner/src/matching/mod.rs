//! Which compiled family fits a machine, and which live rank each of its ranks should be.
//!
//! A family fits if some placement of its ranks makes every link that its schedules use available: a
//! monomorphism, so links that a family does not use may be there or not. The best placement is the one
//! whose used links differ least in class ([`distance`]). Nothing here touches a device, measures, or
//! decides what is served: a match is a proposal that must still qualify and win.
//! Start reading at [`nearest`], then [`Match`]; the search itself is in `search.rs`.

pub mod distance;

mod pattern;
mod problem;
mod report;
mod search;
mod small;

pub use pattern::{Pattern, Use};
pub use report::{Change, Kind, Match, Reason};

use crate::topology::Topology;
use problem::Problem;

/// Ranks up to which the search always runs to the end.
pub const EXACT_RANKS: usize = 8;

/// Which live ranks a family may be placed on.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Devices {
    /// All of them: the family must have as many ranks as the machine.
    #[default]
    All,
    /// These, each used: the family must have as many ranks as are listed.
    These(Vec<usize>),
    /// Some of these: the best ones are picked, the rest stays idle.
    AnyOf(Vec<usize>),
}

/// How to match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Which live ranks take part.
    pub devices: Devices,
    /// Search nodes a family of more than [`EXACT_RANKS`] ranks may cost; smaller ones are always searched out. A node of
    /// more than 16 ranks costs more time, so they get fewer: the limit bounds the work.
    pub node_limit: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            devices: Devices::All,
            node_limit: 12_000,
        }
    }
}

/// Places one family on `live`: its nearest placement, or the reason why there is none.
///
/// ```
/// use topoforge_planner::matching::{Kind, Options, Pattern, place};
/// use topoforge_planner::topology::{LinkClass, Topology};
/// let pair = |lanes| Topology::new("p", 2).with_pair(0, 1, LinkClass::NvLink { lanes, r#gen: 2 });
/// let found = place(&Pattern::all_links(&pair(2)), &pair(4), &Options::default());
/// assert_eq!((found.kind, found.placement), (Kind::Compatible, vec![0, 1]));
/// ```
pub fn place(pattern: &Pattern<'_>, live: &Topology, options: &Options) -> Match {
    let found = Problem::new(pattern, live, &options.devices).and_then(|problem| {
        let limit = if pattern.family().ranks > EXACT_RANKS {
            scaled(options.node_limit, pattern.family().ranks)
        } else {
            u64::MAX
        };
        search::best(&problem, limit)
    });
    report::matched(pattern, live, found)
}

/// A node's work grows with the square of the ranks.
fn scaled(node_limit: u64, ranks: usize) -> u64 {
    let work = (ranks as u64).pow(2).max(256);
    (u128::from(node_limit) * 256 / u128::from(work)) as u64
}

/// Places every family on `live`, best first: by distance, then name, then placement; infeasible ones last.
///
/// [`Match::index`] says which of `patterns` a match belongs to.
pub fn nearest(patterns: &[Pattern<'_>], live: &Topology, options: &Options) -> Vec<Match> {
    let mut matches: Vec<Match> = patterns
        .iter()
        .enumerate()
        .map(|(index, pattern)| Match {
            index,
            ..place(pattern, live, options)
        })
        .collect();
    matches.sort_by(|a, b| {
        let key = |m: &Match| m.distance.unwrap_or(u32::MAX);
        (key(a), &a.family, &a.placement, a.index).cmp(&(key(b), &b.family, &b.placement, b.index))
    });
    matches
}

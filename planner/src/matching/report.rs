//! What matching answers: a placement with its differences, or the reason why there is none.
//!
//! Everything here is data and wording; nothing searches. Start reading at [`Match`].

use std::fmt;

use super::distance::{distance, rung};
use super::pattern::Pattern;
use super::search::Found;
use crate::topology::{LinkClass, Topology};

/// How well a family fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Every used link is of the very class the family was compiled for.
    Exact,
    /// Every used link is of the same or a better class; lanes and generations may differ.
    Compatible,
    /// Some used link is of a worse class.
    Degraded,
    /// There is no placement, or none was found.
    Infeasible(Reason),
}

/// Why a family has no placement.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The family has another number of ranks than take part.
    RankCount {
        /// Ranks of the family.
        family: usize,
        /// Live ranks that take part.
        live: usize,
    },
    /// The caller listed a live rank that does not exist, or listed it twice.
    BadDevice {
        /// The rank as listed.
        device: usize,
    },
    /// The caller says that schedules use a link that the family does not have.
    NotInFamily {
        /// Family rank.
        from: usize,
        /// Family rank.
        to: usize,
    },
    /// Wherever it is placed, this link of the family finds no live link that can serve it.
    NoLink {
        /// Family rank.
        from: usize,
        /// Family rank.
        to: usize,
        /// What the family's link is made of.
        class: LinkClass,
        /// `true`: no live link at all can serve it. `false`: some could, but not together with the other links.
        alone: bool,
    },
    /// The node limit ended the search before any placement was found; there may be one.
    GaveUp {
        /// Nodes searched.
        nodes: u64,
    },
}

/// A used link whose live class is not the one the family was compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Family rank.
    pub from: usize,
    /// Family rank.
    pub to: usize,
    /// The class the family was compiled for.
    pub family: LinkClass,
    /// The class of the live link in its place.
    pub live: LinkClass,
    /// Its share of the distance.
    pub distance: u32,
}

/// One family's best placement on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// Which of the patterns given to [`nearest`](super::nearest); 0 from [`place`](super::place).
    pub index: usize,
    /// Name of the family's topology.
    pub family: String,
    /// How well it fits.
    pub kind: Kind,
    /// Sum of class differences over used links; `None` when infeasible.
    pub distance: Option<u32>,
    /// `placement[family rank]` is the live rank; empty when infeasible.
    pub placement: Vec<usize>,
    /// Used links of another class, sorted by their ends in the family.
    pub changes: Vec<Change>,
    /// No placement is nearer. `false` only where the node limit ended the search.
    pub optimal: bool,
    /// No placement is nearer than this; equal to `distance` where `optimal`.
    pub lower_bound: u32,
}

impl Match {
    /// Whether there is a placement.
    pub fn is_feasible(&self) -> bool {
        self.distance.is_some()
    }
}

/// Turns a search result into an answer.
pub(super) fn matched(pattern: &Pattern<'_>, live: &Topology, found: Result<Found, Reason>) -> Match {
    let family = pattern.family();
    let found = match found {
        Ok(found) => found,
        Err(reason) => {
            return Match {
                index: 0,
                family: family.name.clone(),
                optimal: !matches!(reason, Reason::GaveUp { .. }),
                kind: Kind::Infeasible(reason),
                distance: None,
                placement: Vec::new(),
                changes: Vec::new(),
                lower_bound: 0,
            };
        }
    };
    let change = |used: &super::Use| {
        let family = family.link(used.from, used.to)?.class;
        let live = live.link(found.placement[used.from], found.placement[used.to])?.class;
        let distance = distance(family, live)?;
        (distance > 0).then_some(Change {
            from: used.from,
            to: used.to,
            family,
            live,
            distance,
        })
    };
    let changes: Vec<Change> = pattern.uses().iter().filter_map(change).collect();
    let kind = if changes.is_empty() {
        Kind::Exact
    } else if changes.iter().any(|change| rung(change.live) > rung(change.family)) {
        Kind::Degraded
    } else {
        Kind::Compatible
    };
    Match {
        index: 0,
        family: family.name.clone(),
        kind,
        distance: Some(found.distance),
        placement: found.placement,
        changes,
        optimal: found.optimal,
        lower_bound: found.lower_bound,
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact => f.write_str("exact"),
            Self::Compatible => f.write_str("compatible"),
            Self::Degraded => f.write_str("degraded"),
            Self::Infeasible(reason) => write!(f, "infeasible: {reason}"),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RankCount { family, live } => {
                write!(f, "the family has {family} ranks and {live} live ranks take part")
            }
            Self::BadDevice { device } => write!(f, "live rank {device} does not exist or is listed twice"),
            Self::NotInFamily { from, to } => write!(f, "schedules use link {from} to {to}, which the family lacks"),
            Self::NoLink {
                from,
                to,
                class,
                alone: true,
            } => {
                write!(f, "no live link can serve the family's link {from} to {to}, {class}")
            }
            Self::NoLink {
                from,
                to,
                class,
                alone: false,
            } => {
                write!(
                    f,
                    "no placement serves the family's link {from} to {to}, {class}, together with the others"
                )
            }
            Self::GaveUp { nodes } => {
                write!(
                    f,
                    "none found in {nodes} search nodes, though there may be one: raise the node limit"
                )
            }
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} to {}: {} for {} (+{})",
            self.from, self.to, self.live, self.family, self.distance
        )
    }
}

impl fmt::Display for Match {
    /// One line, e.g. `pix-pair: degraded, distance 32, placement [1, 0], 2 links differ`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.family, self.kind)?;
        let Some(distance) = self.distance else { return Ok(()) };
        write!(f, ", distance {distance}, placement {:?}", self.placement)?;
        match self.changes.len() {
            0 => {}
            1 => f.write_str(", 1 link differs")?,
            n => write!(f, ", {n} links differ")?,
        }
        if !self.optimal {
            write!(f, ", not proven nearest (no nearer than {})", self.lower_bound)?;
        }
        Ok(())
    }
}

//! Which lanes an activation is made of: three ways to select them, for the same weights.
//!
//! Whatever selects, lanes fit together, and exchanges and durations come after. Start at [`Selector`].

use super::Peel;
use super::greedy::Greedy;
use crate::alltoallv::net::Net;
use std::fmt;

/// How the lanes of an activation are selected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Selector {
    /// The heaviest lane of each of the most loaded resources, then of each rank.
    #[default]
    Critical,
    /// The heaviest lane of all that fit, again and again.
    Greedy,
    /// The heaviest of the catalogue's families, with ranks assigned to its lanes. Needs
    /// [`crate::alltoallv::Planner::with_catalogue`], and a machine of one node.
    Family,
}

impl Selector {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Critical, Self::Greedy, Self::Family];

    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Greedy => "greedy",
            Self::Family => "family",
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One way to fill an empty selection: weights are set for a duration of `cap` nanoseconds.
pub(super) trait Select {
    fn select(&mut self, peel: &mut Peel, net: &Net, cap: f32);
}

struct Critical;

impl Select for Critical {
    fn select(&mut self, peel: &mut Peel, net: &Net, cap: f32) {
        if peel.is_quick() {
            peel.select_quick(net, cap);
        } else {
            peel.select(net, cap);
        }
    }
}

impl Peel {
    /// Fills `selection` as the effort says.
    pub(super) fn pick(&mut self, net: &Net, cap: f32) {
        match self.effort.selector {
            Selector::Critical => Critical.select(self, net, cap),
            Selector::Greedy => {
                let mut greedy: Greedy = std::mem::take(&mut self.greedy);
                greedy.select(self, net, cap);
                self.greedy = greedy;
            }
            // The planner refuses to begin without families.
            Selector::Family => match self.families.take() {
                Some(mut families) => {
                    families.select(self, net, cap);
                    self.families = Some(families);
                }
                None => self.release(),
            },
        }
    }
}

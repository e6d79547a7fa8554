//! Orders that need no planning, taken where they are predicted to be as good: rotations, and what was recorded ahead of time.
//!
//! Start at `Planner::prefer_fixed`.

use super::Planner;
use crate::alltoallv::demand::Demand;
use crate::alltoallv::rotate;
use crate::alltoallv::strategy::Strategy;

/// Pairs that differ by less than this factor are as good as equal; by less than the second, it is worth a look.
const EVEN: f64 = 1.1;
const LIKELY: f64 = 2.0;

/// All pairs have nearly the same.
pub(super) fn is_even(demand: &Demand) -> bool {
    unevenness(demand) <= EVEN
}

impl Planner {
    /// Takes a fixed order instead where it is predicted to be faster: of groups and their members, of single ranks, or the
    /// recorded one where pairs are much alike.
    pub(super) fn prefer_fixed(&mut self, demand: &Demand) {
        let mut least = self.hand_off();
        let planned = self.strategy;
        for (way, singles) in [
            (Strategy::Rotation, false),
            (Strategy::Rotation, true),
            (Strategy::Base, false),
        ] {
            let recorded = way == Strategy::Base;
            if recorded && (planned == way || self.base.is_none() || unevenness(demand) > LIKELY) {
                continue;
            }
            self.other.clear();
            match &mut self.base {
                Some(base) if recorded => base.run(&self.net, demand.bytes(), &mut self.other),
                _ => {
                    let groups = if singles { &self.singles } else { &self.groups };
                    rotate::rotation(&self.net, groups, demand.bytes(), &mut self.rotation, &mut self.other);
                }
            }
            std::mem::swap(&mut self.plan, &mut self.other);
            let fixed = self.hand_off();
            if fixed < least {
                least = fixed;
                self.strategy = way;
            } else {
                std::mem::swap(&mut self.plan, &mut self.other);
            }
        }
    }
}

/// How many times the smallest pair the largest is; without end where a pair has nothing.
fn unevenness(demand: &Demand) -> f64 {
    let n = demand.ranks();
    let pairs = || {
        (0..n * n)
            .filter(|pair| pair / n != pair % n)
            .map(|pair| demand.bytes()[pair])
    };
    let (least, most) = (pairs().min().unwrap_or(0), pairs().max().unwrap_or(0));
    if least == 0 {
        return f64::INFINITY;
    }
    most as f64 / least as f64
}

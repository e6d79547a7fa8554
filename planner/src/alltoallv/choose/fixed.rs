//! Orders that need no planning, taken where they are predicted to be as good: rotations, and what was recorded ahead of time.
//!
//! Start at `Planner::prefer_fixed`.

use super::Planner;
use crate::alltoallv::demand::Demand;
use crate::alltoallv::pack::Work;
use crate::alltoallv::rotate;
use crate::alltoallv::strategy::Strategy;

/// Pairs that differ by less than this factor from what a sequence is for are as good as equal; by less than the second, it
/// is worth a look.
const EVEN: f64 = 1.1;
const LIKELY: f64 = 2.0;

impl Planner {
    /// Whether a recorded sequence is for such a demand: nothing else is planned then.
    pub(super) fn is_recorded(&self, demand: &Demand) -> bool {
        let nearest = self.recorded.as_ref().and_then(|room| room.nearest(demand.bytes()));
        nearest.is_some_and(|(_, (factor, lacking))| factor <= EVEN && !lacking)
    }

    /// Takes a fixed order instead where it is predicted to be faster: of groups and their members, of single ranks, or a
    /// recorded one where pairs are much like what it is for.
    pub(super) fn prefer_fixed(&mut self, demand: &Demand) {
        let mut least = self.hand_off();
        let planned = (self.strategy == Strategy::Base).then_some(self.served);
        for singles in [false, true] {
            std::mem::swap(&mut self.plan, &mut self.other);
            self.plan.clear();
            let groups = if singles { &self.singles } else { &self.groups };
            rotate::rotation(&self.net, groups, demand.bytes(), &mut self.rotation, &mut self.plan);
            self.keep_faster(&mut least, Strategy::Rotation);
        }
        let sequences = self.recorded.as_ref().map_or(0, |room| room.len());
        let mut served = self.served;
        for which in (0..sequences).filter(|which| Some(*which) != planned) {
            let like = self.recorded.as_ref().map(|room| room.likeness(which, demand.bytes()));
            if like.is_none_or(|(factor, _)| factor > LIKELY) {
                continue;
            }
            std::mem::swap(&mut self.plan, &mut self.other);
            self.plan.clear();
            self.run_recorded(which, demand);
            if self.keep_faster(&mut least, Strategy::Base) {
                served = which;
            }
        }
        self.served = served;
    }

    /// Keeps the plan just made if it is faster than the other, and says whether it is.
    fn keep_faster(&mut self, least: &mut f64, way: Strategy) -> bool {
        let time = self.hand_off();
        let faster = time < *least;
        if faster {
            *least = time;
            self.strategy = way;
        } else {
            std::mem::swap(&mut self.plan, &mut self.other);
        }
        faster
    }

    /// Appends a demand in the order of a recorded sequence, and packs what that has no lanes for; whether there is nothing
    /// of that.
    pub(super) fn run_recorded(&mut self, which: usize, demand: &Demand) -> bool {
        let Some(room) = &mut self.recorded else { return true };
        self.served = which;
        room.run(&self.net, which, demand.bytes(), &mut self.plan);
        let Some(lacking) = room.lacking() else { return true };
        self.peel.plan_paths(&self.net, lacking, self.effort);
        let work = Work {
            whole: lacking,
            rem: lacking,
            share: self.peel.shares(),
            quantum: self.peel.quantum(),
        };
        self.pack.run(&self.net, &work, false, &mut self.plan);
        false
    }

    pub(super) fn sequence_name(&self, which: usize) -> &str {
        self.recorded.as_ref().map_or("", |room| room.name(which))
    }
}

//! How long a plan takes: all ranks waiting for each other between activations, or each resource handed on when free.
//!
//! Sums of floats in fixed order: the same on every rank. It changes no plan. Start at [`barrier`] and [`hand_off`].

use super::net::{Net, UNLIMITED};
use super::plan::{Chunk, Plan};

/// Time of one activation without overhead, nanoseconds: its slowest lane, fan or fluid resource.
pub(super) fn duration(net: &Net, lanes: &[Chunk], loads: &mut [f64]) -> f64 {
    let mut longest = 0.0f64;
    let mut turn = 0.0;
    for lane in lanes {
        let id = id(net, lane);
        let time = lane.bytes as f64 * f64::from(net.inv[id]);
        // Lanes of a fan follow each other.
        turn = if lane.turn == 0 { time } else { turn + time };
        longest = longest.max(turn);
        for &r in net.uses(id) {
            let at = usize::from(r);
            if net.slots[at] == UNLIMITED {
                loads[at] += lane.bytes as f64 * f64::from(net.own[at]);
                longest = longest.max(loads[at]);
            }
        }
    }
    for lane in lanes {
        net.uses(id(net, lane))
            .iter()
            .for_each(|&r| loads[usize::from(r)] = 0.0);
    }
    longest
}

/// Time of a plan with a barrier of `alpha` before each activation, nanoseconds; `loads` is room for the resources.
pub(super) fn barrier(net: &Net, plan: &Plan, loads: &mut [f64]) -> f64 {
    loads.fill(0.0);
    let all = plan.activations().map(|lanes| duration(net, lanes, loads));
    all.sum::<f64>() + plan.len() as f64 * f64::from(net.alpha)
}

/// Time of a plan in which a lane begins when each of its resources is free, nanoseconds.
///
/// `rounds` says that each port has one lane at a time, fluid or not; `free` and `shared` are room for the resources. Slots are handed on as one: never sooner than they could be.
pub(super) fn hand_off(net: &Net, plan: &Plan, rounds: bool, free: &mut [f64], shared: &mut [f64]) -> f64 {
    free.fill(0.0);
    shared.fill(0.0);
    let mut end = 0.0f64;
    for lanes in plan.activations() {
        end = end.max(hand_off_one(net, lanes, rounds, free, shared));
    }
    end
}

/// The latest end of one activation's lanes, whose resources become free at `free`.
fn hand_off_one(net: &Net, lanes: &[Chunk], rounds: bool, free: &mut [f64], shared: &mut [f64]) -> f64 {
    let mut last = 0.0f64;
    for lane in lanes {
        let id = id(net, lane);
        let mut begin = 0.0f64;
        for &r in net.uses(id) {
            let at = usize::from(r);
            if net.slots[at] == 1 || (rounds && net.port[at]) {
                begin = begin.max(free[at]);
            }
        }
        // A rank hands on to itself without a word.
        let alpha = if lane.turn == 0 { f64::from(net.alpha_h) } else { 0.0 };
        let mut end = begin + alpha + lane.bytes as f64 * f64::from(net.inv[id]);
        for &r in net.uses(id) {
            let at = usize::from(r);
            shared[at] += lane.bytes as f64 * f64::from(net.hold(id, r));
            if net.slots[at] != 1 {
                end = end.max(shared[at] + alpha);
            }
        }
        for &r in net.uses(id) {
            let at = usize::from(r);
            free[at] = free[at].max(end);
        }
        last = last.max(end);
    }
    last
}

#[inline]
fn id(net: &Net, lane: &Chunk) -> usize {
    net.first[usize::from(lane.from) * net.ranks + usize::from(lane.to)] as usize + usize::from(lane.path)
}

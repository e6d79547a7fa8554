//! How long a plan takes: all ranks waiting for each other between activations, or each resource handed on when free.
//!
//! Sums of floats in fixed order: the same on every rank. It changes no plan. Start at [`barrier`] and [`hand_off`].

use super::net::{Net, UNLIMITED};
use super::plan::{Chunk, Plan};

/// Room for one machine's resources.
#[derive(Clone, Debug)]
pub(super) struct Room {
    /// When each resource has ended its last lane, or another figure for each.
    pub free: Vec<f64>,
    /// When each resource that lanes share has carried all their bytes so far.
    shared: Vec<f64>,
    /// When the last lane of each slot has ended, of resources with several; where each resource's slots begin, and which
    /// is next.
    slots: Vec<f64>,
    first: Vec<u32>,
    next: Vec<u16>,
}

impl Room {
    /// For a machine.
    pub fn new(net: &Net) -> Self {
        let mut first = vec![0u32];
        for &slots in &net.slots {
            let last = first[first.len() - 1];
            first.push(last + if is_slotted(slots) { u32::from(slots) } else { 0 });
        }
        Self {
            free: vec![0.0; net.resources],
            shared: vec![0.0; net.resources],
            slots: vec![0.0; first[net.resources] as usize],
            first,
            next: vec![0; net.resources],
        }
    }

    fn clear(&mut self) {
        self.free.fill(0.0);
        self.shared.fill(0.0);
        self.slots.fill(0.0);
        self.next.fill(0);
    }

    /// The slot that the next lane of a resource takes; a lane that follows another in its fan takes the same.
    fn slot(&self, r: usize, slots: u16, follows: bool) -> usize {
        let next = self.next[r];
        let slot = match (follows, next) {
            (false, _) => next,
            (true, 0) => slots - 1,
            (true, _) => next - 1,
        };
        self.first[r] as usize + usize::from(slot)
    }
}

/// Lanes that take turns at a resource.
fn lanes_at_once(net: &Net, r: usize, rounds: bool) -> u16 {
    match net.slots[r] {
        _ if rounds && net.port[r] => 1,
        _ if !rounds && net.own[r] > 0.0 => UNLIMITED,
        slots => slots,
    }
}

fn is_slotted(slots: u16) -> bool {
    slots > 1 && slots != UNLIMITED
}

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
            if net.own[at] > 0.0 {
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

/// Time of a plan with a barrier of `alpha` before each activation, nanoseconds.
pub(super) fn barrier(net: &Net, plan: &Plan, room: &mut Room) -> f64 {
    room.free.fill(0.0);
    let all = plan.activations().map(|lanes| duration(net, lanes, &mut room.free));
    all.sum::<f64>() + plan.len() as f64 * f64::from(net.alpha)
}

/// Time of a plan in which a lane begins when each of its resources is free, nanoseconds.
///
/// `rounds` says that each port has one lane at a time, fluid or not. Slots of a resource are taken in turn. What lanes share
/// has carried a lane's bytes no sooner than those of the lanes before it.
pub(super) fn hand_off(net: &Net, plan: &Plan, rounds: bool, room: &mut Room) -> f64 {
    room.clear();
    let mut end = 0.0f64;
    for lanes in plan.activations() {
        end = end.max(hand_off_one(net, lanes, rounds, room));
    }
    end
}

/// The latest end of one activation's lanes.
fn hand_off_one(net: &Net, lanes: &[Chunk], rounds: bool, room: &mut Room) -> f64 {
    let mut last = 0.0f64;
    for lane in lanes {
        let id = id(net, lane);
        let follows = lane.turn > 0;
        let mut begin = 0.0f64;
        for &r in net.uses(id) {
            let at = usize::from(r);
            match lanes_at_once(net, at, rounds) {
                UNLIMITED => {}
                1 => begin = begin.max(room.free[at]),
                slots => begin = begin.max(room.slots[room.slot(at, slots, follows)]),
            }
        }
        // A rank hands on to itself without a word.
        let alpha = if follows { 0.0 } else { f64::from(net.alpha_h) };
        begin += alpha;
        let mut end = begin + lane.bytes as f64 * f64::from(net.inv[id]);
        for &r in net.uses(id) {
            let at = usize::from(r);
            if net.own[at] > 0.0 {
                // Idle while nobody had anything for it; a fan has all of its lanes' bytes from its first one on. Where lanes
                // that take turns never fill it, the sum is all that counts.
                let filled = !rounds || f32::from(net.slots[at]) * net.own[at] > net.inv[id] * 1.001;
                let from = if follows || !filled { 0.0 } else { begin };
                room.shared[at] = room.shared[at].max(from) + lane.bytes as f64 * f64::from(net.own[at]);
                end = end.max(room.shared[at]);
            }
        }
        for &r in net.uses(id) {
            let at = usize::from(r);
            let slots = lanes_at_once(net, at, rounds);
            room.free[at] = room.free[at].max(end);
            if is_slotted(slots) {
                let slot = room.slot(at, slots, follows);
                room.slots[slot] = end;
                if !follows {
                    room.next[at] = (room.next[at] + 1) % slots;
                }
            }
        }
        last = last.max(end);
    }
    last
}

#[inline]
fn id(net: &Net, lane: &Chunk) -> usize {
    net.first[usize::from(lane.from) * net.ranks + usize::from(lane.to)] as usize + usize::from(lane.path)
}

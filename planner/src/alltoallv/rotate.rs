//! Rotation: a fixed order of peers that needs no planning, good for demands that are large and even.
//!
//! In each step every group sends one lane to the group `shift` further on, between members that rotate; a lane takes the
//! first of its pair's paths that is free in its step, and waits for a step of its own where none is. Start at [`rotation`].

use super::net::{Net, UNLIMITED};
use super::plan::{Chunk, Plan};

/// Room for one step.
#[derive(Clone, Debug)]
pub(super) struct Room {
    taken: Vec<u16>,
    done: Vec<bool>,
}

impl Room {
    /// For a machine.
    pub fn new(net: &Net, groups: usize) -> Self {
        Self {
            taken: vec![0; net.resources],
            done: vec![false; groups],
        }
    }
}

/// Appends the whole demand in rotation order; `room` is of this machine.
pub(super) fn rotation(net: &Net, groups: &[(usize, usize)], bytes: &[u64], room: &mut Room, plan: &mut Plan) {
    let widest = groups.iter().map(|(begin, end)| end - begin).max().unwrap_or(0);
    for shift in 0..groups.len() {
        for turn in usize::from(shift == 0)..widest {
            for member in 0..widest {
                step(net, groups, bytes, (shift, turn, member), room, plan);
            }
        }
    }
}

/// One step, in as many activations as its lanes need.
fn step(
    net: &Net,
    groups: &[(usize, usize)],
    bytes: &[u64],
    (shift, turn, member): (usize, usize, usize),
    room: &mut Room,
    plan: &mut Plan,
) {
    // Groups may be of unequal sizes: a destination past the end of its group is none.
    let widest = groups.iter().map(|(begin, end)| end - begin).max().unwrap_or(0);
    let pair = |g: usize| {
        let ((begin, end), (first, last)) = (groups[g], groups[(g + shift) % groups.len()]);
        let (from, to) = (begin + member, first + (member + turn) % widest.max(1));
        (from < end && to < last && from != to).then_some((from, to))
    };
    room.done.fill(false);
    loop {
        room.taken.fill(0);
        let mut waiting = 0;
        for g in 0..groups.len() {
            let Some((from, to)) = pair(g) else { continue };
            let amount = bytes[from * net.ranks + to];
            if amount == 0 || room.done[g] {
                continue;
            }
            let lanes = net.lanes(from * net.ranks + to);
            let free = |lane: &usize| {
                net.uses(*lane)
                    .iter()
                    .all(|&r| room.taken[usize::from(r)] < limit(net, r))
            };
            let Some(lane) = lanes.clone().find(free) else {
                waiting += 1;
                continue;
            };
            net.uses(lane).iter().for_each(|&r| room.taken[usize::from(r)] += 1);
            room.done[g] = true;
            plan.lanes.push(Chunk {
                from: from as u16,
                to: to as u16,
                path: (lane - lanes.start) as u16,
                turn: 0,
                offset: 0,
                bytes: amount,
            });
        }
        plan.end();
        if waiting == 0 {
            return;
        }
    }
}

fn limit(net: &Net, r: u16) -> u16 {
    match net.slots[usize::from(r)] {
        _ if net.port[usize::from(r)] => 1,
        UNLIMITED => UNLIMITED,
        slots => slots,
    }
}

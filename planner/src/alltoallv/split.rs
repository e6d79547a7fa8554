//! Splits rounds that have more lanes over a leaf switch's port than it carries: those that find no room form a round behind.
//!
//! Packing leaves these ports aside, since a round's other lanes keep out of each other's way in any part of it. All memory is
//! allocated in [`Split::new`]. Start at [`Split::run`].

use super::net::Net;
use super::plan::{Chunk, Plan};

/// Room for plans of a machine.
#[derive(Clone, Debug)]
pub(super) struct Split {
    /// Lanes on each port of a leaf switch; empty where there are none.
    taken: Vec<u16>,
    late: Vec<Chunk>,
    ends: Vec<u32>,
}

impl Split {
    /// Room for plans of up to `activations` activations, whose fans are at most `width` lanes.
    pub fn new(net: &Net, width: usize, activations: usize) -> Self {
        let room = |count: usize| if net.resources > net.leaf_ports { count } else { 0 };
        Self {
            taken: vec![0; room(net.resources - net.leaf_ports)],
            late: Vec::with_capacity(room(net.ranks * width)),
            ends: Vec::with_capacity(room(activations)),
        }
    }

    /// Splits what needs it from activation `from` on.
    pub fn run(&mut self, net: &Net, plan: &mut Plan, from: usize) {
        if self.taken.is_empty() {
            return;
        }
        self.ends.clear();
        let mut begin = 0;
        for (k, &end) in plan.ends.iter().enumerate() {
            if k < from {
                self.ends.push(end);
            } else {
                self.split(net, &mut plan.lanes[begin..end as usize], begin as u32);
            }
            begin = end as usize;
        }
        plan.ends.clear();
        plan.ends.extend_from_slice(&self.ends);
    }

    /// One activation's lanes, the first of which is lane `begin` of the plan.
    fn split(&mut self, net: &Net, lanes: &mut [Chunk], begin: u32) {
        let mut done = 0;
        while done < lanes.len() {
            self.taken.fill(0);
            self.late.clear();
            let mut fits = true;
            let first = done;
            for at in first..lanes.len() {
                let lane = lanes[at];
                // A fan goes as a whole.
                if lane.turn == 0 {
                    fits = self.take(net, &lane);
                }
                if fits {
                    lanes[done] = lane;
                    done += 1;
                } else {
                    self.late.push(lane);
                }
            }
            lanes[done..].copy_from_slice(&self.late);
            self.ends.push(begin + done as u32);
        }
    }

    fn take(&mut self, net: &Net, lane: &Chunk) -> bool {
        let pair = usize::from(lane.from) * net.ranks + usize::from(lane.to);
        let ports = net.leaf_uses(net.first[pair] as usize + usize::from(lane.path));
        let place = |r: u16| usize::from(r) - net.leaf_ports;
        let fits = ports.iter().all(|&r| self.taken[place(r)] < net.slots[usize::from(r)]);
        if fits {
            ports.iter().for_each(|&r| self.taken[place(r)] += 1);
        }
        fits
    }
}

//! Flows: bytes on a path that wait for other flows; and a plan as flows.
//!
//! It holds what is sent, never when. Start at [`Traffic`].

use crate::alltoallv::fabric::{Fabric, ResourceKind};
use crate::alltoallv::net::{Net, UNLIMITED};
use crate::alltoallv::plan::Plan;

/// Bytes on one path.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Flow {
    /// Resources it uses; none for a point in time that others wait for.
    pub uses: Vec<u32>,
    /// Time of a byte at the path's own rate, nanoseconds.
    pub inv_ns: f64,
    /// How many.
    pub bytes: f64,
    /// Flows that must have ended.
    pub after: Vec<u32>,
    /// Time between the last of them and this one's first byte, nanoseconds.
    pub delay_ns: f64,
}

/// All flows of an exchange.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Traffic {
    /// A flow only waits for flows before it.
    pub flows: Vec<Flow>,
}

impl Traffic {
    /// A flow on a path of a pair; its number.
    pub fn send(&mut self, fabric: &Fabric, from: usize, to: usize, class: usize, bytes: f64, delay_ns: f64) -> u32 {
        let path = fabric.path(from, to, class);
        self.flows.push(Flow {
            uses: path.resources().to_vec(),
            inv_ns: f64::from(path.inv_fs) * 1e-6,
            bytes,
            after: Vec::new(),
            delay_ns,
        });
        self.flows.len() as u32 - 1
    }

    /// A point in time `delay_ns` after all flows from `begin` on; its number.
    pub fn barrier(&mut self, begin: usize, delay_ns: f64) -> u32 {
        self.flows.push(Flow {
            after: (begin as u32..self.flows.len() as u32).collect(),
            delay_ns,
            ..Flow::default()
        });
        self.flows.len() as u32 - 1
    }

    /// A plan whose lanes wait for the previous users of each of their resources.
    ///
    /// `rounds` is false for a plan in which everything runs at once.
    pub fn of_plan(fabric: &Fabric, plan: &Plan, rounds: bool) -> Self {
        let mut traffic = Self::default();
        let mut last: Vec<Vec<u32>> = at_once(fabric).into_iter().map(|lanes| vec![u32::MAX; lanes]).collect();
        let mut count = vec![0usize; last.len()];
        let alpha = f64::from(fabric.alpha_h_ns());
        for lanes in plan.activations() {
            for lane in lanes {
                let (from, to) = (usize::from(lane.from), usize::from(lane.to));
                let delay = if lane.turn == 0 { alpha } else { 0.0 };
                let id = traffic.send(fabric, from, to, usize::from(lane.path), lane.bytes as f64, delay);
                if !rounds {
                    continue;
                }
                let flow = &mut traffic.flows[id as usize];
                for r in flow.uses.iter().map(|&r| r as usize) {
                    if last[r].is_empty() {
                        continue;
                    }
                    // A fan's lanes follow each other in one slot.
                    count[r] += usize::from(lane.turn == 0);
                    let slot = count[r].saturating_sub(1) % last[r].len();
                    let before = std::mem::replace(&mut last[r][slot], id);
                    flow.after.extend(Some(before).filter(|&before| before != u32::MAX));
                }
                flow.after.sort_unstable();
                flow.after.dedup();
            }
        }
        traffic
    }
}

/// Lanes that take turns at each resource in rounds: as many as it carries at a time; none where nobody waits.
fn at_once(fabric: &Fabric) -> Vec<usize> {
    let all = 0..fabric.resources();
    let of = |r: usize| {
        let resource = fabric.resource(r as u32);
        let port = matches!(resource.kind, ResourceKind::Egress | ResourceKind::Ingress);
        if port { Some(1) } else { resource.slots() }
    };
    // Where all is limited it is known without the tables of all lanes.
    if fabric.node_end() == fabric.resources()
        && let Some(lanes) = all.clone().map(|r| of(r).map(|lanes| lanes as usize)).collect()
    {
        return lanes;
    }
    let net = Net::new(fabric);
    let lanes = |r: usize| match net.slots.get(r) {
        Some(_) if net.port[r] => 1,
        Some(&UNLIMITED) | None => 0,
        Some(&slots) => usize::from(slots),
    };
    all.map(lanes).collect()
}

//! Flows: bytes on a path that wait for other flows; and a plan as flows.
//!
//! It holds what is sent, never when. Start at [`Traffic`].

use crate::alltoallv::fabric::Fabric;
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
        let mut last: Vec<Option<u32>> = vec![None; fabric.resources()];
        let alpha = f64::from(fabric.alpha_h_ns());
        for lanes in plan.activations() {
            let begin = traffic.flows.len();
            for lane in lanes {
                let (from, to) = (usize::from(lane.from), usize::from(lane.to));
                let delay = if lane.turn == 0 { alpha } else { 0.0 };
                let id = traffic.send(fabric, from, to, usize::from(lane.path), lane.bytes as f64, delay);
                if !rounds {
                    continue;
                }
                let flow = &mut traffic.flows[id as usize];
                for &r in &flow.uses {
                    // A fan's lanes follow each other; lanes of slots that begin together do not.
                    let before = last[r as usize];
                    flow.after
                        .extend(before.filter(|&b| (b as usize) < begin || lane.turn > 0));
                }
                flow.after.sort_unstable();
                flow.after.dedup();
                flow.uses.iter().for_each(|&r| last[r as usize] = Some(id));
            }
        }
        traffic
    }
}

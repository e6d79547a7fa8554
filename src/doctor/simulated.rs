//! A pair of ranks in memory whose edges can be made faulty: proves that each verdict is told from the others.
//!
//! It models what puts do to a receiver's slots, nothing of kernels. Start at [`SimulatedLink`].

use super::link::{PairLink, Path, Verb};
use crate::device::DeviceError;
use crate::device::lines::LineTally;

/// What an edge does to puts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeFault {
    /// Data is dropped and its announcement arrives: slots keep what they held.
    Drops,
    /// Zeros arrive.
    Zeroes,
    /// Data arrives after its announcement, one call late.
    Delays,
    /// Only the first half of each 16-byte line arrives.
    Tears,
    /// Neither data nor announcement arrives.
    Swallows,
    /// Data of somebody else arrives.
    Garbles,
}

/// Two ranks, each with two slots that calls use in turn.
pub struct SimulatedLink {
    paths: Vec<Path>,
    /// The rank whose puts (or pulls) are faulty, and how.
    fault: Option<(usize, EdgeFault)>,
    /// One a way.
    memories: [Memory; 3],
}

#[derive(Default)]
struct Memory {
    /// `slots[receiver][call % 2]`.
    slots: [[Vec<u16>; 2]; 2],
    late: [Option<Vec<u16>>; 2],
    calls: u32,
}

impl SimulatedLink {
    /// One way of each verb; `fault` strikes what this rank does.
    pub fn new(fault: Option<(usize, EdgeFault)>) -> Self {
        let path = |name: &str, verb| Path {
            name: name.to_owned(),
            verb,
        };
        Self {
            paths: vec![
                path("put", Verb::Write),
                path("line", Verb::Lines),
                path("pull", Verb::Read),
            ],
            fault,
            memories: Default::default(),
        }
    }
}

impl PairLink for SimulatedLink {
    fn paths(&self) -> &[Path] {
        &self.paths
    }

    fn exchange(&mut self, path: usize, round: u32, sent: [&[u16]; 2]) -> Result<[Vec<u16>; 2], DeviceError> {
        let verb = self.paths[path].verb;
        let way = &mut self.memories[path];
        let slot = (way.calls % 2) as usize;
        way.calls += 1;
        let mut arrived = [Vec::new(), Vec::new()];
        for (receiver, arrived) in arrived.iter_mut().enumerate() {
            let sender = 1 - receiver;
            let actor = if verb == Verb::Read { receiver } else { sender };
            let fault = self.fault.filter(|(rank, _)| *rank == actor).map(|(_, fault)| fault);
            let data = sent[sender];
            if let Some(late) = way.late[receiver].take() {
                way.slots[receiver][1 - slot] = late;
            }
            let memory = &mut way.slots[receiver][slot];
            memory.resize(memory.len().max(data.len()), 0);
            match fault {
                None => memory[..data.len()].copy_from_slice(data),
                Some(EdgeFault::Drops) => {}
                Some(EdgeFault::Zeroes) => memory[..data.len()].fill(0),
                Some(EdgeFault::Delays) => way.late[receiver] = Some(data.to_vec()),
                Some(EdgeFault::Tears) => {
                    for (line, new) in memory.chunks_mut(8).zip(data.chunks(8)) {
                        let half = new.len().min(4);
                        line[..half].copy_from_slice(&new[..half]);
                    }
                }
                Some(EdgeFault::Garbles) => memory[..data.len()].fill(4242),
                Some(EdgeFault::Swallows) => {
                    return Err(DeviceError::Timeout {
                        rank: receiver,
                        peer: Some(sender),
                        stage: 0,
                        column: round,
                    });
                }
            }
            *arrived = way.slots[receiver][slot][..data.len()].to_vec();
        }
        Ok(arrived)
    }

    fn watch_lines(&mut self, actor: usize) -> Option<Result<LineTally, DeviceError>> {
        let tears = self.fault == Some((actor, EdgeFault::Tears));
        Some(Ok(LineTally {
            seen: 1000,
            torn: if tears { 3 } else { 0 },
            whole: true,
        }))
    }

    fn reset_against_put(&mut self) -> Option<Result<(), String>> {
        None
    }
}

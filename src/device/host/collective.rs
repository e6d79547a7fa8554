//! One prepared collective: its memory on every rank, and what its ranks have reported.
//!
//! Fills scratch, counters and control blocks and builds parameter blocks; runs nothing itself. Start at
//! [`Collective::new`].

use super::faults::Plant;
use super::ffi::Arena;
use super::layout::Map;
use super::machine::Machine;
use crate::device::abi::{self, Control, Header, Params, Status};
use crate::device::{DeviceError, Fault, Preparation};
use crate::registry::{HostKernel, Protocol, Variant};
use std::cell::RefCell;
use std::rc::Rc;

/// Everything that a prepared variant owns.
pub(super) struct Collective {
    pub variant: &'static Variant,
    pub kernel: HostKernel,
    pub preparation: Preparation,
    pub map: Map,
    pub machine: Rc<RefCell<Machine>>,
    /// Set by the first error.
    pub dead: bool,
    first_counter: u32,
}

impl Collective {
    /// # Errors
    /// No host form, too large, or a fault that means nothing here.
    pub(super) fn new(
        variant: &'static Variant,
        preparation: &Preparation,
        deadline_ns: u64,
        first_counter: u32,
    ) -> Result<Self, DeviceError> {
        let Some(kernel) = variant.kernel.host else {
            let reason = format!(
                "`{}` has no host form: its kernels were built without the feature `host-executor`",
                variant.name
            );
            return Err(DeviceError::Unavailable { reason });
        };
        let too_large = || DeviceError::Misuse {
            reason: format!(
                "{} bytes a rank are more than the host executor can hold",
                preparation.max_bytes
            ),
        };
        let map = Map::new(variant, preparation.max_bytes, preparation.threads).ok_or_else(too_large)?;
        // Stores under way and lines are numbered in 32 bits.
        u32::try_from(map.bytes / 16).map_err(|_| too_large())?;
        let maps = map.ranks.iter().map(|r| r.map).collect();
        let plant = preparation
            .fault
            .map(|fault| Plant::new(fault, variant, maps))
            .transpose()?;
        let arena = Arena::new(map.bytes).ok_or_else(too_large)?;
        let aborts = map.ranks.iter().map(|r| r.abort).collect();
        let remember = matches!(variant.protocol, Protocol::Flag | Protocol::Pull);
        let machine = Machine::new(arena, variant.ranks.len(), aborts, remember, plant);
        let machine = Rc::new(RefCell::new(machine));
        let made = Self {
            variant,
            kernel,
            preparation: *preparation,
            map,
            machine,
            dead: false,
            first_counter,
        };
        made.fill(deadline_ns);
        Ok(made)
    }

    fn fill(&self, deadline_ns: u64) {
        let mut machine = self.machine.borrow_mut();
        let arena = &mut machine.arena;
        let base = arena.base();
        for (rank, r) in self.map.ranks.iter().enumerate() {
            // Whatever a slot's word means, flag or packet counter, it reads as "the use before the first".
            let sentinel = self.variant.protocol == Protocol::Sentinel;
            let word = if sentinel {
                [0xff; 4]
            } else {
                self.first_counter.to_ne_bytes()
            };
            if word != [0; 4] {
                for at in (0..r.map.layout.slots_bytes() as usize).step_by(4) {
                    arena.write(r.map.slots + at, &word);
                }
            }
            let mut peer_abort = [0; 64];
            let peers = self.map.ranks.iter().enumerate().filter(|(peer, _)| *peer != rank);
            let mut count = 0;
            for (slot, (_, peer)) in peer_abort.iter_mut().zip(peers) {
                *slot = base + peer.abort as u64;
                count += 1;
            }
            let status = base + r.status as u64;
            let control = Control {
                deadline_ns,
                status,
                claimed: 0,
                peers: count,
                peer_abort,
            };
            arena.write(r.control, &control.to_bytes());
            self.set_counters(rank, arena);
        }
    }

    fn set_counters(&self, rank: usize, arena: &mut Arena) {
        let swapped = self.preparation.fault == Some(Fault::SwappedCounter) && rank + 1 == self.map.ranks.len();
        let counter = self.first_counter.wrapping_add(u32::from(swapped)).to_ne_bytes();
        let r = &self.map.ranks[rank].map;
        for at in 0..r.layout.counters as usize {
            arena.write(r.counters + 4 * at, &counter);
        }
    }

    /// What a planted fault does at the end of a grid.
    pub(super) fn after_grid(&self, rank: usize, machine: &mut Machine) {
        if self.preparation.fault == Some(Fault::FrozenCounter) {
            self.set_counters(rank, &mut machine.arena);
        }
    }

    /// Parameter blocks of all ranks.
    pub(super) fn params(&self, bytes: u64, in_place: bool) -> Vec<Rc<Params>> {
        let base = self.machine.borrow().arena.base();
        let address = |offset: usize| base + offset as u64;
        let of = |rank: usize| &self.map.ranks[rank];
        let build = |rank: usize| {
            let r = of(rank);
            let input = address(r.map.input);
            let header = Header {
                input,
                output: if in_place { input } else { address(r.output) },
                counters: address(r.map.counters),
                abort: address(r.abort),
                control: address(r.control),
                bytes,
                columns: self.variant.columns(bytes) as u32,
                stride: r.map.layout.stride,
                rank: rank as u32,
                program: self.variant.ranks[rank].program,
                flags: 0,
                reserved: 0,
            };
            let scratch = |peer: usize| address(of(peer).map.slots);
            let ports = abi::ports(
                self.variant,
                rank,
                |p| of(p).map.layout,
                scratch,
                |p| address(of(p).map.input),
            );
            Rc::new(Params::new(header, &ports))
        };
        (0..self.map.ranks.len()).map(build).collect()
    }

    /// Whether a rank has been told to give up.
    pub(super) fn aborted(&self, rank: usize, machine: &Machine) -> bool {
        let mut word = [0; 4];
        machine.arena.read(self.map.ranks[rank].abort, &mut word);
        word != [0; 4]
    }

    /// What went wrong in the run that has just ended.
    pub(super) fn verdict(&self) -> Result<(), DeviceError> {
        let machine = self.machine.borrow();
        if let Some(what) = machine.fault() {
            return Err(DeviceError::KernelFault {
                reason: format!("`{}`: {what}", self.variant.name),
            });
        }
        if let Some(what) = self.map.overrun(&machine.arena) {
            return Err(DeviceError::KernelFault {
                reason: format!("`{}`: {what}", self.variant.name),
            });
        }
        match self.missing(&machine) {
            Some(timeout) => Err(timeout),
            None if (0..self.map.ranks.len()).any(|rank| self.aborted(rank, &machine)) => Err(DeviceError::Poisoned),
            None => Ok(()),
        }
    }

    fn status(&self, rank: usize, machine: &Machine) -> Option<Status> {
        let mut word = [0; 4];
        let mut field = |index: usize| {
            machine.arena.read(self.map.ranks[rank].status + 4 * index, &mut word);
            u32::from_ne_bytes(word)
        };
        let [state, rank, port, stage, counter, column] = std::array::from_fn(&mut field);
        (state == 1).then_some(Status {
            state,
            rank,
            port,
            stage,
            counter,
            column,
        })
    }

    /// The report that says most. Ranks that wait for a waiting rank are innocent: follow the chain to the one that
    /// nobody excuses.
    fn missing(&self, machine: &Machine) -> Option<DeviceError> {
        let ranks = self.map.ranks.len();
        let reports = (0..ranks).map(|rank| self.status(rank, machine)).collect::<Vec<_>>();
        let peer_of = |rank: usize, status: &Status| {
            let get = (status.port as usize).checked_sub(self.variant.kernel.puts as usize)?;
            self.variant.ranks[rank].gets.get(get).map(|&peer| peer as usize)
        };
        let mut rank = reports.iter().position(Option::is_some)?;
        for _ in 0..ranks {
            let next = reports[rank].as_ref().and_then(|s| peer_of(rank, s));
            match next {
                Some(peer) if reports.get(peer).is_some_and(Option::is_some) => rank = peer,
                _ => break,
            }
        }
        let status = reports[rank]?;
        Some(DeviceError::Timeout {
            rank,
            peer: peer_of(rank, &status),
            stage: status.stage,
            column: status.column,
        })
    }
}

//! A peer-read all-reduce in two stages, to compare with: each rank sums its part of all inputs, then reads the others'.
//!
//! What engines do where one stage would read too much. Hand-written (`tf_pull2` in kernels/tools.cu), never served: inputs
//! are the peers' own buffers, so there is no staging copy. Start at [`TwoStagePull`].

use super::machine::Machine;
use crate::device::{DeviceError, Geometry};
use crate::driver::launch;
use crate::driver::memory::{DeviceBuffer, MappedHost};
use crate::registry::Partials;

/// The most ranks: one thread and one argument each.
const MOST_RANKS: usize = 8;
const THREADS: u32 = 512;
/// The most blocks, and room for their counters and signals.
const MOST_BLOCKS: u32 = 36;
// A rank's state: a table of pointers, the sticky word, a counter a block, a signal a block and rank.
const TEMPS_AT: u64 = 0;
const SIGNALS_AT: u64 = 64;
const DEAD_AT: u64 = 128;
const COUNTERS_AT: u64 = 256;
const WORDS_AT: u64 = 512;
const STATE_BYTES: u64 = WORDS_AT + 4 * MOST_BLOCKS as u64 * MOST_RANKS as u64;

/// Scratch on every rank.
pub(super) struct TwoStagePull {
    wide: bool,
    states: Vec<DeviceBuffer>,
    _temps: Vec<DeviceBuffer>,
    /// A word a rank: 1 and the peer that never came.
    status: MappedHost,
}

impl TwoStagePull {
    pub fn new(machine: &mut Machine, partials: Partials, max_bytes: u64) -> Result<Self, DeviceError> {
        let ranks = machine.ranks.len();
        if machine.is_joint() || ranks > MOST_RANKS {
            let reason = format!("peer reads in two stages are for up to {MOST_RANKS} ranks of one process");
            return Err(DeviceError::Unavailable { reason });
        }
        for from in 0..ranks {
            for to in (0..ranks).filter(|to| *to != from) {
                machine.connect(from, to)?;
            }
        }
        let buffers = |bytes: u64| -> Result<Vec<DeviceBuffer>, DeviceError> {
            (0..ranks)
                .map(|r| Ok(DeviceBuffer::new(machine.context(r), bytes)?))
                .collect()
        };
        let (states, temps) = (buffers(STATE_BYTES)?, buffers(max_bytes.next_multiple_of(16))?);
        let status = MappedHost::new(machine.context(0), 4 * ranks as u64)?;
        let pointers = |of: &[DeviceBuffer], at: u64| -> Vec<u8> {
            of.iter().flat_map(|b| (b.address() + at).to_le_bytes()).collect()
        };
        for (state, rank) in states.iter().zip(&machine.ranks) {
            rank.stream.fill(state.address(), 0, state.bytes())?;
            rank.stream.upload(state.address() + TEMPS_AT, &pointers(&temps, 0))?;
            rank.stream
                .upload(state.address() + SIGNALS_AT, &pointers(&states, WORDS_AT))?;
        }
        machine.synchronise()?;
        Ok(Self {
            wide: partials == Partials::F32,
            states,
            _temps: temps,
            status,
        })
    }

    pub fn enqueue(&self, machine: &Machine, bytes: u64, buffers: &[(u64, u64)]) -> Result<(), DeviceError> {
        let vectors = bytes / 16;
        let chunk = vectors.div_ceil(self.states.len() as u64);
        // The same grid on every rank: its blocks meet those of their number.
        let room = machine.gpus.iter().map(|g| g.multiprocessors / g.ranks.max(1)).min();
        let room = room.unwrap_or(1).clamp(1, MOST_BLOCKS);
        let blocks = chunk.div_ceil(u64::from(THREADS)).clamp(1, u64::from(room)) as u32;
        let deadline_ns = u64::try_from(machine.options.deadline.as_nanos()).unwrap_or(u64::MAX);
        for (r, rank) in machine.ranks.iter().enumerate() {
            let gpu = &machine.gpus[rank.gpu];
            let state = self.states[r].address();
            let status = self.status.device_address(machine.context(r))? + 4 * r as u64;
            let mut values = vec![
                state + TEMPS_AT,
                state + SIGNALS_AT,
                state + COUNTERS_AT,
                state + WORDS_AT,
                state + DEAD_AT,
                status,
                deadline_ns,
                buffers[r].1,
                bytes / 2,
                self.states.len() as u64,
                r as u64,
                u64::from(self.wide),
            ];
            values.extend((0..MOST_RANKS).map(|q| buffers.get(q).map_or(0, |b| b.0)));
            launch::values(&rank.stream, &gpu.tools.pull2, Geometry::new(blocks, THREADS), &values)?;
        }
        Ok(())
    }

    /// Who waited in vain.
    pub fn verdict(&self) -> Result<(), DeviceError> {
        for rank in 0..self.states.len() {
            if let Some(peer) = self.status.read_u32(rank).checked_sub(1) {
                return Err(DeviceError::Timeout {
                    rank,
                    peer: Some(peer as usize),
                    stage: 0,
                    column: 0,
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_state_do_not_overlap() {
        const {
            assert!(TEMPS_AT + 8 * MOST_RANKS as u64 <= SIGNALS_AT);
            assert!(SIGNALS_AT + 8 * MOST_RANKS as u64 <= DEAD_AT && DEAD_AT + 4 <= COUNTERS_AT);
            assert!(COUNTERS_AT + 4 * MOST_BLOCKS as u64 <= WORDS_AT);
        }
    }
}

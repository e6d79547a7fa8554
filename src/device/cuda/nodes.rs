//! The small kernels around collectives, as operations on a rank's stream: mixing, conversions, delay, start gate.
//!
//! Argument lists mirror kernels/tools.cu. Only enqueues. Start at [`Machine::mix`].

use super::gpu::Rank;
use super::machine::Machine;
use crate::device::{DeviceError, Geometry, Launch};
use crate::driver::launch;
use crate::registry::Element;
use std::time::Duration;

/// How long a start gate holds a stream at most.
const GATE: Duration = Duration::from_secs(5);

/// Arguments of a mixing node.
pub(super) struct Mix {
    pub element: Element,
    pub bytes: u64,
    pub call: u32,
    pub seed: u32,
    pub specials: bool,
    /// As the collective around it, so that a chain is programmatic throughout.
    pub launch: Launch,
}

impl Machine {
    /// Each tool, and the driver's own fill and copy, once, so that nothing is loaded or resized while kernels spin.
    pub fn warm(&self) -> Result<(), DeviceError> {
        let nothing = |element| Mix {
            element,
            bytes: 0,
            call: 0,
            seed: 0,
            specials: false,
            launch: Launch::Plain,
        };
        for (r, rank) in self.ranks.iter().enumerate() {
            let tools = &self.gpus[rank.gpu].tools;
            let one = Geometry::new(1, 32);
            let (a, b) = (rank.input.address(), rank.output.address());
            rank.stream.fill(a, 0, 256)?;
            rank.stream.copy(b, a, 256)?;
            for element in Element::ALL {
                self.mix(r, &nothing(*element), a, b)?;
            }
            for kernel in tools.widen.iter().chain(&tools.narrow) {
                launch::values(&rank.stream, kernel, one, &[a, b, 0])?;
            }
            launch::values(&rank.stream, &tools.delay, one, &[0])?;
            self.gate_at(rank, 0)?;
        }
        self.synchronise()
    }

    /// Enqueues the mixing node: `input` from `output`.
    pub fn mix(&self, rank: usize, mix: &Mix, input: u64, output: u64) -> Result<(), DeviceError> {
        let count = mix.bytes / mix.element.bytes() as u64;
        let values = [
            input,
            output,
            count,
            (self.first + rank) as u64,
            u64::from(mix.call),
            u64::from(mix.seed),
            u64::from(mix.specials),
            u64::from(mix.launch == Launch::Early),
        ];
        let rank = &self.ranks[rank];
        Ok(launch::values(
            &rank.stream,
            self.gpus[rank.gpu].tools.mix(mix.element),
            spread(count).launched(mix.launch),
            &values,
        )?)
    }

    /// Enqueues a 16-bit type to f32.
    pub fn widen(&self, element: Element, rank: usize, from: u64, to: u64, count: u64) -> Result<(), DeviceError> {
        let rank = &self.ranks[rank];
        Ok(launch::values(
            &rank.stream,
            &self.gpus[rank.gpu].tools.widen[usize::from(element == Element::Bf16)],
            whole(count),
            &[from, to, count],
        )?)
    }

    /// Enqueues f32 to a 16-bit type.
    pub fn narrow(&self, element: Element, rank: usize, from: u64, to: u64, count: u64) -> Result<(), DeviceError> {
        let rank = &self.ranks[rank];
        Ok(launch::values(
            &rank.stream,
            &self.gpus[rank.gpu].tools.narrow[usize::from(element == Element::Bf16)],
            whole(count),
            &[from, to, count],
        )?)
    }

    /// Enqueues doing nothing for so long on a rank, which may be of another process: then nothing at all.
    pub fn delay(&self, rank: usize, ns: u64) -> Result<(), DeviceError> {
        let Some(rank) = rank.checked_sub(self.first).and_then(|r| self.ranks.get(r)) else {
            return Ok(());
        };
        let one = Geometry::new(1, 1);
        Ok(launch::values(
            &rank.stream,
            &self.gpus[rank.gpu].tools.delay,
            one,
            &[ns],
        )?)
    }

    pub fn gate_at(&self, rank: &Rank, token: u32) -> Result<(), DeviceError> {
        let gpu = &self.gpus[rank.gpu];
        let word = self.gate_word(&gpu.context)?;
        let one = Geometry::new(1, 1);
        let values = [word, u64::from(token), GATE.as_nanos() as u64];
        Ok(launch::values(&rank.stream, &gpu.tools.gate, one, &values)?)
    }
}

/// A thread an element as far as grids go: conversions are timed, and nothing spins beside them.
fn whole(count: u64) -> Geometry {
    let blocks = count.div_ceil(256).clamp(1, 4096) as u32;
    Geometry::new(blocks, 256)
}

/// Enough threads for an elementwise kernel, few enough to leave room for kernels that spin.
fn spread(count: u64) -> Geometry {
    let blocks = count.div_ceil(256).clamp(1, 64);
    Geometry::new(blocks as u32, 256)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elementwise_grids_cover_small_counts_and_stay_small() {
        assert_eq!(spread(1), Geometry::new(1, 256));
        assert_eq!(spread(257).blocks, 2);
        assert_eq!(spread(u64::from(u32::MAX)).blocks, 64);
        assert_eq!(whole(512 << 10).blocks, 2048);
    }
}

//! The litmus of lines: one rank stores numbers that grow into lines of another, which looks as often as it can whether all
//! words of a line are the same number.
//!
//! Nothing waits for anybody, so reads fall between stores however they like. The writer's stores are so many and no more;
//! the reader gives up by itself. Start at [`watch`].

use super::machine::Machine;
use crate::device::lines::LineTally;
use crate::device::{DeviceError, Geometry};
use crate::driver::launch;
use crate::driver::memory::DeviceBuffer;
use std::time::Duration;

/// One block of eight warps, four lines each.
const GEOMETRY: Geometry = Geometry::new(1, 256);
const LINES: u64 = 32;
const LINE_BYTES: u64 = 128;
/// How often each line is stored.
const ROUNDS: u32 = 500_000;
/// After this the reader ends whatever it has seen.
const PATIENCE: Duration = Duration::from_secs(4);
/// Mirrors `TfLines` in kernels/tools.cu.
const TALLY_BYTES: usize = 24;

/// `from` stores into memory of `to`. With nothing else in flight.
pub(super) fn watch(machine: &mut Machine, from: usize, to: usize) -> Result<LineTally, DeviceError> {
    if from != to && machine.ranks[from].gpu != machine.ranks[to].gpu {
        machine.connect(from, to)?;
    }
    let context = machine.context(to);
    let lines = DeviceBuffer::new(context, LINES * LINE_BYTES)?;
    let tally = DeviceBuffer::new(context, TALLY_BYTES as u64)?;
    let reader = &machine.ranks[to];
    reader.stream.fill(lines.address(), 0, LINES * LINE_BYTES)?;
    reader.stream.fill(tally.address(), 0, TALLY_BYTES as u64)?;
    // No store before the lines are zero.
    machine.synchronise()?;
    let nanoseconds = u64::try_from(PATIENCE.as_nanos()).unwrap_or(u64::MAX);
    let arguments = [lines.address(), u64::from(ROUNDS), nanoseconds, tally.address()];
    let tools = |rank: usize| &machine.gpus[machine.ranks[rank].gpu].tools;
    launch::values(&reader.stream, &tools(to).lines_watch, GEOMETRY, &arguments)?;
    let writer = &machine.ranks[from];
    let arguments = [lines.address(), u64::from(ROUNDS)];
    launch::values(&writer.stream, &tools(from).lines_put, GEOMETRY, &arguments)?;
    if let Err(error) = machine.settle(PATIENCE) {
        // Freeing would wait for a kernel that never ends.
        std::mem::forget((lines, tally));
        return Err(error);
    }
    let mut bytes = [0; TALLY_BYTES];
    reader.stream.download(tally.address(), &mut bytes)?;
    Ok(read(&bytes))
}

/// A `TfLines` as it lies in memory.
fn read(bytes: &[u8; TALLY_BYTES]) -> LineTally {
    let long = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(word)
    };
    LineTally {
        seen: long(0),
        torn: long(8),
        whole: long(16) == LINES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_is_read_as_the_kernel_writes_it() {
        let mut bytes = [0; TALLY_BYTES];
        bytes[..8].copy_from_slice(&5_000_000_000_u64.to_le_bytes());
        bytes[8] = 3;
        bytes[16] = 31;
        let tally = |whole| LineTally {
            seen: 5_000_000_000,
            torn: 3,
            whole,
        };
        assert_eq!(read(&bytes), tally(false), "one line of 32 never came to its end");
        bytes[16] = 32;
        assert_eq!(read(&bytes), tally(true));
        assert_eq!(u64::from(GEOMETRY.threads) * 16, LINES * LINE_BYTES);
    }
}

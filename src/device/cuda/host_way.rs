//! Measures the way through mapped host memory: what a load of it costs, a word through it, and how fast bytes go in and
//! come out, by how loads are issued.
//!
//! It says what limits host-staged routes. Nothing else is in flight. Start at [`measure`].

use super::floor::{ROUNDS, SECOND, median, ping_us, values};
use super::machine::Machine;
use crate::device::floor::{HostWay, Prototype};
use crate::device::{DeviceError, Geometry, Sampling};
use crate::driver::launch;
use crate::driver::memory::{DeviceBuffer, MappedHost};

/// Bytes of a bandwidth sample and of each rank's buffer.
const BYTES: u64 = 4 << 20;
/// From one rank's word to the other's, and to the word of zeros.
const LINE: u64 = 256;
/// Clocks between two polls in flight that are tried.
const GAPS: [u32; 4] = [0, 400, 800, 1200];
/// How loads are issued, in the numbers of `tf_read`.
const LOADS: [&str; 4] = [
    "relaxed, system scope",
    "weak",
    "weak, two in flight",
    "weak, four in flight",
];
/// Launches of one bandwidth sample.
const TIMES: u32 = 4;

pub(super) fn measure(machine: &mut Machine, sampling: &Sampling) -> Result<HostWay, DeviceError> {
    let words = MappedHost::new(machine.context(0), 4 * LINE)?;
    let bulk = MappedHost::new(machine.context(0), 2 * BYTES)?;
    let way = (|| {
        let mut figures = Vec::new();
        for gap in GAPS {
            figures.push((gap, word_us(machine, sampling, &words, gap)?));
        }
        let mut loads = Vec::new();
        for (how, name) in LOADS.into_iter().enumerate() {
            let alone = loads_gb_per_s(machine, sampling, &bulk, how as u64, 1)?;
            let both = loads_gb_per_s(machine, sampling, &bulk, how as u64, 2)?;
            loads.push((name, alone, both));
        }
        Ok(HostWay {
            load_us: load_us(machine, sampling, &words)?,
            words: figures,
            store_gb_per_s: store_gb_per_s(machine, sampling, &bulk)?,
            loads,
            prototypes: if machine.options.staged {
                prototypes(machine, sampling)?
            } else {
                Vec::new()
            },
        })
    })();
    if machine.wedged() {
        // Freeing would wait for a kernel that never ends.
        std::mem::forget((words, bulk));
    }
    way
}

fn load_us(machine: &mut Machine, sampling: &Sampling, words: &MappedHost) -> Result<f64, DeviceError> {
    let graphs = machine.capture_with(|m| {
        let rank = &m.ranks[0];
        let zeros = words.device_address(m.context(0))? + 3 * LINE;
        let arguments = [zeros, u64::from(ROUNDS), rank.output.address()];
        Ok(launch::values(
            &rank.stream,
            &m.gpus[rank.gpu].tools.chase,
            Geometry::new(1, 1),
            &arguments,
        )?)
    })?;
    Ok(median(machine, &graphs, sampling)? / f64::from(ROUNDS))
}

/// Each rank polls a word of its own in host memory, which the other one writes.
fn word_us(machine: &mut Machine, sampling: &Sampling, words: &MappedHost, gap: u32) -> Result<f64, DeviceError> {
    let side = |r: usize| -> Result<_, DeviceError> {
        let base = words.device_address(machine.context(r))?;
        Ok((r, base + r as u64 * LINE, base + (1 - r as u64) * LINE))
    };
    let sides = [side(0)?, side(1)?];
    ping_us(machine, sampling, sides, Some(gap))
}

fn store_gb_per_s(machine: &mut Machine, sampling: &Sampling, bulk: &MappedHost) -> Result<f64, DeviceError> {
    let graphs = machine.capture_with(|m| {
        let rank = &m.ranks[0];
        let to = bulk.device_address(m.context(0))?;
        let geometry = Geometry::new(m.gpus[rank.gpu].multiprocessors * 4, 512);
        (0..TIMES).try_for_each(|_| {
            let arguments = [rank.input.address(), to, BYTES / 16];
            values(m, 0, &m.gpus[rank.gpu].tools.copy, geometry, &arguments)
        })
    })?;
    Ok(rate(median(machine, &graphs, sampling)?))
}

/// Each of the first `ranks` ranks loads a buffer of its own.
fn loads_gb_per_s(
    machine: &mut Machine,
    sampling: &Sampling,
    bulk: &MappedHost,
    how: u64,
    ranks: usize,
) -> Result<f64, DeviceError> {
    let graphs = machine.capture_with(|m| {
        for r in 0..ranks {
            let rank = &m.ranks[r];
            let from = bulk.device_address(m.context(r))? + r as u64 * BYTES;
            let geometry = Geometry::new(m.gpus[rank.gpu].multiprocessors * 4, 512);
            for _ in 0..TIMES {
                let arguments = [from, BYTES / 16, how, rank.output.address()];
                launch::values(&rank.stream, &m.gpus[rank.gpu].tools.read, geometry, &arguments)?;
            }
        }
        Ok(())
    })?;
    Ok(rate(median(machine, &graphs, sampling)?))
}

/// Payloads of the prototype, and when its polls begin: clocks before the first, clocks between two in flight.
const PAYLOADS: [u64; 5] = [1 << 10, 5 << 10, 10 << 10, 25 << 10, 80 << 10];
const POLLS: [(u32, u32); 8] = [
    (0, 0),
    (200, 0),
    (400, 0),
    (600, 0),
    (800, 0),
    (1200, 0),
    (0, 400),
    (0, 800),
];

fn prototypes(machine: &mut Machine, sampling: &Sampling) -> Result<Vec<Prototype>, DeviceError> {
    let stride = PAYLOADS[PAYLOADS.len() - 1] / 16;
    // Two buffers a rank; a word of all ones is "not yet".
    let slots = MappedHost::filled(machine.context(0), 2 * 2 * 16 * stride, 0xff)?;
    let mut counters = Vec::new();
    for r in 0..2 {
        let mine = DeviceBuffer::new(machine.context(r), 4 * stride)?;
        machine.ranks[r].stream.fill(mine.address(), 0, mine.bytes())?;
        machine.ranks[r]
            .stream
            .fill(machine.ranks[r].input.address(), 0, 16 * stride)?;
        counters.push(mine);
    }
    machine.synchronise()?;
    let mut figures = Vec::new();
    for bytes in PAYLOADS {
        for (hold, gap) in POLLS {
            let us = prototype_us(machine, sampling, (&slots, &counters, stride), bytes, (hold, gap));
            if us.is_err() && machine.wedged() {
                // Freeing would wait for a kernel that never ends.
                std::mem::forget((slots, counters));
                return us.map(|_| figures);
            }
            figures.push(Prototype {
                bytes,
                hold,
                gap,
                us: us?,
            });
        }
    }
    Ok(figures)
}

fn prototype_us(
    machine: &mut Machine,
    sampling: &Sampling,
    (slots, counters, stride): (&MappedHost, &[DeviceBuffer], u64),
    bytes: u64,
    (hold, gap): (u32, u32),
) -> Result<f64, DeviceError> {
    let vectors = bytes / 16;
    let geometry = Geometry::new(vectors.div_ceil(64) as u32, 64);
    let graphs = machine.capture_with(|m| {
        for call in 0..sampling.calls {
            for (r, counter) in counters.iter().enumerate() {
                let rank = &m.ranks[r];
                let base = slots.device_address(m.context(r))?;
                let of = |r: usize| base + r as u64 * 2 * 16 * stride;
                let (x, y) = (rank.input.address(), rank.output.address());
                let (from, to) = if call % 2 == 0 { (x, y) } else { (y, x) };
                let arguments = [
                    from,
                    to,
                    counter.address(),
                    of(1 - r),
                    of(r),
                    vectors,
                    stride,
                    u64::from(hold),
                    u64::from(gap),
                    SECOND,
                ];
                values(m, r, &m.gpus[rank.gpu].tools.staged, geometry, &arguments)?;
            }
        }
        Ok(())
    })?;
    Ok(median(machine, &graphs, sampling)? / f64::from(sampling.calls))
}

fn rate(us: f64) -> f64 {
    f64::from(TIMES) * BYTES as f64 / (us * 1e3)
}

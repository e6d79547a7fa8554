//! Busy streams beside collectives: what a machine in use looks like to a route.
//!
//! Each stream replays short nodes that rewrite a buffer of its own, on half of the multiprocessors together; they end by
//! themselves, so a collective's blocks are never kept out for long. Start at [`Load::new`].

use super::machine::Machine;
use crate::device::{DeviceError, Geometry};
use crate::driver::graph::GraphExec;
use crate::driver::launch;
use crate::driver::memory::{DeviceBuffer, MappedHost};
use crate::driver::stream::Stream;
use std::time::{Duration, Instant};

/// The most busy streams a GPU: with the rank's own as many as a device has hardware queues.
pub const MOST: u32 = 7;
/// Nodes that one start enqueues on a stream: some ten milliseconds.
const NODES: u32 = 1024;
/// Buffer of a stream: small enough to stay in the second-level cache.
const BYTES: u64 = 4 << 20;
const ROUNDS: u64 = 4;
const WORKING: u32 = 0;
const STOP: u32 = 1;

/// Busy streams, idle until started.
pub(super) struct Load {
    streams: Vec<(Stream, GraphExec)>,
    word: MappedHost,
    _buffers: Vec<DeviceBuffer>,
}

impl Load {
    /// `streams` on every GPU of the machine. Nothing is in flight.
    pub fn new(machine: &Machine, streams: u32) -> Result<Self, DeviceError> {
        if streams == 0 || streams > MOST {
            let reason = format!("{streams} busy streams: give 1 to {MOST}");
            return Err(DeviceError::Misuse { reason });
        }
        let word = MappedHost::new(&machine.gpus[0].context, 64)?;
        word.write_u32(0, STOP);
        let (mut all, mut buffers) = (Vec::new(), Vec::new());
        for gpu in &machine.gpus {
            let blocks = (gpu.multiprocessors / 2 / streams).max(1);
            let address = word.device_address(&gpu.context)?;
            for _ in 0..streams {
                let buffer = DeviceBuffer::new(&gpu.context, BYTES)?;
                let stream = Stream::new(&gpu.context)?;
                stream.fill(buffer.address(), 0, BYTES)?;
                // Once outside of the graph: the kernel is loaded before anything spins.
                let enqueue = || {
                    let values = [buffer.address(), BYTES / 16, ROUNDS, address];
                    launch::values(&stream, &gpu.tools.busy, Geometry::new(blocks, 256), &values)
                };
                enqueue()?;
                stream.begin_capture()?;
                let enqueued = (0..NODES).try_for_each(|_| enqueue());
                let graph = stream.end_capture();
                enqueued?;
                let exec = graph?.instantiate(&stream)?;
                all.push((stream, exec));
                buffers.push(buffer);
            }
        }
        machine.synchronise()?;
        Ok(Self {
            streams: all,
            word,
            _buffers: buffers,
        })
    }

    /// Sets every stream to work.
    pub fn start(&self) -> Result<(), DeviceError> {
        self.word.write_u32(0, WORKING);
        let launched = self.streams.iter().try_for_each(|(stream, graph)| graph.launch(stream));
        Ok(launched.inspect_err(|_| self.word.write_u32(0, STOP))?)
    }

    /// Ends the work and waits, with a bound, until all streams are idle. False: some stream had run out of work before, so
    /// that what was measured beside it was not all under load.
    pub fn end(&self) -> Result<bool, DeviceError> {
        let mut busy = true;
        for (stream, _) in &self.streams {
            busy &= !stream.idle()?;
        }
        self.word.write_u32(0, STOP);
        let since = Instant::now();
        for (stream, _) in &self.streams {
            while !stream.idle()? {
                if since.elapsed() > Duration::from_secs(10) {
                    let reason = "busy streams did not end within 10 s".to_owned();
                    return Err(DeviceError::KernelFault { reason });
                }
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        Ok(busy)
    }
}

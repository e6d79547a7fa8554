//! What a rank has in common with the ranks of other processes: steps, memory, the gate, and abort words to set when a
//! peer's process is gone.
//!
//! Start at [`Joint::open`].

use super::share::{Registered, Way};
use crate::device::DeviceError;
use crate::driver::context::Context;
use crate::driver::memfd::SharedMemory;
use crate::driver::stream::Stream;
use crate::process::Seen;
use crate::process::heap::{Block, Heap};
use crate::process::link::Steps;
use crate::process::watch::Kept;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A rank, as all ranks know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// E.g. `NVIDIA H200`.
    pub name: String,
    /// Sixteen bytes behind `GPU-…`; equal for ranks that share a GPU, whatever each calls it.
    pub uuid: [u8; 16],
    /// PCI address, e.g. `0000:1B:00.0`.
    pub pci: String,
    /// Compute capability, e.g. 90.
    pub arch: u32,
}

/// Device addresses of this rank's abort words.
type Aborts = Arc<Mutex<BTreeSet<u64>>>;

pub(super) struct Joint {
    pub steps: Steps,
    /// None where ranks meet in host memory only.
    pub device: Option<Heap>,
    pub host: Heap,
    pub gate: Block,
    pub seen: Arc<Seen>,
    aborts: Aborts,
    _kept: Option<Kept>,
}

/// How long leaving may wait for the other ranks, where it has to.
const FAREWELL: Duration = Duration::from_secs(2);

const DEVICE_UNIT: u64 = 2 << 20;
const HOST_UNIT: u64 = 256 << 10;

impl Joint {
    /// Finds out how memory travels here. A step: all ranks call it.
    pub fn open(mut steps: Steps, context: &Arc<Context>, best: Way) -> Result<Self, DeviceError> {
        let opened = Self::parts(&mut steps, context, best);
        let (device, host, gate) = steps.finish("opening memory", opened)?;
        let aborts = Aborts::default();
        // A stream of its own: nothing may be enqueued behind what it is to end.
        let stream = Stream::new(context)?;
        let stream = Mutex::new(stream);
        let words = aborts.clone();
        let hook = move || {
            let words = words.lock().unwrap_or_else(|e| e.into_inner());
            let stream = stream.lock().unwrap_or_else(|e| e.into_inner());
            for word in words.iter() {
                // A context that a kernel killed refuses; then nothing spins either.
                let _ = stream.upload(*word, &1_u32.to_ne_bytes());
            }
        };
        let kept = steps.mesh().and_then(|m| m.watch()).map(|w| w.on_loss(hook));
        Ok(Self {
            seen: steps.seen(),
            steps,
            device,
            host,
            gate,
            aborts,
            _kept: kept,
        })
    }

    fn parts(steps: &mut Steps, context: &Arc<Context>, best: Way) -> Result<(Option<Heap>, Heap, Block), DeviceError> {
        let all = steps.agree("ways of sharing memory", Ok(vec![best as u8]))?;
        let mut way = all.iter().map(|b| Way::of(b.first().copied().unwrap_or(0))).min();
        let mut device = None;
        while let Some(provider) = way.and_then(|w| w.provider(context)) {
            let mut heap = Heap::new(provider, DEVICE_UNIT);
            // Every rank gets the same answer.
            match heap.allot(steps, 1) {
                Ok(block) => {
                    heap.give_back(block);
                    device = Some(heap);
                    break;
                }
                Err(e @ DeviceError::Lost { .. }) => return Err(e),
                Err(_) => way = way.map(Way::worse),
            }
        }
        let mut host = Heap::new(Box::new(Registered(context.clone())), HOST_UNIT);
        let gate = host.allot(steps, 64)?;
        Ok((device, host, gate))
    }

    /// Where memory dies with its maker, makers wait until all have let go of theirs, for a moment.
    fn leave(&mut self) {
        let own = self.steps.rank();
        let Some(heap) = self.device.as_mut().filter(|heap| !heap.outlives_makers()) else {
            return;
        };
        heap.let_go_of_others(own);
        if let Some(mesh) = self.steps.mesh_mut() {
            mesh.set_patience(FAREWELL);
        }
        if self.steps.agree("leaving", Ok(Vec::new())).is_err() {
            // Kernels of whoever is left are being stopped.
            std::thread::sleep(FAREWELL / 2);
        }
    }

    /// Keeps an abort word to be set when a peer is gone.
    pub fn guard(&self, word: u64) {
        self.aborts.lock().unwrap_or_else(|e| e.into_inner()).insert(word);
    }

    /// Before the word's memory goes.
    pub fn unguard(&self, word: u64) {
        self.aborts.lock().unwrap_or_else(|e| e.into_inner()).remove(&word);
    }

    /// Every rank's part of a host block, for the processor.
    pub fn host_parts(&self, block: &Block) -> Vec<(Arc<SharedMemory>, usize)> {
        let ranks = 0..self.steps.world();
        let part = |rank| self.host.host(block, rank).map(|(memory, at)| (memory.clone(), at));
        ranks.filter_map(part).collect()
    }
}

impl Drop for Joint {
    fn drop(&mut self) {
        self.leave();
    }
}

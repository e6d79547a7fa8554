//! The parameter block that kernels take. Mirrors kernels/abi.cuh: change both together.
//!
//! Plain data, the same for both executors; addresses are whatever the executor's memory is. Start at [`Params`].

use super::{DeviceError, Launch};
use crate::registry::{Kernel, Protocol, Variant};

/// Mirrors `TfStatus`, in mapped host memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// 1 once a wait ran past its deadline.
    pub state: u32,
    /// Who waited.
    pub rank: u32,
    /// On which port.
    pub port: u32,
    /// In which stage.
    pub stage: u32,
    /// The slot use that never came.
    pub counter: u32,
    /// Column, tile or block.
    pub column: u32,
}

/// Mirrors `TfControl`, in the rank's own memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Control {
    /// How long one wait may last.
    pub deadline_ns: u64,
    /// Address of a [`Status`].
    pub status: u64,
    /// 0 until a thread has reported.
    pub claimed: u32,
    /// Valid entries of `peer_abort`.
    pub peers: u32,
    /// Addresses of the peers' abort words.
    pub peer_abort: [u64; 64],
}

impl Control {
    /// The block as bytes, for an upload.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(size_of::<Self>());
        bytes.extend(self.deadline_ns.to_ne_bytes());
        bytes.extend(self.status.to_ne_bytes());
        bytes.extend(self.claimed.to_ne_bytes());
        bytes.extend(self.peers.to_ne_bytes());
        for word in self.peer_abort {
            bytes.extend(word.to_ne_bytes());
        }
        bytes
    }
}

/// Mirrors `TfHeader`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The caller's input, 16-byte aligned.
    pub input: u64,
    /// The caller's output, 16-byte aligned.
    pub output: u64,
    /// Use counters of this rank.
    pub counters: u64,
    /// This rank's abort word.
    pub abort: u64,
    /// This rank's [`Control`].
    pub control: u64,
    /// Payload.
    pub bytes: u64,
    /// 16-byte vectors a chunk.
    pub columns: u32,
    /// Columns (`packet128`: cells) a slot region has room for.
    pub stride: u32,
    /// For the status word.
    pub rank: u32,
    /// Rank program.
    pub program: u32,
    /// [`EARLY`], or nothing.
    pub flags: u32,
    /// 0.
    pub reserved: u32,
}

/// In [`Header::flags`]: the next programmatically launched grid of the stream may become resident meanwhile.
pub const EARLY: u32 = 1;

/// The most threads a block of ours is ever launched with; kernels are compiled for it.
pub const MAX_THREADS: u32 = 512;

/// Words (8 bytes) of a [`Header`].
pub const HEADER_WORDS: usize = size_of::<Header>() / 8;

/// A whole parameter block: header, then ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    words: Vec<u64>,
}

impl Params {
    /// `ports` must be as many as the kernel has.
    pub fn new(header: Header, ports: &[u64]) -> Self {
        let mut words = vec![0; HEADER_WORDS];
        words.extend_from_slice(ports);
        let mut params = Self { words };
        params.set_header(header);
        params
    }

    fn set_header(&mut self, h: Header) {
        let pair = |low: u32, high: u32| {
            let [a, b] = [low.to_ne_bytes(), high.to_ne_bytes()];
            u64::from_ne_bytes([a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]])
        };
        self.words[..HEADER_WORDS].copy_from_slice(&[
            h.input,
            h.output,
            h.counters,
            h.abort,
            h.control,
            h.bytes,
            pair(h.columns, h.stride),
            pair(h.rank, h.program),
            pair(h.flags, h.reserved),
        ]);
    }

    /// Points the block at another call's buffers and payload; allocates nothing.
    pub fn retarget(&mut self, input: u64, output: u64, bytes: u64, columns: u32) {
        self.words[0] = input;
        self.words[1] = output;
        self.words[5] = bytes;
        let mut pair = self.words[6].to_ne_bytes();
        pair[..4].copy_from_slice(&columns.to_ne_bytes());
        self.words[6] = u64::from_ne_bytes(pair);
    }

    /// Tells the kernel how it is launched.
    pub fn set_launch(&mut self, launch: Launch) {
        let flags = if launch == Launch::Early { EARLY } else { 0 };
        // The reserved half is zero.
        self.words[8] = u64::from(flags.to_le());
    }

    /// Sets port `index`; for `pull`, whose inputs change with the buffers.
    pub fn set_port(&mut self, index: usize, address: u64) {
        self.words[HEADER_WORDS + index] = address;
    }

    /// What a launch passes.
    pub fn as_ptr(&self) -> *const u64 {
        self.words.as_ptr()
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.words.len() * 8
    }
}

/// Sizes of one rank's scratch for a variant and a largest payload. The one place that knows the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScratchLayout {
    /// Columns (`packet128`: cells) a slot region has room for.
    pub stride: u32,
    /// Bytes from one slot region to the next.
    pub region: u64,
    /// Slot regions of the rank.
    pub regions: u32,
    /// Use counters of the rank.
    pub counters: u32,
}

/// Threads of a warp. Blocks of `packet128` kernels are whole ones.
pub const WARP: u32 = 32;

/// Cells in which `packet128` carries so many columns: 32 a warp for each 30. Mirrors kernels/packet128.cuh.
pub const fn cells(columns: u64) -> u64 {
    WARP as u64 * columns.div_ceil(30)
}

/// # Errors
/// [`DeviceError::Misuse`] where the variant's kernel cannot run in blocks of so many threads.
pub fn check_threads(variant: &Variant, threads: u32) -> Result<(), DeviceError> {
    if variant.protocol == Protocol::Packet128 && !threads.is_multiple_of(WARP) {
        let reason = format!(
            "`{}` runs in whole warps: give a multiple of {WARP} threads a block, not {threads}",
            variant.name
        );
        return Err(DeviceError::Misuse { reason });
    }
    // A thread speaks to a peer.
    if variant.protocol == Protocol::Pull && threads < variant.kernel.puts {
        let (name, puts) = (variant.name, variant.kernel.puts);
        let reason = format!("`{name}` needs at least {puts} threads a block, not {threads}");
        return Err(DeviceError::Misuse { reason });
    }
    Ok(())
}

/// The most blocks that a `pull` kernel is ever launched with.
pub const PULL_MAX_BLOCKS: u32 = 512;

impl ScratchLayout {
    /// `tile` is the threads of a block, which fixes the columns of a `flag` tile.
    pub fn new(variant: &Variant, rank: usize, max_bytes: u64, tile: u32) -> Self {
        let stride = u32::try_from(variant.threads(max_bytes).next_multiple_of(64).max(64)).unwrap_or(u32::MAX);
        let buffers = 2 * 16 * u64::from(variant.planes) * u64::from(stride);
        let tiles = stride.div_ceil(tile.max(1));
        let (region, counters) = match variant.protocol {
            Protocol::Packet | Protocol::Sentinel | Protocol::Packet128 => (buffers, stride),
            Protocol::Flag => (buffers + 32 * u64::from(tiles), tiles),
            Protocol::Pull => (64 * u64::from(PULL_MAX_BLOCKS), PULL_MAX_BLOCKS),
        };
        let regions = variant.ranks.get(rank).map_or(0, |r| r.gets.len() as u32);
        Self {
            stride,
            region: region.next_multiple_of(128),
            regions,
            counters,
        }
    }

    /// The byte that all slot regions are filled with before the first put.
    pub const fn fill(protocol: Protocol) -> u8 {
        match protocol {
            Protocol::Sentinel => 0xff,
            Protocol::Packet | Protocol::Packet128 | Protocol::Flag | Protocol::Pull => 0,
        }
    }

    /// Bytes of all slot regions.
    pub const fn slots_bytes(&self) -> u64 {
        self.region * self.regions as u64
    }

    /// Bytes of the counters.
    pub const fn counters_bytes(&self) -> u64 {
        4 * self.counters as u64
    }
}

/// The ports of `rank`: puts, gets, then (for `pull`) one input a rank. `scratch(rank)` is the base of that rank's slot
/// regions as this rank addresses it. Unused ports of a shorter rank program are null.
pub fn ports(
    variant: &Variant,
    rank: usize,
    layout: impl Fn(usize) -> ScratchLayout,
    scratch: impl Fn(usize) -> u64,
    input: impl Fn(usize) -> u64,
) -> Vec<u64> {
    let kernel: &Kernel = variant.kernel;
    let mut ports = vec![0; kernel.ports()];
    let Some(mine) = variant.ranks.get(rank) else {
        return ports;
    };
    for (port, put) in ports.iter_mut().zip(mine.puts) {
        let peer = put.peer as usize;
        *port = scratch(peer) + layout(peer).region * u64::from(put.region);
    }
    let (puts, gets) = (kernel.puts as usize, kernel.gets as usize);
    for region in 0..mine.gets.len().min(gets) {
        ports[puts + region] = scratch(rank) + layout(rank).region * region as u64;
    }
    let first_table = puts + gets + kernel.inputs as usize;
    for (r, port) in ports[puts + gets..first_table].iter_mut().enumerate() {
        *port = input(r);
    }
    for (port, word) in ports[first_table..].iter_mut().zip(mine.tables) {
        *port = *word;
    }
    ports
}

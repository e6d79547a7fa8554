//! Memory of every rank that all ranks map: the same blocks at the same offsets everywhere.
//!
//! Ranks ask for the same blocks in the same order, so each keeps the same books without a word; only a new segment is
//! exchanged. What a segment is made of, and how it travels, is a [`Provider`]'s business. Start at [`Heap::allot`].

use super::link::Steps;
use crate::device::DeviceError;
use crate::driver::memfd::SharedMemory;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A rank's part of a segment as this process maps it.
pub trait Mapped: Send {
    /// First byte, as kernels of this rank address it.
    fn address(&self) -> u64;

    /// The same bytes for the processor, where it has them.
    fn host(&self) -> Option<&Arc<SharedMemory>> {
        None
    }

    /// Whether the bytes live on for as long as anybody maps them, whoever made them.
    fn outlives_its_maker(&self) -> bool {
        true
    }
}

/// This rank's part, and what the others need to map it.
pub struct Made {
    /// Mapped here.
    pub own: Box<dyn Mapped>,
    /// What says which memory it is.
    pub token: Vec<u8>,
    /// The same as a descriptor.
    pub fd: Option<OwnedFd>,
}

/// Makes and maps parts of segments.
pub trait Provider: Send {
    /// A word for reports, e.g. `VMM`.
    fn name(&self) -> &'static str;

    /// So many bytes of this rank.
    ///
    /// # Errors
    /// There is not so much memory, or it cannot be shared here.
    fn make(&mut self, bytes: u64) -> Result<Made, DeviceError>;

    /// Maps what another rank made.
    ///
    /// # Errors
    /// It cannot be mapped here.
    fn open(&mut self, token: &[u8], fd: Option<OwnedFd>, bytes: u64) -> Result<Box<dyn Mapped>, DeviceError>;
}

/// A range that every rank has; given back with [`Heap::give_back`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    segment: usize,
    offset: u64,
    bytes: u64,
}

impl Block {
    /// Size, rounded up.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// In the place of a part that was unmapped.
struct Gone;

impl Mapped for Gone {
    fn address(&self) -> u64 {
        0
    }
}

struct Segment {
    bytes: u64,
    ranks: Vec<Box<dyn Mapped>>,
    /// Start and length of what is free, ascending, never touching.
    free: Vec<(u64, u64)>,
}

/// The books of one kind of memory.
pub struct Heap {
    provider: Box<dyn Provider>,
    segments: Vec<Option<Segment>>,
    unit: u64,
}

/// Alignment of blocks: a rank's flags share no line with another block's.
const ALIGN: u64 = 256;

impl Heap {
    /// Empty; segments are multiples of `unit` bytes.
    pub fn new(provider: Box<dyn Provider>, unit: u64) -> Self {
        Self {
            provider,
            segments: Vec::new(),
            unit: unit.max(4096),
        }
    }

    /// How memory travels.
    pub fn provider(&self) -> &'static str {
        self.provider.name()
    }

    /// Bytes that this rank holds.
    pub fn held(&self) -> u64 {
        self.segments.iter().flatten().map(|s| s.bytes).sum()
    }

    /// Whether every rank's memory outlives its maker, so that ranks may go in any order.
    pub fn outlives_makers(&self) -> bool {
        let mut parts = self.segments.iter().flatten().flat_map(|s| &s.ranks);
        parts.all(|p| p.outlives_its_maker())
    }

    /// Unmaps what other ranks made; blocks of theirs have no address any more.
    pub fn let_go_of_others(&mut self, own: usize) {
        for segment in self.segments.iter_mut().flatten() {
            for (rank, part) in segment.ranks.iter_mut().enumerate() {
                if rank != own {
                    *part = Box::new(Gone);
                }
            }
        }
    }

    /// A block of at least `bytes` on every rank, uninitialised. A step: every rank asks alike.
    ///
    /// # Errors
    /// Any rank's, on all ranks.
    pub fn allot(&mut self, steps: &mut Steps, bytes: u64) -> Result<Block, DeviceError> {
        let bytes = bytes.max(1).next_multiple_of(ALIGN);
        if let Some(block) = self.find(bytes) {
            return Ok(block);
        }
        let size = bytes.next_multiple_of(self.unit);
        let made = self.provider.make(size);
        let (message, fds): (Result<Vec<u8>, DeviceError>, Vec<BorrowedFd<'_>>) = match &made {
            Ok(made) => (
                Ok(made.token.clone()),
                made.fd.iter().map(std::os::fd::AsFd::as_fd).collect(),
            ),
            Err(e) => (Err(e.clone()), Vec::new()),
        };
        let shown = steps.exchange("sharing memory", message, &fds)?;
        let mut own = made.ok().map(|m| m.own);
        let open = || -> Result<Vec<Box<dyn Mapped>>, DeviceError> {
            let mut ranks = Vec::new();
            for (rank, (token, mut fds)) in shown.into_iter().enumerate() {
                ranks.push(match own.take_if(|_| rank == steps.rank()) {
                    Some(own) => own,
                    None => self.provider.open(&token, fds.pop(), size)?,
                });
            }
            Ok(ranks)
        };
        let opened = open();
        let (ranks, outcome) = match opened {
            Ok(ranks) => (ranks, Ok(Vec::new())),
            Err(e) => (Vec::new(), Err(e)),
        };
        steps.agree("mapping memory", outcome)?;
        let segment = Segment {
            bytes: size,
            ranks,
            free: vec![(0, size)],
        };
        match self.segments.iter_mut().find(|s| s.is_none()) {
            Some(slot) => *slot = Some(segment),
            None => self.segments.push(Some(segment)),
        }
        self.find(bytes).ok_or(DeviceError::Poisoned)
    }

    /// First fit.
    fn find(&mut self, bytes: u64) -> Option<Block> {
        for (index, segment) in self.segments.iter_mut().enumerate() {
            let Some(segment) = segment else { continue };
            let Some(at) = segment.free.iter().position(|(_, length)| *length >= bytes) else {
                continue;
            };
            let (offset, length) = segment.free[at];
            if length == bytes {
                segment.free.remove(at);
            } else {
                segment.free[at] = (offset + bytes, length - bytes);
            }
            return Some(Block {
                segment: index,
                offset,
                bytes,
            });
        }
        None
    }

    /// Takes a block back. Nobody may use it any more, on no rank; ranks give blocks back in the same order.
    pub fn give_back(&mut self, block: Block) {
        let Some(Some(segment)) = self.segments.get_mut(block.segment) else {
            return;
        };
        let at = segment.free.partition_point(|(offset, _)| *offset < block.offset);
        segment.free.insert(at, (block.offset, block.bytes));
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for &(offset, length) in &segment.free {
            match joined.last_mut() {
                Some((start, before)) if *start + *before == offset => *before += length,
                _ => joined.push((offset, length)),
            }
        }
        segment.free = joined;
    }

    /// Lets go of segments that hold no block.
    pub fn trim(&mut self) {
        for slot in &mut self.segments {
            if slot.as_ref().is_some_and(|s| s.free == [(0, s.bytes)]) {
                *slot = None;
            }
        }
    }

    /// First byte of a rank's part of a block, as kernels of this rank address it.
    pub fn address(&self, block: &Block, rank: usize) -> u64 {
        self.part(block, rank).map_or(0, |p| p.address() + block.offset)
    }

    /// A rank's part of a block for the processor: the memory and the offset in it.
    pub fn host(&self, block: &Block, rank: usize) -> Option<(&Arc<SharedMemory>, usize)> {
        Some((self.part(block, rank)?.host()?, usize::try_from(block.offset).ok()?))
    }

    fn part(&self, block: &Block, rank: usize) -> Option<&dyn Mapped> {
        let segment = self.segments.get(block.segment)?.as_ref()?;
        segment.ranks.get(rank).map(AsRef::as_ref)
    }
}

/// Plain shared memory, for kernels that run on the processor.
pub struct PlainMemory;

impl Mapped for Arc<SharedMemory> {
    fn address(&self) -> u64 {
        SharedMemory::address(self)
    }

    fn host(&self) -> Option<&Arc<SharedMemory>> {
        Some(self)
    }
}

pub(crate) fn refused(doing: &str, error: &std::io::Error) -> DeviceError {
    DeviceError::Unavailable {
        reason: format!("{doing}: {error}"),
    }
}

impl Provider for PlainMemory {
    fn name(&self) -> &'static str {
        "shared memory"
    }

    fn make(&mut self, bytes: u64) -> Result<Made, DeviceError> {
        let memory = usize::try_from(bytes)
            .map_err(|_| std::io::Error::from(std::io::ErrorKind::OutOfMemory))
            .and_then(SharedMemory::create)
            .map_err(|e| refused("making shared memory", &e))?;
        let fd = memory.fd().try_clone_to_owned();
        let fd = fd.map_err(|e| refused("making shared memory", &e))?;
        Ok(Made {
            own: Box::new(Arc::new(memory)),
            token: Vec::new(),
            fd: Some(fd),
        })
    }

    fn open(&mut self, _token: &[u8], fd: Option<OwnedFd>, bytes: u64) -> Result<Box<dyn Mapped>, DeviceError> {
        let fd = fd.ok_or_else(|| DeviceError::Unavailable {
            reason: "a rank sent no descriptor for its memory".to_owned(),
        })?;
        let memory = SharedMemory::open(fd, usize::try_from(bytes).unwrap_or(usize::MAX));
        let memory = memory.map_err(|e| refused("mapping shared memory", &e))?;
        Ok(Box::new(Arc::new(memory)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alone() -> (Heap, Steps) {
        (Heap::new(Box::new(PlainMemory), 1 << 16), Steps::alone())
    }

    #[test]
    fn blocks_do_not_overlap_and_freed_ones_are_used_again() {
        let (mut heap, mut steps) = alone();
        let mut blocks: Vec<Block> = (1..40_u64)
            .map(|i| heap.allot(&mut steps, i * 777).expect("memory"))
            .collect();
        let overlap = |a: &Block, b: &Block| {
            a.segment == b.segment && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes
        };
        for (i, a) in blocks.iter().enumerate() {
            assert_eq!(a.offset % ALIGN, 0);
            assert!(blocks[i + 1..].iter().all(|b| !overlap(a, b)));
        }
        let held = heap.held();
        for block in blocks.drain(..).rev() {
            heap.give_back(block);
        }
        for i in 1..40_u64 {
            heap.allot(&mut steps, i * 777).expect("memory");
        }
        assert_eq!(heap.held(), held, "the same blocks fit again");
    }

    #[test]
    fn empty_segments_are_let_go_and_others_stay() {
        let (mut heap, mut steps) = alone();
        let a = heap.allot(&mut steps, 1 << 16).expect("memory");
        let b = heap.allot(&mut steps, 100).expect("memory");
        let (memory, at) = heap.host(&b, 0).expect("host memory");
        memory.write(at, b"kept");
        heap.give_back(a);
        heap.trim();
        assert_eq!(heap.held(), 1 << 16);
        let (memory, at) = heap.host(&b, 0).expect("still there");
        let mut seen = [0; 4];
        memory.read(at, &mut seen);
        assert_eq!(&seen, b"kept");
        assert_eq!(
            heap.address(&a, 0),
            0,
            "a block of a segment that is gone has no address"
        );
    }
}

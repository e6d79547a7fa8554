//! Kernels on real memory: accesses are the processor's own, block threads are fibers of one thread, time is real.
//!
//! Stores are as strong as the processor makes them; that kernels need no more than they ask for is proven by the
//! adversarial executor beside this. Start at [`run_grid`].

use super::{HostOps, HostThread, Place};
use crate::device::Geometry;
use crate::device::abi::{Params, WARP};
use crate::device::host::warp::{self, CELL, OCTET, Step, THREADS};
use crate::registry::HostKernel;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence as processor_fence};
use std::time::{Duration, Instant};

static OPS: HostOps = HostOps {
    store,
    load,
    fence,
    barrier,
    relax,
    clock_ns,
    meet,
};

const STACK_BYTES: usize = 48 * 1024;
/// Rounds in which no fiber ended before other processes get the processor, and before the thread sleeps.
const PATIENCE: [u32; 2] = [32, 4096];
const NAP: Duration = Duration::from_micros(50);

/// A block's barrier.
#[derive(Default)]
struct Barrier {
    /// Those that have not ended.
    threads: Cell<u32>,
    arrived: Cell<u32>,
    turn: Cell<u32>,
    /// The OR of what came so far, and of the round before.
    votes: Cell<(u32, u32)>,
}

impl Barrier {
    fn open(&self, votes: u32) {
        self.arrived.set(0);
        self.votes.set((0, votes));
        self.turn.set(self.turn.get().wrapping_add(1));
    }

    /// A thread has ended: the others no longer wait for it.
    fn leave(&self) {
        self.threads.set(self.threads.get() - 1);
        if self.arrived.get() != 0 && self.arrived.get() == self.threads.get() {
            self.open(self.votes.get().0);
        }
    }
}

/// A warp's steps. Each thread writes its own place only and comes to no second step before all have been at the first.
struct Warp {
    arrived: Cell<usize>,
    turn: Cell<u32>,
    at: [Cell<usize>; THREADS],
    values: [Cell<[u8; CELL]>; THREADS],
}

impl Default for Warp {
    fn default() -> Self {
        Self {
            arrived: Cell::new(0),
            turn: Cell::new(0),
            at: std::array::from_fn(|_| Cell::new(0)),
            values: std::array::from_fn(|_| Cell::new([0; CELL])),
        }
    }
}

impl Warp {
    /// All are here.
    fn take(&self, step: Step) {
        match step {
            Step::StoreLine | Step::LoadLine => {
                for line in 0..THREADS / OCTET {
                    let cells = OCTET * line..OCTET * (line + 1);
                    let at = self.at[cells.start].get() as *mut u64;
                    let cells = &self.values[cells];
                    if step == Step::StoreLine {
                        store_line(at, cells);
                    } else {
                        load_line(at, cells);
                    }
                }
            }
            other => {
                let mut values = std::array::from_fn(|i| self.values[i].get());
                warp::exchange(other, &mut values);
                for (cell, value) in self.values.iter().zip(values) {
                    cell.set(value);
                }
            }
        }
    }
}

/// Words of a line, and of a cell.
const LINE_WORDS: usize = OCTET * CELL / 8;
const CELL_WORDS: usize = CELL / 8;

/// No processor stores 128 bytes at once. The last word, which holds the counter, goes last and is released; a reader takes
/// it first and acquires: whoever sees it sees the rest.
fn store_line(at: *mut u64, cells: &[Cell<[u8; CELL]>]) {
    for word in 0..LINE_WORDS {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&cells[word / CELL_WORDS].get()[8 * (word % CELL_WORDS)..][..8]);
        let value = u64::from_ne_bytes(bytes);
        let order = if word + 1 == LINE_WORDS {
            Ordering::Release
        } else {
            Ordering::Relaxed
        };
        // SAFETY: kernels store lines to memory that all ranks map, aligned to 128 bytes, as the header promises.
        unsafe { AtomicU64::from_ptr(at.add(word)).store(value, order) };
    }
}

fn load_line(at: *mut u64, cells: &[Cell<[u8; CELL]>]) {
    for word in (0..LINE_WORDS).rev() {
        let order = if word + 1 == LINE_WORDS {
            Ordering::Acquire
        } else {
            Ordering::Relaxed
        };
        // SAFETY: as in `store_line`.
        let value = unsafe { AtomicU64::from_ptr(at.add(word)).load(order) };
        let cell = &cells[word / CELL_WORDS];
        let mut bytes = cell.get();
        bytes[8 * (word % CELL_WORDS)..][..8].copy_from_slice(&value.to_ne_bytes());
        cell.set(bytes);
    }
}

extern "C" fn meet(thread: *mut HostThread, step: u32, at: *mut c_void, value: *mut c_void) {
    let link = link(thread);
    // SAFETY: the handle is the one that `run_grid` made, and it keeps a block's warps for as long as its fibers can run.
    let (own, warp) = unsafe {
        let own = (*thread).thread as usize;
        (own % THREADS, &*link.warps.add(own / THREADS))
    };
    // Unknown steps are the header's fault; a vote harms nobody.
    let step = Step::of(step).unwrap_or(Step::Any);
    let mut mine = [0; CELL];
    // SAFETY: the header passes 16 readable bytes.
    unsafe { std::ptr::copy_nonoverlapping(value.cast::<u8>(), mine.as_mut_ptr(), CELL) };
    warp.at[own].set(at as usize);
    warp.values[own].set(mine);
    warp.arrived.set(warp.arrived.get() + 1);
    let turn = warp.turn.get();
    if warp.arrived.get() == THREADS {
        warp.take(step);
        warp.arrived.set(0);
        warp.turn.set(turn.wrapping_add(1));
    } else {
        while warp.turn.get() == turn {
            link.pause();
        }
    }
    let mine = warp.values[own].get();
    // SAFETY: the header passes room for 16 bytes.
    unsafe { std::ptr::copy_nonoverlapping(mine.as_ptr(), value.cast::<u8>(), CELL) };
}

/// What `HostThread::executor` points to.
struct Link {
    yielder: *const Yielder<(), ()>,
    barrier: *const Barrier,
    /// The block's.
    warps: *const Warp,
    since: Instant,
}

impl Link {
    fn pause(&self) {
        // SAFETY: the yielder belongs to the coroutine that is running this very code.
        unsafe { &*self.yielder }.suspend(());
    }
}

fn link<'a>(thread: *mut HostThread) -> &'a Link {
    // SAFETY: kernels pass on the handle that `run_grid` made, whose `executor` is a `Link` on the fiber's stack.
    unsafe { &*(*thread).executor.cast::<Link>() }
}

extern "C" fn store(_thread: *mut HostThread, at: *mut c_void, from: *const c_void, bytes: u32, _order: u32) {
    let (at, from) = (at.cast::<u8>(), from.cast::<u8>());
    // SAFETY: kernels store to memory that all ranks map, aligned to the size of the access, as the header promises.
    // Words are atomic since another process may read them now.
    unsafe {
        match bytes {
            2 => AtomicU16::from_ptr(at.cast()).store(from.cast::<u16>().read_unaligned(), Ordering::Relaxed),
            4 => AtomicU32::from_ptr(at.cast()).store(from.cast::<u32>().read_unaligned(), Ordering::Relaxed),
            8 | 16 => {
                for word in 0..bytes as usize / 8 {
                    let value = from.cast::<u64>().add(word).read_unaligned();
                    AtomicU64::from_ptr(at.cast::<u64>().add(word)).store(value, Ordering::Relaxed);
                }
            }
            _ => {
                for byte in 0..bytes as usize {
                    AtomicU8::from_ptr(at.add(byte)).store(from.add(byte).read(), Ordering::Relaxed);
                }
            }
        }
    }
}

extern "C" fn load(_thread: *mut HostThread, at: *const c_void, to: *mut c_void, bytes: u32, order: u32) {
    const ACQUIRE: u32 = 2;
    let order = if order == ACQUIRE {
        Ordering::Acquire
    } else {
        Ordering::Relaxed
    };
    let (at, to) = (at.cast::<u8>().cast_mut(), to.cast::<u8>());
    // SAFETY: as in `store`.
    unsafe {
        match bytes {
            2 => to
                .cast::<u16>()
                .write_unaligned(AtomicU16::from_ptr(at.cast()).load(order)),
            4 => to
                .cast::<u32>()
                .write_unaligned(AtomicU32::from_ptr(at.cast()).load(order)),
            8 | 16 => {
                for word in 0..bytes as usize / 8 {
                    let value = AtomicU64::from_ptr(at.cast::<u64>().add(word)).load(order);
                    to.cast::<u64>().add(word).write_unaligned(value);
                }
            }
            _ => {
                for byte in 0..bytes as usize {
                    to.add(byte).write(AtomicU8::from_ptr(at.add(byte)).load(order));
                }
            }
        }
    }
}

extern "C" fn fence(_thread: *mut HostThread) {
    processor_fence(Ordering::SeqCst);
}

extern "C" fn barrier(thread: *mut HostThread, mine: u32) -> u32 {
    let link = link(thread);
    // SAFETY: `run_grid` keeps a block's barrier for as long as its fibers can run.
    let barrier = unsafe { &*link.barrier };
    let (now, _) = barrier.votes.get();
    barrier.arrived.set(barrier.arrived.get() + 1);
    let turn = barrier.turn.get();
    if barrier.arrived.get() == barrier.threads.get() {
        barrier.open(now | mine);
    } else {
        barrier.votes.set((now | mine, barrier.votes.get().1));
        while barrier.turn.get() == turn {
            link.pause();
        }
    }
    // Nobody gets through the next one before this fiber arrives there.
    barrier.votes.get().1
}

extern "C" fn relax(thread: *mut HostThread) {
    link(thread).pause();
}

extern "C" fn clock_ns(thread: *mut HostThread) -> u64 {
    // Never 0, which means "not yet" to kernels.
    link(thread).since.elapsed().as_nanos() as u64 + 1
}

/// Runs one rank's whole grid on this thread. False: there is no memory for its stacks.
pub(in crate::device::host) fn run_grid(
    kernel: HostKernel,
    params: &Params,
    geometry: Geometry,
    stacks: &mut Vec<DefaultStack>,
) -> bool {
    let Geometry { blocks, threads, .. } = geometry;
    let since = Instant::now();
    let block = params.as_ptr().cast::<c_void>();
    let barriers: Vec<Barrier> = (0..blocks)
        .map(|_| Barrier {
            threads: Cell::new(threads),
            ..Barrier::default()
        })
        .collect();
    let warps: Vec<Vec<Warp>> = (0..blocks)
        .map(|_| (0..threads.div_ceil(WARP)).map(|_| Warp::default()).collect())
        .collect();
    let mut fibers = Vec::new();
    for index in 0..blocks * threads {
        let Some(stack) = stacks.pop().or_else(|| DefaultStack::new(STACK_BYTES).ok()) else {
            return false;
        };
        let place = Place {
            thread: index % threads,
            threads,
            block: index / threads,
            blocks,
        };
        let barrier = &raw const barriers[place.block as usize];
        let warps = warps[place.block as usize].as_ptr();
        let fiber = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            let mut link = Link {
                yielder,
                barrier,
                warps,
                since,
            };
            let mut handle = HostThread {
                thread: place.thread,
                threads: place.threads,
                block: place.block,
                blocks: place.blocks,
                ops: &OPS,
                executor: (&raw mut link).cast(),
            };
            // SAFETY: the registry's kernels have this signature; handle, link and parameter block outlive the call,
            // and addresses in the block are of memory that is mapped for as long as this grid runs.
            unsafe { kernel((&raw mut handle).cast(), block) };
        });
        fibers.push((place.block as usize, fiber));
    }
    let mut vain = 0;
    while !fibers.is_empty() {
        let mut moved = false;
        let mut left = Vec::with_capacity(fibers.len());
        for (block, mut fiber) in fibers {
            match fiber.resume(()) {
                CoroutineResult::Return(()) => {
                    stacks.push(fiber.into_stack());
                    barriers[block].leave();
                    moved = true;
                }
                CoroutineResult::Yield(()) => left.push((block, fiber)),
            }
        }
        fibers = left;
        vain = if moved { 0 } else { vain + 1 };
        match vain {
            v if v > PATIENCE[1] => std::thread::sleep(NAP),
            v if v > PATIENCE[0] => std::thread::yield_now(),
            _ => {}
        }
    }
    true
}

//! The border to compiled kernels: mirrors of kernels/arch_host.h, raw memory, and fibers that run C++ on small stacks.
//!
//! With `plain` below it the only file of the host executor with `unsafe`. It decides nothing: every access of a kernel
//! goes on to [`Machine`], which says whether the fiber pauses. Start at [`Fiber`]. kernels/arch_host.h holds the other half of
//! the mirrors: change both together.

pub(super) mod plain;

use super::machine::{Machine, Order};
use super::warp::{CELL, Step};
use crate::device::abi::Params;
use crate::registry::HostKernel;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::RefCell;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::rc::Rc;

/// Mirrors `TfHostOps`.
#[repr(C)]
struct HostOps {
    store: extern "C" fn(*mut HostThread, *mut c_void, *const c_void, u32, u32),
    load: extern "C" fn(*mut HostThread, *const c_void, *mut c_void, u32, u32),
    fence: extern "C" fn(*mut HostThread),
    barrier: extern "C" fn(*mut HostThread, u32) -> u32,
    relax: extern "C" fn(*mut HostThread),
    clock_ns: extern "C" fn(*mut HostThread) -> u64,
    /// Mirrors what `TfHostWarpOps` has behind `TfHostOps`.
    meet: extern "C" fn(*mut HostThread, u32, *mut c_void, *mut c_void),
}

/// Mirrors `TfHostThread`.
#[repr(C)]
struct HostThread {
    thread: u32,
    threads: u32,
    block: u32,
    blocks: u32,
    ops: *const HostOps,
    executor: *mut c_void,
}

static OPS: HostOps = HostOps {
    store,
    load,
    fence,
    barrier,
    relax,
    clock_ns,
    meet,
};

/// What `HostThread::executor` points to; lies on the fiber's own stack.
struct Link {
    yielder: *const Yielder<(), ()>,
    machine: *const RefCell<Machine>,
    fiber: u32,
}

impl Link {
    /// The machine is never borrowed while a fiber is suspended, so a borrow always succeeds.
    #[inline(always)]
    fn with<R>(&self, action: impl FnOnce(&mut Machine, u32) -> R) -> R {
        // SAFETY: `Fiber` keeps the machine alive for as long as its coroutine can run.
        let machine = unsafe { &*self.machine };
        action(&mut machine.borrow_mut(), self.fiber)
    }

    fn pause(&self) {
        // SAFETY: the yielder belongs to the coroutine that is running this very code.
        unsafe { &*self.yielder }.suspend(());
    }
}

/// The link behind a kernel's thread handle.
#[inline(always)]
fn link<'a>(thread: *mut HostThread) -> &'a Link {
    // SAFETY: kernels pass on the handle that `Fiber::new` made, whose `executor` is a `Link` that outlives the call.
    unsafe { &*(*thread).executor.cast::<Link>() }
}

const WIDEST: usize = 16;

extern "C" fn store(thread: *mut HostThread, at: *mut c_void, from: *const c_void, bytes: u32, order: u32) {
    let link = link(thread);
    let mut data = [0; WIDEST];
    let bytes = (bytes as usize).min(WIDEST);
    // SAFETY: the header passes `bytes` readable bytes, at most 16.
    unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), data.as_mut_ptr(), bytes) };
    if link.with(|m, fiber| m.store(fiber, at as u64, &data[..bytes], Order::of(order))) {
        link.pause();
    }
}

extern "C" fn load(thread: *mut HostThread, at: *const c_void, to: *mut c_void, bytes: u32, order: u32) {
    let link = link(thread);
    let mut data = [0; WIDEST];
    let bytes = (bytes as usize).min(WIDEST);
    let pause = link.with(|m, fiber| m.load(fiber, at as u64, &mut data[..bytes], Order::of(order)));
    // SAFETY: the header passes room for `bytes` bytes, at most 16.
    unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to.cast::<u8>(), bytes) };
    if pause {
        link.pause();
    }
}

extern "C" fn fence(thread: *mut HostThread) {
    let link = link(thread);
    link.with(|m, fiber| m.fence(fiber));
}

extern "C" fn barrier(thread: *mut HostThread, mine: u32) -> u32 {
    let link = link(thread);
    if link.with(|m, fiber| m.barrier(fiber, mine)) {
        link.pause();
    }
    link.with(|m, fiber| m.barrier_vote(fiber))
}

extern "C" fn relax(thread: *mut HostThread) {
    let link = link(thread);
    link.with(|m, fiber| m.relax(fiber));
    link.pause();
}

extern "C" fn clock_ns(thread: *mut HostThread) -> u64 {
    link(thread).with(|m, _| m.clock_ns())
}

extern "C" fn meet(thread: *mut HostThread, step: u32, at: *mut c_void, value: *mut c_void) {
    let link = link(thread);
    let mut data = [0; CELL];
    // SAFETY: the header passes 16 readable bytes.
    unsafe { std::ptr::copy_nonoverlapping(value.cast::<u8>(), data.as_mut_ptr(), CELL) };
    link.with(|m, fiber| m.meet_warp(fiber, Step::of(step), at as u64, data));
    link.pause();
    let data = link.with(|m, fiber| m.met(fiber));
    // SAFETY: the header passes room for 16 bytes.
    unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), value.cast::<u8>(), CELL) };
}

/// Who a fiber is within its grid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub thread: u32,
    pub threads: u32,
    pub block: u32,
    pub blocks: u32,
}

/// One block thread of one rank, running a compiled kernel.
pub(super) struct Fiber {
    coroutine: Option<Coroutine<(), (), (), DefaultStack>>,
    // Both are reached by raw pointer from the running kernel.
    _machine: Rc<RefCell<Machine>>,
    _params: Rc<Params>,
}

impl Fiber {
    /// A fiber that will run `kernel` with `params`; `fiber` is its number in the machine.
    pub(super) fn new(
        stack: DefaultStack,
        kernel: HostKernel,
        params: &Rc<Params>,
        machine: &Rc<RefCell<Machine>>,
        fiber: u32,
        place: Place,
    ) -> Self {
        let shared = Rc::as_ptr(machine);
        let block = params.as_ptr().cast::<c_void>();
        let coroutine = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            let mut link = Link {
                yielder,
                machine: shared,
                fiber,
            };
            let Place {
                thread,
                threads,
                block: index,
                blocks,
            } = place;
            let executor = (&raw mut link).cast();
            let mut handle = HostThread {
                thread,
                threads,
                block: index,
                blocks,
                ops: &OPS,
                executor,
            };
            // SAFETY: the registry's kernels have this signature; the handle outlives the call, and the parameter block
            // is kept by `Fiber` and has as many ports as the kernel takes.
            unsafe { kernel((&raw mut handle).cast(), block) };
        });
        Self {
            coroutine: Some(coroutine),
            _machine: machine.clone(),
            _params: params.clone(),
        }
    }

    /// Runs until the next pause; true when the kernel has returned. The machine must not be borrowed.
    pub(super) fn resume(&mut self) -> bool {
        match &mut self.coroutine {
            Some(coroutine) if !coroutine.done() => matches!(coroutine.resume(()), CoroutineResult::Return(())),
            _ => true,
        }
    }

    /// The stack, to be used again. A kernel that has not returned is abandoned where it stands.
    pub(super) fn into_stack(mut self) -> Option<DefaultStack> {
        self.abandon();
        self.coroutine.take().map(Coroutine::into_stack)
    }

    fn abandon(&mut self) {
        if let Some(coroutine) = &mut self.coroutine {
            if coroutine.started() && !coroutine.done() {
                // SAFETY: the frames on the stack are C++ without destructors and the callbacks above, which hold
                // nothing that needs dropping while they are suspended. Unwinding through C++ is not possible.
                unsafe { coroutine.force_reset() };
            } else {
                coroutine.force_unwind();
            }
        }
    }
}

impl Drop for Fiber {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// One zeroed allocation that kernels write by raw address; Rust sees it through copies only.
pub(super) struct Arena {
    base: NonNull<u8>,
    layout: Layout,
}

impl Arena {
    /// None when there is not so much memory.
    pub(super) fn new(bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(bytes.max(128), 128).ok()?;
        // SAFETY: the layout is not empty.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { base, layout })
    }

    /// Address of the first byte, as kernels see it.
    pub(super) fn base(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    /// Size in bytes.
    pub(super) fn len(&self) -> usize {
        self.layout.size()
    }

    #[inline(always)]
    fn at(&self, offset: usize, bytes: usize) -> Option<*mut u8> {
        let end = offset.checked_add(bytes)?;
        // SAFETY: within the allocation.
        (end <= self.len()).then(|| unsafe { self.base.as_ptr().add(offset) })
    }

    /// Copies out; leaves `to` alone when the range is not inside.
    #[inline(always)]
    pub(super) fn read(&self, offset: usize, to: &mut [u8]) {
        if let Some(at) = self.at(offset, to.len()) {
            // SAFETY: checked range; no Rust reference to arena memory exists.
            unsafe { std::ptr::copy_nonoverlapping(at, to.as_mut_ptr(), to.len()) };
        }
    }

    /// Copies in; does nothing when the range is not inside.
    #[inline(always)]
    pub(super) fn write(&mut self, offset: usize, from: &[u8]) {
        if let Some(at) = self.at(offset, from.len()) {
            // SAFETY: as in `read`.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), at, from.len()) };
        }
    }

    /// Sets a range to one byte.
    pub(super) fn fill(&mut self, offset: usize, bytes: usize, byte: u8) {
        if let Some(at) = self.at(offset, bytes) {
            // SAFETY: as in `read`.
            unsafe { at.write_bytes(byte, bytes) };
        }
    }

    /// The first byte of a range that differs from `byte`.
    pub(super) fn first_not(&self, offset: usize, bytes: usize, byte: u8) -> Option<usize> {
        let at = self.at(offset, bytes)?;
        // SAFETY: checked range, read one byte at a time.
        (0..bytes)
            .find(|&i| unsafe { at.add(i).read() } != byte)
            .map(|i| offset + i)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `new`; fibers that could reach it hold the machine that owns it.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

/// Loads a kernel that a test has compiled. The library is never unloaded.
#[cfg(test)]
pub(super) fn load_kernel(library: &std::path::Path, symbol: &str) -> Result<HostKernel, libloading::Error> {
    // SAFETY: the library was just compiled from the testdata folder; it has no initialisers, and its symbols are
    // kernels made by TF_KERNEL, which have this signature.
    unsafe {
        let library = libloading::Library::new(library)?;
        let kernel = *library.get::<HostKernel>(symbol.as_bytes())?;
        std::mem::forget(library);
        Ok(kernel)
    }
}

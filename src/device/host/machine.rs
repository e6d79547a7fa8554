//! What running kernels talk to: every access, fence, barrier and poll of every fiber ends up here.
//!
//! Keeps who may run, who waits for what, and the virtual clock; the choice of who runs next is [`super::schedule`]'s.
//! What peers see is [`Memory`]'s, what a planted fault changes is [`Plant`]'s. Start at [`Machine`].

mod warps;

use super::faults::Plant;
use super::ffi::Arena;
use super::memory::{Issuer, LINE, Memory};
use super::rng::Rng;
use super::warp::{CELL, Step, THREADS};
use crate::device::abi::WARP;

/// Whether an access takes part in ordering at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Weak,
    Relaxed,
    Acquire,
}

impl Order {
    pub(super) fn of(code: u32) -> Self {
        match code {
            0 => Self::Weak,
            2 => Self::Acquire,
            _ => Self::Relaxed,
        }
    }
}

/// One store or weak load in so many lets others run first.
const PREEMPT: u32 = 32;
/// The same for loads of polls, of which there are many in a row.
const PREEMPT_POLL: u32 = 256;
/// Virtual time that an access takes.
const ACCESS_NS: u64 = 2;
/// Lines that one poll looks at; a poll of more is simply repeated.
const WATCHED: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Gone,
    Ready,
    /// Polled in vain; runs again when a watched line changes.
    Polling,
    /// At a block barrier, or at a step of its warp.
    Parked,
}

struct Thread {
    by: Issuer,
    /// Index into `blocks`.
    block: u32,
    /// Number of the change up to which it has acquired.
    view: u64,
    state: State,
    vote: u32,
    /// What it brought to a step of its warp, then what it has from it.
    step: Option<Step>,
    at: usize,
    value: [u8; CELL],
    watched: [u32; WATCHED],
    watching: usize,
    /// Lines that the wait looks at.
    waits_for: u32,
    /// The latest wait that was left asleep.
    dozing: u64,
    /// Changes seen when the poll began.
    polled_at: u64,
    /// Tells watches of this wait from those of earlier ones.
    wait: u64,
}

struct Block {
    generation: u32,
    live: u32,
    arrived: Vec<u32>,
    vote: u32,
    view: u64,
    /// The generation in which each thread returned.
    left: Vec<u32>,
    /// Threads at a step of their warp, a list a warp.
    warps: Vec<Vec<u32>>,
}

/// Memory, threads and clock of one prepared collective.
pub(super) struct Machine {
    pub(super) arena: Arena,
    pub(super) memory: Memory,
    pub(super) rng: Rng,
    pub(super) plant: Option<Plant>,
    /// Offsets of all abort words.
    aborts: Vec<usize>,
    threads: Vec<Thread>,
    free_threads: Vec<u32>,
    blocks: Vec<Block>,
    free_blocks: Vec<u32>,
    ready: Vec<Vec<u32>>,
    watchers: Vec<Vec<(u32, u64)>>,
    /// Index into `watchers` plus one, by line.
    watchers_of: Vec<u32>,
    /// Waits whose lines have changed and that sleep on.
    sleepy: Vec<(u32, u64)>,
    waits: u64,
    changes: u64,
    clock: u64,
    grids: u32,
    fault: Option<String>,
}

impl Machine {
    /// `remember`: whether weak readers may be shown former contents.
    pub(super) fn new(arena: Arena, ranks: usize, aborts: Vec<usize>, remember: bool, plant: Option<Plant>) -> Self {
        let bytes = arena.len();
        Self {
            memory: Memory::new(ranks, bytes, remember),
            arena,
            rng: Rng::new(0, 0),
            plant,
            aborts,
            threads: Vec::new(),
            free_threads: Vec::new(),
            blocks: Vec::new(),
            free_blocks: Vec::new(),
            ready: vec![Vec::new(); ranks],
            watchers: Vec::new(),
            watchers_of: vec![0; bytes.div_ceil(LINE)],
            sleepy: Vec::new(),
            waits: 0,
            changes: 0,
            // A wait that begins at 0 means "not yet begun" in deadline.cuh.
            clock: 1,
            grids: 0,
            fault: None,
        }
    }

    /// Virtual nanoseconds.
    pub(super) fn clock_ns(&self) -> u64 {
        self.clock
    }

    /// Lets virtual time pass.
    pub(super) fn advance(&mut self, ns: u64) {
        self.clock = self.clock.saturating_add(ns);
    }

    /// The first impossible thing that a kernel did.
    pub(super) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Notes an impossible thing and tells all kernels to give up.
    pub(super) fn fail(&mut self, what: String) {
        self.fault.get_or_insert(what);
        for &at in &self.aborts {
            self.arena.write(at, &1_u32.to_ne_bytes());
        }
    }

    /// Makes the threads of a grid: their numbers, block after block.
    pub(super) fn open_grid(&mut self, rank: usize, blocks: u32, threads: u32) -> Vec<u32> {
        self.grids += 1;
        let mut opened = Vec::with_capacity((blocks * threads) as usize);
        let view = self.memory.now();
        for block in 0..blocks {
            let left = vec![u32::MAX; threads as usize];
            let fresh = Block {
                generation: 0,
                live: threads,
                arrived: Vec::new(),
                vote: 0,
                view,
                left,
                warps: vec![Vec::new(); threads.div_ceil(WARP) as usize],
            };
            let slot = put(&mut self.blocks, &mut self.free_blocks, fresh);
            for thread in 0..threads {
                let thread = Thread {
                    by: Issuer {
                        rank,
                        grid: self.grids,
                        block,
                        thread,
                        generation: 0,
                    },
                    block: slot,
                    view,
                    state: State::Ready,
                    vote: 0,
                    step: None,
                    at: 0,
                    value: [0; CELL],
                    watched: [0; WATCHED],
                    watching: 0,
                    waits_for: 0,
                    dozing: 0,
                    polled_at: 0,
                    wait: 0,
                };
                let id = put(&mut self.threads, &mut self.free_threads, thread);
                self.ready[rank].push(id);
                opened.push(id);
            }
        }
        opened
    }

    /// Whether any thread of the rank can run.
    pub(super) fn has_ready(&self, rank: usize) -> bool {
        !self.ready[rank].is_empty()
    }

    /// Takes a random thread of the rank that can run.
    pub(super) fn take_ready(&mut self, rank: usize) -> Option<u32> {
        let list = &mut self.ready[rank];
        if list.is_empty() {
            return None;
        }
        let pick = self.rng.below(list.len());
        Some(list.swap_remove(pick))
    }

    /// A kernel has returned in this thread.
    pub(super) fn close_thread(&mut self, id: u32) {
        let thread = &mut self.threads[id as usize];
        thread.state = State::Gone;
        let slot = thread.block;
        let block = &mut self.blocks[slot as usize];
        let own = thread.by.thread;
        if let Some(left) = block.left.get_mut(own as usize) {
            *left = block.generation;
        }
        let waited_for = block.warps.get(own as usize / THREADS).is_some_and(|w| !w.is_empty());
        block.live -= 1;
        self.free_threads.push(id);
        if block.live == 0 {
            self.free_blocks.push(slot);
        } else {
            self.meet(slot);
        }
        if waited_for {
            self.fail(format!("thread {own} returned while its warp waits for it"));
        }
    }

    /// Ends a grid whose threads will never run again.
    pub(super) fn abandon(&mut self, ids: &[u32]) {
        for &id in ids {
            let block = self.threads[id as usize].block;
            let block = &mut self.blocks[block as usize];
            block.arrived.clear();
            block.warps.iter_mut().for_each(Vec::clear);
        }
        for &id in ids {
            if self.threads[id as usize].state != State::Gone {
                self.close_thread(id);
            }
        }
        for list in &mut self.ready {
            list.retain(|&id| self.threads[id as usize].state != State::Gone);
        }
    }

    /// Everybody who polls looks again, as when the deadline check comes round.
    pub(super) fn wake_all(&mut self) {
        for (id, thread) in self.threads.iter_mut().enumerate() {
            if thread.state == State::Polling {
                thread.state = State::Ready;
                self.ready[thread.by.rank].push(id as u32);
            }
        }
    }

    #[inline(always)]
    fn inside(&mut self, thread: u32, at: u64, bytes: usize, what: &str) -> Option<usize> {
        let offset = at.wrapping_sub(self.arena.base()) as usize;
        let inside = offset < self.arena.len() && bytes <= self.arena.len() - offset;
        if inside && bytes.is_power_of_two() && at & (bytes as u64 - 1) == 0 {
            return Some(offset);
        }
        self.forbid(thread, bytes, what, inside);
        None
    }

    #[cold]
    fn forbid(&mut self, thread: u32, bytes: usize, what: &str, inside: bool) {
        let why = if inside { "misaligned" } else { "outside every buffer" };
        let Issuer {
            rank, block, thread, ..
        } = self.threads[thread as usize].by;
        let who = format!("rank {rank}, block {block}, thread {thread}");
        self.fail(format!("{who}: the kernel {what} {bytes} bytes {why}"));
    }

    /// A store that peers may see; true: let others run first.
    pub(super) fn store(&mut self, id: u32, at: u64, data: &[u8], _order: Order) -> bool {
        let Some(mut offset) = self.inside(id, at, data.len(), "stores") else {
            return true;
        };
        let thread = &self.threads[id as usize];
        let mut by = thread.by;
        by.generation = self.blocks[thread.block as usize].generation;
        let mut changed = [0; LINE];
        let data = match &self.plant {
            None => data,
            Some(plant) => {
                changed[..data.len()].copy_from_slice(data);
                offset = plant.store(by.rank, offset, &mut changed[..data.len()]);
                &changed[..data.len()]
            }
        };
        self.memory.issue(by, offset, data);
        self.changes += 1;
        self.wake_watchers(offset / LINE, Some(by.rank));
        self.preempt(id, PREEMPT)
    }

    /// A load of what peers may write; true: let others run before going on.
    pub(super) fn load(&mut self, id: u32, at: u64, to: &mut [u8], order: Order) -> bool {
        let Some(mut offset) = self.inside(id, at, to.len(), "loads") else {
            return true;
        };
        let asked = offset;
        let Thread { by, view, .. } = self.threads[id as usize];
        if let Some(plant) = &self.plant {
            offset = plant.redirect(by.rank, offset);
        }
        self.arena.read(offset, to);
        if order == Order::Weak {
            self.memory.former(view, offset, to);
        }
        self.memory.forward(by.rank, offset, to);
        if let Some(plant) = &self.plant {
            plant.load(by.rank, asked, to, order, &self.arena, &self.memory);
        }
        if order == Order::Acquire && !self.plant.as_ref().is_some_and(Plant::no_fence) {
            self.threads[id as usize].view = self.memory.now();
        }
        if order != Order::Weak {
            self.watch(id, (offset / LINE) as u32);
            return self.preempt(id, PREEMPT_POLL);
        }
        self.preempt(id, PREEMPT)
    }

    /// Notes a line that the thread polls.
    #[inline(always)]
    fn watch(&mut self, id: u32, line: u32) {
        let changes = self.changes;
        let thread = &mut self.threads[id as usize];
        if thread.watching == 0 {
            thread.polled_at = changes;
        }
        // The halves of a vector come one after the other; a line noted twice does no harm.
        let noted = thread.watching.checked_sub(1).and_then(|last| thread.watched.get(last)) == Some(&line);
        if !noted {
            if let Some(slot) = thread.watched.get_mut(thread.watching) {
                *slot = line;
            }
            thread.watching += 1;
        }
    }

    #[inline(always)]
    fn preempt(&mut self, id: u32, one_in: u32) -> bool {
        self.clock += ACCESS_NS;
        let pause = self.rng.one_in(one_in);
        if pause {
            self.make_ready(id);
        }
        pause
    }

    #[inline(always)]
    fn make_ready(&mut self, id: u32) {
        let thread = &mut self.threads[id as usize];
        thread.state = State::Ready;
        self.ready[thread.by.rank].push(id);
    }

    /// A system fence: what this thread did or has seen of its block and of earlier grids is out, and it sees all.
    pub(super) fn fence(&mut self, id: u32) {
        if self.plant.as_ref().is_some_and(Plant::no_fence) {
            return;
        }
        let thread = &self.threads[id as usize];
        let (me, block) = (thread.by, &self.blocks[thread.block as usize]);
        self.memory.deliver_where(me.rank, &mut self.arena, |by| {
            by.grid != me.grid
                || by.block == me.block
                    && (by.thread == me.thread
                        || by.generation < block.generation
                            && block
                                .left
                                .get(by.thread as usize)
                                .is_some_and(|&left| left > by.generation))
        });
        self.settle();
        self.threads[id as usize].view = self.memory.now();
    }

    /// A block barrier; true: pause until the others are here.
    pub(super) fn barrier(&mut self, id: u32, mine: u32) -> bool {
        let thread = &mut self.threads[id as usize];
        if self.plant.as_ref().is_some_and(Plant::no_barrier) {
            thread.vote = mine;
            return false;
        }
        thread.state = State::Parked;
        let slot = thread.block;
        let block = &mut self.blocks[slot as usize];
        block.vote |= mine;
        block.view = block.view.max(thread.view);
        block.arrived.push(id);
        self.meet(slot);
        true
    }

    /// What the barrier just passed has found.
    pub(super) fn barrier_vote(&self, id: u32) -> u32 {
        self.threads[id as usize].vote
    }

    /// Opens the barrier if all live threads of the block are there; a returned thread no longer takes part.
    fn meet(&mut self, slot: u32) {
        let block = &mut self.blocks[slot as usize];
        if block.arrived.is_empty() || block.arrived.len() < block.live as usize {
            return;
        }
        block.generation += 1;
        let (vote, view) = (std::mem::take(&mut block.vote), block.view);
        for id in std::mem::take(&mut block.arrived) {
            let thread = &mut self.threads[id as usize];
            thread.vote = vote;
            thread.view = view;
            self.make_ready(id);
        }
    }

    /// A poll in vain. The thread runs again when something that it looked at changes.
    pub(super) fn relax(&mut self, id: u32) {
        let thread = &mut self.threads[id as usize];
        let watching = std::mem::take(&mut thread.watching);
        if watching > WATCHED || thread.polled_at != self.changes {
            // Something may have changed between the poll and now.
            self.make_ready(id);
            return;
        }
        self.waits += 1;
        thread.wait = self.waits;
        thread.waits_for = watching as u32;
        thread.state = State::Polling;
        for &line in &thread.watched[..watching] {
            let slot = &mut self.watchers_of[line as usize];
            if *slot == 0 {
                self.watchers.push(Vec::new());
                *slot = self.watchers.len() as u32;
            }
            self.watchers[*slot as usize - 1].push((id, thread.wait));
        }
    }

    /// Delivers the store at `index` of a rank's list.
    pub(super) fn deliver(&mut self, rank: usize, index: usize) {
        self.memory.deliver(rank, index, &mut self.arena);
        self.settle();
    }

    /// Delivers everything that is under way.
    pub(super) fn deliver_all(&mut self) {
        for rank in 0..self.ready.len() {
            self.memory.deliver_where(rank, &mut self.arena, |_| true);
        }
        self.settle();
    }

    /// Writes a rank's own buffer from outside a kernel; readers who have not acquired since may see what was there.
    pub(super) fn write_between_grids(&mut self, offset: usize, bytes: &[u8]) {
        for line in offset / LINE..(offset + bytes.len()).div_ceil(LINE) {
            self.memory.remember(line, &self.arena);
        }
        self.arena.write(offset, bytes);
    }

    fn settle(&mut self) {
        while let Some(line) = self.memory.take_changed() {
            self.changes += 1;
            self.wake_watchers(line, None);
        }
    }

    /// A store under way is seen by the threads of its own rank at once, one that has arrived by all.
    #[inline(always)]
    fn wake_watchers(&mut self, line: usize, only: Option<usize>) {
        let Some(index) = self.watchers_of[line].checked_sub(1) else {
            return;
        };
        let mut list = std::mem::take(&mut self.watchers[index as usize]);
        let mut at = 0;
        while let Some(&(id, wait)) = list.get(at) {
            let thread = &mut self.threads[id as usize];
            if thread.state == State::Polling && thread.wait == wait {
                if only.is_some_and(|rank| thread.by.rank != rank) {
                    at += 1;
                    continue;
                }
                // Who looks at many lines would look in vain most of the time: mostly let more arrive first.
                if !self.rng.one_in(1 + thread.waits_for / 4) {
                    if thread.dozing != wait {
                        thread.dozing = wait;
                        self.sleepy.push((id, wait));
                    }
                    at += 1;
                    continue;
                }
                thread.state = State::Ready;
                self.ready[thread.by.rank].push(id);
            }
            list.swap_remove(at);
        }
        self.watchers[index as usize] = list;
    }

    /// Lets somebody look again who has been left asleep; false if there is nobody.
    pub(super) fn wake_sleepy(&mut self) -> bool {
        while !self.sleepy.is_empty() {
            let pick = self.rng.below(self.sleepy.len());
            let (id, wait) = self.sleepy.swap_remove(pick);
            let thread = &self.threads[id as usize];
            if thread.state == State::Polling && thread.wait == wait {
                self.make_ready(id);
                return true;
            }
        }
        false
    }
}

fn put<T>(slots: &mut Vec<T>, free: &mut Vec<u32>, value: T) -> u32 {
    match free.pop() {
        Some(slot) => {
            slots[slot as usize] = value;
            slot
        }
        None => {
            slots.push(value);
            slots.len() as u32 - 1
        }
    }
}

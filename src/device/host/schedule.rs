//! Who runs next: fibers, rank streams and deliveries in a seeded random order.
//!
//! Knows neither kernels nor collectives; the streams come from [`super::chain`]. Ranks get random priorities that
//! change now and then, so that one rank may run far ahead of another, and within a rank any thread may be next.
//! Start at [`drive`].

use super::Delivery;
use super::ffi::{Fiber, Place};
use super::machine::Machine;
use crate::device::Geometry;
use crate::device::abi::Params;
use crate::registry::HostKernel;
use corosensei::stack::DefaultStack;
use std::cell::RefCell;
use std::rc::Rc;

/// What a rank's stream does next.
pub(super) enum Next {
    /// Launches the grid.
    Launch,
    /// Something was done, at once.
    Did,
    /// Nothing for so many virtual nanoseconds.
    Hold(u64),
    /// The stream is empty.
    End,
}

/// The ranks' streams.
pub(super) trait Streams {
    /// Does or names what comes next on a rank's stream; asked only while no grid of the rank runs.
    fn next(&mut self, rank: usize, machine: &mut Machine) -> Next;
}

/// What a launch launches.
pub(super) struct Grid<'a> {
    pub kernel: HostKernel,
    /// One block a rank.
    pub params: &'a [Rc<Params>],
    pub geometry: Geometry,
}

/// How a run is driven.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub delivery: Delivery,
    pub deadline_ns: u64,
    pub max_steps: u64,
}

/// Stacks of fibers, kept for the next grid.
#[derive(Default)]
pub(super) struct Stacks(Vec<DefaultStack>);

/// Kernels are shallow; the rest is for an unoptimised build of them.
const STACK_BYTES: usize = 48 * 1024;

impl Stacks {
    fn take(&mut self) -> Option<DefaultStack> {
        self.0.pop().or_else(|| DefaultStack::new(STACK_BYTES).ok())
    }
}

/// Virtual time that a step takes.
const STEP_NS: u64 = 20;
/// Rounds of vain polls by everybody before a kernel without a deadline is given up. Must exceed twice the polls between
/// two deadline checks.
const HOPELESS_ROUNDS: u32 = 4096;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stream {
    Idle,
    Held(u64),
    Running(usize),
    Ended,
}

struct Driver<'a> {
    machine: &'a Rc<RefCell<Machine>>,
    grid: &'a Grid<'a>,
    pace: Pace,
    stacks: &'a mut Stacks,
    fibers: Vec<Option<Fiber>>,
    streams: Vec<Stream>,
    /// Ranks, first choice first.
    order: Vec<usize>,
    /// One step in so many changes `order`.
    whim: u32,
    /// Stores delivered at once when nobody can run.
    volley: u32,
    /// Whether a rank's stores wait until those of all ranks before it in `order` are delivered.
    lag: bool,
}

/// Runs all streams to their end. What went wrong is the machine's to say afterwards; nothing is under way then.
pub(super) fn drive(
    machine: &Rc<RefCell<Machine>>,
    grid: &Grid<'_>,
    pace: Pace,
    stacks: &mut Stacks,
    streams: &mut impl Streams,
) {
    let ranks = grid.params.len();
    // Drawn once a run: each value finds other faults.
    let whim = [1, 8, 64, 1024][machine.borrow_mut().rng.below(4)];
    let volley = [1, 3, 9, 81][machine.borrow_mut().rng.below(4)];
    let lag = machine.borrow_mut().rng.one_in(2);
    let mut driver = Driver {
        machine,
        grid,
        pace,
        stacks,
        fibers: Vec::new(),
        streams: vec![Stream::Idle; ranks],
        order: (0..ranks).collect(),
        whim,
        volley,
        lag,
    };
    driver.run(streams);
    driver.finish();
}

impl Driver<'_> {
    fn run(&mut self, streams: &mut impl Streams) {
        let mut hopeless = 0;
        for _ in 0..self.pace.max_steps {
            let mut machine = self.machine.borrow_mut();
            if machine.rng.one_in(self.whim) {
                machine.rng.shuffle(&mut self.order);
            }
            machine.advance(STEP_NS);
            let now = machine.clock_ns();
            let failed = machine.fault().is_some();
            let able = self.order.iter().copied().find(|&rank| match self.streams[rank] {
                Stream::Running(_) => machine.has_ready(rank),
                Stream::Held(until) => until <= now,
                Stream::Idle => !failed,
                Stream::Ended => false,
            });
            let Some(rank) = able else {
                drop(machine);
                if self.stuck(&mut hopeless) {
                    continue;
                }
                return;
            };
            if let Stream::Running(live) = self.streams[rank] {
                let Some(id) = machine.take_ready(rank) else { continue };
                drop(machine);
                if self.step(id) {
                    self.streams[rank] = if live == 1 {
                        Stream::Idle
                    } else {
                        Stream::Running(live - 1)
                    };
                }
                self.deliver(rank);
                if self.streams[rank] == Stream::Idle {
                    hopeless = 0;
                }
            } else {
                hopeless = 0;
                match streams.next(rank, &mut machine) {
                    Next::Did => self.streams[rank] = Stream::Idle,
                    Next::Hold(ns) => self.streams[rank] = Stream::Held(now.saturating_add(ns)),
                    Next::End => self.streams[rank] = Stream::Ended,
                    Next::Launch => {
                        drop(machine);
                        self.launch(rank);
                    }
                }
            }
        }
        let mut machine = self.machine.borrow_mut();
        machine.fail(format!(
            "no end after {} steps of the host executor: raise max_steps",
            self.pace.max_steps
        ));
    }

    /// Nobody can run. False: there is nothing left that could change this.
    fn stuck(&mut self, hopeless: &mut u32) -> bool {
        let mut machine = self.machine.borrow_mut();
        let waiting = self
            .streams
            .iter()
            .any(|s| matches!(s, Stream::Running(_) | Stream::Held(_)));
        if !waiting {
            return false;
        }
        let late = (0..self.streams.len())
            .filter(|&r| machine.memory.count(r) > 0)
            .collect::<Vec<_>>();
        if (late.is_empty() || machine.rng.one_in(8)) && machine.wake_sleepy() {
            return true;
        }
        if !late.is_empty() {
            *hopeless = 0;
            // By priority or by chance. Strictly by priority, one rank's stores lag until all others are through.
            let first = self.order.iter().copied().find(|r| late.contains(r)).unwrap_or(late[0]);
            let rank = if self.lag || machine.rng.one_in(2) {
                first
            } else {
                late[machine.rng.below(late.len())]
            };
            for _ in 0..self.volley {
                let count = machine.memory.count(rank);
                let index = machine.rng.below(count);
                machine.deliver(rank, index);
            }
            return true;
        }
        let held = self.streams.iter().filter_map(|s| {
            if let Stream::Held(until) = s {
                Some(*until)
            } else {
                None
            }
        });
        if let Some(until) = held.min() {
            let ns = until.saturating_sub(machine.clock_ns());
            machine.advance(ns);
            return true;
        }
        *hopeless += 1;
        if *hopeless > HOPELESS_ROUNDS {
            machine.fail(
                "the kernel waits for ever: it has no deadline, or threads wait for each other at a barrier".into(),
            );
            return *hopeless <= 2 * HOPELESS_ROUNDS;
        }
        // A true deadlock: let the kernel find out through its own deadline.
        machine.advance(self.pace.deadline_ns);
        machine.wake_all();
        true
    }

    fn launch(&mut self, rank: usize) {
        let Geometry { blocks, threads, .. } = self.grid.geometry;
        let ids = self.machine.borrow_mut().open_grid(rank, blocks, threads);
        for (index, &id) in (0_u32..).zip(&ids) {
            let Some(stack) = self.stacks.take() else {
                let mut machine = self.machine.borrow_mut();
                machine.fail("no memory for another fiber's stack: use a smaller geometry".into());
                machine.abandon(&ids[index as usize..]);
                self.streams[rank] = if index == 0 {
                    Stream::Ended
                } else {
                    Stream::Running(index as usize)
                };
                return;
            };
            let place = Place {
                thread: index % threads,
                threads,
                block: index / threads,
                blocks,
            };
            let fiber = Fiber::new(
                stack,
                self.grid.kernel,
                &self.grid.params[rank],
                self.machine,
                id,
                place,
            );
            if self.fibers.len() <= id as usize {
                self.fibers.resize_with(id as usize + 1, || None);
            }
            self.fibers[id as usize] = Some(fiber);
        }
        self.streams[rank] = Stream::Running(ids.len());
    }

    /// Runs one fiber until it pauses; true when its kernel has returned.
    fn step(&mut self, id: u32) -> bool {
        let slot = &mut self.fibers[id as usize];
        let Some(fiber) = slot else { return true };
        if !fiber.resume() {
            return false;
        }
        self.machine.borrow_mut().close_thread(id);
        self.stacks.0.extend(slot.take().and_then(Fiber::into_stack));
        true
    }

    /// Stores that arrive while fibers run.
    fn deliver(&mut self, rank: usize) {
        let mut machine = self.machine.borrow_mut();
        match self.pace.delivery {
            Delivery::Lazy => {}
            Delivery::Eager => {
                for _ in 0..machine.memory.count(rank).div_ceil(2) {
                    let count = machine.memory.count(rank);
                    let index = machine.rng.below(count);
                    machine.deliver(rank, index);
                }
            }
            Delivery::Random => {
                if machine.rng.one_in(4) {
                    let rank = machine.rng.below(self.streams.len());
                    let count = machine.memory.count(rank);
                    for _ in 0..machine.rng.below(count + 1) {
                        let count = machine.memory.count(rank);
                        let index = machine.rng.below(count);
                        machine.deliver(rank, index);
                    }
                }
            }
        }
    }

    /// Abandons what still runs, after a failure only, and delivers what is under way.
    fn finish(&mut self) {
        let left = (0_u32..)
            .zip(&self.fibers)
            .filter_map(|(id, f)| f.as_ref().map(|_| id))
            .collect::<Vec<_>>();
        let mut machine = self.machine.borrow_mut();
        if !left.is_empty() {
            machine.abandon(&left);
        }
        machine.deliver_all();
        drop(machine);
        self.stacks
            .0
            .extend(self.fibers.drain(..).flatten().filter_map(Fiber::into_stack));
    }
}

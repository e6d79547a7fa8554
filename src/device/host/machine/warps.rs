//! The machine's side of what warps do together: who waits for whom, and what lines do to memory.
//!
//! A step happens when all 32 threads are at it, all at one moment, as on the device; a thread that has returned, or is at
//! another step, is a fault of the kernel. Start at [`Machine::meet_warp`].

use super::{Machine, Order, State};
use crate::device::host::memory::{Issuer, LINE};
use crate::device::host::warp::{self, CELL, OCTET, Step, THREADS};

impl Machine {
    /// A thread is at a step of its warp, and pauses until all others are.
    pub(in crate::device::host) fn meet_warp(&mut self, id: u32, step: Option<Step>, at: u64, value: [u8; CELL]) {
        let Some(step) = step else {
            return self.fail("the kernel asks for a step of a warp that there is not".into());
        };
        let at = if step.is_line() {
            match self.inside(id, at, CELL, if step == Step::StoreLine { "stores" } else { "loads" }) {
                Some(offset) => offset,
                // The others wait in vain, as the run ends.
                None => return self.threads[id as usize].state = State::Parked,
            }
        } else {
            0
        };
        let thread = &mut self.threads[id as usize];
        (thread.state, thread.step, thread.at, thread.value) = (State::Parked, Some(step), at, value);
        let (own, slot) = (thread.by.thread as usize, thread.block as usize);
        let block = &mut self.blocks[slot];
        let mates = own / THREADS * THREADS..(own / THREADS + 1) * THREADS;
        let gone = block
            .left
            .get(mates.clone())
            .map(|left| left.iter().position(|l| *l != u32::MAX));
        let list = &mut block.warps[own / THREADS];
        list.push(id);
        match gone {
            None => self.fail(format!(
                "thread {own} is at a step of a warp that has not {THREADS} threads"
            )),
            Some(Some(at)) => {
                let returned = mates.start + at;
                self.fail(format!(
                    "thread {own} is at a step of its warp and thread {returned} has returned"
                ));
            }
            Some(None) if list.len() == THREADS => {
                let mut all = std::mem::take(list);
                all.sort_unstable_by_key(|&id| self.threads[id as usize].by.thread);
                self.take_step(&all);
            }
            Some(None) => {}
        }
    }

    /// What the step just taken has given a thread.
    pub(in crate::device::host) fn met(&self, id: u32) -> [u8; CELL] {
        self.threads[id as usize].value
    }

    /// `all` is a whole warp, in order.
    fn take_step(&mut self, all: &[u32]) {
        let first = self.threads[all[0] as usize].step;
        let Some(step) = first.filter(|_| all.iter().all(|&id| self.threads[id as usize].step == first)) else {
            return self.fail("threads of one warp are at different steps".into());
        };
        if step.is_line() {
            for line in all.chunks(OCTET) {
                let at: Vec<usize> = line.iter().map(|&id| self.threads[id as usize].at).collect();
                if !warp::is_line(&at) {
                    return self.fail(format!(
                        "eight threads are at {at:?}, which is no aligned 128-byte line"
                    ));
                }
                match step {
                    Step::StoreLine => self.store_line(line),
                    _ => self.load_line(line),
                }
            }
            if step == Step::LoadLine {
                self.watch_lines(all);
            }
        } else {
            let mut values = std::array::from_fn(|i| self.threads[all[i] as usize].value);
            warp::exchange(step, &mut values);
            for (&id, value) in all.iter().zip(values) {
                self.threads[id as usize].value = value;
            }
        }
        self.advance(super::ACCESS_NS);
        for &id in all {
            self.make_ready(id);
        }
    }

    fn store_line(&mut self, line: &[u32]) {
        let mut cells = [(self.threads[line[0] as usize].by, 0, [0; CELL]); OCTET];
        for (cell, &id) in cells.iter_mut().zip(line) {
            let thread = &self.threads[id as usize];
            let mut by: Issuer = thread.by;
            by.generation = self.blocks[thread.block as usize].generation;
            let (mut data, mut at) = (thread.value, thread.at);
            if let Some(plant) = &self.plant {
                at = plant.store(by.rank, at, &mut data);
            }
            *cell = (by, at, data);
        }
        if self.plant.as_ref().is_some_and(|p| p.tears_lines()) {
            for (by, at, data) in &cells {
                self.memory.issue(*by, *at, data);
            }
        } else {
            self.memory.issue_line(&cells);
        }
        self.changes += 1;
        for (by, at, _) in &cells {
            self.wake_watchers(at / LINE, Some(by.rank));
        }
    }

    fn load_line(&mut self, line: &[u32]) {
        for &id in line {
            let thread = &mut self.threads[id as usize];
            let (rank, asked) = (thread.by.rank, thread.at);
            let offset = self.plant.as_ref().map_or(asked, |p| p.redirect(rank, asked));
            self.arena.read(offset, &mut thread.value);
            self.memory.forward(rank, offset, &mut thread.value);
            if let Some(plant) = &self.plant {
                plant.load(
                    rank,
                    asked,
                    &mut thread.value,
                    Order::Relaxed,
                    &self.arena,
                    &self.memory,
                );
            }
            thread.at = offset;
        }
    }

    /// Every thread waits for all lines of its warp: it looks again when the last cell of any of them changes.
    fn watch_lines(&mut self, all: &[u32]) {
        let last = |line: &[u32]| {
            line.last()
                .map_or(0, |&id| (self.threads[id as usize].at / LINE) as u32)
        };
        let lines: Vec<u32> = all.chunks(OCTET).map(last).collect();
        for &id in all {
            for line in &lines {
                self.watch(id, *line);
            }
        }
    }
}

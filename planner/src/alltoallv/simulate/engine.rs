//! The event loop: flows become ready, run, end, and let others go.
//!
//! Between two events all rates stay. It decides nothing but order of arrival. Start at [`run`].

use super::filling::Filling;
use super::{Law, Traffic, Usage};
use crate::alltoallv::fabric::Fabric;
use crate::alltoallv::spec::Mode;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Times in the heap, as whole femtoseconds: they sort.
type Time = u128;

/// The time at which the last flow ends, nanoseconds.
pub(super) fn run(fabric: &Fabric, traffic: &Traffic, law: Law, mut usage: Option<&mut Usage>) -> f64 {
    let mut engine = Engine::new(fabric, traffic, law);
    let mut now = 0.0f64;
    loop {
        engine.admit(now);
        if engine.active.is_empty() {
            match engine.next_ready() {
                Some(then) => now = then,
                None => return now,
            }
            continue;
        }
        engine.set_rates();
        let mut step = f64::INFINITY;
        for (&flow, &rate) in engine.active.iter().zip(&engine.rates) {
            step = step.min(engine.left[flow as usize] / rate.max(f64::MIN_POSITIVE));
        }
        if let Some(then) = engine.next_ready() {
            step = step.min((then - now).max(0.0));
        }
        if let Some(usage) = usage.as_deref_mut() {
            engine.record(usage, now, now + step);
        }
        engine.advance(step, now + step);
        now += step;
    }
}

struct Engine<'a> {
    fabric: &'a Fabric,
    traffic: &'a Traffic,
    law: Law,
    /// Flows that each flow waits for, and those that wait for it.
    waits: Vec<u32>,
    next: Vec<Vec<u32>>,
    ready: BinaryHeap<Reverse<(Time, u32)>>,
    /// Ready, but a resource is taken.
    queued: Vec<u32>,
    active: Vec<u32>,
    rates: Vec<f64>,
    stale: bool,
    left: Vec<f64>,
    in_use: Vec<u32>,
    filling: Filling,
    /// Only the serial law on a machine without fluid resources can do without filling.
    shares: bool,
    /// Bytes in a nanosecond, of each resource with one lane.
    capacity: Vec<f64>,
}

impl<'a> Engine<'a> {
    fn new(fabric: &'a Fabric, traffic: &'a Traffic, law: Law) -> Self {
        let flows = &traffic.flows;
        let mut next = vec![Vec::new(); flows.len()];
        let mut ready = BinaryHeap::new();
        for (id, flow) in flows.iter().enumerate() {
            flow.after
                .iter()
                .for_each(|&before| next[before as usize].push(id as u32));
            if flow.after.is_empty() {
                ready.push(Reverse((time(flow.delay_ns), id as u32)));
            }
        }
        let resources = fabric.resources();
        let fluid = (0..resources as u32).any(|id| fabric.resource(id).mode == Mode::Fluid);
        let capacity = (0..resources as u32).map(|id| {
            let resource = fabric.resource(id);
            f64::from(resource.slots().unwrap_or(1)) * 1e6 / f64::from(resource.inv_fs)
        });
        Self {
            fabric,
            traffic,
            law,
            waits: flows.iter().map(|flow| flow.after.len() as u32).collect(),
            next,
            ready,
            queued: Vec::new(),
            active: Vec::new(),
            rates: Vec::new(),
            stale: true,
            left: flows.iter().map(|flow| flow.bytes).collect(),
            in_use: vec![0; resources],
            filling: Filling::new(resources),
            shares: fluid || law != Law::Serial,
            capacity: capacity.collect(),
        }
    }

    fn next_ready(&self) -> Option<f64> {
        self.ready.peek().map(|Reverse((time, _))| *time as f64 * 1e-6)
    }

    /// Lets ready flows begin.
    fn admit(&mut self, now: f64) {
        let before = self.queued.len();
        while let Some(&Reverse((at, id))) = self.ready.peek() {
            if at > time(now) {
                break;
            }
            self.ready.pop();
            if self.traffic.flows[id as usize].bytes > 0.0 {
                self.queued.push(id);
            } else {
                self.finish(id, now);
            }
        }
        if self.queued.len() > before {
            // In the order of the list, whenever they came.
            self.queued.sort_unstable();
        }
        let mut queued = std::mem::take(&mut self.queued);
        queued.retain(|&id| !self.start(id));
        self.queued = queued;
    }

    fn start(&mut self, id: u32) -> bool {
        let uses = &self.traffic.flows[id as usize].uses;
        if self.law == Law::Serial {
            let free = |&r: &u32| {
                self.fabric
                    .resource(r)
                    .slots()
                    .is_none_or(|slots| self.in_use[r as usize] < slots)
            };
            if !uses.iter().all(free) {
                return false;
            }
        }
        uses.iter().for_each(|&r| self.in_use[r as usize] += 1);
        self.active.push(id);
        self.stale = true;
        true
    }

    fn finish(&mut self, id: u32, now: f64) {
        let next = std::mem::take(&mut self.next[id as usize]);
        for follower in next {
            let waits = &mut self.waits[follower as usize];
            *waits -= 1;
            if *waits == 0 {
                let delay = self.traffic.flows[follower as usize].delay_ns;
                self.ready.push(Reverse((time(now + delay), follower)));
            }
        }
    }

    fn set_rates(&mut self) {
        if !self.stale {
            return;
        }
        self.stale = false;
        let flow = |id: &u32| &self.traffic.flows[*id as usize];
        if !self.shares {
            self.rates.clear();
            self.rates.extend(self.active.iter().map(|id| 1.0 / flow(id).inv_ns));
            return;
        }
        let flows: Vec<(&[u32], f64)> = self
            .active
            .iter()
            .map(|id| (&flow(id).uses[..], 1.0 / flow(id).inv_ns))
            .collect();
        let (law, capacity) = (self.law, &self.capacity);
        let capacity = |r: u32, lanes: u32| match law {
            Law::Lossy(part) if lanes > 1 => capacity[r as usize] * part,
            _ => capacity[r as usize],
        };
        self.filling.rates(&flows, capacity, &mut self.rates);
    }

    /// Moves time on by `step` to `now`.
    fn advance(&mut self, step: f64, now: f64) {
        let mut ended: Vec<u32> = Vec::new();
        let mut kept = 0;
        for at in 0..self.active.len() {
            let (id, rate) = (self.active[at], self.rates[at]);
            let left = &mut self.left[id as usize];
            *left -= rate * step;
            // What a hundredth of a nanosecond would carry is nothing.
            if *left <= rate * 0.01 {
                ended.push(id);
            } else {
                self.active[kept] = id;
                self.rates[kept] = rate;
                kept += 1;
            }
        }
        self.active.truncate(kept);
        self.rates.truncate(kept);
        self.stale |= !ended.is_empty();
        for id in ended {
            let uses = &self.traffic.flows[id as usize].uses;
            uses.iter().for_each(|&r| self.in_use[r as usize] -= 1);
            self.finish(id, now);
        }
    }

    /// Adds what runs from `begin` to `end` to the steps that the time falls in.
    fn record(&self, usage: &mut Usage, begin: f64, end: f64) {
        let steps = usage.busy.first().map_or(0, Vec::len);
        let first = ((begin / usage.step_ns) as usize).min(steps.saturating_sub(1));
        let last = ((end / usage.step_ns) as usize).min(steps.saturating_sub(1));
        for (id, rate) in self.active.iter().zip(&self.rates) {
            let flow = &self.traffic.flows[*id as usize];
            for &r in &flow.uses {
                // A lane holds what it need not share for as long as it lasts.
                let part = if self.shares {
                    rate / self.capacity[r as usize]
                } else {
                    1.0 / f64::from(self.fabric.resource(r).slots().unwrap_or(1))
                };
                for step in first..=last {
                    let from = begin.max(step as f64 * usage.step_ns);
                    let to = end.min((step + 1) as f64 * usage.step_ns);
                    usage.busy[r as usize][step] += (part * (to - from).max(0.0) / usage.step_ns) as f32;
                }
            }
        }
    }
}

fn time(ns: f64) -> Time {
    (ns * 1e6 + 0.5) as Time
}

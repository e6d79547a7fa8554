//! Pairs between nodes, where all their paths are known by their ends: the heaviest lane of an end in one pass.
//!
//! Ranks that share everything but their ports (a NIC) are a *class*: at most one of them sends between nodes at a time. A
//! lane is worth its time, cut at the duration tried, times what its two ends are worth, and classes are looked at by the
//! most time and the highest worth of their ranks; then the ranks of the best one. Start at [`Far::heaviest_from`].

mod side;

use super::{larger, smaller, total};
use crate::alltoallv::net::{Ends, Net};
use side::Side;

/// What is left between nodes, by source and destination, nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Far {
    ranks: usize,
    time: Vec<f32>,
    /// The most of each pair of classes, by sending and by receiving class.
    rows: Lines,
    columns: Lines,
    pub out: Side,
    pub into: Side,
}

/// Figures of classes by their partners, and partners with any as bits.
#[derive(Clone, Debug)]
struct Lines {
    width: usize,
    words: usize,
    time: Vec<f32>,
    some: Vec<u64>,
}

impl Lines {
    fn new(classes: usize, partners: &Side) -> Self {
        let (width, words) = (partners.seen.len(), partners.open.len());
        Self {
            width,
            words,
            time: vec![0.0; classes * width],
            some: vec![0; classes * words],
        }
    }

    #[inline]
    fn of(&self, class: usize) -> (&[f32], &[u64]) {
        let (time, some) = (class * self.width, class * self.words);
        (&self.time[time..time + self.width], &self.some[some..some + self.words])
    }

    #[inline]
    fn set(&mut self, class: usize, partner: usize, time: f32) {
        self.time[class * self.width + partner] = time;
        let word = &mut self.some[class * self.words + partner / 64];
        *word = *word & !(1 << (partner % 64)) | u64::from(time > 0.0) << (partner % 64);
    }
}

impl Far {
    /// Room for any demand on a fabric.
    pub fn new(net: &Net, ends: &Ends) -> Self {
        let (out, into) = (Side::new(net, &ends.out), Side::new(net, &ends.into));
        Self {
            ranks: net.ranks,
            time: vec![0.0; net.ranks * net.ranks],
            rows: Lines::new(out.members.len(), &into),
            columns: Lines::new(into.members.len(), &out),
            out,
            into,
        }
    }

    /// Takes a demand's bytes.
    pub fn begin(&mut self, net: &Net, ends: &Ends, bytes: &[u64]) {
        let n = self.ranks;
        // Pairs within a node never have any.
        for (from, runs) in ends.runs.iter().enumerate() {
            for &(to, lane, count) in runs {
                let (at, lane, count) = (from * n + to as usize, lane as usize, count as usize);
                let times = self.time[at..at + count].iter_mut().zip(&bytes[at..at + count]);
                // Signed: one instruction, and no demand comes near the sign.
                if ends.inv > 0.0 {
                    times.for_each(|(time, &bytes)| *time = bytes as i64 as f32 * ends.inv);
                } else {
                    let rates = &net.inv[lane..lane + count];
                    times
                        .zip(rates)
                        .for_each(|((time, &bytes), inv)| *time = bytes as i64 as f32 * inv);
                }
            }
        }
        for out in 0..self.out.members.len() {
            for into in 0..self.into.members.len() {
                self.find_most(out, into);
            }
        }
    }

    /// The most time of a pair of classes.
    #[inline]
    fn find_most(&mut self, out: usize, into: usize) {
        let mut most = 0.0;
        for &from in &self.out.members[out] {
            for &to in &self.into.members[into] {
                most = larger(self.time[usize::from(from) * self.ranks + usize::from(to)], most);
            }
        }
        self.rows.set(out, into, most);
        self.columns.set(into, out, most);
    }

    /// Sets what is left of a pair.
    #[inline]
    pub fn set(&mut self, from: usize, to: usize, time: f32) {
        self.time[from * self.ranks + to] = time;
        self.find_most(usize::from(self.out.class[from]), usize::from(self.into.class[to]));
    }

    /// New prices of all resources.
    pub fn set_prices(&mut self, ends: &Ends, price: &[f32]) {
        self.out.set(&ends.out, price);
        self.into.set(&ends.into, price);
    }

    /// What is left of a pair.
    #[inline]
    pub fn time(&self, from: usize, to: usize) -> f32 {
        self.time[from * self.ranks + to]
    }

    /// What a pair's lane is worth.
    #[inline]
    pub fn weight(&self, from: usize, to: usize, cap: f32) -> f32 {
        smaller(self.time[from * self.ranks + to], cap) * (self.out.price[from] + self.into.price[to])
    }

    /// Number of classes that send.
    pub fn senders(&self) -> usize {
        self.out.members.len()
    }

    /// The heaviest lane from a class, if it is over `most`, which it becomes.
    pub fn heaviest_from(&self, class: usize, cap: f32, most: &mut f32) -> Option<(usize, usize)> {
        if self.out.is_closed(class) {
            return None;
        }
        let own = self.out.seen[class];
        let best = self.into.best(self.rows.of(class), cap, own, *most)?;
        // Who has the most time, or is worth most, may be shut: then all are looked at.
        self.heaviest_of(class, best, cap, most).or_else(|| {
            let mut found = None;
            for into in 0..self.into.members.len() {
                found = self.heaviest_of(class, into, cap, most).or(found);
            }
            found
        })
    }

    /// The same for a receiving class.
    pub fn heaviest_to(&self, class: usize, cap: f32, most: &mut f32) -> Option<(usize, usize)> {
        if self.into.is_closed(class) {
            return None;
        }
        let own = self.into.seen[class];
        let best = self.out.best(self.columns.of(class), cap, own, *most)?;
        self.heaviest_of(best, class, cap, most).or_else(|| {
            let mut found = None;
            for out in 0..self.out.members.len() {
                found = self.heaviest_of(out, class, cap, most).or(found);
            }
            found
        })
    }

    /// The heaviest lane of a pair of classes whose ends are open, if it is over `most`, which it becomes.
    #[inline]
    fn heaviest_of(&self, out: usize, into: usize, cap: f32, most: &mut f32) -> Option<(usize, usize)> {
        let mut found = None;
        if self.out.is_closed(out) || self.into.is_closed(into) {
            return None;
        }
        for &from in &self.out.members[out] {
            let from = usize::from(from);
            if self.out.shut[from] > 0 {
                continue;
            }
            let (own, line) = (
                self.out.price[from],
                &self.time[from * self.ranks..(from + 1) * self.ranks],
            );
            for &to in &self.into.members[into] {
                let to = usize::from(to);
                let weight = smaller(line[to], cap) * (own + self.into.price[to]);
                if weight > *most && self.into.shut[to] == 0 {
                    (*most, found) = (weight, Some((from, to)));
                }
            }
        }
        found
    }

    /// Adds what is left to the loads of the resources at both ends.
    pub fn load(&self, ends: &Ends, load: &mut [f32]) {
        let n = self.ranks;
        let mut add = |ids: &[u16], sum: f32| {
            ids.iter()
                .for_each(|&r| load[usize::from(r)] += sum * ends.hold[usize::from(r)]);
        };
        for (ids, line) in ends.out.iter().zip(self.time.chunks(n)) {
            add(ids, total(line));
        }
        // Row by row: sums of eight columns at a time.
        for (first, ids) in (0..n).step_by(8).zip(ends.into.chunks(8)) {
            let mut sums = [0.0f32; 8];
            for line in self.time.chunks(n) {
                sums.iter_mut().zip(&line[first..]).for_each(|(sum, time)| *sum += time);
            }
            ids.iter().zip(sums).for_each(|(ids, sum)| add(ids, sum));
        }
    }
}

//! Pairs between nodes, where all their paths are known by their ends: the heaviest lane of a rank without looking at all.
//!
//! A lane is worth its time, cut at the duration tried, times what its two ends are worth. Ranks stand in order of what
//! their end is worth, so the search for the best partner ends as soon as no later one can be better; it looks at all of
//! them at once where that takes too long. Start at [`Far::heaviest_from`].

use super::{larger, smaller, total};
use crate::alltoallv::net::{Ends, Net};

/// Partners looked at together.
const BLOCK: usize = 64;
/// Partners looked at one by one.
const PROBES: usize = 8;
/// Steps of worth that ranks are put in order by, each so many units in the last place wide: 0.1 %.
const STEPS: usize = 512;
const WIDTH: u32 = 13;
/// What an end is worth whose resources are not all free: less than nothing.
const CLOSED: f32 = -1e30;

/// What is left between nodes, by source and by destination, nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Far {
    ranks: usize,
    rows: Lines,
    columns: Lines,
    pub out: Side,
    pub into: Side,
}

/// Times of all pairs, line by line, and a bound for each line.
#[derive(Clone, Debug)]
struct Lines {
    time: Vec<f32>,
    most: Vec<f32>,
}

/// The ranks as one end of a lane.
#[derive(Clone, Debug)]
pub(super) struct Side {
    /// What each rank's end is worth; the same while it is open.
    price: Vec<f32>,
    seen: Vec<f32>,
    /// Full resources at each rank's end.
    shut: Vec<u8>,
    /// Ranks in order of price, where each stands, and what none from there on exceeds.
    order: Vec<u16>,
    place: Vec<u16>,
    most: Vec<f32>,
    /// Places of open ranks as bits.
    open: Vec<u64>,
}

impl Side {
    fn new(ranks: usize) -> Self {
        Self {
            price: vec![0.0; ranks],
            seen: vec![0.0; ranks],
            shut: vec![0; ranks],
            order: (0..ranks as u16).collect(),
            place: (0..ranks as u16).collect(),
            most: vec![0.0; ranks],
            open: vec![0; ranks.div_ceil(64)],
        }
    }

    /// New prices: those of the resources at each rank's end.
    fn set(&mut self, of: &[Vec<u16>], price: &[f32]) {
        for (mine, ids) in self.price.iter_mut().zip(of) {
            *mine = ids.iter().map(|&r| price[usize::from(r)]).sum();
        }
        let top = self.price.iter().fold(0.0, |a, &b| larger(b, a)).to_bits();
        let step = |price: f32| ((top.saturating_sub(price.to_bits()) >> WIDTH) as usize).min(STEPS - 1);
        let mut begins = [0u16; STEPS + 1];
        self.price.iter().for_each(|&price| begins[step(price) + 1] += 1);
        for k in 0..STEPS {
            begins[k + 1] += begins[k];
        }
        for (rank, &price) in self.price.iter().enumerate() {
            let step = step(price);
            let at = usize::from(begins[step]);
            begins[step] += 1;
            self.order[at] = rank as u16;
            self.place[rank] = at as u16;
            // The best of the step: bits of positive floats are in their order.
            self.most[at] = f32::from_bits(top - ((step as u32) << WIDTH).min(top));
        }
    }

    /// All ranks are open.
    pub fn release(&mut self) {
        self.shut.fill(0);
        self.seen.copy_from_slice(&self.price);
        let ranks = self.shut.len();
        for (k, word) in self.open.iter_mut().enumerate() {
            let rest = ranks - 64 * k;
            *word = if rest >= 64 { u64::MAX } else { (1 << rest) - 1 };
        }
    }

    /// One more resource at a rank's end is full.
    #[inline]
    pub fn shut(&mut self, rank: usize) {
        self.shut[rank] += 1;
        let place = usize::from(self.place[rank]);
        self.open[place / 64] &= !(1 << (place % 64));
        self.seen[rank] = CLOSED;
    }

    /// One fewer is.
    #[inline]
    pub fn open(&mut self, rank: usize) {
        self.shut[rank] -= 1;
        if self.shut[rank] == 0 {
            let place = usize::from(self.place[rank]);
            self.open[place / 64] |= 1 << (place % 64);
            self.seen[rank] = self.price[rank];
        }
    }

    #[inline]
    pub fn is_open(&self, rank: usize) -> bool {
        self.shut[rank] == 0
    }

    /// The partner for which `min(time, cap) * (own + price)` is largest and over `most`, which it becomes.
    fn best(&self, time: &[f32], cap: f32, top: f32, own: f32, most: &mut f32) -> Option<usize> {
        let mut found = None;
        let mut probes = 0;
        for (k, &word) in self.open.iter().enumerate() {
            let mut bits = word;
            while bits != 0 {
                let at = 64 * k + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if top * (own + self.most[at]) <= *most {
                    return found;
                }
                if probes == PROBES {
                    return self.best_of_all(time, cap, own, most).or(found);
                }
                probes += 1;
                let rank = usize::from(self.order[at]);
                let weight = smaller(time[rank], cap) * (own + self.price[rank]);
                if weight > *most {
                    *most = weight;
                    found = Some(rank);
                }
            }
        }
        found
    }

    fn best_of_all(&self, time: &[f32], cap: f32, own: f32, most: &mut f32) -> Option<usize> {
        let weight = |time: f32, price: f32| smaller(time, cap) * (own + price);
        // The block that has the largest first, then where in it: the first is a loop over vectors.
        let mut found = None;
        for (k, (times, prices)) in time.chunks(BLOCK).zip(self.seen.chunks(BLOCK)).enumerate() {
            let mut tops = [0.0f32; 8];
            let ((times, rest), (prices, others)) = (times.as_chunks::<8>(), prices.as_chunks::<8>());
            for (times, prices) in times.iter().zip(prices) {
                for k in 0..8 {
                    tops[k] = larger(weight(times[k], prices[k]), tops[k]);
                }
            }
            for (&time, &price) in rest.iter().zip(others) {
                tops[0] = larger(weight(time, price), tops[0]);
            }
            let top = tops.iter().fold(0.0, |a, &b| larger(b, a));
            if top > *most {
                (*most, found) = (top, Some(k * BLOCK));
            }
        }
        let begin = found?;
        let mut block = time[begin..].iter().zip(&self.seen[begin..]);
        Some(begin + block.position(|(&time, &price)| weight(time, price) == *most)?)
    }
}

impl Lines {
    fn new(ranks: usize) -> Self {
        Self {
            time: vec![0.0; ranks * ranks],
            most: vec![0.0; ranks],
        }
    }

    fn bound(&mut self, ranks: usize) {
        for (most, line) in self.most.iter_mut().zip(self.time.chunks(ranks)) {
            *most = super::largest(line);
        }
    }
}

impl Far {
    /// Room for this many ranks.
    pub fn new(ranks: usize) -> Self {
        Self {
            ranks,
            rows: Lines::new(ranks),
            columns: Lines::new(ranks),
            out: Side::new(ranks),
            into: Side::new(ranks),
        }
    }

    /// Takes a demand's bytes.
    pub fn begin(&mut self, net: &Net, ends: &Ends, bytes: &[u64]) {
        let n = self.ranks;
        self.rows.time.fill(0.0);
        for (from, runs) in ends.runs.iter().enumerate() {
            for &(to, lane, count) in runs {
                let (at, lane) = (from * n + to as usize, lane as usize);
                for k in 0..count as usize {
                    self.rows.time[at + k] = bytes[at + k] as f32 * net.inv[lane + k];
                }
            }
        }
        for to in 0..n {
            for from in 0..n {
                self.columns.time[to * n + from] = self.rows.time[from * n + to];
            }
        }
        self.bound();
    }

    /// Bounds of all lines from scratch.
    pub fn bound(&mut self) {
        self.rows.bound(self.ranks);
        self.columns.bound(self.ranks);
    }

    /// What is left of a pair.
    #[inline]
    pub fn set(&mut self, from: usize, to: usize, time: f32) {
        self.rows.time[from * self.ranks + to] = time;
        self.columns.time[to * self.ranks + from] = time;
    }

    /// New prices of all resources.
    pub fn set_prices(&mut self, ends: &Ends, price: &[f32]) {
        self.out.set(&ends.out, price);
        self.into.set(&ends.into, price);
    }

    /// What a pair's lane is worth.
    #[inline]
    pub fn weight(&self, from: usize, to: usize, cap: f32) -> f32 {
        smaller(self.rows.time[from * self.ranks + to], cap) * (self.out.price[from] + self.into.price[to])
    }

    /// The destination of the heaviest lane from a rank that is open, if it is over `most`, which it becomes.
    pub fn heaviest_from(&self, from: usize, cap: f32, most: &mut f32) -> Option<usize> {
        let line = &self.rows.time[from * self.ranks..(from + 1) * self.ranks];
        let top = smaller(self.rows.most[from], cap);
        self.into.best(line, cap, top, self.out.price[from], most)
    }

    /// The same for a receiver: the source.
    pub fn heaviest_to(&self, to: usize, cap: f32, most: &mut f32) -> Option<usize> {
        let line = &self.columns.time[to * self.ranks..(to + 1) * self.ranks];
        let top = smaller(self.columns.most[to], cap);
        self.out.best(line, cap, top, self.into.price[to], most)
    }

    /// Adds what is left to the loads of the resources at both ends.
    pub fn load(&self, ends: &Ends, load: &mut [f32]) {
        let sides = [(&ends.out, &self.rows.time), (&ends.into, &self.columns.time)];
        for (of, time) in sides {
            for (ids, line) in of.iter().zip(time.chunks(self.ranks)) {
                let sum = total(line);
                ids.iter()
                    .for_each(|&r| load[usize::from(r)] += sum * ends.hold[usize::from(r)]);
            }
        }
    }
}

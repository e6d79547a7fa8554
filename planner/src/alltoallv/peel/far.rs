//! Pairs between nodes, where all their paths are known by their ends: the heaviest lane of an end in one pass.
//!
//! Ranks that share everything but their ports (a NIC) are a *class*: at most one of them sends between nodes at a time. A
//! lane is worth its time, cut at the duration tried, times what its two ends are worth, and classes are looked at by the
//! most time and the highest worth of their ranks; then the ranks of the best one. Start at [`Far::heaviest_from`].

use super::{larger, smaller, total};
use crate::alltoallv::net::{Ends, Net, UNLIMITED};

/// Partners looked at together.
const BLOCK: usize = 32;
/// What a class is worth without an open rank: less than nothing.
const CLOSED: f32 = -1e30;

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

/// The ranks as one end of a lane.
#[derive(Clone, Debug)]
pub(super) struct Side {
    /// What each rank's end is worth, and the most that an open one of each class is.
    price: Vec<f32>,
    seen: Vec<f32>,
    /// Full resources at each rank's end.
    shut: Vec<u8>,
    class: Vec<u16>,
    /// Ranks of each class.
    members: Vec<Vec<u16>>,
    /// Classes that meet at each resource, and those that a lane of each class shuts: none where it shuts its own rank only.
    pub at: Vec<Vec<u16>>,
    shuts: Vec<Vec<u16>>,
    /// Classes with an open rank as bits.
    open: Vec<u64>,
}

/// Open classes with something left of which each is looked at by itself.
const FEW: u32 = 28;

impl Side {
    /// Classes of ranks by what they use, but for ports.
    fn new(net: &Net, ends: &[Vec<u16>]) -> Self {
        let shared = |rank: usize| ends[rank].iter().filter(|&&r| !net.port[usize::from(r)]);
        let mut members: Vec<Vec<u16>> = Vec::new();
        let mut class = Vec::with_capacity(ends.len());
        for rank in 0..ends.len() {
            let same = |known: &Vec<u16>| {
                let first = usize::from(known[0]);
                shared(first).count() > 0 && shared(first).eq(shared(rank))
            };
            let of = members.iter().position(same).unwrap_or(members.len());
            if of == members.len() {
                members.push(Vec::new());
            }
            members[of].push(rank as u16);
            class.push(of as u16);
        }
        let mut at = vec![Vec::new(); net.resources];
        for (ids, &class) in ends.iter().zip(&class) {
            for &r in ids {
                let known: &mut Vec<u16> = &mut at[usize::from(r)];
                if !known.contains(&class) {
                    known.push(class);
                }
            }
        }
        let limited = |r: &&u16| !net.port[usize::from(**r)] && net.slots[usize::from(**r)] != UNLIMITED;
        let shuts = |members: &Vec<u16>| {
            let mut shuts: Vec<u16> = Vec::new();
            for &r in ends[usize::from(members[0])].iter().filter(limited) {
                let met = at[usize::from(r)].iter().filter(|class| !shuts.contains(class));
                let met: Vec<u16> = met.copied().collect();
                shuts.extend(met);
            }
            shuts
        };
        Self {
            shuts: members.iter().map(shuts).collect(),
            price: vec![0.0; ends.len()],
            seen: vec![0.0; members.len().next_multiple_of(BLOCK)],
            shut: vec![0; ends.len()],
            class,
            open: vec![0; members.len().div_ceil(64)],
            members,
            at,
        }
    }

    /// New prices: those of the resources at each rank's end.
    fn set(&mut self, of: &[Vec<u16>], price: &[f32]) {
        for (mine, ids) in self.price.iter_mut().zip(of) {
            *mine = ids.iter().map(|&r| price[usize::from(r)]).sum();
        }
    }

    /// All ranks are open.
    pub fn release(&mut self) {
        self.shut.fill(0);
        self.seen.fill(CLOSED);
        for (seen, members) in self.seen.iter_mut().zip(&self.members) {
            let prices = members.iter().map(|&rank| self.price[usize::from(rank)]);
            *seen = prices.fold(CLOSED, |a, b| larger(b, a));
        }
        for (k, word) in self.open.iter_mut().enumerate() {
            let rest = self.members.len() - 64 * k;
            *word = if rest >= 64 { u64::MAX } else { (1 << rest) - 1 };
        }
    }

    /// What a lane between nodes keeps shut until all are released.
    #[inline]
    pub fn close(&mut self, rank: usize) {
        let class = usize::from(self.class[rank]);
        if self.shuts[class].is_empty() {
            self.shut(rank);
        }
        for &class in &self.shuts[class] {
            let class = usize::from(class);
            self.seen[class] = CLOSED;
            self.open[class / 64] &= !(1 << (class % 64));
        }
    }

    /// Classes that meet at a resource are shut until all are released.
    pub fn close_all_at(&mut self, resource: usize) {
        for &class in &self.at[resource] {
            let class = usize::from(class);
            self.seen[class] = CLOSED;
            self.open[class / 64] &= !(1 << (class % 64));
        }
    }

    /// One more resource at a rank's end is full.
    #[inline]
    pub fn shut(&mut self, rank: usize) {
        self.shut[rank] += 1;
        let class = usize::from(self.class[rank]);
        if self.shut[rank] == 1 && self.seen[class] > CLOSED {
            self.look(class);
        }
    }

    /// One fewer is.
    #[inline]
    pub fn open(&mut self, rank: usize) {
        self.shut[rank] -= 1;
        if self.shut[rank] == 0 {
            self.look(usize::from(self.class[rank]));
        }
    }

    #[inline]
    fn look(&mut self, class: usize) {
        let seen = self
            .open_ones(class)
            .map(|rank| self.price[rank])
            .fold(CLOSED, |a, b| larger(b, a));
        self.seen[class] = seen;
        let bit = 1 << (class % 64);
        if seen > CLOSED {
            self.open[class / 64] |= bit;
        } else {
            self.open[class / 64] &= !bit;
        }
    }

    #[inline]
    fn open_ones(&self, class: usize) -> impl Iterator<Item = usize> + Clone + '_ {
        let members = self.members[class].iter().map(|&rank| usize::from(rank));
        members.filter(|&rank| self.shut[rank] == 0)
    }

    /// The class for which `min(time, cap) * (own + price)` is largest, if over `most`; `some` are those with any time.
    fn best(&self, (line, some): (&[f32], &[u64]), cap: f32, own: f32, most: f32) -> Option<usize> {
        let weight = |time: f32, price: f32| smaller(time, cap) * (own + price);
        let left = || self.open.iter().zip(some).map(|(open, some)| open & some);
        let many: u32 = left().map(u64::count_ones).sum();
        if many <= FEW {
            let (mut found, mut most) = (None, most);
            for (k, mut bits) in left().enumerate() {
                while bits != 0 {
                    let class = 64 * k + bits.trailing_zeros() as usize;
                    bits &= bits - 1;
                    let weight = weight(line[class], self.seen[class]);
                    if weight > most {
                        (most, found) = (weight, Some(class));
                    }
                }
            }
            return found;
        }
        // The block that has the largest first, then where in it: the first is a loop over vectors.
        let mut found = None;
        let mut most = most;
        let (times, prices) = (line.as_chunks::<BLOCK>().0, self.seen.as_chunks::<BLOCK>().0);
        for (k, (times, prices)) in times.iter().zip(prices).enumerate() {
            let mut tops = [0.0f32; 8];
            let eights = times.as_chunks::<8>().0.iter().zip(prices.as_chunks::<8>().0);
            for (times, prices) in eights {
                for at in 0..8 {
                    tops[at] = larger(weight(times[at], prices[at]), tops[at]);
                }
            }
            for half in [4, 2, 1] {
                for at in 0..half {
                    tops[at] = larger(tops[at], tops[at + half]);
                }
            }
            let top = tops[0];
            if top > most {
                (most, found) = (top, Some(k * BLOCK));
            }
        }
        let begin = found?;
        let mut block = line[begin..].iter().zip(&self.seen[begin..]);
        Some(begin + block.position(|(&time, &price)| weight(time, price) == most)?)
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
        self.time.fill(0.0);
        for (from, runs) in ends.runs.iter().enumerate() {
            for &(to, lane, count) in runs {
                let (at, lane) = (from * n + to as usize, lane as usize);
                for k in 0..count as usize {
                    self.time[at + k] = bytes[at + k] as f32 * net.inv[lane + k];
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

    /// The heaviest lane from a class, if it is over `most`, which it becomes.
    pub fn heaviest_from(&self, class: usize, cap: f32, most: &mut f32) -> Option<(usize, usize)> {
        let own = self.out.seen[class];
        if own <= CLOSED {
            return None;
        }
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
        let own = self.into.seen[class];
        if own <= CLOSED {
            return None;
        }
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
        if self.out.seen[out] <= CLOSED || self.into.seen[into] <= CLOSED {
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

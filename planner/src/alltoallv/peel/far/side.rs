//! The ranks as one end of lanes between nodes, in classes; what each end is worth, and which are open.
//!
//! It knows nothing of time but what it is given. Start at [`Side::best`].

use super::super::{larger, smaller};
use crate::alltoallv::net::{Net, UNLIMITED};

/// Partners looked at together.
const BLOCK: usize = 32;
/// What a class is worth without an open rank: less than nothing.
const CLOSED: f32 = -1e30;
/// Open classes with something left of which each is looked at by itself.
const FEW: u32 = 28;

/// The ranks as one end of a lane.
#[derive(Clone, Debug)]
pub(in crate::alltoallv::peel) struct Side {
    /// What each rank's end is worth, and the most that an open one of each class is.
    pub(super) price: Vec<f32>,
    pub(super) seen: Vec<f32>,
    /// Full resources at each rank's end.
    pub(super) shut: Vec<u8>,
    pub(super) class: Vec<u16>,
    /// Ranks of each class.
    pub(super) members: Vec<Vec<u16>>,
    /// Classes that meet at each resource, and those that a lane of each class shuts: none where it shuts its own rank only.
    pub at: Vec<Vec<u16>>,
    shuts: Vec<Vec<u16>>,
    /// Classes with an open rank as bits.
    pub(super) open: Vec<u64>,
}

impl Side {
    /// Classes of ranks by what they use, but for ports.
    pub(super) fn new(net: &Net, ends: &[Vec<u16>]) -> Self {
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
    pub(super) fn set(&mut self, of: &[Vec<u16>], price: &[f32]) {
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
        close_all(&mut self.seen, &mut self.open, &self.shuts[class]);
    }

    /// Classes that meet at a resource are shut until all are released.
    pub fn close_all_at(&mut self, resource: usize) {
        close_all(&mut self.seen, &mut self.open, &self.at[resource]);
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
    pub(super) fn open_ones(&self, class: usize) -> impl Iterator<Item = usize> + Clone + '_ {
        let members = self.members[class].iter().map(|&rank| usize::from(rank));
        members.filter(|&rank| self.shut[rank] == 0)
    }

    /// No rank of a class is open.
    #[inline]
    pub(super) fn is_closed(&self, class: usize) -> bool {
        self.seen[class] <= CLOSED
    }

    /// The class for which `min(time, cap) * (own + price)` is largest, if over `most`; `some` are those with any time.
    pub(super) fn best(&self, (line, some): (&[f32], &[u64]), cap: f32, own: f32, most: f32) -> Option<usize> {
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

/// Classes are worth nothing, and not open.
#[inline]
fn close_all(seen: &mut [f32], open: &mut [u64], classes: &[u16]) {
    for &class in classes {
        let class = usize::from(class);
        seen[class] = CLOSED;
        open[class / 64] &= !(1 << (class % 64));
    }
}

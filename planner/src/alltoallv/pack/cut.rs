//! Cutting: pieces of pairs and fans of groups, longest first.
//!
//! It finds what is to be packed and no round. Start at [`Pack::cut`].

use super::fans::{Fans, Item, fan};
use super::{Pack, Piece, Work};
use crate::alltoallv::net::Net;
use crate::alltoallv::plan::ALIGN;

/// Senders whose fans are found together: their times are a line of the cache.
pub(super) const TILE: usize = 16;

/// Steps of time that items are put in order by, and how many units in the last place each is wide: 0.4 %, to a 256th of
/// the longest.
const STEPS: usize = 2048;
const WIDTH: u32 = 15;

impl Pack {
    /// Fills `items`.
    pub(super) fn cut(&mut self, net: &Net, work: &Work<'_>, fans: Option<&Fans>) {
        self.pieces.clear();
        self.piece_times.clear();
        self.cuts = 0;
        // With fans only pairs of a node are left to cut one by one.
        let around = fans.and(net.any_ends()).map_or(net.ranks, |ends| ends.per_node);
        self.cut_pairs(net, work, around);
        let many = match fans {
            Some(fans) => {
                self.cut_fans(net, fans, work.rem);
                self.fan_times.len()
            }
            None => 0,
        };
        self.sort(net.ranks, many, fans);
    }

    /// Cuts pairs of ranks that stand `around` each other into pieces, in an order in which equal ones pack well.
    fn cut_pairs(&mut self, net: &Net, work: &Work<'_>, around: usize) {
        let n = net.ranks;
        for shift in 1..around {
            for from in 0..n {
                let begin = from / around * around;
                let place = from - begin + shift;
                let to = begin + if place < around { place } else { place - around };
                if work.rem[from * n + to] > 0 {
                    self.cut_pair(net, work, from * n + to);
                }
            }
        }
    }

    fn cut_pair(&mut self, net: &Net, work: &Work<'_>, pair: usize) {
        self.offsets[pair] = work.whole[pair] - work.rem[pair];
        let lanes = net.lanes(pair);
        // Whole units; the last chunk in time is cut to fit.
        let mut left = work.rem[pair].next_multiple_of(ALIGN);
        for lane in lanes.clone().rev() {
            // The fastest path takes what rounding leaves.
            let mut bytes = if lane == lanes.start {
                left
            } else {
                (work.share[lane] as u64 / ALIGN * ALIGN).min(left)
            };
            left -= bytes;
            let piece = ((4.0 * work.quantum * net.rate[lane]) as u64 / ALIGN * ALIGN).max(ALIGN);
            while bytes > 0 {
                let whole = bytes < piece + piece / 8 || bytes - piece < 4096 || self.cuts == Self::most_cuts(net);
                let part = if whole { bytes } else { piece };
                self.cuts += usize::from(!whole);
                bytes -= part;
                self.piece_times.push(part as f32 * net.inv[lane]);
                self.pieces.push(Piece {
                    lane: lane as u32,
                    bytes: part,
                });
            }
        }
    }

    /// Times of a fan for each rank and each group of another node, by groups on and then by rank.
    fn cut_fans(&mut self, net: &Net, fans: &Fans, rem: &[u64]) {
        let (n, groups) = (net.ranks, fans.groups.len());
        let Some(ends) = net.any_ends() else { return };
        for first in (0..n).step_by(TILE) {
            let last = n.min(first + TILE);
            self.tile.fill(0.0);
            for from in first..last {
                let tile = &mut self.tile[(from - first) * groups..(from - first + 1) * groups];
                for &(to, lane, count) in &ends.runs[from] {
                    let (to, lane, count) = (to as usize, lane as usize, count as usize);
                    let mut rem = &rem[from * n + to..from * n + to + count];
                    let mut group = usize::from(fans.group[to]);
                    // Signed: one instruction, and no demand comes near the sign.
                    let time = |rem: u64, inv: f32| rem as i64 as f32 * inv;
                    if ends.inv > 0.0 {
                        while !rem.is_empty() {
                            let (mine, others) = rem.split_at(usize::from(fans.groups[group].1));
                            tile[group] = time(mine.iter().sum(), ends.inv);
                            (rem, group) = (others, group + 1);
                        }
                        continue;
                    }
                    let mut inv = &net.inv[lane..lane + count];
                    while !rem.is_empty() {
                        let width = usize::from(fans.groups[group].1);
                        let (mine, others) = rem.split_at(width);
                        let (rates, more) = inv.split_at(width);
                        tile[group] = mine.iter().zip(rates).map(|(&rem, &inv)| time(rem, inv)).sum();
                        (rem, inv, group) = (others, more, group + 1);
                    }
                }
            }
            let tile = &self.tile;
            for (shift, times) in self.fan_times.chunks_mut(n).enumerate() {
                for (k, time) in times[first..last].iter_mut().enumerate() {
                    let group = usize::from(fans.group[first + k]) + shift;
                    *time = tile[k * groups + if group < groups { group } else { group - groups }];
                }
            }
        }
    }

    /// Longest first, those as good as equal in the order they were cut: counted into steps.
    fn sort(&mut self, n: usize, many: usize, fans: Option<&Fans>) {
        let fan_times = &self.fan_times[..many];
        let all = || self.piece_times.iter().chain(fan_times);
        // Bits of positive floats are in their order.
        let top = all().fold(0u32, |top, time| top.max(time.to_bits()));
        let step = |time: f32| (((top - time.to_bits()) >> WIDTH) as usize).min(STEPS - 1);
        let mut begins = [0u32; STEPS];
        all()
            .filter(|&&time| time > 0.0)
            .for_each(|&time| begins[step(time)] += 1);
        let mut sum = 0;
        for begin in &mut begins {
            sum += std::mem::replace(begin, sum);
        }
        self.items.clear();
        self.items.resize(sum as usize, 0);
        let mut put = |time: f32, item: Item| {
            let at = &mut begins[step(time)];
            self.items[*at as usize] = item;
            *at += 1;
        };
        for (at, &time) in self.piece_times.iter().enumerate() {
            if time > 0.0 {
                put(time, at as Item);
            }
        }
        let Some(Fans { groups, group, .. }) = fans else { return };
        for (shift, times) in fan_times.chunks(n).enumerate() {
            for (from, (&time, &own)) in times.iter().zip(group).enumerate() {
                if time > 0.0 {
                    let to = usize::from(own) + shift;
                    put(time, fan(from, if to < groups.len() { to } else { to - groups.len() }));
                }
            }
        }
    }
}

//! Pack: all lanes of a demand put into rounds at once, longest first, each into the first round with room for it.
//!
//! For many ranks, where choosing lanes round by round would take longer than sending them. A lane between nodes may be a
//! *fan*: one rank's bytes for all ranks of a group, back to back over the same NICs. All memory is allocated in
//! [`Pack::new`]. Start at [`Pack::run`].

use super::net::{Ends, Net, UNLIMITED};
use super::plan::{ALIGN, Chunk, Plan};

/// Bytes that stand together: of one lane, or of a fan.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    /// The first lane; a fan's others are those of the following destinations.
    lane: u32,
    /// Destinations of a fan; 1 else.
    width: u16,
    round: u16,
    /// Bytes of a lane; of a fan all bytes of its pairs go.
    bytes: u64,
}

/// Room for any demand on a fabric.
#[derive(Clone, Debug)]
pub(super) struct Pack {
    chunks: Vec<Piece>,
    /// Bits of the time, and the chunk: sorted together.
    keys: Vec<(u32, u32)>,
    other: Vec<(u32, u32)>,
    /// Rounds that use each resource, as rows of bits.
    busy: Vec<u64>,
    words: usize,
    /// First word of each row that is not full.
    open: Vec<u16>,
    counts: Vec<u32>,
    offsets: Vec<u64>,
    /// First rank and size of each group, if all groups can have fans; none else.
    firsts: Vec<(u32, u16)>,
    /// Group of each rank.
    group: Vec<u16>,
    cuts: usize,
}

/// What is to be packed.
#[derive(Clone, Copy)]
pub(super) struct Work<'a> {
    /// Bytes of each pair, and those of them that are left.
    pub whole: &'a [u64],
    pub rem: &'a [u64],
    /// What the path plan gives each lane.
    pub share: &'a [f32],
    /// In nanoseconds.
    pub quantum: f32,
}

/// No round.
const LATE: u16 = u16::MAX;

impl Pack {
    /// Room for any demand; `groups` are the ranks of each group, first and one past the last.
    pub fn new(net: &Net, groups: &[(usize, usize)]) -> Self {
        let n = net.ranks;
        let chunks = Self::most_chunks(net);
        let words = (8 * n + 64).div_ceil(64);
        let mut group = vec![0; n];
        let mut firsts = Vec::with_capacity(groups.len());
        for (g, &(begin, end)) in groups.iter().enumerate() {
            group[begin..end].fill(g as u16);
            // All paths into the group must share everything but the ranks' ports.
            let shared = |ends: &Ends| {
                let of = |rank: usize| ends.into[rank].iter().filter(|&&r| !net.port[usize::from(r)]);
                (begin..end).all(|rank| of(rank).eq(of(begin))) && of(begin).count() > 0
            };
            if net.ends.as_ref().is_some_and(shared) {
                firsts.push((begin as u32, (end - begin) as u16));
            }
        }
        if firsts.len() < groups.len() {
            firsts.clear();
        }
        Self {
            chunks: Vec::with_capacity(chunks),
            keys: Vec::with_capacity(chunks),
            other: vec![(0, 0); chunks],
            busy: vec![0; words * net.resources],
            words,
            open: vec![0; net.resources],
            counts: vec![0; words * 64 + 1],
            offsets: vec![0; n * n],
            firsts,
            group,
            cuts: 0,
        }
    }

    /// The most chunks that a demand can be cut into.
    pub fn most_chunks(net: &Net) -> usize {
        net.len() + Self::most_cuts(net)
    }

    /// Cuts beyond this are left out: chunks are longer then.
    fn most_cuts(net: &Net) -> usize {
        net.ranks * net.ranks / 2 + 64
    }

    /// Appends a plan of what each lane has to carry: `share` from a path plan, exact bytes from `rem`.
    ///
    /// Bytes before `rem` of `whole` are in the plan already; `quantum` in nanoseconds is the path plan's.
    pub fn run(&mut self, net: &Net, work: &Work<'_>, fans: bool, plan: &mut Plan) {
        let Work { whole, rem, .. } = *work;
        for ((offset, whole), rem) in self.offsets.iter_mut().zip(whole).zip(rem) {
            *offset = whole - rem;
        }
        self.cut(net, rem, work.share, work.quantum, fans);
        self.sort();
        self.busy.fill(0);
        self.open.fill(0);
        for at in 0..self.keys.len() {
            let chunk = self.keys[at].1 as usize;
            self.chunks[chunk].round = self.place(net, chunk);
        }
        self.write(net, whole, plan);
    }

    /// Cuts the demand into chunks, in an order in which equal ones pack well: shift by shift.
    fn cut(&mut self, net: &Net, rem: &[u64], share: &[f32], quantum: f32, fans: bool) {
        let n = net.ranks;
        self.chunks.clear();
        self.keys.clear();
        self.cuts = 0;
        // With fans only pairs of a node are left to cut one by one.
        let fans = net.ends.as_ref().filter(|_| fans && !self.firsts.is_empty());
        let around = fans.map_or(n, |ends| ends.per_node);
        for shift in 1..around {
            for from in 0..n {
                let begin = from / around * around;
                let place = from - begin + shift;
                let to = begin + if place < around { place } else { place - around };
                let pair = from * n + to;
                if rem[pair] > 0 {
                    self.cut_pair(net, net.lanes(pair), rem[pair], share, quantum);
                }
            }
        }
        if fans.is_some() {
            self.cut_fans(net, rem);
        }
    }

    /// A chunk for each rank and each group of another node that it has something for.
    fn cut_fans(&mut self, net: &Net, rem: &[u64]) {
        let (n, groups) = (net.ranks, self.firsts.len());
        for shift in 0..groups {
            for from in 0..n {
                let own = usize::from(self.group[from]);
                let group = if own + shift < groups {
                    own + shift
                } else {
                    own + shift - groups
                };
                let (to, width) = self.firsts[group];
                let first = net.first[from * n + to as usize] as usize;
                if net.is_local(from, first) || usize::from(self.group[from]) == group {
                    continue;
                }
                let at = from * n + to as usize;
                let times = rem[at..at + usize::from(width)].iter().zip(&net.inv[first..]);
                let total: f32 = times.map(|(&rem, inv)| rem as f32 * inv).sum();
                if total > 0.0 {
                    self.push(first, width, 0, total);
                }
            }
        }
    }

    fn cut_pair(&mut self, net: &Net, lanes: std::ops::Range<usize>, all: u64, share: &[f32], quantum: f32) {
        // Whole units; the last chunk in time is cut to fit.
        let mut left = all.next_multiple_of(ALIGN);
        for lane in lanes.clone().rev() {
            // The fastest path takes what rounding leaves.
            let mut bytes = if lane == lanes.start {
                left
            } else {
                (share[lane] as u64 / ALIGN * ALIGN).min(left)
            };
            left -= bytes;
            let piece = ((4.0 * quantum * net.rate[lane]) as u64 / ALIGN * ALIGN).max(ALIGN);
            while bytes > 0 {
                let whole = bytes < piece + piece / 8 || bytes - piece < 4096 || self.cuts == Self::most_cuts(net);
                let part = if whole { bytes } else { piece };
                self.cuts += usize::from(!whole);
                bytes -= part;
                self.push(lane, 1, part, part as f32 * net.inv[lane]);
            }
        }
    }

    fn push(&mut self, lane: usize, width: u16, bytes: u64, time: f32) {
        self.keys.push((!time.to_bits(), self.chunks.len() as u32));
        self.chunks.push(Piece {
            lane: lane as u32,
            width,
            round: LATE,
            bytes,
        });
    }

    /// Longest first, equal ones in the order they were cut: three passes over eleven bits.
    fn sort(&mut self) {
        let len = self.keys.len();
        for pass in 0..3 {
            let digit = |key: u32| (key >> (11 * pass) & 0x7ff) as usize;
            let mut begins = [0u32; 2049];
            self.keys.iter().for_each(|(key, _)| begins[digit(*key) + 1] += 1);
            for k in 0..2048 {
                begins[k + 1] += begins[k];
            }
            for &item in &self.keys {
                let at = &mut begins[digit(item.0)];
                self.other[*at as usize] = item;
                *at += 1;
            }
            self.keys.copy_from_slice(&self.other[..len]);
        }
    }

    /// The first round in which all resources of a chunk are free; they are free no longer.
    fn place(&mut self, net: &Net, chunk: usize) -> u16 {
        // Most chunks need few rows; clearing room for the widest fan would cost more than the search.
        match self.chunks[chunk].width {
            0..=4 => self.place_in::<16>(net, chunk),
            _ => self.place_in::<80>(net, chunk),
        }
    }

    fn place_in<const ROWS: usize>(&mut self, net: &Net, chunk: usize) -> u16 {
        let Piece { lane, width, .. } = self.chunks[chunk];
        let mut rows = [0u32; ROWS];
        let mut count = 0;
        let mut begin = 0u16;
        let mut need = |r: u16| {
            let limited = net.port[usize::from(r)] || net.slots[usize::from(r)] != UNLIMITED;
            if limited && count < rows.len() {
                rows[count] = u32::from(r);
                count += 1;
                begin = begin.max(self.open[usize::from(r)]);
            }
        };
        net.uses(lane as usize).iter().for_each(|&r| need(r));
        for k in 1..usize::from(width) {
            // The others of a fan only add their ports.
            net.uses(lane as usize + k)
                .iter()
                .filter(|&&r| net.port[usize::from(r)])
                .skip(1)
                .for_each(|&r| need(r));
        }
        for word in usize::from(begin)..self.words {
            let taken = rows[..count]
                .iter()
                .fold(0, |taken, &r| taken | self.busy[r as usize * self.words + word]);
            if taken == u64::MAX {
                continue;
            }
            let bit = (!taken).trailing_zeros() as usize;
            for &r in &rows[..count] {
                let row = &mut self.busy[r as usize * self.words + word];
                *row |= 1 << bit;
                let open = &mut self.open[r as usize];
                if *row == u64::MAX && usize::from(*open) == word {
                    *open += 1;
                }
            }
            return (word * 64 + bit) as u16;
        }
        LATE
    }

    /// The rounds as activations; what found no round goes last, each chunk by itself.
    fn write(&mut self, net: &Net, whole: &[u64], plan: &mut Plan) {
        self.counts.fill(0);
        for chunk in self.chunks.iter().filter(|c| c.round != LATE) {
            self.counts[usize::from(chunk.round) + 1] += 1;
        }
        for k in 0..self.counts.len() - 1 {
            self.counts[k + 1] += self.counts[k];
        }
        // Longest first within a round, too.
        for &(_, chunk) in &self.keys {
            let round = self.chunks[chunk as usize].round;
            if round != LATE {
                let at = &mut self.counts[usize::from(round)];
                self.other[*at as usize] = (u32::from(round), chunk);
                *at += 1;
            }
        }
        let placed = self.chunks.iter().filter(|c| c.round != LATE).count();
        for at in 0..placed {
            let (round, chunk) = self.other[at];
            self.emit(net, whole, chunk as usize, plan);
            if at + 1 == placed || self.other[at + 1].0 != round {
                plan.end();
            }
        }
        for at in 0..self.keys.len() {
            let chunk = self.keys[at].1 as usize;
            if self.chunks[chunk].round == LATE {
                self.emit(net, whole, chunk, plan);
                plan.end();
            }
        }
    }

    fn emit(&mut self, net: &Net, whole: &[u64], chunk: usize, plan: &mut Plan) {
        let Piece { lane, width, bytes, .. } = self.chunks[chunk];
        let mut turn = 0;
        for k in 0..usize::from(width) {
            let lane = lane as usize + k;
            let pair = net.pair[lane] as usize;
            let left = whole[pair] - self.offsets[pair];
            let bytes = if width == 1 { bytes.min(left) } else { left };
            if bytes == 0 {
                continue;
            }
            plan.lanes.push(Chunk {
                from: (pair / net.ranks) as u16,
                to: (pair % net.ranks) as u16,
                path: (lane - net.first[pair] as usize) as u16,
                turn,
                offset: self.offsets[pair],
                bytes,
            });
            self.offsets[pair] += bytes;
            turn += 1;
        }
    }
}

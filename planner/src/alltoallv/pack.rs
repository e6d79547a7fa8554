//! Pack: all lanes of a demand put into rounds at once, longest first, each into the first round with room for it.
//!
//! For many ranks, where choosing lanes round by round would take longer than sending them. A lane between nodes may be a
//! *fan*: one rank's bytes for all ranks of a group, back to back over the same NICs. All memory is allocated in
//! [`Pack::new`]. Start at [`Pack::run`].

use super::net::{Net, UNLIMITED};
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
    /// How many destinations a fan to each rank's group has, and whether the rank is the first of them.
    fan: Vec<(u16, bool)>,
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
        let mut fan = vec![(0, false); n];
        if let Some(ends) = &net.ends {
            for &(begin, end) in groups {
                // All paths into the group must share everything but the ranks' ports.
                let shared = |rank: usize| ends.into[rank].iter().filter(|&&r| !net.port[usize::from(r)]);
                if (begin..end).all(|rank| shared(rank).eq(shared(begin))) && shared(begin).count() > 0 {
                    fan[begin..end].fill(((end - begin) as u16, false));
                    fan[begin].1 = true;
                }
            }
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
            fan,
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
        for shift in 1..n {
            for from in 0..n {
                let to = (from + shift) % n;
                let pair = from * n + to;
                let lanes = net.lanes(pair);
                let remote = fans && !(net.local[from].0 as usize..net.local[from].1 as usize).contains(&lanes.start);
                if remote && self.fan[to].0 > 1 {
                    // The fan goes with its first destination.
                    let (width, first) = (usize::from(self.fan[to].0), self.fan[to].1);
                    if first {
                        let time = |k: usize| rem[pair + k] as f32 * net.inv[lanes.start + k];
                        let total: f32 = (0..width).map(time).sum();
                        if total > 0.0 {
                            self.push(lanes.start, width as u16, 0, total);
                        }
                    }
                    continue;
                }
                if rem[pair] == 0 {
                    continue;
                }
                self.cut_pair(net, lanes, rem[pair], share, quantum);
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
        let Piece { lane, width, .. } = self.chunks[chunk];
        let mut rows = [0u32; 80];
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

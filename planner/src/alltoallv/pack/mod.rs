//! Pack: all lanes of a demand put into rounds at once, longest first, each into the first round with room for it.
//!
//! For many ranks, where choosing lanes round by round would take longer than sending them. A lane between nodes may be a
//! *fan*: one rank's bytes for all ranks of a group, back to back over the same NICs. All memory is allocated in
//! [`Pack::new`]. Start at [`Pack::run`].

mod fans;
mod rounds;

use super::net::Net;
use super::plan::{ALIGN, Chunk, Plan};
use fans::{FAN, Fans, Item, RANK_BITS, is_limited, second};
use rounds::{LATE, Rounds};

/// Bytes of a lane that stand together.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    lane: u32,
    bytes: u64,
}

/// Room for any demand on a fabric.
#[derive(Clone, Debug)]
pub(super) struct Pack {
    pieces: Vec<Piece>,
    /// Time of each fan, by groups on and sender.
    fan_times: Vec<f32>,
    /// Bits of the time, and the item: sorted together. Then the round, and the item.
    keys: Vec<(u32, Item)>,
    other: Vec<(u32, Item)>,
    rounds: Rounds,
    counts: Vec<u32>,
    /// Where the next chunk of a pair begins, of pairs that have pieces.
    offsets: Vec<u64>,
    fans: Option<Fans>,
    /// Resources of a lane that carry one lane at a time.
    rows: Vec<u16>,
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

impl Pack {
    /// Room for any demand; `groups` are the ranks of each group, first and one past the last.
    pub fn new(net: &Net, groups: &[(usize, usize)]) -> Self {
        let n = net.ranks;
        let chunks = Self::most_chunks(net);
        let rounds = Rounds::new(2 * net.resources, 8 * n + 64);
        let fans = Fans::new(net, groups);
        Self {
            pieces: Vec::with_capacity(chunks),
            fan_times: vec![0.0; if fans.is_some() { n * groups.len() } else { 0 }],
            keys: Vec::with_capacity(chunks),
            other: vec![(0, 0); chunks],
            counts: vec![0; rounds.count() + 1],
            rounds,
            offsets: vec![0; n * n],
            fans,
            rows: Vec::with_capacity(2 * n + 2 * super::MAX_RESOURCES),
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
        self.pieces.clear();
        self.keys.clear();
        self.cuts = 0;
        let fans = if fans { self.fans.take() } else { None };
        // With fans only pairs of a node are left to cut one by one.
        let around = fans
            .as_ref()
            .and(net.ends.as_ref())
            .map_or(net.ranks, |ends| ends.per_node);
        self.cut_pairs(net, work, around);
        if let Some(fans) = &fans {
            self.cut_fans(net, fans, work.rem);
        }
        self.sort();
        self.rounds.clear();
        for at in 0..self.keys.len() {
            let item = self.keys[at].1;
            self.keys[at].0 = match &fans {
                Some(fans) if item & FAN != 0 => self.place_fan(fans, item),
                _ => self.place_piece(net, item),
            };
        }
        self.write(net, work, fans.as_ref(), plan);
        self.fans = fans.or(self.fans.take());
    }

    #[inline]
    fn place_fan(&mut self, fans: &Fans, item: Item) -> u32 {
        let (from, group) = fans.ends(item);
        if let Some(plain) = &fans.plain {
            let ((tx, egress), (rx, first)) = (plain.out[from], plain.into[group]);
            let ports = first..first + fans.groups[group].1;
            let also = std::iter::once(egress).chain(ports.clone()).map(|r| r + plain.second);
            let take = [tx, rx, egress].into_iter().chain(ports);
            return self.rounds.place([tx, rx].into_iter(), also, take);
        }
        let (out, into) = (&fans.out[from], &fans.into[group]);
        let shared = || out.shared.iter().chain(&into.shared).copied();
        let also = out.others.iter().chain(&into.others).copied();
        let take = shared().chain(out.ports.iter().chain(&into.ports).copied());
        self.rounds.place(shared(), also, take)
    }

    fn place_piece(&mut self, net: &Net, item: Item) -> u32 {
        let uses = net.uses(self.pieces[item as usize].lane as usize);
        let limited = || uses.iter().copied().filter(|&r| is_limited(net, r));
        let is_port = |r: &u16| net.port[usize::from(*r)];
        self.rows.clear();
        self.rows.extend(limited().filter(is_port));
        let ports = self.rows.len();
        self.rows.extend(limited().filter(|r| !is_port(r)));
        self.rows.extend(limited().filter(is_port).map(|r| second(net, r)));
        let (all, none) = (self.rows.iter().copied(), std::iter::empty());
        self.rounds.place(all, none, self.rows[ports..].iter().copied())
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
                let time = part as f32 * net.inv[lane];
                self.keys.push((!time.to_bits(), self.pieces.len() as Item));
                self.pieces.push(Piece {
                    lane: lane as u32,
                    bytes: part,
                });
            }
        }
    }

    /// A fan for each rank and each group of another node that it has something for.
    fn cut_fans(&mut self, net: &Net, fans: &Fans, rem: &[u64]) {
        let (n, groups) = (net.ranks, fans.groups.len());
        let Some(ends) = &net.ends else { return };
        self.fan_times.fill(0.0);
        for (from, runs) in ends.runs.iter().enumerate() {
            let own = usize::from(fans.group[from]);
            for &(to, lane, count) in runs {
                let (mut to, mut lane, end) = (to as usize, lane as usize, (to + count) as usize);
                let mut group = usize::from(fans.group[to]);
                while to < end {
                    let width = usize::from(fans.groups[group].1);
                    let rem = &rem[from * n + to..from * n + to + width];
                    let times = rem.iter().zip(&net.inv[lane..lane + width]);
                    // Signed: one instruction, and no demand comes near the sign.
                    let total: f32 = times.map(|(&rem, inv)| rem as i64 as f32 * inv).sum();
                    let shift = if group >= own {
                        group - own
                    } else {
                        group + groups - own
                    };
                    self.fan_times[shift * n + from] = total;
                    (to, lane, group) = (to + width, lane + width, group + 1);
                }
            }
        }
        for (shift, times) in self.fan_times.chunks(n).enumerate() {
            for (from, &time) in times.iter().enumerate() {
                if time > 0.0 {
                    let item = FAN | (shift as u32) << RANK_BITS | from as u32;
                    self.keys.push((!time.to_bits(), item));
                }
            }
        }
    }

    /// Longest first, those as good as equal in the order they were cut: two passes over eight bits.
    fn sort(&mut self) {
        const DIGITS: usize = 1 << 8;
        let digit = |key: u32, pass: usize| (key >> (8 * pass)) as usize & (DIGITS - 1);
        // Bits of positive floats are in their order: steps of a part in 8,192, to a 256th of the longest.
        let least = self.keys.iter().map(|key| key.0).min().unwrap_or(0);
        let mut begins = [[0u32; DIGITS]; 2];
        for (key, _) in &mut self.keys {
            *key = ((*key - least) >> 10).min(u32::from(u16::MAX));
            (0..2).for_each(|pass| begins[pass][digit(*key, pass)] += 1);
        }
        self.other.resize(self.keys.len(), (0, 0));
        for (pass, begins) in begins.iter_mut().enumerate() {
            let mut sum = 0;
            for begin in begins.iter_mut() {
                sum += std::mem::replace(begin, sum);
            }
            for &item in &self.keys {
                let at = &mut begins[digit(item.0, pass)];
                self.other[*at as usize] = item;
                *at += 1;
            }
            std::mem::swap(&mut self.keys, &mut self.other);
        }
    }

    /// The rounds as activations; what found no round goes last, each item by itself.
    fn write(&mut self, net: &Net, work: &Work<'_>, fans: Option<&Fans>, plan: &mut Plan) {
        self.counts.fill(0);
        let last = self.counts.len() - 1;
        let place = |round: u32| (round as usize).min(last);
        self.keys.iter().for_each(|&(round, _)| self.counts[place(round)] += 1);
        let mut sum = 0;
        for count in &mut self.counts {
            sum += std::mem::replace(count, sum);
        }
        // Longest first within a round, too.
        for &(round, item) in &self.keys {
            let at = &mut self.counts[place(round)];
            self.other[*at as usize] = (round, item);
            *at += 1;
        }
        for at in 0..self.keys.len() {
            let (round, item) = self.other[at];
            match fans {
                Some(fans) if item & FAN != 0 => spread(net, work, fans, item, plan),
                _ => self.emit(net, work.whole, item, plan),
            }
            let ends = self.other.get(at + 1).is_none_or(|next| next.0 != round);
            if ends || round == LATE {
                plan.end();
            }
        }
    }

    fn emit(&mut self, net: &Net, whole: &[u64], item: Item, plan: &mut Plan) {
        let Piece { lane, bytes } = self.pieces[item as usize];
        let lane = lane as usize;
        let pair = net.pair[lane] as usize;
        let bytes = bytes.min(whole[pair] - self.offsets[pair]);
        if bytes > 0 {
            plan.lanes.push(Chunk {
                from: net.from[lane],
                to: net.to[lane],
                path: (lane - net.first[pair] as usize) as u16,
                turn: 0,
                offset: self.offsets[pair],
                bytes,
            });
            self.offsets[pair] += bytes;
        }
    }
}

/// The lanes of a fan, one after the other.
fn spread(net: &Net, work: &Work<'_>, fans: &Fans, item: Item, plan: &mut Plan) {
    let (from, group) = fans.ends(item);
    let (first, width) = fans.groups[group];
    let mut turn = 0;
    for to in first..first + width {
        let pair = from * net.ranks + usize::from(to);
        let bytes = work.rem[pair];
        if bytes > 0 {
            plan.lanes.push(Chunk {
                from: from as u16,
                to,
                path: 0,
                turn,
                offset: work.whole[pair] - bytes,
                bytes,
            });
            turn += 1;
        }
    }
}

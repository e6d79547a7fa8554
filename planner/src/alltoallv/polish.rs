//! Polish: bytes of the longest lane of an activation move to other activations that have room for them.
//!
//! No move makes another activation longer, so each one shortens the plan or leaves it as long; an activation that loses
//! all its lanes is gone. Activations before `frozen` lose and gain nothing: they may be under way. All memory is
//! allocated in [`Polish::new`]. Start at [`Polish::run`].

use super::net::Net;
use super::plan::{ALIGN, Chunk, Plan};

const NONE: u32 = u32::MAX;
/// Times closer than this are the same.
const LEVEL: f64 = 0.9999;

/// A lane of an activation while bytes move.
#[derive(Clone, Copy, Debug)]
struct Entry {
    bytes: u64,
    lane: u32,
    activation: u32,
    /// The pair's next entry, and the activation's.
    next_of_pair: u32,
    next: u32,
}

/// Room for plans of a fabric.
#[derive(Clone, Debug)]
pub(super) struct Polish {
    entries: Vec<Entry>,
    of_pair: Vec<u32>,
    heads: Vec<u32>,
    /// Length of each activation, nanoseconds.
    lasts: Vec<f64>,
    /// Activations that use each resource, as rows of bits.
    busy: Vec<u64>,
    words: usize,
    offsets: Vec<u64>,
    /// Bytes of each pair; entries have whole units, the last one in time is cut to fit.
    totals: Vec<u64>,
    order: Vec<u32>,
    most_entries: usize,
    most_activations: usize,
}

impl Polish {
    /// Room for plans of up to `activations` activations and `lanes` lanes.
    pub fn new(net: &Net, activations: usize, lanes: usize) -> Self {
        let words = activations.div_ceil(64);
        // New entries come from moves; each needs a lane's worth of room.
        let most_entries = 2 * lanes;
        Self {
            entries: Vec::with_capacity(most_entries),
            of_pair: vec![NONE; net.ranks * net.ranks],
            heads: Vec::with_capacity(activations),
            lasts: Vec::with_capacity(activations),
            busy: vec![0; words * net.resources],
            words,
            offsets: vec![0; net.ranks * net.ranks],
            totals: vec![0; net.ranks * net.ranks],
            order: Vec::with_capacity(activations),
            most_entries,
            most_activations: activations,
        }
    }

    /// Improves a plan in place; one that is too large, or has fans or fluid resources, stays as it is.
    pub fn run(&mut self, net: &Net, plan: &mut Plan, frozen: usize) {
        let fits = plan.len() <= self.most_activations && 2 * plan.lanes().len() <= self.most_entries;
        let plain = plan.lanes().iter().all(|lane| lane.turn == 0) && net.slots.iter().all(|&s| s == 1);
        let plain = plain && net.own.iter().all(|&own| own <= 0.0);
        if !fits || !plain || plan.len() < 2 {
            return;
        }
        self.read(net, plan);
        for _ in 0..3 {
            self.order.clear();
            self.order.extend(frozen as u32..plan.len() as u32);
            let lasts = &self.lasts;
            self.order
                .sort_unstable_by(|&a, &b| lasts[a as usize].total_cmp(&lasts[b as usize]).then(a.cmp(&b)));
            let mut gained = false;
            for at in 0..self.order.len() {
                gained |= self.shave(net, self.order[at], frozen);
            }
            if !gained {
                break;
            }
        }
        self.write(net, plan);
    }

    fn read(&mut self, net: &Net, plan: &Plan) {
        self.entries.clear();
        self.of_pair.fill(NONE);
        self.heads.clear();
        self.lasts.clear();
        self.busy.fill(0);
        self.totals.fill(0);
        for (k, lanes) in plan.activations().enumerate() {
            self.heads.push(NONE);
            self.lasts.push(0.0);
            for lane in lanes {
                let pair = usize::from(lane.from) * net.ranks + usize::from(lane.to);
                let id = net.first[pair] + u32::from(lane.path);
                self.add(net, k, id, lane.bytes.next_multiple_of(ALIGN));
                self.totals[pair] = lane.offset + lane.bytes;
            }
            self.lasts[k] = self.levels(net, k).0;
        }
    }

    fn add(&mut self, net: &Net, activation: usize, lane: u32, bytes: u64) {
        let pair = net.pair[lane as usize] as usize;
        let at = self.entries.len() as u32;
        self.entries.push(Entry {
            bytes,
            lane,
            activation: activation as u32,
            next_of_pair: self.of_pair[pair],
            next: self.heads[activation],
        });
        self.of_pair[pair] = at;
        self.heads[activation] = at;
        for &r in net.uses(lane as usize) {
            self.busy[usize::from(r) * self.words + activation / 64] |= 1 << (activation % 64);
        }
    }

    fn time(&self, net: &Net, entry: u32) -> f64 {
        let entry = &self.entries[entry as usize];
        entry.bytes as f64 * f64::from(net.inv[entry.lane as usize])
    }

    /// The longest time of an activation's lanes, and the longest that is clearly shorter.
    fn levels(&self, net: &Net, activation: usize) -> (f64, f64) {
        let mut first = 0.0f64;
        let mut at = self.heads[activation];
        while at != NONE {
            first = first.max(self.time(net, at));
            at = self.entries[at as usize].next;
        }
        let (mut second, bar) = (0.0f64, first * LEVEL);
        let mut at = self.heads[activation];
        while at != NONE {
            let time = self.time(net, at);
            if time < bar {
                second = second.max(time);
            }
            at = self.entries[at as usize].next;
        }
        (first, second)
    }

    /// Shortens one activation as far as its longest lanes find room elsewhere; whether it did.
    fn shave(&mut self, net: &Net, activation: u32, frozen: usize) -> bool {
        let k = activation as usize;
        let before = self.lasts[k];
        loop {
            let (first, second) = self.levels(net, k);
            self.lasts[k] = first;
            if first <= 0.0 {
                break;
            }
            let mut at = self.heads[k];
            let mut stuck = false;
            while at != NONE && !stuck {
                let entry = self.entries[at as usize];
                let time = self.time(net, at);
                if time > second && entry.bytes > 0 {
                    let excess = (time - second) * f64::from(net.rate[entry.lane as usize]);
                    // At slow links a unit outlasts the difference: without one nothing would change.
                    let excess = (excess as u64).max(1).next_multiple_of(ALIGN).min(entry.bytes);
                    // Of a lane that is to go, nothing stays.
                    let excess = if second > 0.0 { excess } else { entry.bytes };
                    stuck = self.move_away(net, at, excess, frozen) < excess;
                }
                at = entry.next;
            }
            if stuck {
                self.lasts[k] = self.levels(net, k).0;
                break;
            }
        }
        self.lasts[k] < before * LEVEL
    }

    /// Moves up to `wanted` bytes of an entry to activations with room; how many it moved.
    fn move_away(&mut self, net: &Net, from: u32, wanted: u64, frozen: usize) -> u64 {
        let Entry { lane, activation, .. } = self.entries[from as usize];
        let pair = net.pair[lane as usize] as usize;
        let mut left = wanted;
        let mut at = self.of_pair[pair];
        while at != NONE && left > 0 {
            let entry = self.entries[at as usize];
            let k = entry.activation as usize;
            if entry.activation != activation && k >= frozen && entry.bytes > 0 {
                let room = self.room(net, k, entry.lane, entry.bytes).min(left);
                self.entries[at as usize].bytes += room;
                left -= room;
            }
            at = entry.next_of_pair;
        }
        while left > 0 && self.entries.len() < self.most_entries {
            let Some((k, lane, room)) = self.find(net, pair, activation as usize, left, frozen) else {
                break;
            };
            let room = room.min(left);
            self.add(net, k, lane, room);
            left -= room;
        }
        let moved = wanted - left;
        let entry = &mut self.entries[from as usize];
        entry.bytes -= moved;
        if entry.bytes == 0 {
            let bit = !(1u64 << (activation % 64));
            for &r in net.uses(lane as usize) {
                self.busy[usize::from(r) * self.words + activation as usize / 64] &= bit;
            }
        }
        moved
    }

    /// Bytes that a lane with `bytes` may have on top without making its activation longer.
    fn room(&self, net: &Net, activation: usize, lane: u32, bytes: u64) -> u64 {
        let time = self.lasts[activation] - bytes as f64 * f64::from(net.inv[lane as usize]);
        (time.max(0.0) * f64::from(net.rate[lane as usize]) * (1.0 - 1e-6)) as u64 / ALIGN * ALIGN
    }

    /// An activation in which one of a pair's paths is free: the first with room for all, else the one with most.
    fn find(&self, net: &Net, pair: usize, not: usize, wanted: u64, frozen: usize) -> Option<(usize, u32, u64)> {
        let mut best = None;
        let mut most = 0;
        for lane in net.lanes(pair) {
            for word in frozen / 64..self.lasts.len().div_ceil(64) {
                let mut free = !net
                    .uses(lane)
                    .iter()
                    .fold(0, |busy, &r| busy | self.busy[usize::from(r) * self.words + word]);
                while free != 0 {
                    let k = word * 64 + free.trailing_zeros() as usize;
                    free &= free - 1;
                    if k >= self.lasts.len() {
                        break;
                    }
                    if k == not || k < frozen || self.lasts[k] <= 0.0 {
                        continue;
                    }
                    let room = self.room(net, k, lane as u32, 0);
                    if room >= wanted {
                        return Some((k, lane as u32, room));
                    }
                    if room > most {
                        (best, most) = (Some((k, lane as u32, room)), room);
                    }
                }
            }
        }
        best
    }

    /// The plan as it is now; a pair's chunks keep their order in time, its last one takes the odd bytes.
    fn write(&mut self, net: &Net, plan: &mut Plan) {
        plan.clear();
        self.offsets.fill(0);
        for k in 0..self.heads.len() {
            let mut at = self.heads[k];
            while at != NONE {
                let entry = self.entries[at as usize];
                at = entry.next;
                if entry.bytes == 0 {
                    continue;
                }
                let pair = net.pair[entry.lane as usize] as usize;
                plan.lanes.push(Chunk {
                    from: (pair / net.ranks) as u16,
                    to: (pair % net.ranks) as u16,
                    path: (entry.lane - net.first[pair]) as u16,
                    turn: 0,
                    offset: self.offsets[pair],
                    bytes: entry.bytes.min(self.totals[pair] - self.offsets[pair]),
                });
                self.offsets[pair] += entry.bytes;
            }
            plan.end();
        }
    }
}

//! Plans of demands seen before: a demand that looks the same takes the old plan with its volumes scaled.
//!
//! Two demands look the same when each pair has the same part of the largest pair, to 8 bits, and the same pairs have
//! nothing. Scaled volumes are exact: the last chunk of each pair takes what rounding leaves. All memory is allocated in
//! [`Cache::new`]. Start at [`Cache::find`].

use super::plan::{ALIGN, Chunk, Plan};

/// Plans kept.
const SLOTS: usize = 8;

/// A few plans with the demands they were made for.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    slots: Vec<Slot>,
    key: Vec<u8>,
    offsets: Vec<u64>,
    clock: u64,
}

#[derive(Clone, Debug)]
struct Slot {
    key: Vec<u8>,
    bytes: Vec<u64>,
    plan: Plan,
    used: u64,
    rounds: bool,
}

impl Cache {
    /// Room for plans of up to `lanes` lanes and `activations` activations.
    pub fn new(ranks: usize, lanes: usize, activations: usize) -> Self {
        let slot = || Slot {
            key: vec![0; ranks * ranks],
            bytes: vec![0; ranks * ranks],
            plan: Plan::with_room(lanes, activations),
            used: 0,
            rounds: true,
        };
        Self {
            slots: (0..SLOTS).map(|_| slot()).collect(),
            key: vec![0; ranks * ranks],
            offsets: vec![0; ranks * ranks],
            clock: 0,
        }
    }

    fn quantise(&mut self, bytes: &[u64]) {
        let most = bytes.iter().copied().max().unwrap_or(0).max(1);
        for (key, &bytes) in self.key.iter_mut().zip(bytes) {
            // Up: only nothing is 0.
            *key = (u128::from(bytes) * 255).div_ceil(u128::from(most)) as u8;
        }
    }

    /// Fills `plan` from a demand that looked the same; whether it is of rounds, if there was one.
    pub fn find(&mut self, bytes: &[u64], plan: &mut Plan) -> Option<bool> {
        self.quantise(bytes);
        let key = &self.key;
        let slot = self.slots.iter_mut().find(|slot| slot.used > 0 && slot.key == *key)?;
        self.clock += 1;
        slot.used = self.clock;
        self.offsets.fill(0);
        plan.clear();
        let ranks = ranks(bytes.len());
        for lanes in slot.plan.activations() {
            for lane in lanes {
                let pair = usize::from(lane.from) * ranks + usize::from(lane.to);
                let (old, new, sent) = (slot.bytes[pair], bytes[pair], self.offsets[pair]);
                let last = lane.offset + lane.bytes >= old;
                // Where this chunk ended, in parts of the old bytes: ends only grow, so no chunk is negative.
                let end = u128::from(lane.offset + lane.bytes) * u128::from(new) / u128::from(old.max(1));
                let end = if last { new } else { end as u64 / ALIGN * ALIGN };
                if end > sent {
                    plan.lanes.push(Chunk {
                        offset: sent,
                        bytes: end - sent,
                        ..*lane
                    });
                    self.offsets[pair] = end;
                }
            }
            plan.end();
        }
        Some(slot.rounds)
    }

    /// Keeps a plan in place of the one unused for longest.
    pub fn keep(&mut self, bytes: &[u64], plan: &Plan, rounds: bool) {
        self.quantise(bytes);
        self.clock += 1;
        let Some(slot) = self.slots.iter_mut().min_by_key(|slot| slot.used) else {
            return;
        };
        if plan.lanes.len() > slot.plan.lanes.capacity() || plan.ends.len() > slot.plan.ends.capacity() {
            return;
        }
        slot.used = self.clock;
        slot.rounds = rounds;
        slot.key.copy_from_slice(&self.key);
        slot.bytes.copy_from_slice(bytes);
        slot.plan.clear();
        slot.plan.lanes.extend_from_slice(&plan.lanes);
        slot.plan.ends.extend_from_slice(&plan.ends);
    }
}

/// The ranks of a square matrix.
fn ranks(entries: usize) -> usize {
    entries.isqrt()
}

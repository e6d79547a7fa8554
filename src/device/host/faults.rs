//! Planted faults: what an access becomes so that the checks can be seen to catch it.
//!
//! Only address and data of an access change here; fences and barriers that do nothing are [`Machine`](super::machine)'s
//! to skip, counters are [`super::collective`]'s to set. Start at [`Plant::new`].

use super::ffi::Arena;
use super::machine::Order;
use super::memory::Memory;
use super::warp::{CELL, OCTET};
use crate::device::abi::ScratchLayout;
use crate::device::{DeviceError, Fault};
use crate::registry::{Protocol, Variant};

/// Where one rank's slots, counters and input lie in the arena.
#[derive(Clone, Copy, Debug)]
pub(super) struct RankMap {
    pub slots: usize,
    pub counters: usize,
    pub input: usize,
    pub input_bytes: usize,
    pub layout: ScratchLayout,
}

/// A fault and what it needs to know of the layout.
#[derive(Clone, Debug)]
pub(super) struct Plant {
    fault: Fault,
    protocol: Protocol,
    ranks: Vec<RankMap>,
    /// Bytes of one of the two buffers of each rank's regions.
    half: Vec<usize>,
    /// Whose contribution is dropped, for whom, and the region there.
    dropped: (usize, usize, usize),
}

/// A place within a slot region.
struct Slot {
    owner: usize,
    region: usize,
    within: usize,
}

impl Plant {
    /// # Errors
    /// The fault means nothing for the variant's protocol.
    pub(super) fn new(fault: Fault, variant: &Variant, ranks: Vec<RankMap>) -> Result<Self, DeviceError> {
        let cannot = |reason: String| Err(DeviceError::Unavailable { reason });
        if variant.protocol == Protocol::Pull && fault == Fault::SingleBuffer {
            return cannot(format!(
                "{fault:?} means nothing for `{}`: pull keeps no slots",
                variant.name
            ));
        }
        if fault == Fault::TornLine && variant.protocol != Protocol::Packet128 {
            return cannot(format!(
                "{fault:?} means nothing for `{}`: its protocol needs no whole lines",
                variant.name
            ));
        }
        if matches!(
            variant.protocol,
            Protocol::Packet | Protocol::Sentinel | Protocol::Packet128
        ) && matches!(fault, Fault::NoFence | Fault::NoBarrier)
        {
            return cannot(format!(
                "{fault:?} means nothing for `{}`: its protocol needs neither",
                variant.name
            ));
        }
        let first_put = (0..)
            .zip(variant.ranks)
            .find_map(|(rank, ports)| Some((rank, ports.puts.first()?)));
        let Some((from, put)) = first_put else {
            return cannot(format!("`{}` puts nothing: no fault can be planted", variant.name));
        };
        let half = ranks
            .iter()
            .map(|r| 16 * variant.planes as usize * r.layout.stride as usize)
            .collect();
        let dropped = (from, put.peer as usize, put.region as usize);
        Ok(Self {
            fault,
            protocol: variant.protocol,
            ranks,
            half,
            dropped,
        })
    }

    pub(super) fn no_fence(&self) -> bool {
        self.fault == Fault::NoFence
    }

    pub(super) fn no_barrier(&self) -> bool {
        self.fault == Fault::NoBarrier
    }

    /// Whether the cells of a line arrive one by one.
    pub(super) fn tears_lines(&self) -> bool {
        self.fault == Fault::TornLine
    }

    /// Whether the last 8 of these 16 bytes of a slot are a line's counter.
    fn counts(&self, offset: usize, bytes: usize) -> bool {
        self.protocol == Protocol::Packet128
            && bytes == CELL
            && self
                .slot(offset)
                .is_some_and(|s| (s.within / CELL) % OCTET == OCTET - 1)
    }

    fn slot(&self, offset: usize) -> Option<Slot> {
        self.ranks.iter().enumerate().find_map(|(owner, map)| {
            let at = offset
                .checked_sub(map.slots)
                .filter(|&at| at < map.layout.slots_bytes() as usize)?;
            let region = map.layout.region as usize;
            Some(Slot {
                owner,
                region: at / region,
                within: at % region,
            })
        })
    }

    fn has_buffers(&self) -> bool {
        self.protocol != Protocol::Pull
    }

    /// Changes a store's data and says where it goes.
    pub(super) fn store(&self, rank: usize, offset: usize, data: &mut [u8]) -> usize {
        match self.fault {
            Fault::SingleBuffer => self.redirect(rank, offset),
            Fault::DroppedContribution if self.has_buffers() => {
                if let Some(slot) = self.slot(offset)
                    && (rank, slot.owner, slot.region) == self.dropped
                    && slot.within < 2 * self.half[slot.owner]
                {
                    // A packet's upper word is its counter, a line's last cell has one: they still arrive.
                    let end = match self.protocol {
                        Protocol::Packet => 4,
                        Protocol::Packet128 if self.counts(offset, data.len()) => CELL / 2,
                        _ => data.len(),
                    };
                    data[..end].fill(0);
                }
                offset
            }
            _ => offset,
        }
    }

    /// Where an access of a slot goes instead.
    pub(super) fn redirect(&self, _rank: usize, offset: usize) -> usize {
        if !self.has_buffers() || !matches!(self.fault, Fault::SingleBuffer | Fault::StaleHalf) {
            return offset;
        }
        let Some(slot) = self.slot(offset) else { return offset };
        let half = self.half[slot.owner];
        match self.fault {
            _ if slot.within >= 2 * half => offset,
            _ if slot.within >= half => offset - half,
            Fault::StaleHalf => offset + half,
            _ => offset,
        }
    }

    /// Changes what a load of `asked` has given.
    pub(super) fn load(&self, rank: usize, asked: usize, to: &mut [u8], order: Order, arena: &Arena, memory: &Memory) {
        match self.fault {
            // The right counter, so that the reader takes the wrong data.
            Fault::StaleHalf if self.protocol == Protocol::Packet && to.len() == 8 && self.slot(asked).is_some() => {
                arena.read(asked + 4, &mut to[4..]);
            }
            Fault::StaleHalf if self.counts(asked, to.len()) => arena.read(asked + CELL / 2, &mut to[CELL / 2..]),
            Fault::StaleHalf if self.protocol == Protocol::Pull && order == Order::Weak => memory.previous(asked, to),
            Fault::DroppedContribution if self.protocol == Protocol::Pull && order == Order::Weak => {
                let (from, reader, _) = self.dropped;
                let input = self.ranks[from].input;
                if rank == reader && (input..input + self.ranks[from].input_bytes).contains(&asked) {
                    to.fill(0);
                }
            }
            Fault::NoWait if order != Order::Weak => self.believe(rank, asked, to, arena),
            _ => {}
        }
    }

    /// What a poll hopes for.
    fn believe(&self, rank: usize, asked: usize, to: &mut [u8], arena: &Arena) {
        let Some(slot) = self.slot(asked) else { return };
        let map = &self.ranks[rank];
        let mut word = [0; 4];
        match (self.protocol, to.len()) {
            (Protocol::Packet, 8) => {
                let column = (slot.within / 16) % map.layout.stride as usize;
                arena.read(map.counters + 4 * column, &mut word);
                to[4..].copy_from_slice(&u32::from_ne_bytes(word).wrapping_add(1).to_ne_bytes());
            }
            (Protocol::Packet128, CELL) if self.counts(asked, CELL) => {
                let cell = (slot.within / CELL) % map.layout.stride as usize;
                arena.read(map.counters + 4 * cell, &mut word);
                let next = u32::from_ne_bytes(word).wrapping_add(1).to_ne_bytes();
                to[8..12].copy_from_slice(&next);
                to[12..].copy_from_slice(&next);
            }
            (Protocol::Flag | Protocol::Pull, 4) => {
                // Flags are compared by age: far ahead is always new enough.
                word.copy_from_slice(to);
                to.copy_from_slice(&u32::from_ne_bytes(word).wrapping_add(1 << 30).to_ne_bytes());
            }
            // Anything but "not yet" is taken for data.
            (Protocol::Sentinel, 4) if to[..] == [0xff; 4] => to.fill(0),
            _ => {}
        }
    }
}

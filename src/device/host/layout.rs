//! Where everything of one prepared collective lies in its arena: regions with guards between them.
//!
//! Guards and the unused rest of a region are poison, checked after every run. Start at [`Map::new`].

use super::faults::RankMap;
use super::ffi::Arena;
use crate::device::abi::{Control, ScratchLayout, Status};
use crate::registry::Variant;

/// What unwritten outputs and guards hold.
pub(super) const POISON: u8 = 0xa5;
/// Bytes between two regions, and their alignment.
const GUARD: usize = 128;

/// Offsets of one rank's regions.
#[derive(Clone, Copy, Debug)]
pub(super) struct RankRegions {
    pub map: RankMap,
    pub abort: usize,
    pub control: usize,
    pub status: usize,
    pub output: usize,
}

struct Region {
    what: &'static str,
    rank: usize,
    start: usize,
    used: usize,
    room: usize,
}

/// All regions, in the order in which they lie.
pub(super) struct Map {
    pub ranks: Vec<RankRegions>,
    regions: Vec<Region>,
    /// Size of the arena.
    pub bytes: usize,
}

impl Map {
    /// None when a size does not fit the address space.
    pub(super) fn new(variant: &Variant, max_bytes: u64, threads: u32) -> Option<Self> {
        let mut map = Self {
            ranks: Vec::new(),
            regions: Vec::new(),
            bytes: GUARD,
        };
        let payload = usize::try_from(max_bytes).ok()?;
        for rank in 0..variant.ranks.len() {
            let layout = ScratchLayout::new(variant, rank, max_bytes, threads);
            let slots = map.add("slots", rank, usize::try_from(layout.slots_bytes()).ok()?)?;
            let counters = map.add("counters", rank, usize::try_from(layout.counters_bytes()).ok()?)?;
            let abort = map.add("abort word", rank, 4)?;
            let control = map.add("control block", rank, size_of::<Control>())?;
            let status = map.add("status word", rank, size_of::<Status>())?;
            let input = map.add("input", rank, payload)?;
            let output = map.add("output", rank, payload)?;
            let rank_map = RankMap {
                slots,
                counters,
                input,
                input_bytes: payload,
                layout,
            };
            map.ranks.push(RankRegions {
                map: rank_map,
                abort,
                control,
                status,
                output,
            });
        }
        Some(map)
    }

    fn add(&mut self, what: &'static str, rank: usize, bytes: usize) -> Option<usize> {
        let start = self.bytes;
        let room = bytes.checked_next_multiple_of(GUARD)?;
        self.regions.push(Region {
            what,
            rank,
            start,
            used: bytes,
            room,
        });
        self.bytes = start.checked_add(room)?.checked_add(GUARD)?;
        Some(start)
    }

    /// Sets how much of inputs and outputs the coming calls use, and poisons everything else that nobody may write.
    pub(super) fn use_payload(&mut self, bytes: usize, arena: &mut Arena) {
        arena.fill(0, GUARD, POISON);
        for region in &mut self.regions {
            if matches!(region.what, "input" | "output") {
                region.used = bytes;
            }
            arena.fill(region.start + region.used, region.room - region.used + GUARD, POISON);
        }
    }

    /// The first write outside every region, in words.
    pub(super) fn overrun(&self, arena: &Arena) -> Option<String> {
        if arena.first_not(0, GUARD, POISON).is_some() {
            return Some("bytes before the first rank's slots were overwritten".into());
        }
        self.regions.iter().enumerate().find_map(|(index, region)| {
            let end = region.start + region.used;
            let gap = region.room - region.used + GUARD;
            let at = arena.first_not(end, gap, POISON)? - end;
            let mut text = format!(
                "byte {at} behind the {} of rank {} was overwritten",
                region.what, region.rank
            );
            if let Some(next) = self.regions.get(index + 1) {
                text.push_str(&format!(
                    " ({} before the {} of rank {})",
                    gap - at,
                    next.what,
                    next.rank
                ));
            }
            Some(text)
        })
    }
}

//! Which geometries are tried for a variant and payload.
//!
//! One thread a column is the shape that kernels are made for; more threads than columns would idle, fewer take turns.
//! It measures nothing. Start at [`candidates`].

use crate::device::Geometry;
use crate::device::abi::PULL_MAX_BLOCKS;
use crate::registry::{Protocol, Variant};

/// Threads of a block that are tried, ascending.
pub const THREADS: [u32; 5] = [32, 64, 128, 256, 512];

/// The one geometry of `threads` threads for a payload: one column a thread, up to `max_blocks` blocks.
pub fn for_threads(variant: &Variant, bytes: u64, threads: u32, max_blocks: u32) -> Geometry {
    let most = match variant.protocol {
        Protocol::Pull => max_blocks.min(PULL_MAX_BLOCKS),
        Protocol::Packet | Protocol::Sentinel | Protocol::Packet128 | Protocol::Flag => max_blocks,
    };
    let wanted = variant.threads(bytes).div_ceil(u64::from(threads.max(1))).max(1);
    Geometry::new(u32::try_from(wanted).unwrap_or(u32::MAX).min(most.max(1)), threads)
}

/// Thread counts worth trying for a payload: none of more than twice the columns, except the smallest.
pub fn threads(variant: &Variant, bytes: u64) -> Vec<u32> {
    let columns = variant.threads(bytes);
    let (smallest, rest) = (THREADS[0], &THREADS[1..]);
    let mut list = vec![smallest];
    list.extend(rest.iter().copied().filter(|t| u64::from(*t) < 2 * columns));
    list
}

/// The thread counts that are tried first, out of [`threads`]: one small and one large, both inside where there is room.
pub fn scouts(list: &[u32]) -> Vec<u32> {
    match list.len() {
        0..=2 => list.to_vec(),
        3 => vec![list[0], list[2]],
        n => vec![list[1], list[n - 2]],
    }
}

/// The thread counts beside one that did well.
pub fn neighbours(list: &[u32], of: u32) -> Vec<u32> {
    let Some(at) = list.iter().position(|t| *t == of) else {
        return Vec::new();
    };
    let sides = [at.checked_sub(1), Some(at + 1)];
    sides
        .into_iter()
        .flatten()
        .filter_map(|i| list.get(i).copied())
        .collect()
}

/// Geometries for a payload, `max_blocks` being what the device holds of a thread count.
pub fn candidates(variant: &Variant, bytes: u64, mut max_blocks: impl FnMut(u32) -> u32) -> Vec<Geometry> {
    let held = threads(variant, bytes).into_iter().map(|t| (t, max_blocks(t)));
    held.filter(|(_, most)| *most > 0)
        .map(|(t, most)| for_threads(variant, bytes, t, most))
        .collect()
}

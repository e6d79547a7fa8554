//! Scratch that a table of routes takes on each rank, and a table cut down until it fits.
//!
//! Counts what is prepared: slots and counters, once for each variant and thread count, sized by the largest payload it
//! serves. Start at [`scratch`].

use super::Range;
use crate::device::abi::ScratchLayout;
use crate::registry::{Element, Family, Variant};
use std::collections::BTreeMap;

/// Bytes of slots and counters that a variant takes on the rank that needs most of them.
pub fn scratch_of(variant: &Variant, threads: u32, max_bytes: u64) -> u64 {
    let layouts = (0..variant.ranks.len()).map(|r| ScratchLayout::new(variant, r, max_bytes, threads));
    layouts.map(|l| l.slots_bytes() + l.counters_bytes()).max().unwrap_or(0)
}

/// Bytes a rank that serving these ranges takes.
pub(super) fn scratch(family: &Family, ranges: &[Range]) -> u64 {
    let mut prepared: BTreeMap<(&str, u32), u64> = BTreeMap::new();
    for range in ranges {
        if let (Some(name), Some(geometry)) = (&range.variant, range.geometry) {
            let most = prepared.entry((name, geometry.threads)).or_default();
            *most = range.up_to.max(*most);
        }
    }
    let of = |((name, threads), bytes): (&(&str, u32), &u64)| {
        let variant = family.variants.iter().find(|v| v.name == *name);
        variant.map_or(0, |v| scratch_of(v, *threads, *bytes))
    };
    prepared.iter().map(of).sum()
}

/// The sizes whose routes must go so that the rest fits into `limit` bytes a rank: the largest ones, since scratch grows
/// with the size.
pub(super) fn beyond(family: &Family, ranges: &[Range], limit: u64) -> Vec<(Element, u64)> {
    let mut kept = ranges.to_vec();
    let mut gone = Vec::new();
    while scratch(family, &kept) > limit {
        let served = kept.iter_mut().filter(|r| r.variant.is_some());
        let Some(largest) = served.max_by_key(|r| r.up_to) else {
            break;
        };
        largest.variant = None;
        gone.push((largest.element, largest.up_to));
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BUILTIN;
    use crate::device::Geometry;
    use crate::registry::Protocol;

    fn table(family: &'static Family, sizes: &[u64]) -> Vec<Range> {
        let variant = family
            .variants
            .iter()
            .find(|v| v.protocol == Protocol::Packet)
            .expect("packets");
        let range = |up_to: &u64| Range {
            element: Element::F16,
            up_to: *up_to,
            variant: Some(variant.name.into()),
            geometry: Some(Geometry::new(4, 128)),
            reason: String::new(),
        };
        sizes.iter().map(range).collect()
    }

    #[test]
    fn a_variant_counts_once_with_its_largest_payload() {
        let family = &BUILTIN.families[0];
        let (small, large) = (table(family, &[1 << 10]), table(family, &[1 << 10, 1 << 16]));
        assert!(scratch(family, &small) > 0 && scratch(family, &small) < scratch(family, &large));
        assert_eq!(scratch(family, &large), scratch(family, &table(family, &[1 << 16])));
    }

    #[test]
    fn the_largest_sizes_go_until_the_rest_fits() {
        let family = &BUILTIN.families[0];
        let ranges = table(family, &[1 << 10, 1 << 16, 1 << 20]);
        assert_eq!(beyond(family, &ranges, u64::MAX), []);
        let small = scratch(family, &ranges[..1]);
        let sizes = |limit| beyond(family, &ranges, limit).into_iter().map(|(_, up_to)| up_to);
        assert!(sizes(small).eq([1 << 20, 1 << 16]));
        assert!(sizes(0).eq([1 << 20, 1 << 16, 1 << 10]));
    }

    #[test]
    fn payloads_up_to_a_mebibyte_fit_into_the_default_with_any_one_variant() {
        for family in BUILTIN.families {
            for variant in family.variants.iter().filter(|v| v.protocol != Protocol::Pull) {
                let largest = variant.classes.iter().copied().max().unwrap_or(0).min(1 << 20);
                let bytes = scratch_of(variant, 128, largest);
                assert!(bytes <= 32 << 20, "{} {}: {bytes}", family.name, variant.name);
            }
        }
    }
}

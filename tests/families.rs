//! `families!` and `family!`: what the registry holds is what was planned, and every kernel is reachable.

use std::collections::BTreeSet;
use topoforge::family;
use topoforge::registry::{Element, Protocol, Registry};

#[test]
fn family_names_one_of_the_built_in_set() {
    assert_eq!(family!(nvlink_pair).name, "nvlink-pair");
    assert_eq!(family!(mixed_8).variants[0].ranks.len(), 8);
    assert_eq!(family!("mixed-8").name, "mixed-8");
}

#[test]
fn every_variant_is_whole() {
    for family in Registry::builtin().families() {
        for v in family.variants {
            let who = format!("{} {}", family.name, v.name);
            let ranks = v.ranks.len();
            assert_eq!(v.expression_of.len(), ranks * v.chunks as usize, "{who}");
            assert!(
                v.expression_of.iter().all(|e| (*e as usize) < v.expressions.len()),
                "{who}"
            );
            assert!(v.replicated(), "{who}: ranks must get the same bits");
            for (rank, ports) in v.ranks.iter().enumerate() {
                assert!(
                    ports.puts.len() <= v.kernel.puts as usize && ports.gets.len() <= v.kernel.gets as usize,
                    "{who}"
                );
                for put in ports.puts {
                    let peer = &v.ranks[put.peer as usize];
                    // What a rank puts into a region comes from the peer that listens there.
                    assert_eq!(peer.gets[put.region as usize] as usize, rank, "{who}");
                }
            }
        }
    }
}

#[test]
fn no_two_writers_share_a_slot_region() {
    for family in Registry::builtin().families() {
        for v in family.variants.iter().filter(|v| v.protocol != Protocol::Pull) {
            let mut regions = BTreeSet::new();
            for put in v.ranks.iter().flat_map(|r| r.puts) {
                assert!(
                    regions.insert((put.peer, put.region)),
                    "{} {}: {put:?}",
                    family.name,
                    v.name
                );
            }
        }
    }
}

#[test]
fn kernels_stay_within_the_budget() {
    let mut all = BTreeSet::new();
    for family in Registry::builtin().families() {
        for element in Element::ALL {
            let of = family.variants.iter().filter(|v| v.element == *element);
            let own: BTreeSet<_> = of.map(|v| v.kernel.hash).collect();
            assert!(own.len() <= 40, "{}: {} kernels for {element}", family.name, own.len());
            all.extend(own);
        }
    }
    assert!(all.len() <= 900, "{} kernels", all.len());
}

#[test]
fn gpu_code_is_aligned_and_says_its_architectures_or_is_absent_everywhere() {
    let registry = Registry::builtin();
    for build in registry.builds() {
        assert_eq!(build.archs.is_empty(), !registry.has_gpu_code());
    }
    for image in registry
        .families()
        .iter()
        .flat_map(|f| f.variants)
        .flat_map(|v| v.kernel.images)
    {
        assert_eq!(image.as_ptr().align_offset(16), 0);
        assert_eq!(image[..4], [0x50, 0xed, 0x55, 0xba], "not a fatbin");
    }
}

#[test]
fn what_is_inside_is_what_features_asked_for() {
    let on = |name: &str| match name {
        "f16" => cfg!(feature = "f16"),
        "bf16" => cfg!(feature = "bf16"),
        "f32" => cfg!(feature = "f32"),
        other => panic!("{other}"),
    };
    let registry = Registry::builtin();
    let build = registry.builds().next().expect("one build");
    for element in Element::ALL {
        let has = |f: &topoforge::registry::Family| f.variants.iter().any(|v| v.element == *element);
        assert_eq!(build.elements.contains(element), on(element.name()), "{element}");
        // Families without variants are there for AlltoAllv only.
        let mut with = registry.families().into_iter().filter(|f| !f.variants.is_empty());
        assert!(with.all(|f| has(f) == on(element.name())), "{element}");
    }
    assert_eq!(build.sets, ["nvlink", "nvswitch", "pcie", "mixed", "host-staged"]);
}

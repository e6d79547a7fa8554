//! Lowering: deterministic text, shared programs, budget, and what may not come in.

use std::path::Path;
use topoforge_codegen::select::{MAX_KERNELS, select};
use topoforge_planner::topology::{Topology, parse_descriptor};

fn built_in() -> Vec<Topology> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../topologies");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|x| x == "ron"));
    files.sort();
    files
        .iter()
        .map(|f| parse_descriptor(&std::fs::read_to_string(f).unwrap(), &f.display().to_string()).unwrap())
        .collect()
}

#[test]
fn same_descriptor_gives_the_same_text_byte_for_byte() {
    for topology in built_in() {
        let (a, b) = (select(&topology), select(&topology));
        assert_eq!(a.variants, b.variants, "{}", topology.name);
        assert_eq!(a.kernels, b.kernels, "{}", topology.name);
    }
}

#[test]
fn families_keep_to_the_kernel_budget_and_share() {
    let mut all = std::collections::BTreeSet::new();
    let mut uses = 0;
    for topology in built_in() {
        let selection = select(&topology);
        assert!(!selection.variants.is_empty(), "{}", topology.name);
        assert!(
            selection.kernels.len() <= MAX_KERNELS,
            "{}: {}",
            topology.name,
            selection.kernels.len()
        );
        uses += selection.kernels.len();
        all.extend(selection.kernels.into_keys());
    }
    assert!(all.len() <= 900, "{} kernels in all", all.len());
    assert!(all.len() < uses, "no kernel is shared between families");
}

#[test]
fn ranks_with_the_same_part_share_a_program() {
    let (mut all, mut single) = (0, 0);
    for topology in built_in() {
        for v in select(&topology).variants {
            let programs = v.ranks.iter().map(|r| r.program).max().unwrap_or(0) + 1;
            // Scatters over four ranks may see chunks in different orders; no grid needs a program a rank. Trees,
            // relays and unequal islands do: their ranks have different parts.
            let grid = ["one-shot/", "one-shot-pull", "two-shot/", "exchange", "halving", "ring"];
            let most = if grid.iter().any(|g| v.name.starts_with(g)) {
                4
            } else {
                topology.ranks as u32
            };
            assert!(programs <= most, "{} {}: {programs} programs", topology.name, v.name);
            all += 1;
            single += usize::from(programs == 1);
        }
    }
    assert!(
        single * 10 >= all * 7,
        "only {single} of {all} variants have one program for all ranks"
    );
}

#[test]
fn pairs_of_any_link_class_share_all_their_kernels() {
    let kernels = |name: &str| {
        let topology = built_in().into_iter().find(|t| t.name == name).unwrap();
        select(&topology).kernels.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(kernels("nvlink-pair"), kernels("pix-pair"));
    assert!(
        kernels("no-peer-pair")
            .iter()
            .all(|k| kernels("nvlink-pair").contains(k))
    );
}

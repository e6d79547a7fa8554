//! Lowering: deterministic text, shared programs, budget, and what may not come in.

use std::path::Path;
use topoforge_codegen::Element;
use topoforge_codegen::lower::{LowerError, Partials, Protocol, lower};
use topoforge_codegen::manifest::VariantEntry;
use topoforge_codegen::select::{MAX_KERNELS, select};
use topoforge_planner::schedule::verify::verify_on;
use topoforge_planner::schedule::{EdgePolicy, Edges, VerifyError, generate};
use topoforge_planner::topology::{LinkClass, PcieClass, Topology, parse_descriptor};

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
        let (a, b) = (select(&topology, Element::ALL), select(&topology, Element::ALL));
        assert_eq!(a.variants, b.variants, "{}", topology.name);
        assert_eq!(a.kernels, b.kernels, "{}", topology.name);
    }
}

#[test]
fn families_keep_to_the_kernel_budget_and_share() {
    let mut all = std::collections::BTreeSet::new();
    let mut uses = 0;
    // Those for AlltoAllv only have no kernels.
    for topology in built_in().into_iter().filter(|t| !t.is_alltoallv_only()) {
        let selection = select(&topology, Element::ALL);
        for element in Element::ALL {
            let of = selection.variants.iter().filter(|v| v.element == *element);
            let own: std::collections::BTreeSet<_> = of.map(|v| v.kernel.clone()).collect();
            let (name, count) = (&topology.name, own.len());
            assert!((1..=MAX_KERNELS).contains(&count), "{name} {element:?}: {count}");
        }
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
        for v in select(&topology, &[Element::F16]).variants {
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
fn every_element_type_has_kernels_and_names_of_its_own() {
    let topology = built_in().into_iter().find(|t| t.name == "pix-quad").unwrap();
    let selection = select(&topology, Element::ALL);
    let mut names: Vec<&str> = selection.variants.iter().map(|v| v.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), selection.variants.len(), "a name stands twice");
    for v in &selection.variants {
        let text = &selection.kernels[&v.kernel].text;
        let (own, mark) = match v.element {
            Element::F16 => ("TfF16", ""),
            Element::Bf16 => ("TfBf16", "/bf16-"),
            Element::F32 => ("TfF32x4", "/f32-"),
        };
        assert!(text.contains(own) && v.name.contains(mark), "{}: {text}", v.name);
        for foreign in ["TfF16", "TfBf16", "TfF32x4"].iter().filter(|t| **t != own) {
            assert!(!text.contains(foreign), "{}: {foreign} in {text}", v.name);
        }
        // f32 elements are their own partials: no wide sums, no rounding, half the bytes.
        if v.element == Element::F32 {
            assert!(!text.contains("tf_widen") && !text.contains("tf_round"), "{text}");
            assert_eq!(v.partials.len(), 2, "{}", v.name);
        }
    }
    // What serves f16 does not depend on what else is built.
    let alone = select(&topology, &[Element::F16]);
    let of_f16: Vec<_> = selection
        .variants
        .iter()
        .filter(|v| v.element == Element::F16)
        .collect();
    assert_eq!(of_f16, alone.variants.iter().collect::<Vec<_>>());
}

#[test]
fn pairs_of_any_link_class_share_all_their_kernels_but_lines() {
    let kernels = |name: &str| {
        let topology = built_in().into_iter().find(|t| t.name == name).unwrap();
        let kernels = select(&topology, &[Element::F16]).kernels;
        let shared = kernels.into_iter().filter(|(_, k)| k.protocol != Protocol::Packet128);
        shared.map(|(hash, _)| hash).collect::<Vec<_>>()
    };
    assert_eq!(kernels("nvlink-pair"), kernels("pix-pair"));
    assert!(
        kernels("no-peer-pair")
            .iter()
            .all(|k| kernels("nvlink-pair").contains(k))
    );
}

#[test]
fn lines_are_compiled_where_every_link_of_a_schedule_is_nvlink_and_nowhere_else() {
    let mut with = Vec::new();
    for topology in built_in().into_iter().filter(|t| !t.is_alltoallv_only()) {
        let lines = |v: &VariantEntry| v.protocol == Protocol::Packet128;
        let selection = select(&topology, Element::ALL);
        for v in selection.variants.iter().filter(|v| lines(v)) {
            assert!(!v.staged, "{} {}", topology.name, v.name);
            for (from, rank) in v.ranks.iter().enumerate() {
                for put in &rank.puts {
                    let link = topology.link(from, put.peer as usize).unwrap();
                    assert!(link.keeps_lines(), "{} {}: {:?}", topology.name, v.name, link.class);
                }
            }
        }
        for element in Element::ALL {
            for policy in element.policies() {
                let fits = |v: &&VariantEntry| v.element == *element && v.partials.contains(policy);
                let some = selection.variants.iter().filter(fits).any(lines);
                let all = selection
                    .variants
                    .iter()
                    .filter(fits)
                    .any(|v| v.classes.contains(&(1 << 20)));
                assert!(all, "{}", topology.name);
                if some {
                    with.push(topology.name.clone());
                }
            }
        }
    }
    with.dedup();
    let nvlink = [
        "cube-mesh-8",
        "mixed-8",
        "nvlink-pair",
        "nvlink-quad-mixed",
        "nvlink-quad",
        "nvswitch-2",
        "nvswitch-4",
        "nvswitch-8",
    ];
    assert_eq!(with, nvlink);
}

#[test]
fn lines_over_a_link_that_may_cut_them_are_refused_with_stage_and_ranks() {
    let quad = |class| Topology::new("quad", 4).with_all_pairs(&[0, 1, 2, 3], class);
    let nvlink = quad(LinkClass::NvLink { lanes: 2, r#gen: 2 });
    let lowered = |topology: &Topology, policy| {
        let edges = Edges::new(topology, policy);
        let all = generate(&edges, 64);
        let two_shot = all.into_iter().find(|c| c.shape == "two-shot").unwrap().schedule;
        let verified = verify_on(two_shot, &edges, 2).unwrap();
        lower(&verified, Protocol::Packet128, Element::F16, Partials::Element, "")
    };
    assert!(lowered(&nvlink, EdgePolicy::Peer).is_ok());
    // Its every edge is used in both stages: the first one that is at fault is named.
    for (other, policy) in [
        (quad(LinkClass::Pcie(PcieClass::Pix)), EdgePolicy::Peer),
        (nvlink.clone(), EdgePolicy::Host),
        (
            nvlink.clone().with_pair(2, 3, LinkClass::Pcie(PcieClass::Pxb)),
            EdgePolicy::Peer,
        ),
    ] {
        let error = lowered(&other, policy).unwrap_err();
        let LowerError::NotAdmitted {
            error: VerifyError::CutLines { stage, from, to, .. },
            ..
        } = error
        else {
            panic!("{error}")
        };
        let words = error.to_string();
        assert!(words.contains("NVLink") && words.contains("two-shot"), "{words}");
        assert_eq!(stage, 0);
        let keeps = other.link(from, to).unwrap().keeps_lines();
        assert!(!keeps || policy == EdgePolicy::Host, "{from} {to}");
    }
}

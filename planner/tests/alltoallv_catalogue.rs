//! The catalogue of AlltoAllv: the counts of the specification's table, what makes a family, and bytes that are damaged.

use std::collections::BTreeSet;

use topoforge_planner::alltoallv::catalogue::enumerate::representatives;
use topoforge_planner::alltoallv::catalogue::symmetry::Symmetry;
use topoforge_planner::alltoallv::catalogue::template::{OUTSIDE, Scope, Template, TemplateError};
use topoforge_planner::alltoallv::catalogue::{BlobError, NodeCatalogue, Outsider, Unsound, VERSION};
use topoforge_planner::alltoallv::sequence::{WHOLE, best_sequence, rotation};
use topoforge_planner::alltoallv::{
    Catalogue, Demand, Fabric, Kind, Lane, Machine, Mode, Nics, Profile, Reach, TreeSpec, base,
};

fn fabric(spec: &TreeSpec) -> Fabric {
    Fabric::new(spec).expect("the machine is sound")
}

fn part(spec: &TreeSpec, nic_lanes: bool, outside: bool) -> NodeCatalogue {
    let fabric = fabric(spec);
    let part = NodeCatalogue::build(&fabric, Scope { nic_lanes, outside }).expect("the node is small enough");
    part.verify(&fabric).expect("the catalogue is sound");
    part
}

fn counts(spec: &TreeSpec, nic_lanes: bool, outside: bool) -> (usize, usize, usize) {
    let counts = part(spec, nic_lanes, outside).counts();
    (counts.families, counts.shapes, counts.orbits)
}

/// Two groups of three GPUs, as in the published figure: PCIe at 64 GB/s, a NIC at 50.
fn figure_1() -> TreeSpec {
    let mut spec = TreeSpec::tree(1, 2, 3);
    spec.rates.same_switch = 64_000;
    spec.rates.same_socket = 64_000;
    spec.rates.nic = 50_000;
    spec
}

/// Machines of every kind that a catalogue must cope with.
fn zoo() -> Vec<TreeSpec> {
    let mut forward = TreeSpec::pcie_2x4();
    forward.forward = true;
    let mut slots = TreeSpec::pcie_2x4();
    slots.modes.trunk = Mode::Slots(2);
    let mut uneven = TreeSpec::pcie_2x2x2();
    uneven.sockets[1].truncate(1);
    uneven.sockets[0][1].gpus = 3;
    let mut few_nics = TreeSpec::pcie_2x2();
    few_nics.sockets[0][1].nics = Nics::None;
    let mut apart = TreeSpec::pcie_2x2x2();
    apart.reach = Reach::Nowhere;
    vec![
        TreeSpec::pcie_2x2(),
        TreeSpec::pcie_2x2x2(),
        TreeSpec::tree(4, 1, 2),
        TreeSpec::crossbar(8, 450_000),
        figure_1(),
        forward,
        slots,
        uneven,
        few_nics,
        apart,
    ]
}

#[test]
fn the_smallest_case_has_3_shapes_and_6_families() {
    assert_eq!(counts(&TreeSpec::pcie_2x2(), true, false), (6, 3, 5));
    assert_eq!(counts(&TreeSpec::pcie_2x4(), true, false), (6, 3, 5));
}

#[test]
fn counts_are_those_of_the_specifications_table() {
    assert_eq!(counts(&TreeSpec::pcie_2x2(), true, true), (26, 21, 16));
    assert_eq!(counts(&TreeSpec::pcie_2x2x2(), false, false), (20, 20, 6));
    assert_eq!(counts(&TreeSpec::pcie_2x2x2(), true, false), (1_448, 633, 207));
    assert_eq!(counts(&TreeSpec::pcie_2x2x4(), true, false), (1_448, 633, 207));
    assert_eq!(counts(&TreeSpec::pcie_2x2x2(), true, true), (13_580, 9_425, 1_784));
}

#[test]
fn fig1_toy() {
    let spec = figure_1();
    let part = part(&spec, true, false);
    let template = &part.template;
    let gb_per_s = |inv_fs: u32| 1_000_000 / inv_fs;
    // Lanes between groups, over paths that are allowed, then lanes below the switches on top.
    let between = |family: u128, fastest: bool| -> u32 {
        let rate = |t: usize| {
            let slower = template.types.iter().any(|other| {
                (other.from, other.to) == (template.types[t].from, template.types[t].to)
                    && other.inv_fs < template.types[t].inv_fs
            });
            if fastest && slower {
                0
            } else {
                template.count(family, t) * gb_per_s(template.types[t].inv_fs)
            }
        };
        (0..template.types.len()).map(rate).sum()
    };
    let below = |family: u128| -> u32 {
        let leaving = |g: u8| -> u32 {
            (0..template.types.len())
                .filter(|&t| template.types[t].from == g)
                .map(|t| template.count(family, t))
                .sum()
        };
        (0..2).map(|g| (3 - leaving(g)) * gb_per_s(15_625)).sum()
    };
    let best = |rate: &dyn Fn(u128) -> u32| part.families.iter().map(|&family| rate(family)).max();
    assert_eq!(
        best(&|family| between(family, true)),
        Some(128),
        "each pair on its fastest path"
    );
    assert_eq!(best(&|family| between(family, false)), Some(228), "paths chosen");
    let busy = part.families.iter().filter(|&&family| between(family, false) == 228);
    let all = busy.map(|&family| 228 + below(family)).max();
    assert_eq!(
        all,
        Some(356),
        "peers chosen too: the ranks left over send below their switches meanwhile"
    );
}

/// The same figures from ranks and paths alone: six transfers, every set of them, every choice of paths and of peers.
#[test]
fn fig1_toy_by_trying_every_set_of_lanes() {
    let fabric = fabric(&figure_1());
    // What a set of transfers carries at once at best, in GB/s, over the first `classes` paths of each pair: between the
    // groups, where the bottleneck is, and in all.
    fn best(fabric: &Fabric, peers: &[(usize, usize)], classes: usize, used: u64) -> (u32, u32) {
        let Some((&(from, to), rest)) = peers.split_first() else {
            return (0, 0);
        };
        let without = best(fabric, rest, classes, used);
        let with = (0..fabric.path_count(from, to).min(classes)).filter_map(|class| {
            let path = fabric.path(from, to, class);
            let mask = path.resources().iter().fold(0u64, |mask, id| mask | 1 << id);
            let rate = 1_000_000 / path.inv_fs;
            let between = if from / 3 == to / 3 { 0 } else { rate };
            let (others, all) = (used & mask == 0).then(|| best(fabric, rest, classes, used | mask))?;
            Some((others + between, all + rate))
        });
        with.max().unwrap_or((0, 0)).max(without)
    }
    // Every rank sends to its counterpart below the other switch.
    let fixed: Vec<(usize, usize)> = (0..6).map(|rank| (rank, (rank + 3) % 6)).collect();
    assert_eq!(best(&fabric, &fixed, 1, 0), (128, 128), "each pair on its fastest path");
    assert_eq!(best(&fabric, &fixed, 4, 0), (228, 228), "paths chosen");
    let mut peers: Vec<usize> = (0..6).collect();
    let mut most = (0, 0);
    // All orders of six, by Heap's method without recursion.
    let mut count = [0usize; 6];
    let mut at = 0;
    loop {
        if peers.iter().enumerate().all(|(from, &to)| from != to) {
            let pairs: Vec<(usize, usize)> = peers.iter().copied().enumerate().collect();
            most = most.max(best(&fabric, &pairs, 4, 0));
        }
        while at < 6 && count[at] >= at {
            count[at] = 0;
            at += 1;
        }
        if at == 6 {
            break;
        }
        peers.swap(if at % 2 == 0 { 0 } else { count[at] }, at);
        count[at] += 1;
        at = 0;
    }
    assert_eq!(most, (228, 356), "peers chosen too");
}

/// All feasible sets of lanes of a small template, by trying every number of lanes of every type.
fn brute_force(template: &Template) -> BTreeSet<Vec<u8>> {
    let feasible = |counts: &[u8]| {
        let lanes = |id: u16| -> u32 {
            let of = counts.iter().zip(&template.types).filter(|(_, t)| t.mids.contains(&id));
            of.map(|(&n, _)| u32::from(n)).sum()
        };
        let ends = |g: u8, out: bool| -> u32 {
            let of = counts
                .iter()
                .zip(&template.types)
                .filter(|(_, t)| if out { t.from == g } else { t.to == g });
            of.map(|(&n, _)| u32::from(n)).sum()
        };
        let room =
            (0..template.capacity.len()).all(|id| template.capacity[id].is_none_or(|most| lanes(id as u16) <= most));
        room && (0..template.sizes.len() as u8)
            .all(|g| ends(g, true).max(ends(g, false)) <= u32::from(template.sizes[usize::from(g)]))
    };
    let mut all = BTreeSet::from([vec![0; template.types.len()]]);
    let mut open: Vec<Vec<u8>> = all.iter().cloned().collect();
    while let Some(counts) = open.pop() {
        for t in 0..counts.len() {
            let mut more = counts.clone();
            more[t] += 1;
            if feasible(&more) && all.insert(more.clone()) {
                open.push(more);
            }
        }
    }
    all
}

#[test]
fn families_cover_every_feasible_set_of_lanes_and_nothing_else() {
    for (spec, outside) in zoo().iter().flat_map(|spec| [(spec, false), (spec, true)]) {
        let part = part(spec, true, outside);
        if part.template.types.len() > 12 {
            continue;
        }
        let feasible = brute_force(&part.template);
        for counts in &feasible {
            let set = part.template.family(counts);
            assert!(
                part.families.iter().any(|family| family & set == set),
                "{counts:?} is in no family of {spec:?}"
            );
        }
        for &family in &part.families {
            let counts: Vec<u8> = (0..part.template.types.len())
                .map(|t| part.template.count(family, t) as u8)
                .collect();
            assert!(feasible.contains(&counts), "{counts:?} is not feasible in {spec:?}");
        }
    }
}

#[test]
fn searching_one_family_of_each_orbit_loses_none() {
    for spec in zoo() {
        let part = part(&spec, true, true);
        let types = (0..part.template.types.len() as u8).collect();
        let none = Symmetry {
            groups: vec![(0..part.template.sizes.len() as u8).collect()],
            types: vec![types],
        };
        let mut all = representatives(&part.template, &none).expect("small enough").families;
        all.sort_unstable();
        assert_eq!(all, part.families, "{spec:?}");
    }
}

#[test]
fn the_search_is_short() {
    // What keeps a build under 50 ms: see docs/alltoallv.md for times.
    assert!(part(&TreeSpec::pcie_2x2x4(), true, true).searched < 30_000);
    assert!(part(&TreeSpec::tree(4, 1, 2), true, true).searched < 30_000);
}

#[test]
fn no_family_is_dominated_by_another_of_its_shape() {
    for spec in zoo() {
        let part = part(&spec, true, true);
        let types = &part.template.types;
        for (a, b) in types
            .iter()
            .flat_map(|a| types.iter().map(move |b| (a, b)))
            .filter(|(a, b)| a != b)
        {
            let better = a.inv_fs <= b.inv_fs && a.mids.iter().all(|mid| b.mids.contains(mid));
            assert!(!(better && (a.from, a.to) == (b.from, b.to)), "{a:?} dominates {b:?}");
        }
    }
}

#[test]
fn symmetries_are_those_of_the_tree() {
    let order = |spec: &TreeSpec| part(spec, true, true).symmetry.groups.len();
    assert_eq!(order(&TreeSpec::pcie_2x2x2()), 8);
    assert_eq!(order(&TreeSpec::tree(4, 1, 2)), 24);
    assert_eq!(order(&TreeSpec::crossbar(8, 450_000)), 1);
    let mut uneven = TreeSpec::pcie_2x2x2();
    uneven.sockets[1][1].gpus = 3;
    assert_eq!(order(&uneven), 2, "only the two switches of the even socket");
    let mut one_nic = TreeSpec::pcie_2x2();
    one_nic.sockets[0][1].nics = Nics::None;
    assert_eq!(order(&one_nic), 1);
}

#[test]
fn a_forged_exchange_or_family_is_found() {
    let fabric = fabric(&TreeSpec::pcie_2x2x2());
    let good = NodeCatalogue::build(
        &fabric,
        Scope {
            nic_lanes: true,
            outside: false,
        },
    )
    .expect("builds");
    let mut exchange = good.clone();
    exchange.symmetry.groups[1].swap(0, 2);
    assert!(matches!(exchange.verify(&fabric), Err(Unsound::Exchange(1))));
    let mut smaller = good.clone();
    smaller.families[700] &= smaller.families[700] - 1;
    smaller.families.sort_unstable();
    assert!(matches!(
        smaller.verify(&fabric),
        Err(Unsound::NotMaximal(_) | Unsound::Orbits)
    ));
    let mut larger = good.clone();
    larger.families[700] |= !0 >> 104;
    larger.families.sort_unstable();
    assert!(matches!(larger.verify(&fabric), Err(Unsound::Capacity(_))));
    let mut missing = good.clone();
    missing.families.remove(700);
    assert!(matches!(missing.verify(&fabric), Err(Unsound::NotClosed(_))));
    let mut orbit = good.clone();
    orbit.orbits.remove(5);
    assert_eq!(orbit.verify(&fabric), Err(Unsound::Orbits));
    let mut other = Catalogue::build(&fabric, false, Vec::new()).expect("builds");
    other.rates ^= 1;
    assert_eq!(other.verify(&fabric), Err(Unsound::Machine));
}

#[test]
fn catalogues_do_not_depend_on_the_number_of_nodes() {
    for spec in zoo().into_iter().filter(|spec| spec.reach == Reach::Node) {
        let bytes: BTreeSet<Vec<u8>> = [1, 2, 128]
            .into_iter()
            .map(|nodes| {
                let fabric = fabric(&spec.clone().cluster(nodes));
                Catalogue::build(&fabric, true, Vec::new()).expect("builds").to_bytes()
            })
            .collect();
        assert_eq!(bytes.len(), 1, "{spec:?}");
        assert!(bytes.iter().all(|bytes| bytes.len() <= 64 << 10));
    }
}

#[test]
fn what_is_written_is_read_back_and_sound() {
    for spec in zoo() {
        let fabric = fabric(&spec);
        let mut built = Catalogue::build(&fabric, true, Vec::new()).expect("builds");
        let read = Catalogue::parse(&built.to_bytes()).unwrap_or_else(|e| panic!("{e}: {spec:?}"));
        for part in built.alone.iter_mut().chain(&mut built.member) {
            part.searched = 0;
        }
        assert_eq!(read, built);
        read.verify(&fabric).unwrap_or_else(|e| panic!("{e}: {spec:?}"));
    }
}

#[test]
fn cut_flipped_and_foreign_bytes_are_refused_in_words() {
    let bytes = with_profiles().1.to_bytes();
    for end in 6..bytes.len() {
        assert_eq!(Catalogue::parse(&bytes[..end]), Err(BlobError::Cut(end)));
    }
    for bit in (10 * 8..bytes.len() * 8).step_by(3) {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(
            matches!(Catalogue::parse(&flipped), Err(BlobError::Checksum { .. })),
            "bit {bit}"
        );
    }
    let mut newer = bytes.clone();
    newer[4..6].copy_from_slice(&(VERSION + 1).to_le_bytes());
    assert_eq!(Catalogue::parse(&newer), Err(BlobError::Version(VERSION + 1)));
    assert_eq!(Catalogue::parse(b""), Err(BlobError::Magic));
    assert_eq!(Catalogue::parse(b"ELF"), Err(BlobError::Magic));
    let longer = [bytes.as_slice(), &[0]].concat();
    assert!(matches!(Catalogue::parse(&longer), Err(BlobError::Checksum { .. })));
    let words = Catalogue::parse(&bytes[..40]).expect_err("cut").to_string();
    assert_eq!(words, "the catalogue is cut after 40 bytes: build it again");
}

/// The checksum that makes forged bytes pass, so that what stands behind it is tested too.
fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let length = bytes.len() as u32;
    bytes[6..10].copy_from_slice(&length.to_le_bytes());
    let body = bytes.len() - 4;
    let mut sum = u32::MAX;
    for &byte in &bytes[..body] {
        sum ^= u32::from(byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 {
                (sum >> 1) ^ 0xedb8_8320
            } else {
                sum >> 1
            };
        }
    }
    bytes[body..].copy_from_slice(&(!sum).to_le_bytes());
    bytes
}

#[test]
fn any_bytes_give_a_catalogue_or_an_error_and_never_a_panic() {
    let mut seed = 7_u64;
    let mut random = move |below: usize| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let mut good: Vec<Vec<u8>> = zoo()
        .iter()
        .filter(|spec| spec.sockets.len() < 4)
        .map(|spec| {
            Catalogue::build(&fabric(spec), false, Vec::new())
                .expect("builds")
                .to_bytes()
        })
        .collect();
    let profiles = with_profiles().1.to_bytes();
    good.extend([profiles.clone(), profiles]);
    let mut refused = 0;
    for round in 0..1_500 {
        let mut bytes = good[random(good.len())].clone();
        for _ in 0..1 + random(4) {
            // Mostly in front, where counts stand.
            let end = if round % 2 == 0 {
                bytes.len().min(120)
            } else {
                bytes.len()
            };
            let at = 6 + random(end - 6);
            bytes[at] = match random(3) {
                0 => 0,
                1 => 255,
                _ => random(256) as u8,
            };
        }
        if round % 5 == 0 {
            bytes.truncate(14 + random(bytes.len() - 14));
        }
        let bytes = if round % 7 == 0 { bytes } else { seal(bytes) };
        match Catalogue::parse(&bytes) {
            Ok(catalogue) => drop(catalogue.verify(&fabric(&TreeSpec::pcie_2x2()))),
            Err(e) => {
                assert!(!e.to_string().is_empty());
                refused += 1;
            }
        }
    }
    assert!(refused > 800, "{refused}");
    for length in 0..200 {
        let noise: Vec<u8> = b"A2AV\x01\x00"
            .iter()
            .copied()
            .chain((0..length).map(|_| random(256) as u8))
            .collect();
        assert!(Catalogue::parse(&noise).is_err());
    }
}

#[test]
fn rotation_carries_every_pair_once_in_feasible_steps() {
    let mut uneven = TreeSpec::pcie_2x2x2();
    uneven.sockets[0][1].gpus = 3;
    for spec in [
        TreeSpec::pcie_2x2x2(),
        TreeSpec::pcie_2x4().cluster(5),
        TreeSpec::crossbar(8, 450_000).cluster(3),
        uneven,
    ] {
        let fabric = fabric(&spec);
        let catalogue = Catalogue::build(&fabric, true, Vec::new()).expect("builds");
        let mut pairs = BTreeSet::new();
        let mut steps = 0;
        for step in rotation(&fabric) {
            steps += 1;
            catalogue
                .admits(&fabric, &step)
                .unwrap_or_else(|e| panic!("{e}: {step:?}"));
            for lane in step {
                assert!(pairs.insert((lane.from, lane.to)), "{lane:?} comes twice");
            }
        }
        assert_eq!(pairs.len(), fabric.ranks() * (fabric.ranks() - 1));
        assert!(steps >= fabric.groups());
    }
    // Groups of two in a uniform cluster: as many steps as the specification says, less those from a rank to itself.
    let cluster = fabric(&TreeSpec::pcie_2x2x2().cluster(4));
    assert_eq!(rotation(&cluster).count(), 16 * 4 - 2);
}

#[test]
fn sets_of_lanes_outside_every_family_are_refused() {
    let fabric = fabric(&TreeSpec::pcie_2x2x2().cluster(2));
    let catalogue = Catalogue::build(&fabric, true, Vec::new()).expect("builds");
    let lane = |from, to, class| Lane { from, to, class };
    assert_eq!(
        catalogue.admits(&fabric, &[lane(0, 2, 0), lane(2, 0, 0), lane(4, 5, 0)]),
        Ok(())
    );
    assert_eq!(
        catalogue.admits(&fabric, &[lane(0, 2, 0), lane(1, 3, 0)]),
        Err(Outsider::Node(0)),
        "one uplink"
    );
    assert_eq!(
        catalogue.admits(&fabric, &[lane(0, 2, 0), lane(1, 4, 1)]),
        Err(Outsider::Node(0)),
        "one uplink, lanes of two types"
    );
    assert_eq!(
        catalogue.admits(&fabric, &[lane(0, 8, 0), lane(1, 10, 0)]),
        Err(Outsider::Node(0)),
        "one NIC"
    );
    assert_eq!(
        catalogue.admits(&fabric, &[lane(0, 8, 0), lane(2, 9, 0)]),
        Err(Outsider::Node(1)),
        "one NIC in"
    );
    assert_eq!(
        catalogue.admits(&fabric, &[lane(0, 1, 0), lane(0, 2, 0)]),
        Err(Outsider::Port(0))
    );
    assert_eq!(catalogue.admits(&fabric, &[lane(0, 1, 1)]), Err(Outsider::Lane(0)));
    assert_eq!(catalogue.admits(&fabric, &[lane(0, 16, 0)]), Err(Outsider::Lane(0)));
    let alone = Catalogue::build(&self::fabric(&TreeSpec::pcie_2x2()), false, Vec::new()).expect("builds");
    assert_eq!(alone.admits(&fabric, &[]), Err(Outsider::Nodes(2)));
}

#[test]
fn the_best_base_sequence_is_kept_and_checked() {
    let fabric = fabric(&TreeSpec::pcie_2x2().cluster(3));
    let node = self::fabric(&TreeSpec::pcie_2x2());
    let demand = Demand::make(Kind::Uniform, 4, 3 << 20, 1).expect("a demand");
    // One lane at a time, in two parts; the seed is how good the plan says it is.
    let plan = |seed: u64| {
        let pairs = (0..4_u32)
            .flat_map(|from| (0..4).map(move |to| (from, to)))
            .filter(|(from, to)| from != to);
        let lanes = pairs.flat_map(|(from, to)| {
            let class = if seed == 3 {
                (node.path_count(from as usize, to as usize) - 1) as u8
            } else {
                0
            };
            let part = (1 << 20) / 3;
            [part, (1 << 20) - part].map(|volume| vec![(Lane { from, to, class }, volume)])
        });
        Some((10 - seed, lanes.collect()))
    };
    let best = best_sequence(&demand, 0..4, plan);
    assert_eq!(best.len(), 24);
    assert!(best.iter().any(|step| step.lanes[0].class == 1), "seed 3 is the best");
    let catalogue = Catalogue::build(&fabric, true, best.clone()).expect("fits");
    let read = Catalogue::parse(&catalogue.to_bytes()).expect("reads");
    assert_eq!(read.sequences, best.clone().into());
    read.verify(&fabric).expect("sound");
    let mut short = best;
    short[0].lanes[0].share -= 1;
    let error = Catalogue::build(&fabric, true, short)
        .expect_err("a byte is missing")
        .to_string();
    assert_eq!(
        error,
        format!(
            "the base sequence does not fit: rank 0 to 1 gets {} of {WHOLE} parts",
            WHOLE - 1
        )
    );
    let lane = Lane {
        from: 0,
        to: 1,
        class: 0,
    };
    let missing = best_sequence(&demand, 0..1, |_| Some((1, vec![vec![(lane, 1 << 20)]])));
    assert!(missing.is_empty(), "a plan that carries one pair only is none");
}

/// Two groups of two GPUs with sequences for equal pairs and for two profiles, one of which lacks pairs.
fn with_profiles() -> (Fabric, Catalogue) {
    let spec = TreeSpec::pcie_2x2();
    let profile = |name, kind| {
        let demand = Demand::make(kind, 4, 1 << 20, 5).expect("a demand");
        Profile::new(name, &demand).expect("a profile")
    };
    let machine = Machine {
        spec: spec.clone(),
        any_nodes: true,
        profiles: vec![profile("skewed", Kind::Zipf(0.8)), profile("few", Kind::Sparse(0.5))],
    };
    let catalogue = Catalogue::of_machine(&machine, base::recorded(&machine)).expect("fits");
    assert_eq!(catalogue.sequences.profiles.len(), 2);
    (fabric(&spec), catalogue)
}

#[test]
fn profiles_are_read_back_and_a_sequence_that_is_no_longer_theirs_is_found() {
    let (fabric, catalogue) = with_profiles();
    let read = Catalogue::parse(&catalogue.to_bytes()).expect("reads");
    assert_eq!(read.sequences, catalogue.sequences);
    read.verify(&fabric).expect("sound");
    let fault = |change: &dyn Fn(&mut Catalogue)| {
        let mut other = read.clone();
        change(&mut other);
        let other = Catalogue::parse(&other.to_bytes()).expect("well formed");
        match other.verify(&fabric) {
            Err(Unsound::Sequence(words)) => words,
            other => panic!("{other:?}"),
        }
    };
    let words = fault(&|c| c.sequences.profiles[0].steps[1].lanes[0].share -= 1);
    assert!(
        words.starts_with("the sequence of profile \"skewed\" does not fit: rank ")
            && words.ends_with("65535 of 65536 parts"),
        "{words}"
    );
    let words = fault(&|c| c.sequences.profiles[0].steps.clear());
    assert!(words.ends_with("0 of 65536 parts"), "{words}");
    // A pair that the profile lacks, and lanes that cannot be under way together.
    let words = fault(&|c| c.sequences.profiles[1].steps = c.sequences.uniform.clone());
    assert!(words.ends_with("65536 of 0 parts"), "{words}");
    let words = fault(&|c| {
        let step = &mut c.sequences.profiles[0].steps[0];
        let twice = step.lanes[0];
        step.lanes.push(twice);
    });
    assert!(words.contains("step 0: ") && words.contains("ports carry"), "{words}");
}

#[test]
fn nodes_too_large_for_a_catalogue_say_so() {
    let fabric = fabric(&TreeSpec::tree(4, 2, 2));
    let error = Catalogue::build(&fabric, true, Vec::new())
        .expect_err("too many")
        .to_string();
    assert!(
        error.contains("families after") && error.contains("a catalogue holds at most 65536 families"),
        "{error}"
    );
    let large = self::fabric(&TreeSpec::tree(8, 2, 4));
    let scope = Scope {
        nic_lanes: true,
        outside: true,
    };
    assert_eq!(Template::new(&large, scope), Err(TemplateError::Bits(512)));
    assert!(
        part(&TreeSpec::pcie_2x2(), true, true)
            .template
            .types
            .iter()
            .any(|t| t.from == OUTSIDE)
    );
}

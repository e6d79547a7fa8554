//! What every AlltoAllv plan must keep, whatever the demand: exact bytes, capacity, order, determinism, an end.

use topoforge_planner::alltoallv::simulate::Traffic;
use topoforge_planner::alltoallv::{
    Catalogue, Chunk, Demand, Effort, Fabric, FamilyFault, Kind, Leaves, Mode, Network, Nics, Plan, Planner, Refused,
    Selector, Strategy, TreeSpec, sequence,
};

fn planner(spec: &TreeSpec) -> Planner {
    Planner::new(&Fabric::new(spec).expect("a machine"))
}

/// Planners with each selector that serves a machine, and the ways to plan that they differ in.
fn planners(spec: &TreeSpec) -> Vec<(Selector, Planner, &'static [Strategy])> {
    let fabric = Fabric::new(spec).expect("a machine");
    let mut all = vec![(Selector::Critical, Planner::new(&fabric), &Strategy::ALL[..])];
    for selector in [Selector::Greedy, Selector::Family] {
        let mut planner = Planner::new(&fabric).with_effort(Effort {
            selector,
            ..Effort::for_ranks(fabric.ranks())
        });
        if selector == Selector::Family {
            if fabric.nodes() > 1 {
                continue;
            }
            let catalogue = Catalogue::build(&fabric, false, Vec::new()).expect("a catalogue");
            planner = planner.with_catalogue(&fabric, &catalogue).expect("its own catalogue");
        }
        all.push((selector, planner, &[Strategy::Peel]));
    }
    all
}

/// Machines of every shape that plans differ for.
fn machines() -> Vec<(&'static str, TreeSpec)> {
    let mut forward = TreeSpec::pcie_2x2x2().cluster(2);
    forward.forward = true;
    let mut slots = TreeSpec::pcie_2x2x2();
    slots.modes.trunk = Mode::Slots(2);
    slots.modes.cross = Mode::Fluid;
    let mut uneven = TreeSpec::tree(1, 2, 3);
    uneven.sockets[0][1].gpus = 1;
    let mut no_nic = TreeSpec::pcie_2x2();
    no_nic.sockets[0][1].nics = Nics::None;
    let leaves = |up, mode| Network {
        leaves: Leaves::Nodes(1),
        up,
        mode,
    };
    vec![
        ("one rank", TreeSpec::tree(1, 1, 1)),
        ("two ranks", TreeSpec::tree(1, 1, 2)),
        ("2x2", TreeSpec::pcie_2x2()),
        ("2x4", TreeSpec::pcie_2x4()),
        ("2x2x2", TreeSpec::pcie_2x2x2()),
        ("two nodes", TreeSpec::pcie_2x2x2().cluster(2)),
        ("three nodes", TreeSpec::pcie_2x2().cluster(3)),
        ("forwarding", forward),
        ("slots and fluid trunks", slots),
        ("uneven switches", uneven),
        ("a switch without NIC", no_nic),
        ("crossbar", TreeSpec::crossbar(8, 400_000)),
        ("crossbars", TreeSpec::crossbar(4, 400_000).cluster(2)),
        (
            "behind leaves",
            TreeSpec::pcie_2x2().cluster(3).behind(leaves(60_000, Mode::Fluid)),
        ),
        (
            "behind one cable each",
            TreeSpec::pcie_2x2().cluster(3).behind(leaves(40_000, Mode::Exclusive)),
        ),
    ]
}

/// Demands that have broken schedulers: nothing, one pair, one row, one column, permutations, specks, giants, holes.
fn demands(n: usize) -> Vec<(String, Demand)> {
    let matrix = |f: &dyn Fn(usize, usize) -> u64| {
        let bytes = (0..n * n).map(|at| f(at / n, at % n)).collect();
        Demand::new(n, bytes).expect("a demand")
    };
    let mut all = vec![
        ("zero".to_owned(), Demand::zero(n)),
        ("one byte each".into(), matrix(&|_, _| 1)),
        (
            "one pair".into(),
            matrix(&|i, j| if (i, j) == (0, n - 1) { 12_345_677 } else { 0 }),
        ),
        (
            "one row".into(),
            matrix(&|i, j| if i == n / 2 { 1_000_003 * (j as u64 + 1) } else { 0 }),
        ),
        (
            "one column".into(),
            matrix(&|i, j| if j == n / 2 { 999_999 + i as u64 } else { 0 }),
        ),
        (
            "a permutation".into(),
            matrix(&|i, j| if j == (i + 1) % n { 5_000_001 } else { 0 }),
        ),
        ("powers of two".into(), matrix(&|i, j| 1 << ((7 * i + 3 * j) % 41))),
        ("giants".into(), matrix(&|_, _| 1 << 40)),
        ("the largest".into(), matrix(&|_, _| 1 << 48)),
        (
            "giants and specks".into(),
            matrix(&|i, j| if (i + j) % 3 == 0 { 1 << 40 } else { 1 }),
        ),
        ("15, 16 and 17".into(), matrix(&|i, j| 15 + ((i + 2 * j) % 3) as u64)),
        ("around 4 KiB".into(), matrix(&|i, j| 4095 + ((i * j) % 3) as u64)),
    ];
    for seed in 0..3 {
        for kind in [
            Kind::Zipf(0.8),
            Kind::Hot(0.6),
            Kind::Sparse(0.4),
            Kind::Sparse(0.95),
            Kind::Random,
        ] {
            for bytes in [1000, 3_000_017] {
                let demand = Demand::make(kind, n, bytes, seed).expect("a demand");
                all.push((format!("{kind} of {bytes} with seed {seed}"), demand));
            }
        }
    }
    all
}

#[test]
fn every_plan_keeps_every_invariant_for_every_demand() {
    for (machine, spec) in machines() {
        for (selector, mut planner, ways) in planners(&spec) {
            for (name, demand) in demands(planner.ranks()) {
                let place = format!("{machine}, {name}, {selector}");
                for &strategy in ways {
                    planner.plan_by(&demand, strategy).expect("ranks agree");
                    assert_eq!(planner.check(&demand), Ok(()), "{place}, {strategy}");
                    let plan = planner.last();
                    assert_eq!(plan.is_empty(), demand.total() == 0, "{place}, {strategy}");
                }
                planner.plan(&demand).expect("ranks agree");
                assert_eq!(planner.check(&demand), Ok(()), "{place}, as chosen");
            }
        }
    }
}

#[test]
fn plans_of_many_ranks_keep_every_invariant_with_fans_and_without() {
    let mut bare = TreeSpec::pcie_2x2x2().cluster(9);
    bare.sockets[1][0].nics = Nics::None;
    let mut several = TreeSpec::pcie_2x4().cluster(9);
    several.sockets[0][0].nics = Nics::Shared(2);
    let mut uneven = TreeSpec::tree(1, 2, 3).cluster(17);
    uneven.sockets[0][1].gpus = 1;
    let mut fluid = TreeSpec::pcie_2x2().cluster(17);
    fluid.modes.nic = Mode::Fluid;
    let machines = [
        ("2x2", TreeSpec::pcie_2x2().cluster(17)),
        ("a switch without NIC", bare),
        ("two NICs for four", several),
        ("uneven switches", uneven),
        ("fluid NICs", fluid),
    ];
    for (machine, spec) in machines {
        let mut planner = planner(&spec);
        let all = demands(planner.ranks());
        // Every kind once: these plans are long.
        for (name, demand) in all.into_iter().step_by(5) {
            for strategy in [Strategy::Peel, Strategy::Pack] {
                planner.plan_by(&demand, strategy).expect("ranks agree");
                assert_eq!(planner.check(&demand), Ok(()), "{machine}, {name}, {strategy}");
                let (bound, predicted) = (planner.bound(&demand), planner.predict());
                assert!(
                    predicted.hand_off_ns * (1.0 + 1e-6) >= bound.load_ns,
                    "{machine}, {name}, {strategy}"
                );
            }
        }
    }
}

/// Sparse, powers of two, single bytes, 2^40 bytes, in any mixture: what breaks loops that wait for progress.
fn adversarial(n: usize, seed: u64) -> Demand {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let holes = next() % 10;
    let entry = |_| match (next() % 10 < holes, next() % 5, next()) {
        (true, ..) => 0,
        (_, 0, _) => 1,
        (_, 1, x) => 1 << (x % 41),
        (_, 2, _) => 1 << 40,
        (_, 3, x) => x % 5000,
        (_, _, x) => x % (1 << 28),
    };
    Demand::new(n, (0..n * n).map(entry).collect()).expect("a demand")
}

#[test]
fn adversarial_demands_end_within_the_caps_and_keep_every_invariant() {
    for (machine, spec) in machines() {
        for (selector, mut planner, ways) in planners(&spec) {
            let n = planner.ranks();
            for seed in 0..12 {
                let demand = adversarial(n, seed);
                for &strategy in ways {
                    let place = format!("{machine}, seed {seed}, {selector}, {strategy}");
                    planner.plan_by(&demand, strategy).expect("ranks agree");
                    assert_eq!(planner.check(&demand), Ok(()), "{place}");
                    // What peeling has not done after 6 N activations is packed.
                    let (found, most) = (planner.last().len(), 6 * n + 8 * n + 64);
                    assert!(
                        strategy == Strategy::Rotation || strategy == Strategy::Base || found <= most,
                        "{place}: {found} activations"
                    );
                }
            }
        }
    }
}

/// What a lane waits for, as it is simulated and is to be executed: the last user of each of its resources, before it.
#[test]
fn resources_are_handed_from_earlier_to_later_activations_only() {
    let fans = ("fans", TreeSpec::pcie_2x2().cluster(17));
    for (machine, spec) in machines().into_iter().chain([fans]) {
        let fabric = Fabric::new(&spec).expect("a machine");
        for (selector, mut planner, _) in planners(&spec) {
            // Kinds in turn: plans of many ranks are long.
            let step = if fabric.ranks() > 64 { 7 } else { 1 };
            for (name, demand) in demands(planner.ranks()).into_iter().step_by(step) {
                planner.plan(&demand).expect("ranks agree");
                if !planner.is_of_rounds() {
                    continue;
                }
                let plan = planner.last();
                let traffic = Traffic::of_plan(&fabric, plan, true);
                assert_eq!(traffic.flows.len(), plan.lanes().len());
                let mut last: Vec<Option<u32>> = vec![None; fabric.resources()];
                let mut id = 0;
                for (k, lanes) in plan.activations().enumerate() {
                    let begin = id;
                    for lane in lanes {
                        let flow = &traffic.flows[id as usize];
                        let place = || format!("{machine}, {name}, {selector}, activation {k}, {lane:?}");
                        // Earlier activations alone, or the lane before of the same fan: no circle can close.
                        let earlier = |&b: &u32| b < begin || (lane.turn > 0 && b + 1 == id);
                        assert!(flow.after.iter().all(earlier), "{}: {:?}", place(), flow.after);
                        let alpha = if lane.turn == 0 { fabric.alpha_h_ns() } else { 0 };
                        assert_eq!(flow.delay_ns, f64::from(alpha), "{}", place());
                        let path = fabric.path(lane.from.into(), lane.to.into(), lane.path.into());
                        assert_eq!(flow.uses, path.resources(), "{}", place());
                        for &r in path.resources() {
                            let before = last[r as usize].replace(id);
                            if fabric.resource(r).slots() == Some(1) {
                                let known = before.is_none_or(|b| flow.after.contains(&b));
                                assert!(known, "{}, resource {r}: the user before is not waited for", place());
                            }
                        }
                        id += 1;
                    }
                }
            }
        }
    }
}

#[test]
fn more_ranks_than_are_peeled_are_packed_instead() {
    let mut planner = planner(&TreeSpec::pcie_2x2().cluster(65));
    let demand = Demand::make(Kind::Zipf(0.6), planner.ranks(), 1 << 20, 1).expect("a demand");
    planner.plan_by(&demand, Strategy::Peel).expect("ranks agree");
    assert_eq!(
        (planner.predict().strategy, planner.check(&demand)),
        (Strategy::Pack, Ok(()))
    );
}

#[test]
fn no_plan_beats_the_bound_and_hand_off_is_never_slower_than_barriers() {
    for (machine, spec) in machines() {
        for (selector, mut planner, ways) in planners(&spec) {
            for (name, demand) in demands(planner.ranks()) {
                let bound = planner.bound(&demand);
                for &strategy in ways {
                    planner.plan_by(&demand, strategy).expect("ranks agree");
                    let (activations, predicted) = (planner.last().len(), planner.predict());
                    let place = format!("{machine}, {name}, {selector}, {strategy}: {predicted:?} {bound:?}");
                    let slack = 1.0 + 1e-6;
                    assert!(predicted.hand_off_ns <= predicted.barrier_ns * slack, "{place}");
                    assert!(predicted.hand_off_ns * slack >= bound.load_ns, "{place}");
                    if strategy != Strategy::Fluid {
                        assert!(activations as u64 >= bound.activations, "{place}");
                        assert!(predicted.barrier_ns * slack >= bound.barrier_ns, "{place}");
                        assert!(predicted.hand_off_ns * slack >= bound.hand_off_ns, "{place}");
                    }
                }
                planner.plan_by(&demand, Strategy::Rotation).expect("ranks agree");
                let rotation = planner.predict().hand_off_ns;
                planner.plan(&demand).expect("ranks agree");
                assert!(
                    planner.predict().hand_off_ns <= rotation,
                    "{machine}, {name}, {selector}: worse than the rotation"
                );
            }
        }
    }
}

#[test]
fn the_bound_is_exact_where_one_port_does_everything() {
    for (machine, spec) in [
        ("2x2", TreeSpec::pcie_2x2()),
        ("2x2x2", TreeSpec::pcie_2x2x2()),
        ("two nodes", TreeSpec::pcie_2x2x2().cluster(2)),
    ] {
        let fabric = Fabric::new(&spec).expect("a machine");
        let planner = Planner::new(&fabric);
        let n = planner.ranks();
        for (name, demand) in demands(n).into_iter().filter(|(name, _)| name.starts_with("one ")) {
            if name == "one byte each" {
                continue;
            }
            // All lanes have a port in common: fastest paths, one after the other, are the best there is.
            let pairs = (0..n * n).filter(|&pair| demand.bytes()[pair] > 0);
            let times: Vec<f64> = pairs
                .map(|pair| {
                    let inv_fs = fabric.path(pair / n, pair % n, 0).inv_fs;
                    demand.bytes()[pair] as f64 * f64::from(inv_fs) * 1e-6
                })
                .collect();
            let (load, lanes) = (times.iter().sum::<f64>(), times.len() as f64);
            let bound = planner.bound(&demand);
            let place = format!("{machine}, {name}: {bound:?}");
            assert_eq!(bound.activations, times.len() as u64, "{place}");
            for (found, wanted) in [
                (bound.load_ns, load),
                (bound.barrier_ns, load + lanes * f64::from(fabric.alpha_ns())),
                (bound.hand_off_ns, load + lanes * f64::from(fabric.alpha_h_ns())),
            ] {
                assert!((found / wanted - 1.0).abs() < 1e-6, "{place}: {wanted}");
            }
        }
    }
}

#[test]
fn the_fewest_activations_are_a_whole_number() {
    // Three lanes over an uplink and a NIC: one and a half.
    let planner = planner(&TreeSpec::tree(1, 2, 3));
    let mut bytes = vec![0; 36];
    (0..3).for_each(|from| bytes[from * 6 + from + 3] = 1_000_000);
    let demand = Demand::new(6, bytes).expect("a demand");
    assert_eq!(planner.bound(&demand).activations, 2);
}

#[test]
fn the_lanes_of_a_fan_take_turns() {
    let fabric = Fabric::new(&TreeSpec::pcie_2x2().cluster(17)).expect("a machine");
    let mut planner = Planner::new(&fabric);
    let demand = Demand::make(Kind::Zipf(0.6), planner.ranks(), 4_000_000, 1).expect("a demand");
    planner.plan_by(&demand, Strategy::Pack).expect("ranks agree");
    let barrier_ns = planner.predict().barrier_ns;
    let (mut fans, mut wanted) = (0, 0.0);
    for lanes in planner.last().activations() {
        let (mut longest, mut turn_ns) = (0.0f64, 0.0);
        for (at, lane) in lanes.iter().enumerate() {
            let inv_fs = fabric.path(lane.from.into(), lane.to.into(), lane.path.into()).inv_fs;
            let time = lane.bytes as f64 * f64::from(inv_fs) * 1e-6;
            if lane.turn == 0 {
                turn_ns = time;
            } else {
                // Behind the lane before it, of the same sender, to the same group.
                let before = &lanes[at - 1];
                let group = |lane: &Chunk| fabric.group_of(lane.to.into());
                assert_eq!((before.from, before.turn + 1), (lane.from, lane.turn));
                assert!(
                    group(before) == group(lane) && before.to < lane.to,
                    "{before:?} {lane:?}"
                );
                (fans, turn_ns) = (fans + 1, turn_ns + time);
            }
            longest = longest.max(turn_ns);
        }
        wanted += longest + f64::from(fabric.alpha_ns());
    }
    assert!(fans > 100, "{fans} lanes behind others");
    assert!(
        (barrier_ns / wanted - 1.0).abs() < 1e-5,
        "{barrier_ns} ns predicted, {wanted} of all lanes"
    );
}

#[test]
fn what_peeling_does_not_finish_within_its_cap_is_packed() {
    for (machine, spec) in [
        ("2x2x2", TreeSpec::pcie_2x2x2()),
        ("two nodes", TreeSpec::pcie_2x2().cluster(2)),
        // What is left of so many ranks goes as fans.
        ("fans", TreeSpec::pcie_2x2().cluster(17)),
    ] {
        // Durations so short that the cap comes long before the end: of less than a unit, of no time at all.
        for rho in [400.0, 1e9, f32::INFINITY] {
            let effort = Effort {
                caps: [1.0, 0.0, 0.0, 0.0],
                tried: 1,
                rho,
                polish: false,
                ..Effort::FULL
            };
            let mut planner = planner(&spec).with_effort(effort);
            let n = planner.ranks();
            let demand = Demand::make(Kind::Zipf(0.6), n, 64_000_000, 2).expect("a demand");
            let within = |planner: &Planner, way: &str| {
                assert_eq!(planner.check(&demand), Ok(()), "{machine}, {rho}, {way}");
                let (found, most) = (planner.last().len(), 6 * n + 8 * n + 64);
                // One lane at a time may end before the cap; so many ranks are packed from the start where they are streamed.
                let capped = rho > 1e9 || found > 6 * n || (n > 64 && way == "streamed");
                // The smallest of pieces find no round where ranks are many.
                let most = if n > 64 && rho > 400.0 { n * n } else { most };
                assert!(capped && found <= most, "{machine}, {rho}, {way}: {found} activations");
            };
            planner.plan_by(&demand, Strategy::Peel).expect("ranks agree");
            within(&planner, "at once");
            planner.begin(&demand).expect("ranks agree");
            while planner.advance().is_some() {}
            within(&planner, "streamed");
        }
    }
}

#[test]
fn polish_shortens_plans_and_leaves_the_first_activation() {
    let plain = Effort {
        polish: false,
        ..Effort::FULL
    };
    for spec in [TreeSpec::pcie_2x4(), TreeSpec::pcie_2x2x2()] {
        let (mut without, mut with) = (
            planner(&spec).with_effort(plain),
            planner(&spec).with_effort(Effort::FULL),
        );
        let mut shorter = 0;
        for number in 0..6 {
            let demand = Demand::skewed(number, with.ranks(), 256_000_000).expect("a demand");
            let first = |planner: &mut Planner| {
                let plan = planner.plan_by(&demand, Strategy::Peel).expect("ranks agree");
                let mut first = plan.activation(0).to_vec();
                first.sort_unstable_by_key(|lane| (lane.from, lane.to, lane.path));
                (first, planner.predict().barrier_ns)
            };
            let ((before, long), (after, short)) = (first(&mut without), first(&mut with));
            assert_eq!(before, after, "demand {number}: it is under way by then");
            assert!(short <= long, "demand {number}: {short} ns, {long} without");
            shorter += u32::from(short < long);
        }
        assert!(shorter > 0, "no plan became shorter");
    }
}

#[test]
fn the_best_of_several_plans_is_no_longer_than_the_first() {
    for spec in [TreeSpec::pcie_2x4(), TreeSpec::pcie_2x2x2()] {
        let (mut one, mut six) = (planner(&spec), planner(&spec).with_effort(Effort::THOROUGH));
        let mut shorter = 0;
        for number in 0..6 {
            let demand = Demand::skewed(number, one.ranks(), 64_000_000).expect("a demand");
            one.plan_by(&demand, Strategy::Peel).expect("ranks agree");
            six.plan_by(&demand, Strategy::Peel).expect("ranks agree");
            let (one, six) = (one.predict().barrier_ns, six.predict().barrier_ns);
            assert!(six <= one, "demand {number}: {six} ns, {one} of the first");
            shorter += u32::from(six < one);
        }
        assert!(shorter > 0, "the first was always the best");
    }
}

#[test]
fn demands_with_one_obvious_plan_get_the_fewest_activations() {
    for (machine, spec) in machines().into_iter().filter(|(name, _)| !name.starts_with("crossbar")) {
        for (selector, mut planner, _) in planners(&spec) {
            let n = planner.ranks();
            for (name, demand) in demands(n).into_iter().filter(|(name, _)| name.starts_with("one pair")) {
                planner.plan(&demand).expect("ranks agree");
                assert_eq!(
                    planner.last().len(),
                    usize::from(n > 1),
                    "{machine}, {name}, {selector}"
                );
            }
        }
    }
    let fewest = |name: &str| match name {
        // All seven pairs use one port.
        "one row" | "one column" => 7,
        // Four pairs below switches, and four between: all at once by NICs and uplinks.
        "a permutation" => 1,
        _ => unreachable!(),
    };
    for (selector, mut planner, _) in planners(&TreeSpec::pcie_2x2x2()) {
        for (name, demand) in demands(8) {
            if ["one row", "one column", "a permutation"].contains(&name.as_str()) {
                planner.plan_by(&demand, Strategy::Peel).expect("ranks agree");
                assert_eq!(planner.last().len(), fewest(&name), "{name}, {selector}");
            }
        }
    }
}

#[test]
fn all_ranks_and_all_runs_make_the_same_plan() {
    for (machine, spec) in machines() {
        for ((selector, mut one, _), (_, mut two, _)) in planners(&spec).into_iter().zip(planners(&spec)) {
            for (name, demand) in demands(one.ranks()) {
                let hash = one.plan(&demand).expect("ranks agree").hash();
                // The other planner has another past: one that was peeled, one that was packed.
                for (strategy, bytes) in [(Strategy::Peel, 7_777_777), (Strategy::Pack, 77_777)] {
                    let past = Demand::make(Kind::Random, two.ranks(), bytes, 9).expect("a demand");
                    two.plan_by(&past, strategy).expect("ranks agree");
                    assert_eq!(
                        two.plan(&demand).expect("ranks agree").hash(),
                        hash,
                        "{machine}, {name}, {selector}"
                    );
                }
                assert_eq!(one.last(), two.last(), "{machine}, {name}, {selector}");
            }
        }
    }
}

#[test]
fn the_hash_sees_every_field_of_every_lane() {
    let mut planner = planner(&TreeSpec::pcie_2x2());
    let mut seen = std::collections::HashSet::new();
    for (_, demand) in demands(4) {
        let hash = planner.plan(&demand).expect("ranks agree").hash();
        seen.insert((hash, planner.last().lanes().to_vec()));
    }
    let hashes: std::collections::HashSet<u64> = seen.iter().map(|(hash, _)| *hash).collect();
    assert_eq!(hashes.len(), seen.len());
}

#[test]
fn a_known_plan_has_its_known_hash() {
    // Another value means that plans changed, or that this platform computes otherwise than the others.
    let mut planner = planner(&TreeSpec::pcie_2x2x2());
    let demand = Demand::skewed(1, 8, 64_000_000).expect("a demand");
    let plan = planner.plan(&demand).expect("ranks agree");
    let hash = plan.hash();
    assert_eq!(format!("{hash:016x}"), KNOWN, "{} activations", plan.len());
}

const KNOWN: &str = "4a6b9c9c299dc73e";

#[test]
fn activations_come_one_by_one_as_the_whole_plan_without_polish_has_them() {
    let effort = Effort {
        polish: false,
        ..Effort::FULL
    };
    for (machine, spec) in machines() {
        let mut planner = planner(&spec).with_effort(effort);
        for (name, demand) in demands(planner.ranks()) {
            planner.begin(&demand).expect("ranks agree");
            let mut streamed: Vec<Vec<Chunk>> = Vec::new();
            while let Some(lanes) = planner.advance() {
                streamed.push(lanes.to_vec());
            }
            assert_eq!(planner.advance(), None);
            assert_eq!(planner.check(&demand), Ok(()), "{machine}, {name}");
            let all: Vec<Vec<Chunk>> = planner.last().activations().map(<[Chunk]>::to_vec).collect();
            assert_eq!(streamed, all, "{machine}, {name}");
            let strategy = planner.predict().strategy;
            let whole: &Plan = planner.plan_by(&demand, strategy).expect("ranks agree");
            assert_eq!(
                whole.activations().map(<[Chunk]>::to_vec).collect::<Vec<_>>(),
                streamed,
                "{machine}, {name}"
            );
        }
    }
}

#[test]
fn streamed_plans_take_the_effort_that_keeps_ahead_of_sending() {
    // Ranks, megabytes a rank, and whether there is time for full effort.
    for (nodes, megabytes, full) in [
        (1, 64, true),
        (2, 64, false),
        (2, 512, true),
        (8, 64, false),
        (8, 4096, true),
    ] {
        let spec = TreeSpec::pcie_2x2x2().cluster(nodes);
        let mut default = planner(&spec);
        let ranks = default.ranks();
        let effort = if full { Effort::FULL } else { Effort::cheap(ranks) };
        let mut wanted = planner(&spec).with_effort(effort);
        let demand = Demand::skewed(1, ranks, megabytes * 1_000_000).expect("a demand");
        for planner in [&mut default, &mut wanted] {
            planner.begin(&demand).expect("ranks agree");
            while planner.advance().is_some() {}
            assert_eq!(planner.check(&demand), Ok(()));
        }
        assert_eq!(
            default.last().hash(),
            wanted.last().hash(),
            "{ranks} ranks, {megabytes} MB"
        );
    }
}

#[test]
fn kept_plans_serve_demands_that_look_the_same_exactly() {
    for (machine, spec) in machines().into_iter().filter(|(name, _)| *name != "one rank") {
        let mut planner = planner(&spec);
        let n = planner.ranks();
        let base = Demand::make(Kind::Zipf(0.6), n, 40_000_000, 5).expect("a demand");
        planner.plan_cached(&base).expect("ranks agree");
        assert_ne!(planner.predict().strategy, Strategy::Cached);
        let first = planner.last().clone();
        planner.plan_cached(&base).expect("ranks agree");
        assert_eq!(
            (planner.predict().strategy, planner.last()),
            (Strategy::Cached, &first),
            "{machine}"
        );
        for factor in [2, 3, 7] {
            let scaled = base.bytes().iter().map(|b| b * factor).collect();
            let scaled = Demand::new(n, scaled).expect("a demand");
            planner.plan_cached(&scaled).expect("ranks agree");
            assert_eq!(planner.predict().strategy, Strategy::Cached, "{machine}");
            assert_eq!(planner.check(&scaled), Ok(()), "{machine}, times {factor}");
            // Each chunk is as much larger as the demand, but for units that are cut off: so is every duration.
            for (then, now) in first.lanes().iter().zip(planner.last().lanes()) {
                assert_eq!(
                    (then.from, then.to, then.path, then.turn),
                    (now.from, now.to, now.path, now.turn)
                );
                let wanted = then.bytes * factor;
                assert!(
                    now.bytes.abs_diff(wanted) <= 64,
                    "{machine}, times {factor}: {now:?}, before {then:?}"
                );
            }
        }
        // Parts of units: chunks still begin at whole ones.
        let quarters = base.bytes().iter().map(|b| b / 4 * 4).collect();
        let quarters = Demand::new(n, quarters).expect("a demand");
        planner.plan_cached(&quarters).expect("ranks agree");
        let more = quarters.bytes().iter().map(|b| b / 4 * 7).collect();
        let more = Demand::new(n, more).expect("a demand");
        planner.plan_cached(&more).expect("ranks agree");
        assert_eq!(
            (planner.predict().strategy, planner.check(&more)),
            (Strategy::Cached, Ok(())),
            "{machine}, seven quarters"
        );
        let mut other = base.bytes().to_vec();
        other[1] = 0;
        planner
            .plan_cached(&Demand::new(n, other).expect("a demand"))
            .expect("ranks agree");
        assert_ne!(planner.predict().strategy, Strategy::Cached, "{machine}");
    }
}

#[test]
fn the_plans_kept_are_the_eight_used_last() {
    let mut planner = planner(&TreeSpec::pcie_2x2());
    let demands: Vec<Demand> = (0..9)
        .map(|seed| Demand::make(Kind::Zipf(0.6), 4, 40_000_000, seed).expect("a demand"))
        .collect();
    let mut is_kept = |at: usize| {
        planner.plan_cached(&demands[at]).expect("ranks agree");
        planner.predict().strategy == Strategy::Cached
    };
    assert!((0..8).all(|at| !is_kept(at)), "each is new");
    assert!((0..8).all(&mut is_kept), "there is room for eight");
    // The ninth takes the place of the one unused for longest.
    assert!(is_kept(0) && !is_kept(8));
    assert!(is_kept(0) && is_kept(2) && !is_kept(1));
}

#[test]
fn renaming_ranks_by_a_symmetry_leaves_the_time_within_ties() {
    // Twins below a switch, switches of a socket, and both sockets.
    let symmetries = [
        [1, 0, 2, 3, 4, 5, 6, 7],
        [2, 3, 0, 1, 4, 5, 6, 7],
        [4, 5, 6, 7, 0, 1, 2, 3],
    ];
    for (selector, mut planner, _) in planners(&TreeSpec::pcie_2x2x2()) {
        for number in 0..10 {
            let demand = Demand::skewed(number, 8, 256_000_000).expect("a demand");
            planner.plan(&demand).expect("ranks agree");
            let time = planner.predict().hand_off_ns;
            let bound = planner.bound(&demand).load_ns;
            for names in &symmetries {
                let renamed = demand.renamed(names).expect("a permutation");
                planner.plan(&renamed).expect("ranks agree");
                let ratio = planner.predict().hand_off_ns / time;
                assert!(
                    (0.95..1.05).contains(&ratio),
                    "{selector}, demand {number}, {names:?}: {ratio}"
                );
                assert!(
                    (planner.bound(&renamed).load_ns / bound - 1.0).abs() < 1e-9,
                    "{selector}, demand {number}, {names:?}"
                );
            }
        }
    }
}

#[test]
fn a_demand_of_another_size_is_refused_in_words() {
    let mut planner = planner(&TreeSpec::pcie_2x2());
    let refused = planner.plan(&Demand::zero(5)).expect_err("is refused");
    let Refused::Ranks(wrong) = refused else {
        panic!("{refused}")
    };
    assert_eq!((wrong.demand, wrong.machine), (5, 4));
    assert!(refused.to_string().contains("for 5 ranks, the machine has 4"));
}

#[test]
fn gaps_to_the_lower_bound_stay_where_they_were_measured() {
    // Averages of few instances; `cargo xtask a2a-gap` has all of them.
    for (spec, instances, most) in [(TreeSpec::pcie_2x2(), 10, 0.5), (TreeSpec::pcie_2x2x2(), 10, 0.6)] {
        let mut planner = planner(&spec);
        let mut sum = 0.0;
        for number in 0..instances {
            let demand = Demand::skewed(number, planner.ranks(), 256_000_000).expect("a demand");
            planner.plan_by(&demand, Strategy::Peel).expect("ranks agree");
            let (predicted, bound) = (planner.predict(), planner.bound(&demand));
            assert!(bound.exact);
            sum += predicted.barrier_ns / bound.barrier_ns - 1.0;
        }
        let percent = 100.0 * sum / instances as f64;
        assert!(percent <= most, "{} ranks: {percent:.3} %", planner.ranks());
    }
}

#[test]
fn the_rotation_is_the_one_that_needs_no_demand() {
    for (machine, spec) in machines()
        .into_iter()
        .filter(|(_, spec)| spec.modes.cross == Mode::Exclusive)
    {
        let fabric = Fabric::new(&spec).expect("a machine");
        if fabric.is_fluid() {
            continue;
        }
        let mut planner = Planner::new(&fabric);
        let n = planner.ranks();
        let demand = Demand::make(Kind::Uniform, n, 1_000_000, 1).expect("a demand");
        let plan = planner.plan_by(&demand, Strategy::Rotation).expect("ranks agree");
        let lanes = |lanes: &[Chunk]| -> Vec<(u32, u32, u8)> {
            lanes
                .iter()
                .map(|l| (l.from.into(), l.to.into(), l.path as u8))
                .collect()
        };
        let ours: Vec<_> = plan.activations().map(lanes).collect();
        let theirs: Vec<Vec<_>> = sequence::rotation(&fabric)
            .map(|step| step.iter().map(|l| (l.from, l.to, l.class)).collect())
            .collect();
        assert_eq!(ours, theirs, "{machine}");
    }
}

#[test]
fn every_activation_lies_in_a_family_of_the_catalogue() {
    let mut slots = TreeSpec::pcie_2x2x2();
    (slots.modes.trunk, slots.modes.cross) = (Mode::Slots(2), Mode::Slots(2));
    for spec in [
        TreeSpec::pcie_2x2(),
        TreeSpec::pcie_2x4(),
        TreeSpec::pcie_2x2x2(),
        slots,
        TreeSpec::pcie_2x2().cluster(3),
    ] {
        let fabric = Fabric::new(&spec).expect("a machine");
        let catalogue = Catalogue::build(&fabric, false, Vec::new()).expect("a catalogue");
        for (selector, mut planner, ways) in planners(&spec) {
            for number in 0..6 {
                let demand = Demand::skewed(number, planner.ranks(), 30_000_000).expect("a demand");
                for &strategy in ways.iter().filter(|way| matches!(way, Strategy::Peel | Strategy::Pack)) {
                    let plan = planner.plan_by(&demand, strategy).expect("ranks agree");
                    for (k, chunks) in plan.activations().enumerate() {
                        let lane = |chunk: &Chunk| sequence::Lane {
                            from: chunk.from.into(),
                            to: chunk.to.into(),
                            class: chunk.path as u8,
                        };
                        let lanes: Vec<_> = chunks.iter().map(lane).collect();
                        assert_eq!(
                            catalogue.admits(&fabric, &lanes),
                            Ok(()),
                            "demand {number}, {selector}, {strategy}, activation {k}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn families_are_refused_where_there_are_none_and_never_replaced() {
    let family = Effort {
        selector: Selector::Family,
        ..Effort::FULL
    };
    let fabric = |spec: &TreeSpec| Fabric::new(spec).expect("a machine");
    let catalogue = |fabric: &Fabric| Catalogue::build(fabric, false, Vec::new()).expect("a catalogue");
    let (one, several) = (fabric(&TreeSpec::pcie_2x2()), fabric(&TreeSpec::pcie_2x2().cluster(2)));
    let demand = Demand::make(Kind::Zipf(0.6), 4, 64_000_000, 1).expect("a demand");
    let mut planner = Planner::new(&one).with_effort(family);
    let none = Refused::Selector(FamilyFault::NoCatalogue);
    assert_eq!(planner.plan(&demand).expect_err("is refused"), none);
    assert_eq!(planner.plan_by(&demand, Strategy::Peel).expect_err("is refused"), none);
    assert_eq!(planner.plan_cached(&demand).expect_err("is refused"), none);
    assert_eq!(planner.begin(&demand).expect_err("is refused"), none);
    assert!(none.to_string().contains("`Planner::with_catalogue`"));
    let refused = |planner: Planner, fabric: &Fabric, catalogue: &Catalogue| {
        planner.with_catalogue(fabric, catalogue).expect_err("is refused")
    };
    let other = fabric(&TreeSpec::pcie_2x4());
    for (fault, made_for, fabric, of) in [
        (FamilyFault::Machine, &one, &one, &other),
        (FamilyFault::Machine, &one, &other, &other),
        (FamilyFault::Nodes(2), &several, &several, &several),
        (FamilyFault::Alone, &one, &one, &several),
    ] {
        assert_eq!(refused(Planner::new(made_for), fabric, &catalogue(of)), fault);
    }
    let planner = planner.with_catalogue(&one, &catalogue(&one));
    let mut planner = planner.expect("its own catalogue");
    planner.plan_by(&demand, Strategy::Peel).expect("it has families");
    assert_eq!(planner.check(&demand), Ok(()));
}

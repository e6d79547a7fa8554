//! Recorded demand profiles: their sequences are exact for any demand, lie in the catalogue, and serve what is like them.

use std::collections::BTreeMap;

use topoforge_planner::alltoallv::base::{recorded, scaled};
use topoforge_planner::alltoallv::{
    Catalogue, Chunk, Demand, Fabric, Kind, Lane, Machine, Planner, Profile, Sequences, Strategy, TreeSpec,
};

fn demand(kind: Kind, ranks: usize, bytes: u64, seed: u64) -> Demand {
    Demand::make(kind, ranks, bytes, seed).expect("a demand")
}

/// A machine with a profile of each kind: an order of each rank's own, hot ranks, and one that lacks pairs.
fn machine(spec: TreeSpec) -> Machine {
    let ranks = spec.node_ranks();
    let kinds = [
        ("own-order", Kind::Zipf(0.8)),
        ("hot", Kind::Hot(0.9)),
        ("few", Kind::Sparse(0.5)),
    ];
    let profile = |(name, kind)| Profile::new(name, &demand(kind, ranks, 7 << 20, 11)).expect("a profile");
    Machine {
        spec,
        any_nodes: true,
        profiles: kinds.into_iter().map(profile).collect(),
    }
}

fn machines() -> Vec<Machine> {
    let specs = [TreeSpec::pcie_2x2(), TreeSpec::pcie_2x4(), TreeSpec::pcie_2x2x2()];
    specs.into_iter().map(machine).collect()
}

fn node(machine: &Machine) -> Fabric {
    machine.fabric(Some(1)).expect("a node")
}

fn knowing(machine: &Machine, sequences: &Sequences) -> Planner {
    let planner = Planner::new(&node(machine)).with_sequences(sequences);
    planner.expect("the machine's own sequences")
}

/// Each pair of a demand times a factor of its own, from `low` to `high` percent.
fn jittered(of: &Demand, scale: u64, (low, high): (u64, u64)) -> Demand {
    let mut seed = 5_u64;
    let mut vary = |bytes: &u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        bytes * scale * (low + (seed >> 33) % (high - low + 1)) / 100
    };
    let bytes = of.bytes().iter().map(&mut vary).collect();
    Demand::new(of.ranks(), bytes).expect("a demand")
}

#[test]
fn sequences_of_profiles_lie_in_the_catalogue_and_carry_every_byte_of_any_demand() {
    for machine in machines() {
        let (fabric, sequences) = (node(&machine), recorded(&machine));
        let names: Vec<&str> = sequences.profiles.iter().map(|r| r.profile.name()).collect();
        assert_eq!(names, ["own-order", "hot", "few"]);
        let catalogue = Catalogue::of_machine(&machine, sequences.clone()).expect("every step lies in a family");
        assert!(catalogue.to_bytes().len() <= 64 << 10);
        let admits = |lanes: Vec<Lane>| assert_eq!(catalogue.admits(&fabric, &lanes), Ok(()), "{lanes:?}");
        let ranks = fabric.ranks();
        for alone in &sequences.profiles {
            let one = Sequences {
                uniform: Vec::new(),
                profiles: vec![alone.clone()],
            };
            let mut planner = knowing(&machine, &one);
            for seed in 0..4 {
                for (kind, bytes) in [
                    (Kind::Uniform, 1 << 20),
                    (Kind::Zipf(0.8), 12_345_678),
                    (Kind::Hot(0.4), 77),
                    (Kind::Sparse(0.4), 999),
                    (Kind::Random, 1 << 33),
                ] {
                    let demand = demand(kind, ranks, bytes, seed);
                    let name = alone.profile.name();
                    planner.plan_by(&demand, Strategy::Base).expect("ranks agree");
                    assert_eq!(planner.check(&demand), Ok(()), "{name}, {kind}");
                    assert_eq!(planner.sequence(), Some(name));
                    for chunks in planner.last().activations() {
                        let lane = |chunk: &Chunk| Lane {
                            from: chunk.from.into(),
                            to: chunk.to.into(),
                            class: chunk.path as u8,
                        };
                        admits(chunks.iter().map(lane).collect());
                    }
                    let mut carried: BTreeMap<(u32, u32), u64> = BTreeMap::new();
                    for step in scaled(&alone.steps, &demand) {
                        for (lane, bytes) in &step {
                            *carried.entry((lane.from, lane.to)).or_default() += bytes;
                        }
                        admits(step.into_iter().map(|(lane, _)| lane).collect());
                    }
                    for (pair, &bytes) in demand.bytes().iter().enumerate() {
                        let ends = ((pair / ranks) as u32, (pair % ranks) as u32);
                        assert_eq!(
                            carried.get(&ends).copied().unwrap_or(0),
                            bytes,
                            "{name}, {kind}, {ends:?}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn a_demand_like_a_profile_is_served_by_its_sequence_and_no_slower_than_a_peeled_plan() {
    for machine in machines() {
        let sequences = recorded(&machine);
        let mut planner = knowing(&machine, &sequences);
        for profile in &machine.profiles {
            let name = profile.name();
            // From about as many bytes as it was planned for to many times as many, to the byte.
            let made_for = (planner.ranks() as u64 * (planner.ranks() as u64 - 1)) << 23;
            for times in [1, 4, 32] {
                let scale = (made_for / profile.demand().total()).max(1) * times;
                let same = jittered(profile.demand(), scale, (100, 100));
                planner.plan(&same).expect("ranks agree");
                assert_eq!((planner.sequence(), planner.check(&same)), (Some(name), Ok(())));
                let served = planner.predict();
                assert_eq!(served.strategy, Strategy::Base);
                planner.plan_by(&same, Strategy::Peel).expect("ranks agree");
                assert_eq!(planner.sequence(), None, "a peeled plan is of no sequence");
                let peeled = planner.predict().hand_off_ns;
                assert!(
                    served.hand_off_ns <= peeled * 1.005,
                    "{name} x {times}, {} ranks: {} ns, peeled {peeled}",
                    planner.ranks(),
                    served.hand_off_ns
                );
            }
        }
    }
}

#[test]
fn nothing_is_planned_within_a_tenth_and_beyond_a_sequence_serves_only_where_it_is_faster() {
    let machine = machine(TreeSpec::pcie_2x2x2());
    let sequences = recorded(&machine);
    let (mut plain, mut planner) = (Planner::new(&node(&machine)), knowing(&machine, &sequences));
    for profile in &machine.profiles {
        let near = jittered(profile.demand(), 8, (100, 109));
        planner.begin(&near).expect("ranks agree");
        assert_eq!(planner.sequence(), Some(profile.name()), "begun without planning");
        let far = jittered(profile.demand(), 8, (100, 150));
        planner.begin(&far).expect("ranks agree");
        assert_eq!(planner.sequence(), None, "{} is planned", profile.name());
        plain.plan(&far).expect("ranks agree");
        planner.plan(&far).expect("ranks agree");
        assert_eq!(planner.check(&far), Ok(()));
        assert!(planner.predict().hand_off_ns <= plain.predict().hand_off_ns);
    }
    // A byte where the profile has none is carried, and has the demand looked at.
    let few = &machine.profiles[2];
    let pair = (0..64).find(|pair| pair / 8 != pair % 8 && few.demand().bytes()[*pair] == 0);
    let pair = pair.expect("it lacks pairs");
    let more = |extra: u64| {
        let mut bytes = jittered(few.demand(), 8, (100, 100)).bytes().to_vec();
        bytes[pair] = extra;
        Demand::new(8, bytes).expect("a demand")
    };
    let total = more(0).total();
    for (extra, may_serve) in [(1, true), (total / 20, true), (total / 5, false)] {
        let demand = more(extra);
        planner.begin(&demand).expect("ranks agree");
        assert_eq!(planner.sequence(), None, "{extra} bytes more are planned");
        planner.plan(&demand).expect("ranks agree");
        plain.plan(&demand).expect("ranks agree");
        assert_eq!(planner.check(&demand), Ok(()));
        assert!(planner.predict().hand_off_ns <= plain.predict().hand_off_ns);
        assert!(
            may_serve || planner.sequence().is_none(),
            "a fifth more is another demand"
        );
    }
}

#[test]
fn every_rank_takes_the_same_sequence_whatever_it_planned_before() {
    let machine = machine(TreeSpec::pcie_2x4());
    let sequences = recorded(&machine);
    // One of the two reads it from a catalogue.
    let bytes = Catalogue::of_machine(&machine, sequences.clone())
        .expect("fits")
        .to_bytes();
    let read = Catalogue::parse(&bytes).expect("reads").sequences;
    let (mut one, mut other) = (knowing(&machine, &sequences), knowing(&machine, &read));
    for profile in &machine.profiles {
        for high in [104, 130, 190] {
            let demand = jittered(profile.demand(), 5, (100, high));
            other
                .plan(&jittered(profile.demand(), 3, (50, 200)))
                .expect("ranks agree");
            one.plan(&demand).expect("ranks agree");
            other.plan(&demand).expect("ranks agree");
            assert_eq!(one.last().hash(), other.last().hash(), "{}, {high}", profile.name());
            assert_eq!(one.sequence(), other.sequence());
        }
    }
}

#[test]
fn equal_pairs_are_served_as_before_and_foreign_profiles_are_refused() {
    let machine = machine(TreeSpec::pcie_2x2x2());
    let sequences = recorded(&machine);
    let mut planner = knowing(&machine, &sequences);
    planner
        .plan(&demand(Kind::Uniform, 8, 64 << 20, 1))
        .expect("ranks agree");
    assert_eq!(planner.sequence(), Some("uniform"));
    let without = Machine {
        profiles: Vec::new(),
        ..machine.clone()
    };
    assert_eq!(
        recorded(&without).uniform,
        sequences.uniform,
        "profiles change nothing else"
    );
    let other = TreeSpec::pcie_2x2();
    let fabric = Fabric::new(&other).expect("a node");
    let refused = Planner::new(&fabric).with_sequences(&Sequences {
        uniform: Vec::new(),
        profiles: sequences.profiles.clone(),
    });
    let words = refused.expect_err("eight ranks").to_string();
    assert_eq!(words, "profile own-order is for 8 ranks, the machine has 4");
    let mut short = sequences;
    short.profiles[1].steps.truncate(3);
    let refused = Planner::new(&node(&machine)).with_sequences(&short);
    assert!(refused.expect_err("steps are missing").to_string().starts_with("hot: "));
}

#[test]
fn few_plans_are_made_for_each_sequence() {
    // What a build takes grows with these, and each profile costs as much as equal pairs.
    assert_eq!(
        (
            topoforge_planner::alltoallv::base::plans(8),
            topoforge_planner::alltoallv::base::plans(16)
        ),
        (6, 3)
    );
}

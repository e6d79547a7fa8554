//! The simulator against what can be computed by hand, against plans' own predictions, and its baselines' bytes.

use topoforge_planner::alltoallv::simulate::{Law, Traffic, simulate, svg};
use topoforge_planner::alltoallv::{Baseline, Demand, Fabric, Kind, Planner, Strategy, TreeSpec};

fn fabric(spec: &TreeSpec) -> Fabric {
    Fabric::new(spec).expect("a machine")
}

fn close(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() < 1e-4
}

#[test]
fn a_plan_takes_as_long_as_predicted_under_the_law_it_was_made_for() {
    for spec in [
        TreeSpec::pcie_2x2(),
        TreeSpec::pcie_2x2x2(),
        TreeSpec::pcie_2x2x2().cluster(2),
        TreeSpec::crossbar(8, 400_000),
    ] {
        let fabric = fabric(&spec);
        let mut planner = Planner::new(&fabric);
        for kind in [Kind::Uniform, Kind::Zipf(0.7), Kind::Hot(0.5), Kind::Sparse(0.5)] {
            let demand = Demand::make(kind, planner.ranks(), 20_000_000, 3).expect("a demand");
            for strategy in [Strategy::Peel, Strategy::Pack, Strategy::Rotation, Strategy::Fluid] {
                if (strategy == Strategy::Fluid) != fabric.is_fluid() {
                    continue;
                }
                planner.plan_by(&demand, strategy).expect("ranks agree");
                let predicted = planner.predict().hand_off_ns;
                let traffic = Traffic::of_plan(&fabric, planner.last(), strategy != Strategy::Fluid);
                let simulated = simulate(&fabric, &traffic, Law::Serial, None).total_ns;
                assert!(
                    close(simulated, predicted),
                    "{kind} {strategy}: {simulated} {predicted}"
                );
                // Lanes of a plan never meet, so it does not matter how they would share.
                if !fabric.is_fluid() {
                    for law in [Law::Fluid, Law::Lossy(0.6)] {
                        let shared = simulate(&fabric, &traffic, law, None).total_ns;
                        assert!(
                            close(shared, simulated),
                            "{kind} {strategy} {law}: {shared} {simulated}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn two_lanes_that_meet_wait_or_share_or_lose() {
    let mut spec = TreeSpec::pcie_2x2();
    (spec.alpha_ns, spec.nic_in_node) = (0, false);
    let fabric = fabric(&spec);
    // Both from below one switch to the other: one uplink of 52 GB/s.
    let mut bytes = vec![0; 16];
    (bytes[2], bytes[4 + 3]) = (52_000_000, 52_000_000);
    let demand = Demand::new(4, bytes).expect("a demand");
    let traffic = Baseline::AllAtOnce.traffic(&fabric, &demand);
    let time = |law| simulate(&fabric, &traffic, law, None).total_ns;
    assert!(close(time(Law::Serial), 2e6), "{}", time(Law::Serial));
    assert!(close(time(Law::Fluid), 2e6), "{}", time(Law::Fluid));
    assert!(close(time(Law::Lossy(0.8)), 2.5e6), "{}", time(Law::Lossy(0.8)));
}

#[test]
fn laws_are_ordered_and_bounds_hold_for_every_baseline() {
    for spec in [TreeSpec::pcie_2x2x2(), TreeSpec::pcie_2x2().cluster(3)] {
        let fabric = fabric(&spec);
        let planner = Planner::new(&fabric);
        for kind in [Kind::Uniform, Kind::Zipf(0.7), Kind::Sparse(0.5)] {
            let demand = Demand::make(kind, planner.ranks(), 8_000_000, 3).expect("a demand");
            let bound = planner.bound(&demand).load_ns;
            for baseline in Baseline::ALL {
                let traffic = baseline.traffic(&fabric, &demand);
                let time = |law| simulate(&fabric, &traffic, law, None).total_ns;
                let (fluid, lossy) = (time(Law::Fluid), time(Law::Lossy(0.85)));
                let place = format!("{kind} {}: {fluid} {lossy} {bound}", baseline.name());
                assert!(fluid <= lossy * 1.001 && lossy <= fluid / 0.85 * 1.05, "{place}");
                // A slow lane leaves the rest of a shared resource to others: the bound is of machines where it holds it.
                // Forwarding moves bytes twice, so no two-level exchange is faster than the bound on direct paths here.
                assert!(time(Law::Serial) * 1.000_1 >= bound, "{place}");
            }
        }
    }
}

#[test]
fn baselines_deliver_every_byte() {
    let fabric = fabric(&TreeSpec::pcie_2x2().cluster(2));
    let demand = Demand::make(Kind::Zipf(0.7), 8, 1_000_000, 3).expect("a demand");
    let moved = |baseline: Baseline| simulate(&fabric, &baseline.traffic(&fabric, &demand), Law::Fluid, None).moved;
    let total = demand.total() as f64;
    for baseline in [Baseline::FixedPeers, Baseline::AdaptivePaths, Baseline::AllAtOnce] {
        assert_eq!(moved(baseline), total, "{}", baseline.name());
    }
    // Bytes for the other node move once more unless they arrive where they are wanted.
    let twice: u64 = (0..64)
        .filter(|p| p / 8 / 4 != p % 8 / 4 && p / 8 % 4 != p % 8 % 4)
        .map(|p| demand.bytes()[p])
        .sum();
    assert_eq!(moved(Baseline::RailForward), total + twice as f64);
    assert_eq!(moved(Baseline::RailForwardStaged), total + twice as f64);
    let outside: u64 = (0..64)
        .filter(|p| p / 8 / 4 != p % 8 / 4)
        .map(|p| demand.bytes()[p])
        .sum();
    let redistributed = total + 0.75 * outside as f64;
    for baseline in [Baseline::Balance, Baseline::BalanceStaged] {
        let moved = moved(baseline);
        assert!(
            moved >= redistributed - 100.0 && moved <= redistributed + outside as f64,
            "{moved} {redistributed}"
        );
    }
}

#[test]
fn no_baseline_beats_planning_where_links_are_exclusive() {
    let fabric = fabric(&TreeSpec::pcie_2x2x2());
    let mut planner = Planner::new(&fabric);
    let mut worse = 0.0;
    // Each rank has its own order of destinations: with one hot receiver for all, nothing is much slower than the best.
    for number in [1, 3, 5, 7, 9, 11] {
        let demand = Demand::skewed(number, 8, 64_000_000).expect("a demand");
        planner.plan(&demand).expect("ranks agree");
        let ours = planner.predict().hand_off_ns;
        for baseline in Baseline::ALL.into_iter().filter(|b| !b.needs_nodes()) {
            let traffic = baseline.traffic(&fabric, &demand);
            let theirs = simulate(&fabric, &traffic, Law::Serial, None).total_ns;
            // Everything at once pays for no hand-over; with one hot receiver it is as good.
            assert!(
                theirs > 0.99 * ours,
                "demand {number}, {}: {theirs} {ours}",
                baseline.name()
            );
            if baseline == Baseline::FixedPeers {
                worse += theirs / ours / 6.0;
            }
        }
    }
    assert!(worse >= 1.8, "fixed peers and paths: {worse:.2} times as long");
}

#[test]
fn the_picture_shows_resources_and_their_load() {
    let fabric = fabric(&TreeSpec::pcie_2x2());
    let demand = Demand::make(Kind::Uniform, 4, 1_000_000, 1).expect("a demand");
    let traffic = Baseline::AllAtOnce.traffic(&fabric, &demand);
    let outcome = simulate(&fabric, &traffic, Law::Fluid, Some(50));
    let usage = outcome.usage.expect("asked for");
    for (r, busy) in usage.busy.iter().enumerate() {
        assert!(busy.iter().all(|b| (0.0..1.001).contains(b)), "resource {r}: {busy:?}");
    }
    let picture = svg(&fabric, "uniform <1 MB>", &[("all at once".into(), &usage)]);
    assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n"));
    assert!(picture.contains("uniform &lt;1 MB>") && picture.contains("uplink of switch 0"));
    assert!(picture.matches("<rect").count() > 20);
}

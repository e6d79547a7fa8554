//! Peeling without exchanges, with one duration and with two, as machines of many ranks are peeled: the same invariants, and
//! plans nearly as good as with all the work.

use topoforge_planner::alltoallv::{Demand, Effort, Fabric, Kind, Mode, Nics, Planner, Strategy, TreeSpec};

/// Machines of more than 64 resources: with NICs for two, for four, for one rank; fluid, with slots, uneven, of a single path.
fn machines() -> Vec<(&'static str, TreeSpec)> {
    let mut own = TreeSpec::pcie_2x2().cluster(9);
    own.sockets.iter_mut().flatten().for_each(|s| s.nics = Nics::PerGpu);
    let mut fluid = TreeSpec::pcie_2x2().cluster(9);
    fluid.modes.nic = Mode::Fluid;
    let mut slots = TreeSpec::pcie_2x2x2().cluster(4);
    slots.modes.nic = Mode::Slots(2);
    let mut uneven = TreeSpec::tree(1, 2, 3).cluster(9);
    uneven.sockets[0][1].gpus = 1;
    let mut bare = TreeSpec::pcie_2x2x2().cluster(5);
    bare.sockets[1][0].nics = Nics::None;
    let mut forward = TreeSpec::pcie_2x2x2().cluster(3);
    forward.forward = true;
    vec![
        ("2x2x2", TreeSpec::pcie_2x2x2().cluster(4)),
        ("2x4", TreeSpec::pcie_2x4().cluster(5)),
        ("a NIC each", own),
        ("fluid NICs", fluid),
        ("two slots a NIC", slots),
        ("uneven switches", uneven),
        ("a switch without NIC", bare),
        ("forwarding", forward),
        ("crossbars", TreeSpec::crossbar(8, 400_000).cluster(5)),
    ]
}

fn demands(n: usize) -> Vec<Demand> {
    let matrix = |f: &dyn Fn(usize, usize) -> u64| {
        let bytes = (0..n * n).map(|at| f(at / n, at % n)).collect();
        Demand::new(n, bytes).expect("a demand")
    };
    let made = |kind, bytes| Demand::make(kind, n, bytes, 7).expect("a demand");
    vec![
        Demand::zero(n),
        matrix(&|i, j| if i == 1 { 1_000_003 * (j as u64 + 1) } else { 0 }),
        matrix(&|i, j| if j == n - 1 { 999_999 + i as u64 } else { 0 }),
        matrix(&|i, j| if j == (i + 1) % n { 5_000_001 } else { 0 }),
        matrix(&|i, j| 1 << ((7 * i + 3 * j) % 41)),
        matrix(&|_, _| 1 << 48),
        matrix(&|_, _| 17),
        made(Kind::Zipf(0.8), 30_000_017),
        made(Kind::Hot(0.6), 30_000_017),
        made(Kind::Sparse(0.9), 3_000_017),
    ]
}

#[test]
fn quick_plans_keep_every_invariant() {
    for (machine, spec) in machines() {
        for effort in [Effort::cheap(64), Effort::CHEAP] {
            let mut planner = Planner::new(&Fabric::new(&spec).expect("a machine")).with_effort(effort);
            for (number, demand) in demands(planner.ranks()).iter().enumerate() {
                planner.plan_by(demand, Strategy::Peel).expect("ranks agree");
                assert_eq!(planner.check(demand), Ok(()), "{machine}, demand {number}");
                let hash = planner.last().hash();
                planner.plan_by(demand, Strategy::Peel).expect("ranks agree");
                assert_eq!(planner.last().hash(), hash, "{machine}, demand {number} again");
            }
        }
    }
}

#[test]
fn quick_plans_are_nearly_as_short_as_those_with_all_the_work() {
    for (machine, spec) in machines() {
        let fabric = Fabric::new(&spec).expect("a machine");
        let time = |effort| {
            let mut planner = Planner::new(&fabric).with_effort(effort);
            let all = (1..4).map(|number| {
                let demand = Demand::skewed(number, planner.ranks(), 256_000_000).expect("a demand");
                planner.plan_by(&demand, Strategy::Peel).expect("ranks agree");
                planner.predict().barrier_ns
            });
            all.sum::<f64>()
        };
        let full = time(Effort::FULL);
        for effort in [Effort::cheap(64), Effort::CHEAP] {
            let quick = time(effort);
            assert!(quick < 1.06 * full, "{machine}: {quick} against {full}");
        }
    }
}

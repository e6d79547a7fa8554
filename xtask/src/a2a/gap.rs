//! Gaps of plans: to the optimum that a solver proves for four ranks, to the lower bound for more.
//!
//! Start at [`run`].

use super::channels::{MOST_RESOURCES, channels_of};
use super::solver;
use crate::failure::{Done, Failure};
use topoforge_planner::alltoallv::{Demand, Effort, Fabric, Planner, Strategy, TreeSpec};

/// Average and largest of a figure.
#[derive(Default)]
struct Figures {
    sum: f64,
    most: f64,
    count: u32,
}

impl Figures {
    fn add(&mut self, figure: f64) {
        self.sum += figure;
        self.most = self.most.max(figure);
        self.count += 1;
    }

    fn percent(&self) -> String {
        format!(
            "{:.3} / {:.2}",
            100.0 * self.sum / f64::from(self.count.max(1)),
            100.0 * self.most
        )
    }

    fn mean(&self) -> f64 {
        self.sum / f64::from(self.count.max(1))
    }
}

/// A machine planned with more work than by default.
const THOROUGH: &str = "2x4, best of six";

/// Prints both tables.
pub fn run() -> Done {
    println!(
        "Gaps in %, average / largest. `barrier`: with a barrier before each activation, to the load bound and alpha times"
    );
    println!(
        "the fewest activations. `hand-off`: resources handed from lane to lane, to its own bound. Load bounds are optima of"
    );
    println!("linear programs; `LP differs` says by how much the solver's own differ, over the first instances.\n");
    println!(
        "| ranks | machine | MB a rank | instances | barrier | durations | hand-off | activations (fewest) | LP differs |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let node = TreeSpec::pcie_2x2x2;
    for megabytes in [256, 64] {
        for (machine, spec, instances, checked) in [
            ("2x2", TreeSpec::pcie_2x2(), 50, 10),
            ("2x4", TreeSpec::pcie_2x4(), 50, 10),
            (THOROUGH, TreeSpec::pcie_2x4(), 50, 0),
            ("2x2x2", node(), 50, 10),
            ("2 of 2x2x2", node().cluster(2), 50, 4),
            ("4 of 2x2x2", node().cluster(4), 20, 1),
            ("8 of 2x2x2", node().cluster(8), 5, 0),
        ] {
            bounds(machine, &spec, megabytes, instances, checked)?;
        }
    }
    println!(
        "\nFour ranks (2x2), 50 skewed demands: the best schedule with barriers there can be, proved by the solver.\n"
    );
    println!("| MB a rank | proved | gap to the optimum | optimum over its lower bound |\n|---|---|---|---|");
    for megabytes in [256, 64] {
        optima(megabytes)?;
    }
    Ok(())
}

fn bounds(machine: &str, spec: &TreeSpec, megabytes: u64, instances: u64, checked: u64) -> Done {
    let fabric = fabric(spec)?;
    let mut planner = Planner::new(&fabric);
    if machine == THOROUGH {
        planner = planner.with_effort(Effort::THOROUGH);
    }
    let (mut barrier, mut duration, mut hand_off) = (Figures::default(), Figures::default(), Figures::default());
    let (mut activations, mut fewest, mut differs) = (Figures::default(), Figures::default(), 0.0f64);
    for number in 0..instances {
        let demand = demand(number, planner.ranks(), megabytes)?;
        planner
            .plan_by(&demand, Strategy::Peel)
            .map_err(|e| Failure::new(e.to_string()))?;
        planner.check(&demand).map_err(|e| Failure::new(e.to_string()))?;
        let (predicted, bound, count) = (planner.predict(), planner.bound(&demand), planner.last().len() as f64);
        barrier.add(predicted.barrier_ns / bound.barrier_ns - 1.0);
        hand_off.add(predicted.hand_off_ns / bound.hand_off_ns - 1.0);
        duration.add((predicted.barrier_ns - count * f64::from(fabric.alpha_ns())) / bound.load_ns - 1.0);
        activations.add(count);
        fewest.add(bound.activations as f64);
        if number < checked {
            let other = solver::load_bound(&fabric, &demand).map_err(|e| Failure::new(format!("the solver: {e}")))?;
            differs = differs.max((other / bound.load_ns - 1.0).abs());
        }
    }
    let differs = if checked > 0 {
        format!("{differs:.0e}")
    } else {
        "-".into()
    };
    println!(
        "| {} | {machine} | {megabytes} | {instances} | {} | {} | {} | {:.1} ({:.1}) | {differs} |",
        planner.ranks(),
        barrier.percent(),
        duration.percent(),
        hand_off.percent(),
        activations.mean(),
        fewest.mean()
    );
    Ok(())
}

fn optima(megabytes: u64) -> Done {
    let fabric = fabric(&TreeSpec::pcie_2x2())?;
    if fabric.resources() > MOST_RESOURCES {
        return Err(Failure::new("too many resources to search all channels"));
    }
    let mut planner = Planner::new(&fabric);
    let (mut ours, mut above) = (Figures::default(), Figures::default());
    for number in 0..50 {
        let demand = demand(number, planner.ranks(), megabytes)?;
        planner
            .plan_by(&demand, Strategy::Peel)
            .map_err(|e| Failure::new(e.to_string()))?;
        let (bytes, channels) = channels_of(&fabric, &demand);
        let optimum = solver::optimum(&bytes, &channels, f64::from(fabric.alpha_ns()));
        let optimum = optimum.map_err(|e| Failure::new(format!("the solver, demand {number}: {e}")))?;
        ours.add(planner.predict().barrier_ns / optimum - 1.0);
        above.add(optimum / planner.bound(&demand).barrier_ns - 1.0);
    }
    println!(
        "| {megabytes} | {} of 50 | {} | {} |",
        ours.count,
        ours.percent(),
        above.percent()
    );
    Ok(())
}

fn fabric(spec: &TreeSpec) -> Done<Fabric> {
    Fabric::new(spec).map_err(|e| Failure::new(e.to_string()))
}

fn demand(number: u64, ranks: usize, megabytes: u64) -> Done<Demand> {
    Demand::skewed(number, ranks, megabytes * 1_000_000).map_err(|e| Failure::new(e.to_string()))
}

//! Gaps of plans: to the optimum that a solver proves for four ranks, to lower bounds for more.
//!
//! Start at [`run`].

use super::channels::{MOST_RESOURCES, channels_of};
use super::{configuration, solver};
use crate::failure::{Done, Failure};
use topoforge_planner::alltoallv::{Demand, Effort, Fabric, Kind, Planner, Strategy, TreeSpec};

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
    println!(
        "\nThe bound over channels, 256 MB a rank. `differs`: largest part by which what is proved differs from the bound over"
    );
    println!(
        "paths; `open`: largest part between what is proved and the optimum over the channels found; `durations`: our plan's"
    );
    println!(
        "over the bound, %; `stopped`: searches that ended before both ends were one, whose proved end still holds.\n"
    );
    println!(
        "| ranks | machine | demands | instances | differs | open | durations | channels | searches, average / most | stopped |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for (machine, spec, skewed) in [
        ("2x4", TreeSpec::pcie_2x4(), 50),
        ("2x2x2", node(), 50),
        ("2 of 2x2x2", node().cluster(2), 20),
    ] {
        for (kind, instances) in [("skewed", skewed), ("random", 10), ("sparse", 10), ("uniform", 1)] {
            configurations(machine, &spec, kind, instances)?;
        }
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

/// Searches for channels after which the bound is given as it is.
const MOST_SEARCHES: usize = 1_000;

/// The bound that knows about channels beside the one that knows of paths only.
fn configurations(machine: &str, spec: &TreeSpec, kind: &str, instances: u64) -> Done {
    let fabric = fabric(spec)?;
    let mut planner = Planner::new(&fabric);
    let (mut differs, mut open, mut durations) = (0.0f64, 0.0f64, Figures::default());
    let (mut columns, mut searches, mut early) = (Figures::default(), Figures::default(), 0);
    for number in 0..instances {
        let demand = match kind {
            "skewed" => demand(number, planner.ranks(), 256)?,
            _ => made(kind, planner.ranks(), number)?,
        };
        let planned = planner.plan_by(&demand, Strategy::Peel);
        let plan = planned.map_err(|e| Failure::new(e.to_string()))?.clone();
        let took = planner.predict().barrier_ns - plan.len() as f64 * f64::from(fabric.alpha_ns());
        let paths = planner.bound(&demand).load_ns;
        let found = configuration::bound(&fabric, &demand, &plan, MOST_SEARCHES);
        let found = found.map_err(|e| Failure::new(format!("the solver, {kind} demand {number}: {e}")))?;
        differs = differs.max((found.at_least_ns / paths - 1.0).abs());
        open = open.max(found.at_most_ns / found.at_least_ns - 1.0);
        durations.add(took / found.at_least_ns - 1.0);
        columns.add(found.columns as f64);
        searches.add(found.priced as f64);
        early += u32::from(!found.closed);
    }
    println!(
        "| {} | {machine} | {kind} | {instances} | {differs:.0e} | {open:.0e} | {} | {:.0} | {:.0} / {:.0} | {early} |",
        planner.ranks(),
        durations.percent(),
        columns.mean(),
        searches.mean(),
        searches.most,
    );
    Ok(())
}

fn fabric(spec: &TreeSpec) -> Done<Fabric> {
    Fabric::new(spec).map_err(|e| Failure::new(e.to_string()))
}

fn demand(number: u64, ranks: usize, megabytes: u64) -> Done<Demand> {
    Demand::skewed(number, ranks, megabytes * 1_000_000).map_err(|e| Failure::new(e.to_string()))
}

fn made(kind: &str, ranks: usize, seed: u64) -> Done<Demand> {
    let kind = Kind::parse(kind).map_err(Failure::new)?;
    Demand::make(kind, ranks, 256_000_000, seed).map_err(|e| Failure::new(e.to_string()))
}

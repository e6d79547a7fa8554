//! Selectors side by side: `cargo bench -p topoforge-planner --bench alltoallv_selectors`.
//!
//! Gaps to the lower bound with barriers and handed on, average / largest in %, of one polished plan each; the time of an
//! activation is that of the shortest of several whole plans without polish, over its activations, averaged over demands.
//! Skewed demands, half hot, half with orders of each rank's own.

use std::time::Instant;
use topoforge_planner::alltoallv::{Catalogue, Demand, Effort, Fabric, Mode, Planner, Selector, Strategy, TreeSpec};

/// Plans that are timed of each demand.
const RUNS: usize = 7;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!(
        "| ranks | machine | MB a rank | demands | selector | barrier | hand-off | activations | us an activation |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let slots = |spec: TreeSpec, trunk: Mode, cross: Mode| {
        let mut spec = spec;
        (spec.modes.trunk, spec.modes.cross) = (trunk, cross);
        spec
    };
    let (two, four, node) = (TreeSpec::pcie_2x2, TreeSpec::pcie_2x4, TreeSpec::pcie_2x2x2);
    let machines = [
        ("2x2", two(), 50),
        ("2x4", four(), 50),
        ("2x2x2", node(), 50),
        ("2x4, 2 slots", slots(four(), Mode::Slots(2), Mode::Slots(2)), 50),
        ("2x2x2, 2 slots", slots(node(), Mode::Slots(2), Mode::Slots(2)), 50),
        ("2 of 2x2x2", node().cluster(2), 20),
        ("4 of 2x2x2", node().cluster(4), 6),
    ];
    let only = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    for megabytes in [64, 256] {
        for (name, spec, demands) in &machines {
            if only.as_ref().is_none_or(|only| name == only) {
                for selector in Selector::ALL {
                    compare(name, spec, megabytes, *demands, selector)?;
                }
            }
        }
    }
    Ok(())
}

fn compare(
    name: &str,
    spec: &TreeSpec,
    megabytes: u64,
    demands: u64,
    selector: Selector,
) -> Result<(), Box<dyn std::error::Error>> {
    let fabric = Fabric::new(spec)?;
    let mut effort = Effort {
        selector,
        tries: 1,
        ..Effort::FULL
    };
    let planner = |effort| -> Result<Planner, Box<dyn std::error::Error>> {
        let planner = Planner::new(&fabric).with_effort(effort);
        if selector != Selector::Family {
            return Ok(planner);
        }
        let catalogue = Catalogue::build(&fabric, false, Vec::new())?;
        Ok(planner.with_catalogue(&fabric, &catalogue)?)
    };
    if selector == Selector::Family && fabric.nodes() > 1 {
        return Ok(());
    }
    let mut polished = planner(effort)?;
    effort.polish = false;
    let mut bare = planner(effort)?;
    let (mut barrier, mut hand_off) = ((0.0, 0.0f64), (0.0, 0.0f64));
    let (mut activations, mut us) = (0, 0.0);
    for number in 0..demands {
        let demand = Demand::skewed(number, fabric.ranks(), megabytes * 1_000_000)?;
        polished.plan_by(&demand, Strategy::Peel)?;
        activations += polished.last().len();
        let (predicted, bound) = (polished.predict(), polished.bound(&demand));
        for (figure, gap) in [
            (&mut barrier, predicted.barrier_ns / bound.barrier_ns - 1.0),
            (&mut hand_off, predicted.hand_off_ns / bound.hand_off_ns - 1.0),
        ] {
            *figure = (figure.0 + gap, figure.1.max(gap));
        }
        let mut least = f64::INFINITY;
        for _ in 0..RUNS {
            let start = Instant::now();
            bare.plan_by(&demand, Strategy::Peel)?;
            least = least.min(start.elapsed().as_secs_f64() * 1e6);
        }
        us += least / bare.last().len().max(1) as f64;
    }
    let of = |sum: f64| sum / demands as f64;
    let percent = |(sum, most): (f64, f64)| format!("{:.3} / {:.2}", 100.0 * of(sum), 100.0 * most);
    println!(
        "| {} | {name} | {megabytes} | {demands} | {selector} | {} | {} | {:.1} | {:.1} |",
        fabric.ranks(),
        percent(barrier),
        percent(hand_off),
        of(activations as f64),
        of(us)
    );
    Ok(())
}

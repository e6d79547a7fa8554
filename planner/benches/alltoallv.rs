//! How long AlltoAllv planning takes: `cargo bench -p topoforge-planner --bench alltoallv`.
//!
//! Each figure is the median of many runs of a whole plan, start-up sweeps of the path plan included, over the number of its
//! activations; the least and the whole plan's time stand beside it. One core; the limits are the project's goals. On a machine
//! with other work: `chrt -f 50 taskset -c 1` before the program.

use std::time::Instant;
use topoforge_planner::alltoallv::{Chunk, Demand, Effort, Fabric, Planner, Strategy, TreeSpec};

struct Row {
    name: &'static str,
    spec: TreeSpec,
    strategy: Strategy,
    effort: Option<Effort>,
    instances: u64,
    runs: u32,
    limit_us: Option<f64>,
}

fn main() {
    println!(
        "| ranks | plan | limit, us an activation | us an activation | least | first activation, us | whole plan, us | activations |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let node = TreeSpec::pcie_2x2x2;
    let row = |name, spec, strategy, effort, instances, runs, limit_us| Row {
        name,
        spec,
        strategy,
        effort,
        instances,
        runs,
        limit_us,
    };
    let swap = Effort {
        polish: false,
        ..Effort::FULL
    };
    use Strategy::{Pack, Peel, Rotation};
    for row in [
        row("peel, cheap", node(), Peel, Some(Effort::cheap(8)), 10, 200, Some(3.0)),
        row("peel with swap", node(), Peel, Some(swap), 10, 200, Some(8.0)),
        row("peel with swap, polished", node(), Peel, None, 10, 200, None),
        row(
            "peel, cheap",
            node().cluster(2),
            Peel,
            Some(Effort::cheap(16)),
            6,
            50,
            None,
        ),
        row("peel, default", node().cluster(2), Peel, None, 6, 50, None),
        row(
            "peel, cheap",
            node().cluster(8),
            Peel,
            Some(Effort::cheap(64)),
            3,
            10,
            Some(20.0),
        ),
        row("peel, default", node().cluster(8), Peel, None, 3, 10, None),
        row(
            "peel, cheap",
            node().cluster(32),
            Peel,
            Some(Effort::cheap(256)),
            1,
            5,
            Some(40.0),
        ),
        row("pack", node().cluster(8), Pack, None, 3, 20, None),
        row("pack", node().cluster(32), Pack, None, 3, 10, Some(8.0)),
        row("pack", node().cluster(128), Pack, None, 1, 4, Some(40.0)),
        row("rotation", node().cluster(32), Rotation, None, 1, 5, None),
        row("rotation", node().cluster(128), Rotation, None, 1, 3, None),
    ] {
        print_row(&row);
    }
    streamed();
}

/// Streamed: what a call waits for planning when each activation is made while those before it are under way.
fn streamed() {
    println!(
        "\nStreamed, with barriers. `waited`: for the first activation and whenever planning is behind sending.\n"
    );
    println!(
        "| ranks | MB a rank | effort | first activation, us | planning, us | waited, us | waited, % | total, us | activations |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (nodes, megabytes) in [(1, 64), (2, 64), (4, 64), (8, 64), (4, 256), (8, 256), (8, 1024)] {
        let ranks = 8 * nodes as usize;
        let two = Effort {
            swap: false,
            ..Effort::FULL
        };
        for (name, effort) in [
            ("full", Effort::FULL),
            ("four durations", two),
            ("two durations", Effort::CHEAP),
            ("cheap", Effort::cheap(ranks)),
        ] {
            stream_row(&TreeSpec::pcie_2x2x2().cluster(nodes), megabytes, name, effort);
        }
    }
}

fn stream_row(spec: &TreeSpec, megabytes: u64, name: &str, effort: Effort) {
    let Ok(fabric) = Fabric::new(spec) else { return };
    let mut planner = Planner::new(&fabric).with_effort(effort);
    let mut sums = [0.0; 5];
    let instances = if fabric.ranks() > 16 { 3 } else { 6 };
    for number in 0..instances {
        let Ok(demand) = Demand::skewed(2 * number + 1, planner.ranks(), megabytes * 1_000_000) else {
            return;
        };
        // The least time that each activation took to make: the same one every time.
        let mut made: Vec<f64> = Vec::new();
        for _ in 0..if fabric.ranks() > 16 { 10 } else { 50 } {
            let mut at = Instant::now();
            let _ = planner.begin(&demand);
            let mut k = 0;
            while planner.advance().is_some() {
                let us = at.elapsed().as_secs_f64() * 1e6;
                if k == made.len() {
                    made.push(us);
                }
                made[k] = made[k].min(us);
                (at, k) = (Instant::now(), k + 1);
            }
        }
        let plan = planner.last();
        let (mut ready, mut end, mut sent) = (0.0, 0.0f64, 0.0);
        for (lanes, made) in plan.activations().zip(&made) {
            let inv_us = |from, to, path| f64::from(fabric.path(from, to, path).inv_fs) * 1e-9;
            let time = |l: &Chunk| l.bytes as f64 * inv_us(l.from.into(), l.to.into(), l.path.into());
            let lasts = f64::from(fabric.alpha_ns()) * 1e-3 + lanes.iter().map(time).fold(0.0, f64::max);
            ready += made;
            end = end.max(ready) + lasts;
            sent += lasts;
        }
        let first = made.first().copied().unwrap_or(0.0);
        for (sum, figure) in sums.iter_mut().zip([first, ready, end - sent, end, plan.len() as f64]) {
            *sum += figure / instances as f64;
        }
    }
    let [first, planning, waited, total, activations] = sums;
    println!(
        "| {} | {megabytes} | {name} | {first:.1} | {planning:.0} | {waited:.1} | {:.2} | {total:.0} | {activations:.0} |",
        fabric.ranks(),
        100.0 * waited / total
    );
}

fn print_row(row: &Row) {
    let Ok(fabric) = Fabric::new(&row.spec) else { return };
    let mut planner = Planner::new(&fabric);
    if let Some(effort) = row.effort {
        planner = planner.with_effort(effort);
    }
    let (mut each, mut least, mut whole, mut first, mut activations) = (0.0, 0.0, 0.0, 0.0, 0);
    for number in 0..row.instances {
        // Odd ones: each rank has its own order of destinations, the harder kind.
        let Ok(demand) = Demand::skewed(2 * number + 1, planner.ranks(), 256_000_000) else {
            return;
        };
        let plan = |planner: &mut Planner| {
            let _ = planner.plan_by(&demand, row.strategy);
        };
        let (middle, best) = times(row.runs, || plan(&mut planner));
        let count = planner.last().len();
        let (begun, _) = times(row.runs, || {
            let _ = planner.begin(&demand);
            planner.advance();
        });
        each += middle / count.max(1) as f64;
        least += best / count.max(1) as f64;
        whole += middle;
        first += begun;
        activations += count;
    }
    let of = |sum: f64| sum / row.instances as f64;
    println!(
        "| {} | {} | {} | {:.2} | {:.2} | {} | {:.0} | {:.0} |",
        planner.ranks(),
        row.name,
        row.limit_us.map_or("-".into(), |limit| format!("{limit}")),
        of(each),
        of(least),
        if row.strategy == Strategy::Peel {
            format!("{:.1}", of(first))
        } else {
            "-".into()
        },
        of(whole),
        activations as f64 / row.instances as f64
    );
}

/// The median and the shortest of so many runs, microseconds.
fn times(runs: u32, mut run: impl FnMut()) -> (f64, f64) {
    let once = |_| {
        let at = Instant::now();
        run();
        at.elapsed().as_secs_f64() * 1e6
    };
    let mut all: Vec<f64> = (0..runs.max(1)).map(once).collect();
    all.sort_by(f64::total_cmp);
    (all[all.len() / 2], all[0])
}

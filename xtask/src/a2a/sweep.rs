//! What plans gain over what others would do, and where they do not: sweeps over demands, sizes and machines.
//!
//! Prints the tables of docs/alltoallv.md. Start at [`sweep`].

use crate::failure::{Done, Failure};
use topoforge_planner::alltoallv::simulate::{Law, Traffic, simulate};
use topoforge_planner::alltoallv::{Baseline, Demand, Fabric, Kind, Planner, Strategy, TreeSpec};

/// One machine with what it takes to compare.
struct Bench {
    fabric: Fabric,
    planner: Planner,
}

/// A demand: its kind, bytes a rank, seed.
type Point = (Kind, u64, u64);

/// A machine with its name and the demands that it is tried with.
type Trial<'a> = (&'a str, TreeSpec, &'a [Point]);

/// Times of one demand under the three laws, nanoseconds.
type Times = [f64; 3];

impl Bench {
    fn new(spec: &TreeSpec) -> Done<Self> {
        let fabric = Fabric::new(spec).map_err(|e| Failure::new(e.to_string()))?;
        Ok(Self {
            planner: Planner::new(&fabric),
            fabric,
        })
    }

    fn demand(&self, kind: Kind, bytes: u64, seed: u64) -> Done<Demand> {
        Demand::make(kind, self.planner.ranks(), bytes, seed).map_err(|e| Failure::new(e.to_string()))
    }

    fn ours(&mut self, demand: &Demand) -> Done<Times> {
        self.planner.plan(demand).map_err(|e| Failure::new(e.to_string()))?;
        self.planner.check(demand).map_err(|e| Failure::new(e.to_string()))?;
        let rounds = self.planner.predict().strategy != Strategy::Fluid;
        Ok(self.times(&Traffic::of_plan(&self.fabric, self.planner.last(), rounds)))
    }

    fn rotation(&mut self, demand: &Demand) -> Done<Times> {
        self.planner
            .plan_by(demand, Strategy::Rotation)
            .map_err(|e| Failure::new(e.to_string()))?;
        Ok(self.times(&Traffic::of_plan(&self.fabric, self.planner.last(), true)))
    }

    fn theirs(&self, baseline: Baseline, demand: &Demand) -> Times {
        self.times(&baseline.traffic(&self.fabric, demand))
    }

    fn times(&self, traffic: &Traffic) -> Times {
        Law::ALL.map(|law| simulate(&self.fabric, traffic, law, None).total_ns)
    }
}

/// Geometric means, extremes, and how often the other was faster.
#[derive(Clone, Copy)]
struct Ratios {
    product: f64,
    least: f64,
    count: u32,
    lost: u32,
}

impl Ratios {
    const NONE: Self = Self {
        product: 0.0,
        least: f64::INFINITY,
        count: 0,
        lost: 0,
    };

    fn add(&mut self, ratio: f64) {
        self.product += ratio.ln();
        self.least = self.least.min(ratio);
        self.count += 1;
        self.lost += u32::from(ratio < 1.0);
    }

    fn cell(&self) -> String {
        let mean = (self.product / f64::from(self.count.max(1))).exp();
        format!("{mean:.2} ({:.2}, {})", self.least, self.lost)
    }
}

/// All tables.
pub fn sweep() -> Done {
    println!(
        "Each cell: how many times as long as our plan, geometric mean (least, number of demands where the other is faster).\n"
    );
    let node = TreeSpec::pcie_2x2x2;
    println!("### 42 random demands\n");
    let mut points: Vec<Point> = Vec::new();
    for megabytes in [1, 4, 8, 16, 64, 128, 256] {
        points.extend((0..3).map(|seed| (Kind::Random, megabytes * 1_000_000, seed)));
    }
    compare(&[
        ("8 (2x2x2)", node(), &points),
        ("16 (2 of 2x2x2)", node().cluster(2), &points),
    ])?;
    println!("\n### Zipf, 64 MB a rank, four seeds each\n");
    for s in [0.4, 0.5, 0.6, 0.7, 0.8] {
        let points: Vec<Point> = (0..4).map(|seed| (Kind::Zipf(s), 64_000_000, seed)).collect();
        println!("s = {s}\n");
        compare(&[
            ("8 (2x2x2)", node(), &points),
            ("16 (2 of 2x2x2)", node().cluster(2), &points),
        ])?;
        println!();
    }
    println!("### Uniform, 80 sizes from 16 KB to 512 MB a rank\n");
    let points: Vec<Point> = (0..20)
        .map(|k| {
            (
                Kind::Uniform,
                (16e3 * f64::powf(32_000.0, f64::from(k) / 19.0)) as u64,
                0,
            )
        })
        .collect();
    compare(&[
        ("4 (2x2)", TreeSpec::pcie_2x2(), &points),
        ("8 (2x4)", TreeSpec::pcie_2x4(), &points),
        ("8 (2x2x2)", node(), &points),
        ("16 (2 of 2x2x2)", node().cluster(2), &points),
    ])?;
    println!("\n### Peers and paths, 64 MB a rank, skewed demands\n");
    ablation()?;
    println!("\n### Scale, 64 MB a rank\n");
    scale()
}

fn compare(machines: &[Trial<'_>]) -> Done {
    println!("| ranks | other | serial | fluid | lossy 0.85 |\n|---|---|---|---|---|");
    for (name, spec, points) in machines {
        let mut bench = Bench::new(spec)?;
        let others: Vec<Baseline> = Baseline::ALL
            .into_iter()
            .filter(|b| spec.nodes > 1 || !b.needs_nodes())
            .collect();
        let mut ratios = vec![[Ratios::NONE; 3]; others.len() + 1];
        for &(kind, bytes, seed) in *points {
            let demand = bench.demand(kind, bytes, seed)?;
            let ours = bench.ours(&demand)?;
            let mut all: Vec<Times> = others.iter().map(|&other| bench.theirs(other, &demand)).collect();
            all.push(bench.rotation(&demand)?);
            for (ratios, theirs) in ratios.iter_mut().zip(&all) {
                for law in 0..3 {
                    ratios[law].add(theirs[law] / ours[law]);
                }
            }
        }
        let names = others.iter().map(|other| other.name()).chain(["rotation"]);
        for (other, ratios) in names.zip(&ratios) {
            println!(
                "| {name} | {other} | {} | {} | {} |",
                ratios[0].cell(),
                ratios[1].cell(),
                ratios[2].cell()
            );
        }
    }
    Ok(())
}

fn ablation() -> Done {
    println!("| ranks | demands | what | serial | fluid | lossy 0.85 |\n|---|---|---|---|---|---|");
    for (nodes, demands) in [(1, 10), (2, 6), (4, 2), (8, 1)] {
        let mut bench = Bench::new(&TreeSpec::pcie_2x2x2().cluster(nodes))?;
        let what = [Baseline::FixedPeers, Baseline::AdaptivePaths, Baseline::AllAtOnce];
        let mut ratios = [[Ratios::NONE; 3]; 3];
        for number in 0..demands {
            let demand = Demand::skewed(2 * number + 1, bench.planner.ranks(), 64_000_000);
            let demand = demand.map_err(|e| Failure::new(e.to_string()))?;
            let ours = bench.ours(&demand)?;
            for (ratios, &other) in ratios.iter_mut().zip(&what) {
                let theirs = bench.theirs(other, &demand);
                (0..3).for_each(|law| ratios[law].add(theirs[law] / ours[law]));
            }
        }
        for (other, ratios) in what.iter().zip(&ratios) {
            let [serial, fluid, lossy] = ratios.map(|r| r.cell());
            println!(
                "| {} | {demands} | {} | {serial} | {fluid} | {lossy} |",
                8 * nodes,
                other.name()
            );
        }
    }
    Ok(())
}

/// To 1,024 ranks: plans are exact under the serial law, where no two lanes meet; others are given their load bound, which
/// no machine beats.
fn scale() -> Done {
    println!(
        "| ranks | demand | plan | activations | ms | over the load bound | rotation | all at once: fluid bound, lossy bound |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for nodes in [1, 2, 4, 8, 16, 32, 64, 128] {
        let mut bench = Bench::new(&TreeSpec::pcie_2x2x2().cluster(nodes))?;
        for kind in [Kind::Uniform, Kind::Random, Kind::Hot(0.6), Kind::Zipf(0.6)] {
            let demand = bench.demand(kind, 64_000_000, 1)?;
            bench.planner.plan(&demand).map_err(|e| Failure::new(e.to_string()))?;
            bench.planner.check(&demand).map_err(|e| Failure::new(e.to_string()))?;
            let (predicted, activations) = (bench.planner.predict(), bench.planner.last().len());
            let bound = bench.planner.bound(&demand).load_ns;
            let ours = predicted.hand_off_ns;
            bench
                .planner
                .plan_by(&demand, Strategy::Rotation)
                .map_err(|e| Failure::new(e.to_string()))?;
            let rotation = bench.planner.predict().hand_off_ns;
            let sharing = default_loads(&bench.fabric, &demand);
            println!(
                "| {} | {kind} | {} | {activations} | {:.2} | +{:.1} % | {:.2}x | {:.2}x, {:.2}x |",
                8 * nodes,
                predicted.strategy,
                ours * 1e-6,
                100.0 * (ours / bound - 1.0),
                rotation / ours,
                sharing / ours,
                sharing / 0.85 / ours
            );
        }
    }
    Ok(())
}

/// The busiest resource when every pair takes its fastest path and lanes share rates without loss, nanoseconds.
fn default_loads(fabric: &Fabric, demand: &Demand) -> f64 {
    let n = demand.ranks();
    let mut loads = vec![0.0f64; fabric.resources()];
    for pair in (0..n * n).filter(|&pair| demand.bytes()[pair] > 0) {
        for &r in fabric.path(pair / n, pair % n, 0).resources() {
            let resource = fabric.resource(r);
            let slots = f64::from(resource.slots().unwrap_or(1));
            loads[r as usize] += demand.bytes()[pair] as f64 * f64::from(resource.inv_fs) * 1e-6 / slots;
        }
    }
    loads.into_iter().fold(0.0, f64::max)
}

//! How long planning takes and how good the plans are: `cargo bench -p topoforge-planner --bench plan -- [FILE.ron [KiB]]`.
//!
//! Without a file it times the machines that have a limit and prints the table that docs/schedules.md keeps; with one
//! it prints what was ranked first.

use std::path::Path;
use std::time::{Duration, Instant};
use topoforge_planner::schedule::bound::Bound;
use topoforge_planner::schedule::cost::Profile;
use topoforge_planner::schedule::{
    EdgePolicy, Edges, PlanOptions, Protocol, Widths, family_options, generate, plan, plan_at,
};
use topoforge_planner::topology::{LinkClass, PcieClass, Topology, parse_descriptor};

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|a| !a.starts_with("--"));
    let Some(file) = arguments.next() else {
        return overview();
    };
    let kib: Option<u64> = arguments.next().and_then(|a| a.parse().ok());
    let Some(topology) = read(Path::new(&file)) else { return };
    let options = PlanOptions::default();
    let search = || match kib {
        Some(kib) => plan_at(&topology, kib << 10, &options),
        None => plan(&topology, &options),
    };
    let found = search();
    let (candidates, verified) = (found.candidates, found.verified);
    println!(
        "{}: {candidates} candidates, {verified} verified, {:?}",
        found.topology,
        least(|| drop(search()))
    );
    for class in &found.classes {
        let (most, ranked) = (class.spec.most_bytes >> 10, class.spec.ranked_at >> 10);
        println!("{} (to {most} KiB, ranked at {ranked} KiB)", class.spec.name);
        for (list, note) in [(&class.shortlist, ""), (&class.baseline, " (baseline)")] {
            for ranked in list {
                let protocol = ranked.protocol.to_string();
                println!(
                    "  {:8.2} us  {protocol:9} {}{note}",
                    ranked.predicted_us, ranked.schedule.name
                );
            }
        }
    }
}

fn read(path: &Path) -> Option<Topology> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|error| eprintln!("{name}: {error}"))
        .ok()?;
    let show = |faults: Vec<_>| faults.iter().for_each(|fault| eprintln!("{fault}"));
    parse_descriptor(&text, &name).map_err(show).ok()
}

fn least(mut run: impl FnMut()) -> Duration {
    let once = |_| {
        let at = Instant::now();
        run();
        at.elapsed()
    };
    (0..5).map(once).min().unwrap_or_default()
}

/// Eight switches of eight GPUs, four to a socket; no rank may enable more than eight peers.
fn sixty_four() -> Topology {
    let all: Vec<usize> = (0..64).collect();
    let mut topology = Topology::new("sixty-four", 64).with_all_pairs(&all, LinkClass::Pcie(PcieClass::Sys));
    for socket in all.chunks(32) {
        topology = topology.with_all_pairs(socket, LinkClass::Pcie(PcieClass::Node));
    }
    for switch in all.chunks(8) {
        topology = topology.with_all_pairs(switch, LinkClass::Pcie(PcieClass::Pix));
    }
    topology.peer_degree_limit = Some(8);
    topology
}

fn overview() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../topologies");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path())
        .collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "ron"));
    files.sort();
    let mut machines: Vec<Topology> = files.iter().filter_map(|f| read(f)).collect();
    machines.sort_by(|a, b| (a.ranks, &a.name).cmp(&(b.ranks, &b.name)));
    println!("| machine | candidates | limit | time to plan |\n|---|---|---|---|");
    let whole = Topology::new("sixty-four-free", 64)
        .with_all_pairs(&(0..64).collect::<Vec<_>>(), LinkClass::Pcie(PcieClass::Pix));
    let timed = machines.iter().cloned().chain([sixty_four(), whole]);
    for topology in timed.filter(|t| t.ranks >= 8) {
        let limit = match topology.ranks {
            8 => "0.3 s",
            16 => "1 s",
            _ => "5 s",
        };
        let options = family_options(&topology, 2);
        let found = plan(&topology, &options);
        let time = least(|| drop(plan(&topology, &options)));
        println!(
            "| {} | {} | {limit} | {:.3} s |",
            topology.name,
            found.candidates,
            time.as_secs_f64()
        );
    }
    println!("\n| machine | KiB | bound | best | over bound | schedule | ring | one-shot | two-shot | doubling |");
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for topology in &machines {
        for kib in [5, 48, 384] {
            row(topology, kib << 10);
        }
    }
}

/// One machine at one payload: microseconds of the best schedule, and how many times as long others take.
fn row(topology: &Topology, bytes: u64) {
    let options = family_options(topology, 2);
    let found = plan_at(topology, bytes, &options);
    let Some(best) = found.classes.first().and_then(|c| c.shortlist.first()) else {
        return;
    };
    let edges = Edges::new(topology, found.policy);
    let bound = Bound::of(&edges).at(bytes);
    let candidates = generate(&edges, options.budget);
    let over = |fits: &dyn Fn(&str) -> bool| {
        let of = candidates.iter().filter(|c| fits(&c.shape));
        let us = of.map(|c| Profile::of(&c.schedule, &edges, Widths::default()).best(bytes).1);
        let least = us.fold(f64::INFINITY, f64::min);
        if least.is_finite() {
            format!("{:.2}x", least / best.predicted_us)
        } else {
            "-".into()
        }
    };
    let doubling = |shape: &str| {
        let factors = shape.strip_prefix("exchange-");
        topology.ranks > 2 && factors.is_some_and(|f| f.split('x').all(|f| f == "2"))
    };
    let host = if found.policy == EdgePolicy::Host {
        " (host)"
    } else {
        ""
    };
    let protocol: Protocol = best.protocol;
    println!(
        "| {}{host} | {} | {bound:.2} | {:.2} | {:.2}x | {} ({protocol}) | {} | {} | {} | {} |",
        topology.name,
        bytes >> 10,
        best.predicted_us,
        best.predicted_us / bound,
        best.schedule.name,
        over(&|s| s.starts_with("ring")),
        over(&|s| s == "one-shot"),
        over(&|s| s == "two-shot"),
        over(&doubling)
    );
}

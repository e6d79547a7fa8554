//! Times a plan of a descriptor and prints what it ranked first: `cargo bench -p topoforge-planner -- FILE.ron [KiB]`.

use std::time::Instant;
use topoforge_planner::schedule::{PlanOptions, plan, plan_at};
use topoforge_planner::topology::parse_descriptor;

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|a| !a.starts_with("--"));
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../topologies/mixed-8.ron");
    let file = arguments.next().unwrap_or_else(|| default.to_owned());
    let kib: Option<u64> = arguments.next().and_then(|a| a.parse().ok());
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) => return eprintln!("{file}: {error}"),
    };
    let topology = match parse_descriptor(&text, &file) {
        Ok(topology) => topology,
        Err(faults) => return faults.iter().for_each(|fault| eprintln!("{fault}")),
    };
    let options = PlanOptions::default();
    let search = || match kib {
        Some(kib) => plan_at(&topology, kib << 10, &options),
        None => plan(&topology, &options),
    };
    let times = (0..10).map(|_| {
        let at = Instant::now();
        std::hint::black_box(search());
        at.elapsed()
    });
    let best = times.min().unwrap_or_default();
    let found = search();
    println!(
        "{}: {} candidates, {} verified, {best:?}",
        found.topology, found.candidates, found.verified
    );
    for class in &found.classes {
        println!(
            "{} (to {} KiB, ranked at {} KiB)",
            class.spec.name,
            class.spec.most_bytes >> 10,
            class.spec.ranked_at >> 10
        );
        for ranked in &class.shortlist {
            println!(
                "  {:8.2} us  {:9} {}",
                ranked.predicted_us,
                ranked.protocol.to_string(),
                ranked.schedule.name
            );
        }
        for ranked in &class.baseline {
            println!(
                "  {:8.2} us  {:9} {} (baseline)",
                ranked.predicted_us,
                ranked.protocol.to_string(),
                ranked.schedule.name
            );
        }
    }
}

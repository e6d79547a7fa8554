//! A program with topology descriptors of its own: its families stand beside topoforge's, are matched, proven and served.
//!
//! It runs on the host executor, so that it needs no GPU; with GPUs, `Communicator::from_streams` takes the same options.

use half::f16;
use std::error::Error;
use topoforge::comm::{Communicator, Options};
use topoforge::matching::match_families;
use topoforge::planner::topology::parse_descriptor;
use topoforge::registry::{FamilySet, Registry};

/// What `build.rs` compiled from this crate's `topologies/`.
static MINE: &FamilySet = topoforge::families!("topologies");

fn main() -> Result<(), Box<dyn Error>> {
    let registry = Registry::builtin().with(MINE);
    println!(
        "{} families, {} of them of this crate",
        registry.families().len(),
        MINE.families.len()
    );

    // The matcher sees both sets: a machine like the lab's gets the family made for it, an NVSwitch pair a built-in one.
    let lab = topoforge::family!(MINE, lab_trio);
    for family in [lab, topoforge::family!(nvswitch_2)] {
        let machine = parse_descriptor(family.descriptor, family.file).map_err(|faults| format!("{faults:?}"))?;
        let found = match_families(&registry, &machine, &Default::default());
        let best = found.first().filter(|m| m.is_feasible()).ok_or("no family fits")?;
        println!("a machine wired as {} gets {}", machine.name, best.family.name);
    }

    // Set-up proves every variant before it serves; each rank is a thread here.
    for family in MINE.families {
        let options = Options {
            registry: registry.clone(),
            ..Options::default()
        };
        let ranks = Communicator::on_host(family.name, &options)?;
        let world = ranks.len();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (ranks.into_iter())
                .map(|rank| {
                    scope.spawn(move || {
                        let mut values = vec![f16::from_f32(1.5); 1000];
                        rank.all_reduce_slice(&mut values).map(|()| values)
                    })
                })
                .collect();
            for thread in threads {
                let values = thread.join().map_err(|_| "a rank panicked")??;
                if values != vec![f16::from_f32(1.5 * world as f32); 1000] {
                    return Err::<(), Box<dyn Error>>("a sum is wrong".into());
                }
            }
            Ok(())
        })?;
        println!("{}: {world} ranks got the sum", family.name);
    }
    Ok(())
}

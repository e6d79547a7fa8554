//! `alltoallv`: what is known, planned and predicted about AlltoAllv on a machine. Nothing here touches a device.
//!
//! One module a verb. Start at [`run`].

mod catalogue;
mod plan;
mod profile;
mod simulate;

use super::plan::target;
use crate::args::{AlltoallvCommand, DemandArgs};
use crate::failure::{Failure, Outcome};
use crate::names;
use crate::report::Output;
use std::path::Path;
use topoforge::planner::alltoallv::{Catalogue, Demand, Fabric, Kind, Machine, Planner, Sequences, base};
use topoforge::registry::Registry;

/// `topoforge alltoallv`
pub fn run(command: &AlltoallvCommand, output: &mut Output) -> Result<Outcome, Failure> {
    match command {
        AlltoallvCommand::Catalogue(args) => catalogue::run(args, output),
        AlltoallvCommand::Plan(args) => plan::run(args, output),
        AlltoallvCommand::Simulate(args) => simulate::run(args, output),
        AlltoallvCommand::Profile(args) => profile::run(args, output),
    }
}

/// The name and the machine of a family or of a descriptor file.
fn machine(name: &str) -> Result<(String, Machine), Failure> {
    let topology = target(name)?;
    match topology.alltoallv {
        Some(machine) => Ok((topology.name, machine)),
        None => Err(Failure::usage(format!(
            "{} states no machine for AlltoAllv: add `alltoallv: Machine(..)` to its descriptor, see docs/adding.md",
            topology.name
        ))),
    }
}

/// A machine with what is to be exchanged on it.
struct Exchange {
    name: String,
    fabric: Fabric,
    demand: Demand,
    /// The demand in words.
    shown: String,
    /// What was recorded for a single node.
    sequences: Sequences,
}

/// A planner that knows what was recorded ahead of time.
fn planner(name: &str, fabric: &Fabric, sequences: &Sequences) -> Result<Planner, Failure> {
    let planner = Planner::new(fabric).with_sequences(sequences);
    planner.map_err(|e| Failure::work(format!("{name}: a recorded sequence does not fit: {e}")))
}

/// The sequences that are compiled in with a family, or planned now for a descriptor's file.
fn recorded(target: &str, name: &str, machine: &Machine, fabric: &Fabric) -> Result<Sequences, Failure> {
    if fabric.nodes() > 1 {
        return Ok(Sequences::default());
    }
    let compiled = match names::is_file(target) {
        true => None,
        false => names::family(&Registry::builtin(), target)?.alltoallv,
    };
    match compiled {
        None => Ok(base::recorded(machine)),
        Some(bytes) => match Catalogue::parse(bytes) {
            Ok(catalogue) => Ok(catalogue.sequences),
            Err(e) => Err(Failure::work(format!("{name}: {e}"))),
        },
    }
}

/// Longest file of a demand: 4,096 ranks with 15 digits for each pair.
const MOST_BYTES: u64 = 4096 * 4096 * 16;

/// What arguments ask for.
fn exchange(args: &DemandArgs) -> Result<Exchange, Failure> {
    let (name, machine) = machine(&args.target)?;
    let fabric = machine
        .fabric(args.nodes)
        .map_err(|e| Failure::usage(format!("{name}: {e}")))?;
    let path = Path::new(&args.demand);
    let kind = Kind::parse(&args.demand);
    let (demand, shown) = match kind {
        Ok(kind) => {
            let demand = Demand::make(kind, fabric.ranks(), args.bytes, args.seed);
            let demand = demand.map_err(|e| Failure::usage(format!("--bytes {}: {e}", args.bytes)))?;
            (
                demand,
                format!("{kind} of {} bytes a rank, seed {}", args.bytes, args.seed),
            )
        }
        Err(why) if !path.exists() => return Err(Failure::usage(format!("--demand {why}"))),
        Err(_) => (read(path)?, args.demand.clone()),
    };
    if demand.ranks() != fabric.ranks() {
        return Err(Failure::usage(format!(
            "{}: the demand is for {} ranks, {name} has {}: give a line and an entry for each rank, or other --nodes",
            args.demand,
            demand.ranks(),
            fabric.ranks()
        )));
    }
    Ok(Exchange {
        sequences: recorded(&args.target, &name, &machine, &fabric)?,
        name,
        fabric,
        demand,
        shown,
    })
}

/// A demand's file.
fn read(path: &Path) -> Result<Demand, Failure> {
    let file = path.display();
    let bytes = names::length(path)?;
    if bytes > MOST_BYTES {
        return Err(Failure::usage(format!(
            "{file} has {bytes} bytes: expected a demand of at most {MOST_BYTES}"
        )));
    }
    let text = std::fs::read_to_string(path).map_err(|e| Failure::usage(format!("cannot read {file}: {e}")))?;
    Demand::parse(&text).map_err(|e| Failure::usage(format!("{file}: {e}")))
}

//! `alltoallv`: what is known, planned and predicted about AlltoAllv on a machine. Nothing here touches a device.
//!
//! One module a verb. Start at [`run`].

mod catalogue;

use super::plan::target;
use crate::args::AlltoallvCommand;
use crate::failure::{Failure, Outcome};
use crate::report::Output;
use topoforge::planner::alltoallv::Machine;

/// `topoforge alltoallv`
pub fn run(command: &AlltoallvCommand, output: &mut Output) -> Result<Outcome, Failure> {
    match command {
        AlltoallvCommand::Catalogue(args) => catalogue::run(args, output),
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

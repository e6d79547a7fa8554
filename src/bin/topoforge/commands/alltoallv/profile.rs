//! `alltoallv profile`: recorded bytes as a profile to paste into a descriptor.
//!
//! It plans nothing: the build does, once the profile stands in the descriptor. Start at [`run`].

use super::read;
use crate::args::ProfileArgs;
use crate::failure::{Failure, Outcome};
use crate::report::Output;
use crate::report::alltoallv::profile::ProfileReport;
use topoforge::planner::alltoallv::Profile;
use topoforge::planner::alltoallv::profile::check_name;

/// `topoforge alltoallv profile`
pub fn run(args: &ProfileArgs, output: &mut Output) -> Result<Outcome, Failure> {
    check_name(&args.name).map_err(|e| Failure::usage(format!("--name: {e}")))?;
    let demand = read(&args.demand)?;
    let profile = Profile::new(&args.name, &demand);
    let profile = profile.map_err(|e| Failure::usage(format!("{}: {e}", args.demand.display())))?;
    let rows = profile.demand().bytes().chunks(demand.ranks());
    output.emit(&ProfileReport {
        name: profile.name().to_owned(),
        ranks: demand.ranks(),
        demand: rows.map(<[u64]>::to_vec).collect(),
        ron: profile.to_ron(""),
    })?;
    Ok(Outcome::Done)
}

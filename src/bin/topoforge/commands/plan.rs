//! `plan`: what the planner finds for a family or a descriptor, with the options that families are compiled with.
//!
//! It measures nothing: figures are predictions. Start at [`run`].

use crate::args::PlanArgs;
use crate::failure::{Failure, Outcome};
use crate::names;
use crate::report::Output;
use crate::report::plans::{PlanLine, PlanReport};
use std::path::Path;
use topoforge::planner::schedule::{
    EdgePolicy, Protocol, Ranked, SizeClass, family_options, plan, plan_at, verify::declared, verify::replicated,
};
use topoforge::registry::{Partials, Registry};

/// `topoforge plan`
pub fn run(args: &PlanArgs, output: &mut Output) -> Result<Outcome, Failure> {
    let topology = if names::is_file(&args.target) {
        names::descriptor(Path::new(&args.target))?
    } else {
        names::topology(names::family(&Registry::builtin(), &args.target)?)?
    };
    let width = match args.partials {
        Partials::F16 => 2,
        Partials::F32 => 4,
    };
    let mut options = family_options(&topology, width);
    let whole = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
    options.budget = args.budget.map_or(options.budget, whole);
    options.shortlist = args.shortlist.map_or(options.shortlist, whole);
    output.show(&format!(
        "planning {} with {} candidates",
        topology.name, options.budget
    ));
    let found = match args.payload {
        Some(bytes) => plan_at(&topology, bytes, &options),
        None => plan(&topology, &options),
    };
    for (name, error) in &found.rejected {
        output.note(&format!("{name} was refused: {error}"));
    }
    let over = match found.policy {
        EdgePolicy::Peer => "peer access",
        EdgePolicy::Host => "host memory",
    };
    let title = format!(
        "{}: {} ranks over {over}, {} partials; {} candidates, {} verified",
        found.topology, topology.ranks, args.partials, found.candidates, found.verified
    );
    let empty = found.is_empty();
    output.emit(&PlanReport {
        topology: found.topology.clone(),
        candidates: found.candidates,
        verified: found.verified,
        shortlist: found.classes.iter().flat_map(lines).collect(),
        title,
    })?;
    if empty {
        return Ok(Outcome::Failed(format!("no schedule serves {}", found.topology)));
    }
    Ok(Outcome::Done)
}

fn lines(class: &SizeClass) -> impl Iterator<Item = PlanLine> {
    class.shortlist.iter().map(|ranked: &Ranked| PlanLine {
        schedule: ranked.schedule.name.clone(),
        expression: (declared(&ranked.schedule).first().and_then(|chunks| chunks.first()))
            .map(ToString::to_string)
            .unwrap_or_default(),
        replicated: replicated(&ranked.schedule),
        stages: ranked.schedule.stages.len(),
        predicted_us: ranked.predicted_us,
        class: class.spec.name.clone(),
        bytes: class.spec.ranked_at,
        protocol: protocol(ranked.protocol).to_owned(),
    })
}

/// The planner's protocols are ideas with a cost; what is compiled has names of its own.
const fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Packet => "packet",
        Protocol::Sentinel => "sentinel",
        Protocol::Flag => "flag",
        Protocol::Pull => "pull",
    }
}

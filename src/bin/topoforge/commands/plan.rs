//! `plan`: what the planner finds for a family or a descriptor, with the options that families are compiled with.
//!
//! It measures nothing: figures are predictions. Start at [`run`].

use crate::args::PlanArgs;
use crate::failure::{Failure, Outcome};
use crate::names;
use crate::report::Output;
use crate::report::plans::{PlanLine, PlanReport};
use std::path::Path;
use topoforge::planner::picture;
use topoforge::planner::schedule::{
    EdgePolicy, Edges, Plan, PlanOptions, Protocol, Ranked, Schedule, SizeClass, family_options, generate, plan,
    plan_at, verify::declared, verify::replicated,
};
use topoforge::planner::topology::Topology;
use topoforge::registry::{Element, Partials, Registry};

/// `topoforge plan`
pub fn run(args: &PlanArgs, output: &mut Output) -> Result<Outcome, Failure> {
    if args.check {
        return super::cuda::check(&args.target, output);
    }
    if let Some(what) = &args.show_cuda {
        return super::cuda::show(&args.target, what, output);
    }
    drawings(args)?;
    let topology = target(&args.target)?;
    let width = match args.partials {
        Partials::Element => 2,
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
    if found.policy == EdgePolicy::Host && topology.links.iter().any(|l| l.class.is_peer()) {
        output.note("peer links do not join all ranks, so every schedule is staged through host memory");
    }
    draw(args, &topology, &found, &options)?;
    let over = match found.policy {
        EdgePolicy::Peer => "peer access",
        EdgePolicy::Host => "host memory",
    };
    let title = format!(
        "{}: {} ranks over {over}, {} partials; {} candidates, {} verified",
        found.topology,
        topology.ranks,
        args.partials.sums(Element::F16),
        found.candidates,
        found.verified
    );
    let empty = found.is_empty();
    output.emit(&PlanReport {
        topology: found.topology.clone(),
        candidates: found.candidates,
        verified: found.verified,
        shortlist: found.classes.iter().flat_map(lines).collect(),
        title,
        unserved: unserved(&topology),
    })?;
    if empty {
        return Ok(Outcome::Failed(unserved(&topology)));
    }
    Ok(Outcome::Done)
}

/// Why a plan is empty, as far as the topology tells.
pub(super) fn unserved(topology: &Topology) -> String {
    let why = if topology.ranks == 1 {
        ": one rank needs no all-reduce"
    } else {
        ""
    };
    format!("no schedule serves {}{why}", topology.name)
}

/// The topology of a family or of a descriptor file.
pub(super) fn target(target: &str) -> Result<Topology, Failure> {
    if names::is_file(target) {
        return names::descriptor(Path::new(target));
    }
    names::topology(names::family(&Registry::builtin(), target)?)
}

/// A schedule by name, shortlisted or not; without a name the plan's best for its largest payloads.
pub(super) fn pick(
    name: Option<&str>,
    topology: &Topology,
    found: &Plan,
    options: &PlanOptions,
) -> Result<Option<Schedule>, Failure> {
    let best = || found.classes.last().and_then(|c| c.shortlist.first());
    let Some(name) = name else {
        return Ok(best().map(|ranked| (*ranked.schedule).clone()));
    };
    let candidates = generate(&Edges::new(topology, found.policy), options.budget);
    let made = candidates.into_iter().find(|c| c.schedule.name == name);
    made.map(|c| Some(c.schedule)).ok_or_else(|| {
        Failure::usage(format!(
            "no schedule `{name}` is made for {}: `topoforge plan` lists the best",
            topology.name
        ))
    })
}

/// Whether what is to be drawn has a place of its own to go to; asked before the planning, which may take long.
fn drawings(args: &PlanArgs) -> Result<(), Failure> {
    if args.draw.is_some() && args.svg.is_none() && args.dot.is_none() {
        return Err(Failure::usage(
            "--draw needs a file to draw into: --svg FILE.svg or --dot FILE.dot",
        ));
    }
    for file in args.svg.iter().chain(&args.dot) {
        names::writable(file)?;
    }
    // Two names of one file, as far as it can be told.
    let same = |file: &Path| file.canonicalize().or_else(|_| std::path::absolute(file)).ok();
    match (&args.svg, &args.dot) {
        (Some(svg), Some(dot)) if svg == dot || (same(svg).is_some() && same(svg) == same(dot)) => Err(Failure::usage(
            format!("--svg and --dot both name {}: name two files", svg.display()),
        )),
        _ => Ok(()),
    }
}

fn draw(args: &PlanArgs, topology: &Topology, found: &Plan, options: &PlanOptions) -> Result<(), Failure> {
    if args.svg.is_none() && args.dot.is_none() {
        return Ok(());
    }
    let schedule = pick(args.draw.as_deref(), topology, found, options)?;
    let write = |file: &Path, text: String| {
        std::fs::write(file, text).map_err(|e| Failure::work(format!("cannot write {}: {e}", file.display())))
    };
    if let Some(file) = &args.svg {
        write(file, picture::svg(topology, schedule.as_ref()))?;
    }
    if let Some(file) = &args.dot {
        write(file, picture::dot(topology, schedule.as_ref()))?;
    }
    Ok(())
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
pub(super) const fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Packet => "packet",
        Protocol::Sentinel => "sentinel",
        Protocol::Packet128 => "packet128",
        Protocol::Flag => "flag",
        Protocol::Pull => "pull",
    }
}

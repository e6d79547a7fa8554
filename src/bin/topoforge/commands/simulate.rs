//! `simulate`: where a call's predicted time goes, stage by stage.
//!
//! It measures nothing: figures are predictions. Start at [`run`].

use super::plan::{pick, protocol, target, unserved};
use crate::args::SimulateArgs;
use crate::failure::{Failure, Outcome};
use crate::report::Output;
use crate::report::simulation::{LoadLine, SimulationReport, StageLine};
use topoforge::planner::schedule::cost::Profile;
use topoforge::planner::schedule::simulate::{Load, simulate};
use topoforge::planner::schedule::{Edges, family_options, plan_at};
use topoforge::registry::Partials;

/// `topoforge simulate`
pub fn run(args: &SimulateArgs, output: &mut Output) -> Result<Outcome, Failure> {
    let topology = target(&args.target)?;
    let width = match args.partials {
        Partials::Element => 2,
        Partials::F32 => 4,
    };
    let options = family_options(&topology, width);
    let found = plan_at(&topology, args.payload, &options);
    let Some(schedule) = pick(args.schedule.as_deref(), &topology, &found, &options)? else {
        return Ok(Outcome::Failed(unserved(&topology)));
    };
    let edges = Edges::new(&topology, found.policy);
    let (best, _) = Profile::of(&schedule, &edges, options.widths).best(args.payload);
    let timeline = simulate(&schedule, &topology, found.policy, options.widths, best, args.payload);
    let load = |load: &Load| LoadLine {
        place: load.place.to_string(),
        bytes: load.bytes,
        busy_us: load.busy_us,
    };
    output.emit(&SimulationReport {
        topology: topology.name.clone(),
        schedule: schedule.name.clone(),
        protocol: protocol(best).to_owned(),
        bytes: args.payload,
        predicted_us: timeline.total_us,
        launch_us: timeline.launch_us,
        stages: (timeline.stages.iter())
            .map(|stage| StageLine {
                begins_us: stage.begins_us,
                ends_us: stage.ends_us,
                transfers: stage.transfers,
                overhead_us: stage.overhead_us,
                latency_us: stage.latency_us,
                busiest: stage.busiest.as_ref().map(load),
            })
            .collect(),
        barriers_us: timeline.barriers_us,
        sums_us: timeline.sums_us,
        most_loaded: timeline.most_loaded.as_ref().map(load),
        text: format!("{} on {}\n\n{timeline}", schedule.name, topology.name),
    })?;
    Ok(Outcome::Done)
}

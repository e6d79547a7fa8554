//! `start`: how long a program waits until it can serve from a stored table.
//!
//! The very start that a program makes, in a process that has done nothing before. Start at [`run`].

use crate::args::StartArgs;
use crate::device::{Place, resolve};
use crate::failure::{Failure, Outcome};
use crate::names::length;
use crate::report::Output;
use crate::report::took::{StartDocument, Took};
use std::time::{Duration, Instant};
use topoforge::comm::{Changed, Communicator, Options, Site};
use topoforge::device::cuda::CudaOptions;
use topoforge::driver::context::Context;
use topoforge::driver::start_up;
use topoforge::qualify::QualifyPlan;
use topoforge::registry::Registry;
use topoforge::routes::{Routes, requalify};

/// `topoforge start`
pub fn run(args: &StartArgs, output: &mut Output) -> Result<Outcome, Failure> {
    // From the beginning: `cuInit`, which is told apart below, comes with the first question to the driver.
    let since = Instant::now();
    length(&args.routes)?;
    let registry = Registry::builtin();
    let place = resolve(Some(&args.device), &registry, |text| output.note(text))?;
    let Place::Cuda { ordinals, .. } = &place else {
        return Err(Failure::usage(
            "--device host: a start is timed on GPUs, e.g. --device cuda:0,1",
        ));
    };
    // Read first: whose routes they are says which family and type are served.
    let identity = Routes::read(&args.routes).map_err(Failure::work)?.identity().clone();
    let family = identity.family;
    let mut streams = Vec::new();
    for ordinal in ordinals {
        let context = Context::new(*ordinal).map_err(Failure::work)?;
        streams.push(
            context
                .cudarc()
                .new_stream()
                .map_err(|e| Failure::work(format!("no stream: {e}")))?,
        );
    }
    let options = Options {
        family: Some(family.clone()),
        elements: vec![identity.element],
        partials: identity.partials,
        nccl: args.nccl,
        routes: Some(args.routes.clone()),
        changed: Changed::Strict,
        ..Options::default()
    };
    let communicators = Communicator::from_streams(&streams, &options).map_err(Failure::work)?;
    let total = since.elapsed();
    let spent = start_up();
    let explain = communicators.first().map(Communicator::explain).unwrap_or_default();
    drop(communicators);
    // The same steps once more, each by itself: the process is warm now, so these are lower bounds.
    let (parts, dropped) = parts(&registry, ordinals, &family, args)?;
    let again: Vec<(&str, Duration)> = parts;
    output.emit(&StartDocument {
        routes_file: args.routes.display().to_string(),
        device: place.name(),
        explain,
        dropped,
        took: Took::of(total, spent, &again),
    })?;
    Ok(Outcome::Done)
}

type Parts = (Vec<(&'static str, Duration)>, Vec<String>);

fn parts(registry: &Registry, ordinals: &[usize], family: &str, args: &StartArgs) -> Result<Parts, Failure> {
    let mut since = Instant::now();
    let mut list = Vec::new();
    let mut lap = |name| {
        list.push((name, since.elapsed()));
        since = Instant::now();
    };
    let mut site = Site::open(registry, ordinals, Some(family), CudaOptions::default()).map_err(Failure::work)?;
    lap("again: probe, match and tools");
    let mut routes = Routes::read(&args.routes).map_err(Failure::work)?;
    lap("again: read");
    let dropped = requalify(&mut site.executor, site.family, &mut routes, &QualifyPlan::quick());
    lap("again: proofs");
    Ok((list, dropped.iter().map(ToString::to_string).collect()))
}

//! `tune`: the fastest proven route for each payload, and the file that serving reads.
//!
//! Measuring and choosing are the library's business. Start at [`run`].

use super::setting::{Setting, comparators, tell};
use crate::args::TuneArgs;
use crate::failure::{Failure, Outcome};
use crate::report::Output;
use crate::report::figures::TuneDocument;
use crate::report::took::Took;
use std::path::Path;
use std::time::Instant;
use topoforge::driver::start_up;
use topoforge::routes::Routes;
use topoforge::tune::{CallTrace, Payloads, StepCalls, TuneReport, project, tune};

/// `topoforge tune`
pub fn run(args: &TuneArgs, output: &mut Output) -> Result<Outcome, Failure> {
    let since = Instant::now();
    let (payloads, calls) = payloads(args)?;
    // The defaults are whole numbers of any element.
    if let Some(payloads) = &payloads {
        args.numbers.check(payloads)?;
    }
    let partials = args.numbers.partials()?;
    let comparators = comparators(&args.comparator)?;
    let mut setting = Setting::open(&args.place, args.family.as_deref(), output)?;
    let opened = since.elapsed();
    let launches = setting.launches(args.launch)?;
    let device = setting.device();
    if let (Some(path), false) = (&args.out, device.timed) {
        return Err(Failure::work(format!(
            "{} is not written: {} is an emulation ({}), its times mean nothing",
            path.display(),
            crate::device::spelled(device),
            if device.kind == "host" {
                "kernels on the CPU"
            } else {
                "ranks share a GPU"
            }
        )));
    }
    let mut options = setting.options(args.place.seed);
    // An emulation's times choose nothing, and large payloads take it long.
    options.payloads = payloads.unwrap_or_else(|| match device.timed {
        true => Payloads::serving(),
        false => Payloads::standard(),
    });
    options.element = args.numbers.dtype;
    options.partials = partials;
    options.launches = launches;
    options.concurrency = args.concurrency.unwrap_or(0);
    options.comparators = comparators;
    let family = setting.family;
    let report = tune(setting.executor(), family, &options, &mut |p| tell(output, p)).map_err(Failure::work)?;
    let spent = start_up();
    let foreign = spent.init + spent.contexts;
    let mut parts = vec![("probe, match and tools", opened.saturating_sub(foreign))];
    parts.extend(report.phases.list().iter().map(|p| (p.name, p.took)));
    let took = Took::of(since.elapsed(), spent, &parts);
    // The figures are worth showing even where the file cannot be written.
    let written = args.out.as_deref().map(|path| write(&setting, &report, path));
    let routes_file = args
        .out
        .as_ref()
        .filter(|_| written == Some(Ok(())))
        .map(|p| p.display().to_string());
    let projection = (calls.as_ref()).zip(args.step_ms).map(|(calls, step)| {
        let found = if report.emulation {
            Err("an emulation's times mean nothing: no projection".to_owned())
        } else {
            project(&report.rows, calls, step)
        };
        (step, found)
    });
    if let Some((_, Err(reason))) = &projection {
        output.warn(reason);
    }
    // Against the wire: only where times mean something, and not on tuning's clock.
    let exec = setting.executor();
    let floor = exec.device().timed.then(|| {
        let floor = exec.floor(options.payloads.bytes(), &options.launches, &options.sampling);
        floor.inspect_err(|e| output.note(&format!("no reference: {e}"))).ok()
    });
    let mut document = TuneDocument::of(&report, floor.flatten().as_ref(), routes_file, took);
    document.project(projection.and_then(|(step, found)| Some((step, found.ok()?))));
    output.emit(&document)?;
    match written {
        Some(Err(reason)) => Ok(Outcome::Failed(reason)),
        _ => Ok(verdict(&report)),
    }
}

/// What is tuned, if that was said, and how often a step calls it where that was said.
fn payloads(args: &TuneArgs) -> Result<(Option<Payloads>, Option<StepCalls>), Failure> {
    let element = args.numbers.dtype;
    let refused = |e: &dyn std::fmt::Display| Failure::usage(e.to_string());
    if let Some(file) = &args.from_trace {
        let trace = CallTrace::read(file).map_err(|e| refused(&e))?;
        let payloads = trace.payloads(element).map_err(|e| refused(&e))?;
        return Ok((Some(payloads), Some(StepCalls::new(&trace.counts(element)))));
    }
    if args.step_ms.is_some() && args.calls.is_none() {
        return Err(Failure::usage(
            "--step-ms: give the collectives of a step too, with --calls 5KiB:128 or --from-trace FILE",
        ));
    }
    let listed = match (&args.payloads, args.hidden) {
        (Some(payloads), _) => Some(payloads.clone()),
        (None, Some(hidden)) => Some(
            Payloads::from_model(hidden, &args.tokens, element)
                .map_err(|e| Failure::usage(format!("--hidden {hidden}: {e}")))?,
        ),
        (None, None) => None,
    };
    let called: Vec<u64> = args
        .calls
        .iter()
        .flat_map(|c| c.list())
        .map(|(bytes, _)| *bytes)
        .collect();
    let payloads = match listed {
        Some(listed) => Some(Payloads::from_bytes(&[listed.bytes(), &called].concat()).map_err(|e| refused(&e))?),
        None if called.is_empty() => None,
        None => Some(Payloads::from_bytes(&called).map_err(|e| refused(&e))?),
    };
    Ok((payloads, args.calls.clone()))
}

fn write(setting: &Setting, report: &TuneReport, path: &Path) -> Result<(), String> {
    let identity = setting
        .identity(report.element, report.partials)
        .ok_or("routes are only for GPUs")?;
    let routes = Routes::from_report(report, identity).map_err(|e| e.to_string())?;
    routes.write(path).map_err(|e| e.to_string())
}

/// An emulation is done when everything was proven; a machine when something is served.
fn verdict(report: &TuneReport) -> Outcome {
    let proven = report.rows.iter().filter(|r| r.route.is_some()).count();
    let selected = report.rows.iter().filter(|r| r.selected).count();
    let of = report.rows.len();
    if proven < of {
        Outcome::Failed(format!(
            "no variant could be proven for {} of {of} payloads",
            of - proven
        ))
    } else if selected == 0 && !report.emulation {
        Outcome::Failed("no payload is served by a compiled route: the comparator stays".to_owned())
    } else {
        Outcome::Done
    }
}

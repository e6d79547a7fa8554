//! `tune`: the fastest proven route for each payload, and the file that serving reads.
//!
//! Measuring and choosing are the library's business. Start at [`run`].

use super::setting::{Setting, tell};
use crate::args::{CompareArg, TuneArgs};
use crate::failure::{Failure, Outcome};
use crate::report::Output;
use crate::report::figures::TuneDocument;
use std::path::Path;
use topoforge::registry::Element;
use topoforge::routes::Routes;
use topoforge::tune::{Payloads, TuneReport, tune};

/// `topoforge tune`
pub fn run(args: &TuneArgs, output: &mut Output) -> Result<Outcome, Failure> {
    let payloads = payloads(args)?;
    let comparator = if args.comparator.is_empty() {
        vec![CompareArg::Nccl, CompareArg::Pull]
    } else {
        args.comparator.clone()
    };
    if comparator.contains(&CompareArg::None) && comparator.iter().any(|c| *c != CompareArg::None) {
        return Err(Failure::usage(
            "--comparator none stands alone: leave out the others or leave out none",
        ));
    }
    let mut setting = Setting::open(&args.place, args.family.as_deref(), output)?;
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
    options.payloads = payloads;
    options.partials = args.partials;
    options.launches = launches;
    options.comparators = comparator.into_iter().map(Into::into).collect();
    let family = setting.family;
    let report = tune(setting.executor(), family, &options, &mut |p| tell(output, p)).map_err(Failure::work)?;
    // The figures are worth showing even where the file cannot be written.
    let written = args.out.as_deref().map(|path| write(&setting, &report, path));
    let routes_file = args
        .out
        .as_ref()
        .filter(|_| written == Some(Ok(())))
        .map(|p| p.display().to_string());
    output.emit(&TuneDocument::of(&report, routes_file))?;
    match written {
        Some(Err(reason)) => Ok(Outcome::Failed(reason)),
        _ => Ok(verdict(&report)),
    }
}

fn payloads(args: &TuneArgs) -> Result<Payloads, Failure> {
    match (&args.payloads, args.hidden) {
        (Some(payloads), _) => Ok(payloads.clone()),
        (None, Some(hidden)) => Payloads::from_model(hidden, &args.tokens, Element::F16)
            .map_err(|e| Failure::usage(format!("--hidden {hidden}: {e}"))),
        (None, None) => Ok(Payloads::standard()),
    }
}

fn write(setting: &Setting, report: &TuneReport, path: &Path) -> Result<(), String> {
    let identity = setting.identity(report.partials).ok_or("routes are only for GPUs")?;
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

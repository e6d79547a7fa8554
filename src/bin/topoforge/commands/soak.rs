//! `soak`: a variant called very often, every word of every call checked.
//!
//! What is right and how it is checked is the library's business. Start at [`run`].

use super::setting::Setting;
use crate::args::{SoakArgs, SoakLaunch};
use crate::failure::{Failure, Outcome};
use crate::report::Output;
use crate::report::soak::{SoakDocument, SoakLine};
use std::time::Instant;
use topoforge::device::{Fault, Launch};
use topoforge::qualify::{SoakPlan, Soaked, soak};
use topoforge::registry::{Partials, Protocol, Variant};
use topoforge::tune::Payloads;

/// Calls of the negative control: enough for both buffers of every column to be used again.
const CONTROL_CALLS: u64 = 8;

/// `topoforge soak`
pub fn run(args: &SoakArgs, output: &mut Output) -> Result<Outcome, Failure> {
    let payloads = args.payloads.clone().unwrap_or_else(Payloads::standard);
    args.numbers.check(&payloads)?;
    let partials = args.numbers.partials()?;
    let mut setting = Setting::open(&args.place, args.family.as_deref(), output)?;
    let variants = chosen(args, partials, &setting, &payloads)?;
    let mut plan = SoakPlan {
        calls: args.calls,
        payloads: payloads.bytes().to_vec(),
        threads: args.threads,
        launch: match args.launch {
            SoakLaunch::Plain => Launch::Plain,
            SoakLaunch::Programmatic => Launch::Programmatic,
            SoakLaunch::Early => Launch::Early,
        },
        seed: args.place.seed,
        fault: None,
    };
    let mut document = SoakDocument::of(setting.device(), setting.family, &payloads, args.place.seed);
    let mut failed = Vec::new();
    for variant in variants {
        let mut seen = None;
        if args.control {
            let control = SoakPlan {
                calls: CONTROL_CALLS,
                fault: Some(Fault::DroppedContribution),
                ..plan.clone()
            };
            let planted = soak(setting.executor(), variant, &control, &mut |_| {});
            seen = Some(matches!(&planted, Ok(soaked) if soaked.tally.wrong > 0));
            match planted {
                Ok(soaked) if soaked.tally.wrong > 0 => {}
                Ok(_) => failed.push(format!(
                    "{}: a contribution was dropped and nothing was seen",
                    variant.name
                )),
                Err(error) => failed.push(format!("{}: with a fault planted: {error}", variant.name)),
            }
        }
        plan.calls = args.calls;
        let since = Instant::now();
        let soaked = soak(setting.executor(), variant, &plan, &mut |tally| {
            output.show(&format!("{}: {} of {} calls", variant.name, tally.calls, args.calls));
        });
        let seconds = since.elapsed().as_secs_f64();
        match soaked {
            Ok(Soaked { tally, on_device }) => {
                if let Some(first) = tally.first {
                    failed.push(format!("{}: {} wrong words, e.g. {first}", variant.name, tally.wrong));
                }
                document
                    .lines
                    .push(SoakLine::of(variant.name, &tally, on_device, seen, seconds));
            }
            Err(error) => failed.push(format!("{}: {error}", variant.name)),
        }
    }
    document.failed.clone_from(&failed);
    output.emit(&document)?;
    Ok(if failed.is_empty() {
        Outcome::Done
    } else {
        Outcome::Failed(failed.join("; "))
    })
}

fn chosen(
    args: &SoakArgs,
    partials: Partials,
    setting: &Setting,
    payloads: &Payloads,
) -> Result<Vec<&'static Variant>, Failure> {
    let family = setting.family;
    let element = args.numbers.dtype;
    let sums = partials.sums(element);
    let fits =
        |v: &&'static Variant| v.element == element && v.partials.contains(&partials) && v.protocol != Protocol::Pull;
    let all: Vec<&'static Variant> = family.variants.iter().filter(fits).collect();
    if all.is_empty() {
        return Err(Failure::usage(format!(
            "family {} has no variants of {element} with {sums} partials in this build: see topoforge version",
            family.name
        )));
    }
    match args.variant.as_deref() {
        Some("all") => Ok(all),
        Some(name) => match all.iter().find(|v| v.name == name) {
            Some(variant) => Ok(vec![variant]),
            None => {
                let names: Vec<&str> = all.iter().map(|v| v.name).collect();
                let family = family.name;
                Err(Failure::usage(format!(
                    "no variant `{name}` of {element} with {sums} partials in {family}: there are {}",
                    names.join(", ")
                )))
            }
        },
        None => {
            let classes = || all.iter().flat_map(|v| v.classes).copied();
            let class = classes()
                .filter(|c| *c >= payloads.max())
                .min()
                .or_else(|| classes().max());
            let first = all.iter().find(|v| class.is_some_and(|c| v.classes.contains(&c)));
            let first = first.or(all.first()).copied();
            Ok(first.into_iter().collect())
        }
    }
}

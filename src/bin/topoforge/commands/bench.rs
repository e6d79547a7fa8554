//! `bench`: every proven variant over a sweep of payloads, without choosing. Start at [`run`].

use super::floor::launch_cost;
use super::groups::{Group, pick};
use super::output_dir::Folder;
use super::setting::{Setting, comparators, tell};
use crate::args::{BenchArgs, Style, Where};
use crate::device::{Choice, Place, resolve};
use crate::failure::{Failure, Outcome};
use crate::names::writable;
use crate::report::chart::{Series, chart};
use crate::report::figures::{BenchDocument, BenchGroups};
use crate::report::nccl_tests::NcclTestsDocument;
use crate::report::{Output, Report};
use serde::Serialize;
use topoforge::device::floor::{Floor, LaunchCost};
use topoforge::device::{Launch, Sampling};
use topoforge::probe::probe;
use topoforge::registry::{Family, Protocol, Registry};
use topoforge::tune::{BenchReport, Payloads, bench, places};

/// `topoforge bench`
pub fn run(args: &BenchArgs, output: &mut Output) -> Result<Outcome, Failure> {
    if args.from > args.to {
        return Err(Failure::usage(format!(
            "--from {} is above --to {}: give the smaller one first",
            args.from, args.to
        )));
    }
    let payloads = Payloads::from_bytes(&sweep(args.from, args.to)).map_err(|e| Failure::usage(e.to_string()))?;
    args.numbers.check(&payloads)?;
    args.numbers.partials()?;
    comparators(&args.comparator)?;
    if let Some(path) = &args.svg {
        writable(path)?;
    }
    let folder = args.output.as_deref().map(Folder::fresh).transpose()?;
    let groups = groups(args, output)?;
    let several = groups.len() > 1;
    let mut done = Vec::new();
    for group in &groups {
        let place = Where {
            device: group.devices().or_else(|| args.place.device.clone()),
            ..args.place.clone()
        };
        let folder = match (&folder, group) {
            (Some(folder), Some(group)) if several => Some(folder.inside(&group.devices)?),
            (folder, _) => folder.clone(),
        };
        let name = group.as_ref().map_or("", |g| g.name.as_str());
        done.push(measure(args, &place, name, &payloads, folder.as_ref(), output)?);
    }
    let drawing = args.svg.as_ref().map(|path| {
        let lines: Vec<Series> = done.iter().flat_map(|d| d.series(several)).collect();
        let title = format!(
            "all-reduce, {}",
            done.iter().map(|d| d.title.as_str()).collect::<Vec<_>>().join("; ")
        );
        (path, chart(&title, &lines))
    });
    let empty = done.iter().all(|d| d.timed == 0);
    let wrong: u64 = done
        .iter()
        .filter_map(|d| d.nccl.as_ref())
        .map(NcclTestsDocument::wrong_words)
        .sum();
    emit(args, done, output)?;
    if let Some((path, text)) = drawing {
        std::fs::write(path, text).map_err(|e| Failure::work(format!("cannot write {}: {e}", path.display())))?;
    }
    Ok(if empty {
        Outcome::Failed("nothing could be timed: see what was left out".to_owned())
    } else if wrong > 0 {
        Outcome::Failed(format!("{wrong} words were not the declared sum"))
    } else {
        Outcome::Done
    })
}

/// What one group gave.
struct Measured {
    title: String,
    report: BenchReport,
    document: BenchDocument,
    nccl: Option<NcclTestsDocument>,
    timed: usize,
}

impl Measured {
    fn series(&self, several: bool) -> Vec<Series> {
        let line = |(column, name): (usize, &String)| Series {
            name: if several {
                format!("{name}, {}", self.title)
            } else {
                name.clone()
            },
            points: (self.report.rows.iter())
                .filter_map(|r| Some((r.bytes, r.figures.get(column).copied().flatten()?.us)))
                .collect(),
            dashed: name.starts_with("nccl") || name.contains("pull/"),
        };
        self.report.columns.iter().enumerate().map(line).collect()
    }
}

fn measure(
    args: &BenchArgs,
    place: &Where,
    group: &str,
    payloads: &Payloads,
    folder: Option<&Folder>,
    output: &mut Output,
) -> Result<Measured, Failure> {
    let mut setting = Setting::open(place, args.family.as_deref(), output)?;
    let launches = setting.launches(args.launch)?;
    let mut options = setting.options(place.seed);
    options.payloads = payloads.clone();
    options.element = args.numbers.dtype;
    options.partials = args.numbers.partials()?;
    options.comparators = comparators(&args.comparator)?;
    options.launches = launches;
    let family = setting.family;
    options.only = only(&args.variant, family)?;
    let report = bench(setting.executor(), family, &options, &mut |p| tell(output, p)).map_err(Failure::work)?;
    let timed = report.rows.iter().flat_map(|r| &r.figures).flatten().count();
    let style = args.style == Style::NcclTests;
    let places = if style || folder.is_some() {
        places(setting.executor(), family, &report, &options.sampling, place.seed).map_err(Failure::work)?
    } else {
        Vec::new()
    };
    let nccl = style.then(|| {
        NcclTestsDocument::of(
            setting.device(),
            family.name,
            args.numbers.dtype,
            &options.sampling,
            &places,
        )
    });
    if let Some(folder) = folder {
        let selections = folder.selections(&mut setting, &options, output)?;
        folder.write(&setting, group, &options.sampling, &places, &selections)?;
    }
    let (floor, costs) = yardsticks(&mut setting, &options.launches, payloads, &options.sampling);
    let mut document = BenchDocument::of(&report, floor.as_ref(), &costs);
    document.group = (!group.is_empty()).then(|| group.to_owned());
    let title = match group {
        "" => format!("{} on {}", family.name, crate::device::spelled(setting.device())),
        group => format!(
            "{} on {} ({group})",
            family.name,
            crate::device::spelled(setting.device())
        ),
    };
    Ok(Measured {
        title,
        report,
        document,
        nccl,
        timed,
    })
}

type Yardsticks = (Option<Floor>, Vec<(Launch, LaunchCost)>);

/// The variants that were named, and peer reads, which are there to be compared with.
fn only(named: &[String], family: &'static Family) -> Result<Option<Vec<&'static str>>, Failure> {
    if named.is_empty() {
        return Ok(None);
    }
    let all = || family.variants.iter();
    if let Some(unknown) = named.iter().find(|n| !all().any(|v| v.name == n.as_str())) {
        let names: Vec<&str> = all().map(|v| v.name).collect();
        return Err(Failure::usage(format!(
            "no variant `{unknown}` in {}: there are {}",
            family.name,
            names.join(", ")
        )));
    }
    let kept = all().filter(|v| v.protocol == Protocol::Pull || named.iter().any(|n| n == v.name));
    Ok(Some(kept.map(|v| v.name).collect()))
}

/// The wire and the host's thread: only where times mean something.
fn yardsticks(setting: &mut Setting, launches: &[Launch], payloads: &Payloads, sampling: &Sampling) -> Yardsticks {
    let family = setting.family;
    let exec = setting.executor();
    if !exec.device().timed {
        return (None, Vec::new());
    }
    let floor = exec.floor(payloads.bytes(), launches, sampling).ok();
    let served = family.variants.iter().find(|v| v.protocol != Protocol::Pull);
    let modes = floor.iter().flat_map(|f| f.nodes.iter().map(|(launch, _)| *launch));
    let costs = modes.filter_map(|launch| {
        let cost = launch_cost(exec, served?, launch, payloads.bytes()[0]).ok()?;
        Some((launch, cost))
    });
    let costs = costs.collect();
    (floor, costs)
}

fn emit(args: &BenchArgs, done: Vec<Measured>, output: &mut Output) -> Result<(), Failure> {
    if args.style == Style::NcclTests {
        return each(done.into_iter().filter_map(|d| d.nccl).collect(), output);
    }
    each(done.into_iter().map(|d| d.document).collect(), output)
}

/// One document as it is, several as a list.
fn each<R: Report + Serialize>(mut documents: Vec<R>, output: &mut Output) -> Result<(), Failure> {
    match documents.pop() {
        Some(only) if documents.is_empty() => output.emit(&only),
        last => {
            documents.extend(last);
            output.emit(&BenchGroups { groups: documents })
        }
    }
}

/// The groups that were asked for; one of no name without any.
fn groups(args: &BenchArgs, output: &mut Output) -> Result<Vec<Option<Group>>, Failure> {
    if args.groups.is_empty() {
        return Ok(vec![None]);
    }
    let place = resolve(args.place.device.as_ref(), &Registry::builtin(), |text| {
        output.note(text)
    })?;
    let Place::Cuda { ordinals, .. } = place else {
        return Err(Failure::usage(
            "--groups: groups are of GPUs, and the host executor has none",
        ));
    };
    if ordinals.len() < 2 {
        return Err(Failure::work("--groups: one GPU is no group, a collective needs two"));
    }
    let live = probe().map_err(Failure::work)?;
    let groups = pick(&live.topology, &ordinals, &args.groups);
    if groups.is_empty() {
        return Err(Failure::work(
            "--groups pairs: no two of these GPUs are linked in a way that is known",
        ));
    }
    Ok(groups.into_iter().map(Some).collect())
}

/// Where a group's GPUs are named.
trait Devices {
    fn devices(&self) -> Option<Choice>;
}

impl Devices for Option<Group> {
    fn devices(&self) -> Option<Choice> {
        self.as_ref().map(|g| Choice::Cuda(g.devices.clone()))
    }
}

/// Both ends, the powers of two between them, and the sizes that decode steps have.
fn sweep(from: u64, to: u64) -> Vec<u64> {
    let powers = (1..=30).map(|p| 1_u64 << p);
    let mut sizes: Vec<u64> = powers.chain(Payloads::standard().bytes().iter().copied()).collect();
    sizes.retain(|b| (from..=to).contains(b));
    sizes.extend([from, to]);
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_has_both_ends_powers_of_two_and_the_odd_ones() {
        let kib = |list: &[u64]| list.iter().map(|k| k << 10).collect::<Vec<_>>();
        assert_eq!(sweep(1 << 10, 64 << 10), kib(&[1, 2, 4, 5, 8, 10, 16, 25, 32, 40, 64]));
        assert_eq!(sweep(1030, 1030), [1030]);
        assert_eq!(sweep(2, 6), [2, 4, 6]);
    }
}

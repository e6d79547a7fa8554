//! Sets communicators up: place, read or tune routes, prove, prepare, hand a part to every rank.
//!
//! Everything that can fail, fails here; nothing is decided after it. Start at [`cuda`].

use super::cuda::{CudaPart, Parts, Serving};
use super::dispatch::{Dispatch, Range};
use super::{Changed, CommError, Communicator, Options, Part, Site, UseNccl};
use super::{invariant, memory, tables, unmatched};
use crate::device::cuda::CudaOptions;
use crate::device::{DeviceError, Executor, Launch, Preparation, Prepared};
use crate::doctor::switches::Switches;
use crate::driver::nccl::Communicators;
use crate::qualify::QualifyPlan;
use crate::registry::{Element, Family, Variant};
use crate::routes::{Routes, RoutesError, Served, requalify};
use crate::tune::{Compare, TuneOptions, TuneReport, tune};
use cudarc::driver::CudaStream;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

pub(super) fn cuda(streams: &[Arc<CudaStream>], options: &Options) -> Result<Vec<Communicator>, CommError> {
    options.check()?;
    if streams.is_empty() {
        let reason = "no stream was given: give one a rank".to_owned();
        return Err(CommError::Misuse { reason });
    }
    let devices: Vec<usize> = streams.iter().map(|s| s.context().ordinal()).collect();
    let cuda_options = CudaOptions {
        deadline: options.deadline,
        ..CudaOptions::default()
    };
    let site = match Site::open(&options.registry, &devices, options.family.as_deref(), cuda_options) {
        Err(CommError::NoFamily { reasons }) if unmatched::allowed(options) => {
            return unmatched::streams(streams, options, &reasons);
        }
        site => site?,
    };
    if site.placement.len() != streams.len() {
        return Err(CommError::Misuse {
            reason: format!(
                "family {} has {} ranks, but {} streams were given",
                site.family.name,
                site.placement.len(),
                streams.len()
            ),
        });
    }
    let tables = tables::read(options)?;
    let streams: Vec<_> = streams.iter().enumerate().collect();
    let nccl = |_: &Site| Ok(wanted_nccl(options, || Communicators::new(&devices)));
    serve(site, &streams, options, nccl, tables)
}

/// NCCL to fall back on, or why there is none.
pub(super) type Fallback = Result<Arc<Communicators>, Arc<str>>;

pub(super) fn wanted_nccl(options: &Options, make: impl FnOnce() -> Result<Communicators, DeviceError>) -> Fallback {
    if options.comparators.contains(&Compare::Nccl) {
        make().map(Arc::new).map_err(|e| e.to_string().into())
    } else {
        Err("it was not among the comparators asked for".into())
    }
}

/// The communicators of this process's `streams`, each with the rank that it plays. `tables` are those of the types asked
/// for, in their order; `join` makes NCCL, on all ranks alike.
pub(super) fn serve(
    mut site: Site,
    streams: &[(usize, &Arc<CudaStream>)],
    options: &Options,
    join: impl FnOnce(&Site) -> Result<Fallback, CommError>,
    tables: Vec<Option<Routes>>,
) -> Result<Vec<Communicator>, CommError> {
    are_compiled(&site, options)?;
    let mut join = Some(join);
    let mut nccl = None;
    if options.nccl == UseNccl::AtStart {
        // NCCL and its buffers before anything of ours can spin.
        nccl = join.take().map(|join| join(&site)).transpose()?;
    }
    let (mut all, mut notes) = (Vec::new(), Vec::new());
    for (element, table) in options.elements.iter().zip(tables) {
        let (routes, said) = routes(&mut site, *element, options, table)?;
        let about = |note| match options.elements.len() {
            1 => note,
            _ => format!("{element}: {note}"),
        };
        notes.extend(said.into_iter().map(about));
        all.push(routes);
        // What measuring left behind goes before the next one, and serving, ask for their own.
        site.executor.trim()?;
    }
    notes.extend(fit(&mut all, site.family, options.scratch_limit));
    if options.batch_invariant {
        for routes in &all {
            keeps_one_expression(routes, site.family)?;
        }
    }
    site.agree_on(&all)?;
    let nccl = match (nccl, join) {
        (Some(made), _) => made,
        // Nothing of ours runs: proofs have ended on all ranks.
        (None, Some(join)) if all.iter().any(leaves_some) => join(&site)?,
        _ => Err("no range of the tables is NCCL's, and Options::nccl wants it for nothing else".into()),
    };
    let nccl = &nccl;
    let ranges: Vec<Range> = all.iter().flat_map(ranges).collect();
    let serving = prepare(&mut site, &all)?;
    let summary: Arc<str> = {
        notes.insert(
            0,
            format!(
                "family {} ({}), placement {:?}",
                site.family.name, site.fit, site.placement
            ),
        );
        if let Err(why) = nccl {
            notes.push(format!("no NCCL to fall back on: {why}"));
        }
        if let Some((way, device, host)) = site.executor.sharing() {
            let (device, host) = (device >> 10, host >> 10);
            notes.push(format!(
                "a process a rank, memory shared by {way}: {device} KiB of the GPU, {host} KiB of the host"
            ));
        }
        notes.join("\n").into()
    };
    let dead = Arc::new(AtomicBool::new(false));
    let placement: Arc<[usize]> = site.placement.clone().into();
    let seen = site.executor.seen();
    // NCCL's kernels wait for ever for a rank whose process is gone.
    let aborts = nccl.as_ref().ok().and_then(|nccl| {
        let nccl = nccl.clone();
        site.executor.on_loss(move || nccl.abort())
    });
    let aborts = Arc::new(aborts);
    let executor = Arc::new(Mutex::new(site.executor));
    let mut communicators = Vec::new();
    for (here, (rank, stream)) in streams.iter().enumerate() {
        let rank = *rank;
        // Which of the family's ranks plays on this stream.
        let family_rank = placement.iter().position(|p| *p == rank).unwrap_or(rank);
        let parts = {
            let executor = executor.lock().unwrap_or_else(|e| e.into_inner());
            let mut parts = Vec::new();
            for (served, route) in serving.iter().zip(all.iter().flat_map(Routes::routes)) {
                let Some(id) = served else {
                    parts.push(None);
                    continue;
                };
                let Served::Variant { geometry, .. } = route.served else {
                    parts.push(None);
                    continue;
                };
                let kernel = executor.served(*id, family_rank, &placement)?;
                parts.push(Some(Serving { kernel, geometry }));
            }
            parts
        };
        let dispatch = Dispatch::new(ranges.clone()).with_one_expression(options.batch_invariant);
        let parts = Parts {
            stream: (*stream).clone(),
            ranges: parts,
            nccl: nccl
                .clone()
                .and_then(|all| all.rank(here).cloned().ok_or("no such rank".into())),
            dead: dead.clone(),
            traced: options.trace.is_some(),
            alone: false,
            seen: seen.clone(),
            keep: Box::new((executor.clone(), aborts.clone())),
        };
        communicators.push(Communicator {
            rank,
            world: placement.len(),
            part: Part::Cuda(Box::new(CudaPart::new(parts, &dispatch)?)),
            dispatch,
            summary: summary.clone(),
            trace: options.trace.clone(),
        });
    }
    Ok(communicators)
}

/// Refuses a type that no kernel of the family sums.
fn are_compiled(site: &Site, options: &Options) -> Result<(), CommError> {
    let has = |element: &Element| {
        let mut variants = site.family.variants.iter();
        variants.any(|v| v.element == *element && v.partials.contains(&options.partials.as_compiled(*element)))
    };
    options.elements.iter().find(|e| !has(e)).map_or(Ok(()), |element| {
        let reason = format!(
            "family {} has no kernels for {element} whose sums are {} in this build: build with the feature `{element}`, \
             or take it out of Options::elements (TOPOFORGE_ELEMENT)",
            site.family.name,
            options.partials.sums(*element)
        );
        Err(CommError::Misuse { reason })
    })
}

/// Whether a table leaves sizes to the comparator.
fn leaves_some(routes: &Routes) -> bool {
    let mut served = routes.routes().iter().map(|r| &r.served);
    routes.routes().is_empty() || served.any(|s| *s == Served::Comparator)
}

/// The table of one type that serves, and what there is to say about it.
fn routes(
    site: &mut Site,
    element: Element,
    options: &Options,
    table: Option<Routes>,
) -> Result<(Routes, Vec<String>), CommError> {
    let mut notes = Vec::new();
    let partials = options.partials.as_compiled(element);
    let here = site.identity_of(element, partials);
    let path = options.routes.as_ref();
    let path = path.map(|path| tables::path_of(path, element, &options.elements));
    if Switches::here().off {
        notes.push("TOPOFORGE is off: the comparator serves everything".to_owned());
        return Ok((Routes::empty(here), notes));
    }
    if let (Some(mut read), Some(path)) = (table, &path) {
        let mut differences = read.identity().differences(&here);
        if options.batch_invariant
            && let Err(error) = invariant::check(site.family, &ranges(&read), partials)
        {
            differences.push(error.to_string());
        }
        if differences.is_empty() {
            let dropped = requalify(&mut site.executor, site.family, &mut read, &QualifyPlan::quick());
            if options.strict && !dropped.is_empty() {
                return Err(CommError::Refused {
                    reasons: dropped.iter().map(ToString::to_string).collect(),
                });
            }
            notes.push(format!("routes read from {} and proven again", path.display()));
            notes.extend(dropped.iter().map(ToString::to_string));
            return Ok((read, notes));
        }
        match options.changed {
            Changed::Strict => return Err(CommError::ChangedIdentity { differences }),
            Changed::Comparator => {
                notes.push(format!(
                    "the comparator serves everything, since {}",
                    differences.join("; ")
                ));
                return Ok((Routes::empty(here), notes));
            }
            Changed::Retune => notes.push(format!("tuned again, since {}", differences.join("; "))),
        }
    }
    let tuning = TuneOptions {
        payloads: options.payloads.clone(),
        element,
        partials,
        memory: site.memory(),
        comparators: options.comparators.clone(),
        launches: if options.programmatic {
            Launch::ALL.to_vec()
        } else {
            vec![Launch::Plain]
        },
        ..TuneOptions::default()
    };
    let report = if options.batch_invariant {
        tune_one_expression(site, &tuning, &mut notes)?
    } else {
        tune(&mut site.executor, site.family, &tuning, &mut |_| {})?
    };
    notes.extend(report.left_out.iter().map(ToString::to_string));
    let made = match Routes::from_report(&report, here.clone()) {
        Ok(routes) => routes,
        Err(RoutesError::Emulation { device }) => {
            notes.push(format!(
                "{device}: several ranks share a GPU, so times mean nothing; every proven route is taken"
            ));
            return Ok((Routes::untimed(&report, here), notes));
        }
        Err(e) => return Err(e.into()),
    };
    if let Some(path) = path.filter(|_| site.writes) {
        made.write(&path)?;
        notes.push(format!("routes written to {}", path.display()));
    }
    Ok((made, notes))
}

/// Tunes each group of variants that compute one expression by itself, without a comparator, since none promises an order
/// of sums; takes the group that is the fastest over all payloads together.
fn tune_one_expression(
    site: &mut Site,
    tuning: &TuneOptions,
    notes: &mut Vec<String>,
) -> Result<TuneReport, CommError> {
    let here = site.family.variants.iter().filter(|v| v.memory == tuning.memory);
    let mut best: Option<(f64, TuneReport)> = None;
    for group in invariant::groups(here, tuning.element, tuning.partials) {
        let tuning = TuneOptions {
            only: Some(group.variants.iter().map(|v| v.name).collect()),
            comparators: vec![Compare::None],
            ..tuning.clone()
        };
        let mut report = tune(&mut site.executor, site.family, &tuning, &mut |_| {})?;
        let times: Vec<f64> = report
            .rows
            .iter()
            .filter(|r| r.route.is_some())
            .filter_map(|r| r.us)
            .collect();
        if times.len() < report.rows.len() {
            notes.push(format!("{}: not every size has a proven route", group.expression));
            continue;
        }
        let score: f64 = times.iter().map(|us| us.ln()).sum();
        for row in &mut report.rows {
            row.reason = format!("one expression for all sizes: {}", group.expression);
        }
        notes.push(format!(
            "{}: {:.2} us a call (geometric mean over {} sizes)",
            group.expression,
            (score / times.len() as f64).exp(),
            times.len()
        ));
        if best.as_ref().is_none_or(|(known, _)| score < *known) {
            best = Some((score, report));
        }
    }
    best.map(|(_, report)| report).ok_or_else(|| CommError::Refused {
        reasons: vec![format!(
            "batch_invariant: no expression of family {} has proven routes for every size; {}",
            site.family.name,
            notes.join("; ")
        )],
    })
}

/// Serving must not leave the expression, whatever policies and limits did to the table.
fn keeps_one_expression(routes: &Routes, family: &'static Family) -> Result<(), CommError> {
    let ranges = ranges(routes);
    let served: Vec<Range> = ranges.iter().filter(|r| r.variant.is_some()).cloned().collect();
    if served.is_empty() {
        return Err(CommError::Refused {
            reasons: vec![
                "batch_invariant: nothing but the comparator would serve, which promises no order of sums".to_owned(),
            ],
        });
    }
    invariant::check(family, &served, routes.identity().partials)
}

/// Hands sizes to the comparator until scratch fits, and says what is left.
fn fit(tables: &mut [Routes], family: &'static Family, limit: u64) -> Vec<String> {
    let listed = |tables: &[Routes]| tables.iter().flat_map(ranges).collect::<Vec<Range>>();
    let all = listed(tables);
    let beyond = memory::beyond(family, &all, limit);
    if let Some(smallest) = beyond.iter().map(|(_, up_to)| up_to).min() {
        let needed = memory::scratch(family, &all);
        for (element, up_to) in &beyond {
            if let Some(routes) = tables.iter_mut().find(|t| t.identity().element == *element) {
                routes.hand_over(
                    *up_to,
                    &format!("its scratch would exceed scratch_limit, {limit} bytes a rank: all routes need {needed}"),
                );
            }
        }
        return vec![
            said(memory::scratch(family, &listed(tables)), limit),
            format!(
                "sizes from {smallest} bytes on would take {needed} bytes of scratch: raise scratch_limit to have them"
            ),
        ];
    }
    vec![said(memory::scratch(family, &all), limit)]
}

fn said(scratch: u64, limit: u64) -> String {
    format!(
        "scratch: {} KiB a rank for these routes, of at most {} KiB",
        scratch.div_ceil(1024),
        limit / 1024
    )
}

fn ranges(routes: &Routes) -> Vec<Range> {
    let range = |route: &crate::routes::Route| {
        let (variant, geometry) = match &route.served {
            Served::Variant { name, geometry } => (Some(name.clone()), Some(*geometry)),
            Served::Comparator => (None, None),
        };
        Range {
            element: routes.identity().element,
            up_to: route.up_to,
            variant,
            geometry,
            reason: route.reason.clone(),
        }
    };
    routes.routes().iter().map(range).collect()
}

/// Scratch for every variant and thread count that serves, sized by the largest payload it serves.
fn prepare(site: &mut Site, tables: &[Routes]) -> Result<Vec<Option<Prepared>>, CommError> {
    let routes = || tables.iter().flat_map(Routes::routes);
    let mut sizes: BTreeMap<(&str, u32), u64> = BTreeMap::new();
    let named = |route: &'_ crate::routes::Route| match &route.served {
        Served::Variant { name, geometry } => Some((name.clone(), geometry.threads)),
        Served::Comparator => None,
    };
    let keys: Vec<Option<(String, u32)>> = routes().map(named).collect();
    for (key, route) in keys.iter().zip(routes()) {
        if let Some((name, threads)) = key {
            let most = sizes.entry((name, *threads)).or_default();
            *most = route.up_to.max(*most);
        }
    }
    let mut prepared = BTreeMap::new();
    for ((name, threads), max_bytes) in sizes {
        let variant: &'static Variant =
            site.family
                .variants
                .iter()
                .find(|v| v.name == name)
                .ok_or_else(|| CommError::Misuse {
                    reason: format!("route {name} is not compiled in for family {}", site.family.name),
                })?;
        let preparation = Preparation {
            max_bytes,
            threads,
            fault: None,
        };
        prepared.insert(
            (name.to_owned(), threads),
            site.executor.prepare(variant, &preparation)?,
        );
    }
    Ok(keys
        .into_iter()
        .map(|k| k.and_then(|k| prepared.get(&k).copied()))
        .collect())
}

#[cfg(feature = "host-executor")]
pub(super) fn host(family: &str, options: &Options) -> Result<Vec<Communicator>, CommError> {
    options.check()?;
    let family = options.registry.family(family).ok_or_else(|| CommError::NoFamily {
        reasons: vec![format!(
            "{family}: not in this build, `topoforge families` lists what is"
        )],
    })?;
    let ranks = family.variants.first().map_or(0, |v| v.ranks.len());
    let (ranges, parts) = super::host::start(family, ranks, options)?;
    let scratch = memory::scratch(family, &ranges);
    let summary = format!(
        "family {} on the host executor: emulation\n{}",
        family.name,
        said(scratch, options.scratch_limit)
    );
    let summary: Arc<str> = summary.into();
    let communicator = |(rank, part)| Communicator {
        rank,
        world: ranks,
        dispatch: Dispatch::new(ranges.clone()).with_one_expression(options.batch_invariant),
        summary: summary.clone(),
        trace: options.trace.clone(),
        part: Part::Host(part),
    };
    Ok(parts.into_iter().enumerate().map(communicator).collect())
}

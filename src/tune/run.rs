//! Tuning: for each payload the fastest proven variant with its geometry, against the fastest comparator.
//!
//! Two coarse rounds find geometries, an interleaved last round decides, and the winner is proven once more in exactly
//! the payload and geometry in which it would serve. Start at [`tune`].

use super::geometry::{neighbours, scouts, threads};
use super::options::{Compare, Progress, TuneError, TuneOptions};
use super::pool::{Entry, Listener, Pool, Who};
use super::report::{ComparatorTime, Loaded, Row, TuneReport};
use super::select::{MARGIN, Verdict, judge};
use crate::device::{Executor, Geometry, Launch};
use crate::qualify::{QualifyPlan, Refusal, qualify};
use crate::registry::Family;
use std::time::Instant;

/// Tunes `family` on `exec`. Reports everything, selected or not; writes nothing.
///
/// # Errors
/// The request cannot be met, or the device fails whatever is run. A single variant that fails is left out instead.
pub fn tune(
    exec: &mut dyn Executor,
    family: &'static Family,
    options: &TuneOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<TuneReport, TuneError> {
    let device = exec.device().clone();
    let mut pool = Pool::open(exec, family, options, true, progress)?;
    let mut rows = Vec::new();
    let of = options.payloads.bytes().len();
    for (done, &bytes) in options.payloads.bytes().iter().enumerate() {
        let row = tune_payload(&mut pool, bytes, options, (done, of), progress)?;
        progress(Progress::Decided(Box::new(row.clone())));
        rows.push(row);
    }
    Ok(TuneReport {
        family: family.name.to_owned(),
        emulation: !device.timed,
        device,
        element: options.element,
        partials: options.partials,
        memory: options.memory,
        sampling: options.sampling,
        rows,
        left_out: std::mem::take(&mut pool.left_out),
        phases: std::mem::take(&mut pool.phases),
    })
}

fn tune_payload(
    pool: &mut Pool<'_>,
    bytes: u64,
    options: &TuneOptions,
    (done, of): (usize, usize),
    progress: Listener<'_>,
) -> Result<Row, TuneError> {
    let (entries, coarse) = search(pool, bytes, options, (done, of), progress)?;
    let candidates = entries.len();
    let mut entries = finalists(pool, &entries, &coarse, options.finalists.max(1));
    entries.extend(pool.other_entries());
    let since = Instant::now();
    let medians = pool.time(&entries, bytes, &options.sampling, progress)?;
    pool.phases.add("last rounds", since.elapsed());

    let (mut comparators, mut opponents) = (Vec::new(), Vec::new());
    let mut routes = Vec::new();
    for (entry, us) in entries.iter().zip(medians) {
        let Some(us) = us else { continue };
        let name = pool.name(entry.who).to_owned();
        match entry.who {
            Who::Other(_) => {
                opponents.push(*entry);
                comparators.push(ComparatorTime {
                    name,
                    us,
                    requested: true,
                });
            }
            Who::Variant(index) if pool.is_pull(index) => {
                let requested = options.comparators.contains(&Compare::Pull);
                opponents.extend(requested.then_some(*entry));
                comparators.push(ComparatorTime { name, us, requested });
            }
            Who::Variant(_) => routes.push((*entry, us)),
        }
    }
    comparators.sort_by(|a, b| a.us.total_cmp(&b.us));
    routes.sort_by(|a: &(Entry, f64), b| a.1.total_cmp(&b.1));
    let since = Instant::now();
    let mut row = decide(pool, bytes, (routes, opponents), comparators, options, progress);
    pool.phases.add("last proofs", since.elapsed());
    row.candidates = candidates;
    Ok(row)
}

/// Finds geometries in two rounds: every variant in two shapes, then the best few in the shapes beside their better one
/// and in the other launch modes. Peer reads are searched like the best.
fn search(
    pool: &mut Pool<'_>,
    bytes: u64,
    options: &TuneOptions,
    (done, of): (usize, usize),
    progress: Listener<'_>,
) -> Result<(Vec<Entry>, Vec<Option<f64>>), TuneError> {
    let (mut ours, mut pulls) = (Vec::new(), Vec::new());
    let class = pool.class(bytes);
    // Early launches have room for few blocks: they tell little about shapes.
    let launches = pool.able(&options.launches);
    let scout = launches.iter().find(|l| **l == Launch::Programmatic);
    let scout = scout.or(launches.first()).copied();
    let first: Vec<Launch> = scout.into_iter().collect();
    let others: Vec<Launch> = launches.iter().copied().filter(|l| Some(*l) != scout).collect();
    for index in 0..pool.variants.len() {
        let listed = options.only.is_some() || class.is_some_and(|c| pool.variants[index].classes.contains(&c));
        let scouts = scouts(&threads(pool.variants[index], bytes));
        if pool.is_pull(index) {
            pulls.extend(pool.entries(index, bytes, &scouts, &first, progress));
        } else if listed && ours.len() < options.max_candidates {
            ours.extend(pool.entries(index, bytes, &scouts, &first, progress));
        }
    }
    ours.truncate(options.max_candidates);
    progress(Progress::Timing {
        bytes,
        candidates: ours.len() + pulls.len(),
        done,
        of,
    });
    let mut entries: Vec<Entry> = ours.into_iter().chain(pulls).collect();
    let since = Instant::now();
    let mut coarse = pool.time(&entries, bytes, &options.coarse, progress)?;
    pool.phases.add("geometry search", since.elapsed());

    let mut best: Vec<(Entry, f64)> = (entries.iter().zip(&coarse))
        .filter_map(|(e, us)| us.map(|us| (*e, us)))
        .collect();
    best.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut seen = Vec::new();
    let mut more = Vec::new();
    for (entry, _) in best {
        let Who::Variant(index) = entry.who else { continue };
        let refined = seen.iter().filter(|i| !pool.is_pull(**i)).count();
        if seen.contains(&index) || (!pool.is_pull(index) && refined >= options.refined) {
            continue;
        }
        seen.push(index);
        let list = threads(pool.variants[index], bytes);
        let beside = neighbours(&list, entry.geometry.threads);
        more.extend(pool.entries(index, bytes, &beside, &launches, progress));
        more.extend(pool.entries(index, bytes, &[entry.geometry.threads], &others, progress));
    }
    // A neighbour may have been a scout as well.
    more.retain(|m| !entries.iter().any(|e| (e.who, e.geometry) == (m.who, m.geometry)));
    let since = Instant::now();
    // A device that is dead now will say so in the last round.
    let refined = pool.time(&more, bytes, &options.coarse, progress);
    let refined = refined.unwrap_or_else(|_| vec![None; more.len()]);
    pool.phases.add("geometry search", since.elapsed());
    entries.extend(more);
    coarse.extend(refined);
    Ok((entries, coarse))
}

/// The best few of our entries, at most two geometries a variant so that another one can step in, and each peer-read
/// variant's best one; fastest first.
fn finalists(pool: &Pool<'_>, entries: &[Entry], coarse: &[Option<f64>], keep: usize) -> Vec<Entry> {
    let mut timed: Vec<(Entry, f64)> = entries
        .iter()
        .zip(coarse)
        .filter_map(|(e, us)| us.map(|us| (*e, us)))
        .collect();
    timed.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut kept: Vec<Entry> = Vec::new();
    let mut ours = 0;
    for (entry, _) in timed {
        let Who::Variant(index) = entry.who else { continue };
        let keeps = if pool.is_pull(index) {
            !kept.iter().any(|k| k.who == entry.who)
        } else {
            let fits = ours < keep && kept.iter().filter(|k| k.who == entry.who).count() < 2;
            ours += usize::from(fits);
            fits
        };
        if keeps {
            kept.push(entry);
        }
    }
    kept
}

/// Takes the fastest route that passes its last proof and does not lose under load, and judges it. `entries` are our
/// routes, fastest first, and the comparators that were asked for.
fn decide(
    pool: &mut Pool<'_>,
    bytes: u64,
    (routes, opponents): (Vec<(Entry, f64)>, Vec<Entry>),
    comparators: Vec<ComparatorTime>,
    options: &TuneOptions,
    progress: Listener<'_>,
) -> Row {
    let opponent = comparators.iter().find(|c| c.requested);
    let mut row = Row {
        bytes,
        route: None,
        geometry: None,
        us: None,
        comparator: opponent.map(|c| c.name.clone()),
        comparator_us: opponent.map(|c| c.us),
        ratio: None,
        selected: false,
        reason: "no variant passed: see what was left out".to_owned(),
        comparators,
        candidates: 0,
        loaded: None,
    };
    let loads = options.concurrency > 0 && pool.exec.device().timed;
    for (entry, us) in routes {
        let Who::Variant(index) = entry.who else { continue };
        let geometry = entry.geometry;
        let verdict = judge(us, row.comparator_us);
        let who = format!("{} at {geometry} for {bytes} bytes", pool.variants[index].name);
        // Only what would serve needs the last proof.
        if verdict.selected()
            && let Err(refusal) = confirm(pool, index, bytes, geometry, &options.qualify)
        {
            pool.leave_out(&who, &refusal.reason, progress);
            continue;
        }
        let (mut selected, mut why) = (verdict.selected(), reason(verdict, options));
        let mut loaded = None;
        if selected && loads {
            match under_load(pool, bytes, entry, &opponents, options) {
                Ok(figures) => loaded = Some(figures),
                Err(error) => {
                    selected = false;
                    why = format!("kept the comparator: under load: {error}");
                }
            }
            if let Some(lost) = loaded.as_ref().and_then(lost) {
                selected = false;
                why = lost;
            }
            if !selected {
                pool.leave_out(&who, &why, progress);
            }
        }
        // What lost under load is shown unless a slower route holds out there.
        if selected || row.route.is_none() {
            row.route = Some(pool.variants[index].name.to_owned());
            (row.geometry, row.us, row.ratio) = (Some(geometry), Some(us), verdict.ratio());
            (row.selected, row.reason, row.loaded) = (selected, why, loaded);
        }
        if selected || !verdict.selected() {
            break;
        }
    }
    row
}

/// A route and the comparators beside busy streams.
fn under_load(
    pool: &mut Pool<'_>,
    bytes: u64,
    route: Entry,
    opponents: &[Entry],
    options: &TuneOptions,
) -> Result<Loaded, String> {
    let entries: Vec<Entry> = std::iter::once(route).chain(opponents.iter().copied()).collect();
    let medians = pool
        .time_under_load(&entries, bytes, &options.loaded, options.concurrency)
        .map_err(|e| e.to_string())?;
    let us = medians.first().copied().flatten().ok_or("no figure")?;
    let others = opponents.iter().zip(medians.into_iter().skip(1));
    let fastest = others
        .filter_map(|(entry, us)| Some((entry, us?)))
        .min_by(|a, b| a.1.total_cmp(&b.1));
    Ok(Loaded {
        streams: options.concurrency,
        us,
        comparator: fastest.map(|(entry, _)| pool.name(entry.who).to_owned()),
        comparator_us: fastest.map(|(_, us)| us),
    })
}

/// Why a route that wins on an idle machine does not serve.
fn lost(loaded: &Loaded) -> Option<String> {
    let (name, theirs) = (loaded.comparator.as_ref()?, loaded.comparator_us?);
    (loaded.us > theirs * (1.0 + MARGIN)).then(|| {
        let plural = if loaded.streams == 1 { "" } else { "s" };
        format!(
            "kept the comparator: beside {} busy stream{plural} it takes {:.2} us, {name} {theirs:.2} us",
            loaded.streams, loaded.us
        )
    })
}

/// One proof in exactly this payload and geometry, with its tail cut as well.
fn confirm(
    pool: &mut Pool<'_>,
    index: usize,
    bytes: u64,
    geometry: Geometry,
    plan: &QualifyPlan,
) -> Result<(), Refusal> {
    let mut payloads = vec![bytes];
    payloads.extend(bytes.checked_sub(2).filter(|b| *b > 0));
    let plan = QualifyPlan {
        rounds: 4,
        payloads,
        geometries: vec![geometry],
        ..plan.clone()
    };
    qualify(pool.exec, pool.variants[index], &plan).map(|_| ())
}

fn reason(verdict: Verdict, options: &TuneOptions) -> String {
    let asked = options.comparators.iter().any(|c| *c != Compare::None);
    match verdict {
        Verdict::Unopposed if asked => "nothing to compare with: no comparator that was asked for is available".into(),
        Verdict::Unopposed => "nothing to compare with: none was asked for".into(),
        verdict => verdict.to_string(),
    }
}

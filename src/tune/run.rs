//! Tuning: for each payload the fastest proven variant with its geometry, against the fastest comparator.
//!
//! A coarse round finds geometries, an interleaved last round decides, and the winner is proven once more in exactly
//! the payload and geometry in which it would serve. Start at [`tune`].

use super::options::{Compare, Progress, TuneError, TuneOptions};
use super::pool::{Entry, Listener, Pool, Who};
use super::report::{ComparatorTime, Row, TuneReport};
use super::select::{Verdict, judge};
use crate::device::{Executor, Geometry};
use crate::qualify::{QualifyPlan, Refusal, qualify};
use crate::registry::Family;

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
    let mut pool = Pool::open(exec, family, options, progress)?;
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
        partials: options.partials,
        memory: options.memory,
        sampling: options.sampling,
        rows,
        left_out: std::mem::take(&mut pool.left_out),
    })
}

fn tune_payload(
    pool: &mut Pool<'_>,
    bytes: u64,
    options: &TuneOptions,
    (done, of): (usize, usize),
    progress: Listener<'_>,
) -> Result<Row, TuneError> {
    let (mut ours, mut pulls) = (Vec::new(), Vec::new());
    let class = pool.class(bytes);
    for index in 0..pool.variants.len() {
        let listed = class.is_some_and(|c| pool.variants[index].classes.contains(&c));
        if pool.is_pull(index) {
            pulls.extend(pool.entries(index, bytes, progress));
        } else if listed && ours.len() < options.max_candidates {
            ours.extend(pool.entries(index, bytes, progress));
        }
    }
    ours.truncate(options.max_candidates);
    progress(Progress::Timing {
        bytes,
        candidates: ours.len() + pulls.len(),
        done,
        of,
    });

    let mut entries: Vec<Entry> = ours.iter().chain(&pulls).copied().collect();
    let coarse = pool.time(&entries, bytes, &options.coarse, progress)?;
    entries = finalists(pool, &entries, &coarse, options.finalists.max(1));
    entries.extend(pool.nccl_entry());
    let medians = pool.time(&entries, bytes, &options.sampling, progress)?;

    let mut comparators = Vec::new();
    let mut routes = Vec::new();
    for (entry, us) in entries.iter().zip(medians) {
        let Some(us) = us else { continue };
        let name = pool.name(entry.who).to_owned();
        match entry.who {
            Who::Nccl => comparators.push(ComparatorTime {
                name,
                us,
                requested: true,
            }),
            Who::Variant(index) if pool.is_pull(index) => {
                comparators.push(ComparatorTime {
                    name,
                    us,
                    requested: options.comparators.contains(&Compare::Pull),
                });
            }
            Who::Variant(index) => routes.push((index, entry.geometry, us)),
        }
    }
    comparators.sort_by(|a, b| a.us.total_cmp(&b.us));
    routes.sort_by(|a, b| a.2.total_cmp(&b.2));
    Ok(decide(pool, bytes, routes, comparators, options, progress))
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

/// Takes the fastest route that passes its last proof, and judges it.
fn decide(
    pool: &mut Pool<'_>,
    bytes: u64,
    routes: Vec<(usize, Geometry, f64)>,
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
    };
    for (index, geometry, us) in routes {
        let verdict = judge(us, row.comparator_us);
        // Only what would serve needs the last proof.
        if verdict.selected()
            && let Err(refusal) = confirm(pool, index, bytes, geometry, &options.qualify)
        {
            let who = format!("{} at {geometry} for {bytes} bytes", pool.variants[index].name);
            pool.leave_out(&who, &refusal.reason, progress);
            continue;
        }
        row.route = Some(pool.variants[index].name.to_owned());
        (row.geometry, row.us, row.ratio) = (Some(geometry), Some(us), verdict.ratio());
        row.selected = verdict.selected();
        row.reason = reason(verdict, options);
        break;
    }
    row
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

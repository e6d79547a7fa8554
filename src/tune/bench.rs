//! The measurement of tuning over a size sweep, without choosing: one column a variant.
//!
//! Start at [`bench()`].

use super::geometry::threads;
use super::options::{Progress, TuneError, TuneOptions};
use super::pool::{Entry, Pool, Who};
use super::report::LeftOut;
use crate::device::{DeviceInfo, Executor, Geometry, Sampling};
use crate::registry::{Element, Family, Partials};

/// A finished sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchReport {
    /// The family's name.
    pub family: String,
    /// What it ran on.
    pub device: DeviceInfo,
    /// The times mean nothing.
    pub emulation: bool,
    /// Type of inputs and outputs.
    pub element: Element,
    /// In which type sums are rounded.
    pub partials: Partials,
    /// How the figures were sampled.
    pub sampling: Sampling,
    /// Names of variants, then of comparators.
    pub columns: Vec<String>,
    /// One a payload, ascending.
    pub rows: Vec<BenchRow>,
    /// Variants and comparators that took no part, with the reason.
    pub left_out: Vec<LeftOut>,
}

/// Figures of one payload.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchRow {
    /// Payload a rank.
    pub bytes: u64,
    /// One a column; none where it could not be timed.
    pub figures: Vec<Option<Figure>>,
}

/// One figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// Median, microseconds a call.
    pub us: f64,
    /// The variant's best geometry; none for a comparator that has its own.
    pub geometry: Option<Geometry>,
    /// The best with plain launches; none where they were not tried, and for comparators.
    pub plain: Option<(f64, Geometry)>,
    /// The best of both programmatic modes.
    pub programmatic: Option<(f64, Geometry)>,
}

/// Times every proven variant and the comparators at every payload of `options`. `max_candidates` and `finalists` do
/// not apply.
///
/// # Errors
/// As [`super::tune`].
pub fn bench(
    exec: &mut dyn Executor,
    family: &'static Family,
    options: &TuneOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<BenchReport, TuneError> {
    let device = exec.device().clone();
    let mut pool = Pool::open(exec, family, options, false, progress)?;
    let mut who: Vec<Who> = (0..pool.variants.len()).map(Who::Variant).collect();
    who.extend(pool.other_entries().iter().map(|e| e.who));
    let columns = who.iter().map(|w| pool.name(*w).to_owned()).collect();
    let of = options.payloads.bytes().len();
    let mut rows = Vec::new();
    for (done, &bytes) in options.payloads.bytes().iter().enumerate() {
        let mut entries: Vec<Entry> = Vec::new();
        for index in 0..pool.variants.len() {
            let threads = threads(pool.variants[index], bytes);
            entries.extend(pool.entries(index, bytes, &threads, &options.launches, progress));
        }
        progress(Progress::Timing {
            bytes,
            candidates: entries.len(),
            done,
            of,
        });
        let coarse = pool.time(&entries, bytes, &options.coarse, progress)?;
        let modes = |w: &Who| [false, true].map(|programmatic| fastest(*w, programmatic, &entries, &coarse));
        let mut best: Vec<Entry> = who.iter().flat_map(modes).flatten().collect();
        best.extend(pool.other_entries());
        let medians = pool.time(&best, bytes, &options.sampling, progress)?;
        let figure = |w: &Who| {
            let mine = best.iter().zip(&medians).filter(|(e, _)| e.who == *w);
            let mine: Vec<(f64, Geometry)> = mine.filter_map(|(e, us)| Some(((*us)?, e.geometry))).collect();
            let mode = |programmatic: bool| {
                let launched = mine.iter().filter(|(_, g)| g.launch.is_programmatic() == programmatic);
                launched.copied().next().filter(|_| matches!(w, Who::Variant(_)))
            };
            let (us, geometry) = mine.iter().copied().min_by(|a, b| a.0.total_cmp(&b.0))?;
            Some(Figure {
                us,
                geometry: matches!(w, Who::Variant(_)).then_some(geometry),
                plain: mode(false),
                programmatic: mode(true),
            })
        };
        rows.push(BenchRow {
            bytes,
            figures: who.iter().map(figure).collect(),
        });
    }
    Ok(BenchReport {
        family: family.name.to_owned(),
        emulation: !device.timed,
        device,
        element: options.element,
        partials: options.partials,
        sampling: options.sampling,
        columns,
        rows,
        left_out: std::mem::take(&mut pool.left_out),
    })
}

fn fastest(who: Who, programmatic: bool, entries: &[Entry], coarse: &[Option<f64>]) -> Option<Entry> {
    let launched = |e: &Entry| e.who == who && e.geometry.launch.is_programmatic() == programmatic;
    let mine = entries.iter().zip(coarse).filter(|(e, _)| launched(e));
    mine.filter_map(|(e, us)| us.map(|us| (*e, us)))
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(e, _)| e)
}

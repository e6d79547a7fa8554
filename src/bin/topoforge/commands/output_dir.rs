//! A folder of a bench's figures: a file a rank, and how long choosing and starting took.
//!
//! A folder that holds anything already is refused before anything is measured, so that figures of two runs never mix.
//! Start at [`Folder::fresh`].

use super::setting::Setting;
use crate::failure::Failure;
use crate::report::Output;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Instant;
use topoforge::device::Sampling;
use topoforge::qualify::QualifyPlan;
use topoforge::routes::{Routes, requalify};
use topoforge::tune::select::median;
use topoforge::tune::{Phases, Place, Places, TuneOptions, tune};

/// A folder that was empty.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
}

/// What a rank's file holds.
#[derive(Debug, Serialize)]
struct RankFile<'a> {
    format: u32,
    group: &'a str,
    family: &'a str,
    rank: usize,
    ordinal: Option<usize>,
    gpu: &'a str,
    emulation: bool,
    calls_a_sample: u32,
    rows: Vec<RankRow<'a>>,
    cold_selection: &'a Timing,
    cached_requalification: Option<&'a Timing>,
}

#[derive(Debug, Serialize)]
struct RankRow<'a> {
    bytes: u64,
    route: &'a str,
    geometry: String,
    out_of_place: RankPlace<'a>,
    in_place: RankPlace<'a>,
}

#[derive(Debug, Serialize)]
struct RankPlace<'a> {
    median_us: Option<f64>,
    samples_us: &'a [f64],
    slowest_rank_us: f64,
    words: u64,
    wrong_words: u64,
}

/// How long something took, in parts.
#[derive(Debug, Serialize)]
pub struct Timing {
    seconds: f64,
    parts: Vec<(&'static str, f64)>,
    /// What it came to, in words.
    outcome: String,
}

impl Folder {
    /// Makes the folder where it is not there.
    ///
    /// # Errors
    /// It holds something, is no folder, or cannot be made.
    pub fn fresh(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let refused = |e: std::io::Error| Failure::usage(format!("--output {shown}: {e}"));
        match std::fs::read_dir(path) {
            Ok(mut entries) => {
                if entries.next().is_some() {
                    return Err(Failure::usage(format!(
                        "--output {shown}: it is not empty: name a new folder, so that figures of two runs do not mix"
                    )));
                }
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => std::fs::create_dir_all(path).map_err(refused)?,
            Err(e) => return Err(refused(e)),
        }
        Ok(Self { path: path.to_owned() })
    }

    /// A folder inside for one of several groups.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn inside(&self, devices: &[usize]) -> Result<Self, Failure> {
        let names: Vec<String> = devices.iter().map(ToString::to_string).collect();
        Self::fresh(&self.path.join(format!("gpus-{}", names.join("-"))))
    }

    /// Chooses routes as a first start would, then starts from them as every later one: on the executor at hand, which
    /// has its contexts already.
    pub fn selections(
        &self,
        setting: &mut Setting,
        options: &TuneOptions,
        output: &mut Output,
    ) -> Result<(Timing, Option<Timing>), Failure> {
        let family = setting.family;
        let since = Instant::now();
        let tell = &mut |p| super::setting::tell(output, p);
        let report = tune(setting.executor(), family, options, tell).map_err(Failure::work)?;
        let selected = report.rows.iter().filter(|r| r.selected).count();
        let cold = Timing {
            seconds: since.elapsed().as_secs_f64(),
            parts: parts(&report.phases),
            outcome: format!("{selected} of {} payloads served by compiled routes", report.rows.len()),
        };
        let Some(identity) = setting
            .identity(options.element, options.partials)
            .filter(|_| !report.emulation)
        else {
            return Ok((cold, None));
        };
        let file = self.path.join("routes.ron");
        let written = Routes::from_report(&report, identity).map_err(Failure::work)?;
        written.write(&file).map_err(Failure::work)?;
        let (since, mut phases) = (Instant::now(), Phases::default());
        let mut routes = phases.time("read", || Routes::read(&file)).map_err(Failure::work)?;
        let dropped = phases.time("proofs", || {
            requalify(setting.executor(), family, &mut routes, &QualifyPlan::quick())
        });
        let cached = Timing {
            seconds: since.elapsed().as_secs_f64(),
            parts: parts(&phases),
            outcome: match dropped.len() {
                0 => "every variant qualified again".to_owned(),
                _ => dropped.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
            },
        };
        Ok((cold, Some(cached)))
    }

    /// Writes a file a rank.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn write(
        &self,
        setting: &Setting,
        group: &str,
        sampling: &Sampling,
        places: &[Places],
        (cold, cached): &(Timing, Option<Timing>),
    ) -> Result<(), Failure> {
        let device = setting.device();
        for (rank, gpu) in device.names.iter().enumerate() {
            let file = RankFile {
                format: 1,
                group,
                family: setting.family.name,
                rank,
                ordinal: device.ordinals.get(rank).copied().filter(|_| device.kind == "cuda"),
                gpu,
                emulation: !device.timed,
                calls_a_sample: sampling.calls,
                rows: (places.iter())
                    .map(|p| RankRow {
                        bytes: p.bytes,
                        route: &p.variant,
                        geometry: p.geometry.to_string(),
                        out_of_place: rank_place(&p.beside, rank),
                        in_place: rank_place(&p.over, rank),
                    })
                    .collect(),
                cold_selection: cold,
                cached_requalification: cached.as_ref(),
            };
            let text = serde_json::to_string_pretty(&file)
                .map_err(|e| Failure::work(format!("rank {rank}'s figures cannot be written as JSON: {e}")))?;
            let path = self.path.join(format!("rank-{rank}.json"));
            std::fs::write(&path, text + "\n")
                .map_err(|e| Failure::work(format!("cannot write {}: {e}", path.display())))?;
        }
        Ok(())
    }
}

fn parts(phases: &Phases) -> Vec<(&'static str, f64)> {
    phases.list().iter().map(|p| (p.name, p.took.as_secs_f64())).collect()
}

fn rank_place(place: &Place, rank: usize) -> RankPlace<'_> {
    let samples = place.samples.get(rank).map_or(&[][..], Vec::as_slice);
    RankPlace {
        median_us: median(samples),
        samples_us: samples,
        slowest_rank_us: place.us,
        words: place.words,
        wrong_words: place.wrong,
    }
}

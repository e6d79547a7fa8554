//! The fastest variant of each payload in both arrangements of buffers, rank by rank, with its words counted.
//!
//! What a table in the style of nccl-tests shows. It proves nothing new and chooses nothing: [`super::bench()`] has done
//! that. Start at [`places`].

use super::bench::BenchReport;
use super::options::TuneError;
use super::select::median;
use crate::device::{DeviceError, Executor, Geometry, Preparation, Prepared, Sampling, Timed};
use crate::qualify::soak::count_words;
use crate::registry::{Family, Protocol, Variant};

/// One payload.
#[derive(Clone, Debug, PartialEq)]
pub struct Places {
    /// Payload a rank.
    pub bytes: u64,
    /// The variant that was the fastest.
    pub variant: String,
    /// Its geometry.
    pub geometry: Geometry,
    /// Output beside the input.
    pub beside: Place,
    /// Output over the input.
    pub over: Place,
}

/// One arrangement.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// Median of the slowest rank, microseconds a call.
    pub us: f64,
    /// `samples[rank]`, microseconds a call.
    pub samples: Vec<Vec<f64>>,
    /// Words compared with the declared sum, over all ranks.
    pub words: u64,
    /// Words that were not it.
    pub wrong: u64,
}

/// Measures every payload of `report` that a variant was timed at.
///
/// # Errors
/// The device fails.
pub fn places(
    exec: &mut dyn Executor,
    family: &'static Family,
    report: &BenchReport,
    sampling: &Sampling,
    seed: u32,
) -> Result<Vec<Places>, TuneError> {
    let mut all = Vec::new();
    for row in &report.rows {
        let served = |name: &str| {
            family
                .variants
                .iter()
                .find(|v| v.name == name && v.protocol != Protocol::Pull)
        };
        let candidates = report.columns.iter().zip(&row.figures);
        let best = candidates
            .filter_map(|(name, figure)| {
                let figure = (*figure)?;
                Some((served(name)?, figure.geometry?, figure.us))
            })
            .min_by(|a, b| a.2.total_cmp(&b.2));
        if let Some((variant, geometry, _)) = best {
            all.push(measure(exec, variant, geometry, row.bytes, sampling, seed).map_err(TuneError::Device)?);
        }
    }
    Ok(all)
}

fn measure(
    exec: &mut dyn Executor,
    variant: &'static Variant,
    geometry: Geometry,
    bytes: u64,
    sampling: &Sampling,
    seed: u32,
) -> Result<Places, DeviceError> {
    let preparation = Preparation {
        max_bytes: bytes,
        threads: geometry.threads,
        fault: None,
    };
    let prepared = exec.prepare(variant, &preparation)?;
    let measured = prepared_places(exec, variant, prepared, (geometry, bytes), sampling, seed);
    exec.release(prepared);
    let [beside, over] = measured?;
    Ok(Places {
        bytes,
        variant: variant.name.to_owned(),
        geometry,
        beside,
        over,
    })
}

fn prepared_places(
    exec: &mut dyn Executor,
    variant: &'static Variant,
    prepared: Prepared,
    (geometry, bytes): (Geometry, u64),
    sampling: &Sampling,
    seed: u32,
) -> Result<[Place; 2], DeviceError> {
    let timed = |in_place: bool| Timed {
        collective: prepared,
        geometry,
        bytes,
        in_place,
    };
    let mut times = exec.time_ranks(&[timed(false), timed(true)], sampling)?.into_iter();
    let mut place = |in_place: bool| -> Result<Place, DeviceError> {
        let samples = times.next().unwrap_or_default();
        let tally = count_words(exec, variant, prepared, (geometry, bytes), in_place, seed)?;
        let slowest = slowest(&samples);
        Ok(Place {
            us: median(&slowest).unwrap_or(f64::NAN),
            samples,
            words: tally.words,
            wrong: tally.wrong,
        })
    };
    Ok([place(false)?, place(true)?])
}

/// The slowest rank of each sample.
fn slowest(samples: &[Vec<f64>]) -> Vec<f64> {
    let most = samples.iter().map(Vec::len).min().unwrap_or(0);
    (0..most)
        .map(|i| samples.iter().map(|rank| rank[i]).fold(0.0, f64::max))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_as_slow_as_its_slowest_rank() {
        assert_eq!(slowest(&[vec![1.0, 5.0], vec![2.0, 3.0]]), [2.0, 5.0]);
        assert!(slowest(&[]).is_empty() && slowest(&[vec![], vec![1.0]]).is_empty());
    }
}

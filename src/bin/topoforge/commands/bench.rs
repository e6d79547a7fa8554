//! `bench`: every proven variant over a sweep of payloads, without choosing. Start at [`run`].

use super::setting::{Setting, tell};
use crate::args::BenchArgs;
use crate::failure::{Failure, Outcome};
use crate::report::Output;
use crate::report::figures::BenchDocument;
use topoforge::tune::{Compare, Payloads, bench};

/// `topoforge bench`
pub fn run(args: &BenchArgs, output: &mut Output) -> Result<Outcome, Failure> {
    if args.from > args.to {
        return Err(Failure::usage(format!(
            "--from {} is above --to {}: give the smaller one first",
            args.from, args.to
        )));
    }
    let payloads = Payloads::from_bytes(&sweep(args.from, args.to)).map_err(|e| Failure::usage(e.to_string()))?;
    let mut setting = Setting::open(&args.place, args.family.as_deref(), output)?;
    let launches = setting.launches(args.launch)?;
    let mut options = setting.options(args.place.seed);
    options.payloads = payloads;
    options.partials = args.partials;
    options.comparators = vec![Compare::Nccl, Compare::Pull];
    options.launches = launches;
    let family = setting.family;
    let report = bench(setting.executor(), family, &options, &mut |p| tell(output, p)).map_err(Failure::work)?;
    let timed = report.rows.iter().flat_map(|r| &r.figures).flatten().count();
    // Against the wire: only where times mean something.
    let exec = setting.executor();
    let floor = if exec.device().timed {
        exec.floor(options.payloads.bytes(), &options.launches, &options.sampling)
            .ok()
    } else {
        None
    };
    output.emit(&BenchDocument::of(&report, floor.as_ref()))?;
    Ok(if timed == 0 {
        Outcome::Failed("nothing could be timed: see what was left out".to_owned())
    } else {
        Outcome::Done
    })
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

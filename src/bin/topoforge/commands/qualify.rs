//! `qualify`: proves every variant of the chosen families and counts what was compared.
//!
//! What is correct is the library's business. Start at [`run`].

use crate::args::QualifyArgs;
use crate::device::{Place, Virtual, resolve};
use crate::failure::{Failure, Outcome};
use crate::names;
use crate::report::Output;
use crate::report::proofs::{ControlLine, Failed, FamilyProof, QualifyReport, Skipped};
use topoforge::device::Executor;
use topoforge::qualify::controls::fault_name;
use topoforge::qualify::{Control, Outcome as Caught, Proof, QualifyPlan, Refusal, controls, qualify};
use topoforge::registry::{Family, Registry, Variant};

/// `topoforge qualify`
pub fn run(args: &QualifyArgs, output: &mut Output) -> Result<Outcome, Failure> {
    let registry = Registry::builtin();
    let all = args.family == "all";
    let families = if all {
        registry.families()
    } else {
        vec![names::family(&registry, &args.family)?]
    };
    let place = resolve(args.place.device.as_ref(), &registry, |text| output.note(text))?;
    let mut run = Run {
        args,
        place: &place,
        output,
        tally: Tally::default(),
        report: QualifyReport {
            device: place.name(),
            controls: args.controls.then(Vec::new),
            ..QualifyReport::default()
        },
    };
    for family in families {
        match place.devices(names::ranks(family)?, args.place.sharing()) {
            Ok(devices) => run.prove(family, &devices),
            Err(reason) if all => run.skip(family, reason),
            Err(reason) => {
                let text = format!("cannot qualify {}: {reason}", family.name);
                let asked = matches!(args.place.sharing(), Virtual::Exactly(_));
                return Err(if asked {
                    Failure::usage(text)
                } else {
                    Failure::work(text)
                });
            }
        }
    }
    run.finish()
}

/// A qualification under way.
struct Run<'a> {
    args: &'a QualifyArgs,
    place: &'a Place,
    output: &'a mut Output,
    tally: Tally,
    report: QualifyReport,
}

impl Run<'_> {
    fn skip(&mut self, family: &Family, reason: String) {
        self.output.note(&format!("skipping {}: {reason}", family.name));
        self.report.skipped.push(Skipped {
            family: family.name.to_owned(),
            reason,
        });
    }

    /// All variants of one family on an executor of its own.
    fn prove(&mut self, family: &'static Family, devices: &[usize]) {
        let wanted = |v: &&Variant| self.args.dtype.is_none_or(|dtype| v.element == dtype);
        let variants: Vec<&'static Variant> = family.variants.iter().filter(wanted).collect();
        let of = variants.len();
        let ranks = family.variants.first().map_or(0, |v| v.ranks.len());
        let mut own = Tally::default();
        let mut passed = 0;
        match self
            .place
            .executors(devices, family, self.args.place.seed, self.args.thorough)
        {
            Err(error) => {
                for variant in variants {
                    self.refuse(family, variant, error.to_string());
                }
            }
            Ok(mut executors) => {
                for (done, variant) in variants.into_iter().enumerate() {
                    let who = format!("{} {}/{of}: {}", family.name, done + 1, variant.name);
                    self.output.show(&who);
                    match proofs(&mut executors, variant, self.place, self.args) {
                        Ok(proofs) => {
                            passed += 1;
                            proofs.iter().for_each(|proof| own.add(proof));
                        }
                        Err(reason) => self.refuse(family, variant, reason),
                    }
                    if let (Some(lines), Some(exec)) = (&mut self.report.controls, executors.first_mut()) {
                        self.output.show(&format!("{who}, with planted faults"));
                        let plan = plan(self.place, false, self.args.place.seed);
                        lines.extend(
                            controls(exec.as_mut(), variant, &plan)
                                .iter()
                                .map(|c| control(family, c)),
                        );
                    }
                }
            }
        }
        self.report.checked += of;
        self.report.passed += passed;
        self.tally.join(&own);
        self.report.families.push(FamilyProof {
            family: family.name.to_owned(),
            ranks,
            virtual_ranks: matches!(self.place, Place::Cuda { .. }) && devices.len() < ranks,
            checked: of,
            passed,
            words: own.words,
            finite_share: own.finite_share(),
        });
    }

    fn refuse(&mut self, family: &Family, variant: &Variant, reason: String) {
        self.output.warn(&format!("{} {}: {reason}", family.name, variant.name));
        self.report.failed.push(Failed {
            family: family.name.to_owned(),
            variant: variant.name.to_owned(),
            reason,
        });
    }

    fn finish(self) -> Result<Outcome, Failure> {
        let Self {
            output,
            tally,
            mut report,
            args,
            ..
        } = self;
        let dtype = args.dtype;
        (report.chains, report.calls, report.words) = (tally.chains, tally.calls, tally.words);
        report.finite_share = tally.finite_share();
        output.emit(&report)?;
        let (checked, refused) = (report.checked, report.failed.len());
        Ok(if let (0, Some(dtype)) = (checked, dtype) {
            Outcome::Failed(format!(
                "nothing was checked: this build holds no kernels for {dtype}, feature `{dtype}` compiles them"
            ))
        } else if checked == 0 {
            Outcome::Failed("nothing was checked".to_owned())
        } else if refused > 0 {
            Outcome::Failed(format!("{refused} of {checked} variants were refused"))
        } else {
            Outcome::Done
        })
    }
}

/// One variant's proofs, an executor each, or the first refusal.
fn proofs(
    executors: &mut [Box<dyn Executor>],
    variant: &'static Variant,
    place: &Place,
    args: &QualifyArgs,
) -> Result<Vec<Proof>, String> {
    let plan = plan(place, args.thorough, args.place.seed);
    let one = |exec: &mut Box<dyn Executor>| {
        let refused = |r: Refusal| format!("{} (after {} good chains)", r.reason, r.passed);
        qualify(exec.as_mut(), variant, &plan).map_err(refused)
    };
    executors.iter_mut().map(one).collect()
}

fn control(family: &Family, control: &Control) -> ControlLine {
    ControlLine {
        family: family.name.to_owned(),
        variant: control.variant.to_owned(),
        fault: fault_name(control.fault),
        outcome: match control.outcome {
            Caught::Caught { .. } => "caught",
            Caught::Missed { .. } => "missed",
            Caught::NotRun { .. } => "not run",
        },
        detail: control.to_string(),
    }
}

/// What is run. The host's threads are fibers, so that payloads stay small there however thorough it is.
fn plan(place: &Place, thorough: bool, seed: u32) -> QualifyPlan {
    let seeds = |n: u32| (0..n).map(|i| seed.wrapping_add(i)).collect();
    match (place, thorough) {
        (_, false) => QualifyPlan {
            seeds: seeds(1),
            ..QualifyPlan::quick()
        },
        (Place::Host, true) => QualifyPlan {
            rounds: 18,
            seeds: seeds(3),
            ..QualifyPlan::quick()
        },
        (Place::Cuda { .. }, true) => QualifyPlan {
            seeds: seeds(2),
            ..QualifyPlan::thorough()
        },
    }
}

/// Sums over proofs.
#[derive(Debug, Default)]
struct Tally {
    chains: u64,
    calls: u64,
    words: u64,
    finite: f64,
}

impl Tally {
    fn add(&mut self, proof: &Proof) {
        self.chains += u64::from(proof.chains);
        self.calls += proof.calls;
        self.words += proof.words;
        self.finite += proof.finite_share * proof.words as f64;
    }

    fn join(&mut self, other: &Self) {
        self.chains += other.chains;
        self.calls += other.calls;
        self.words += other.words;
        self.finite += other.finite;
    }

    fn finite_share(&self) -> f64 {
        self.finite / self.words.max(1) as f64
    }
}

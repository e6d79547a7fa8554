//! How communicators are set up, from the program or from the environment.
//!
//! Start at [`Options`].

use super::CommError;
use crate::device::cuda::Way;
use crate::registry::{Element, Partials, Registry};
use crate::tune::{Compare, Payloads};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// What to do when a route table was measured with something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Changed {
    /// Tune again, and write the new table over the old one.
    #[default]
    Retune,
    /// Serve everything by the comparator.
    Comparator,
    /// Fail.
    Strict,
}

/// When NCCL joins. Joining takes a good part of a cached start, and it can only be done at set-up: a rank that joined at
/// its first call would wait for others whose kernels already wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum UseNccl {
    /// At every start, so that any call finds somebody to serve it.
    #[default]
    AtStart,
    /// Only where a range of the tables is NCCL's. Else sums of types with routes are served by routes whatever their size
    /// and alignment, as without NCCL, and all other calls are refused.
    IfRouted,
}

impl UseNccl {
    /// The name in settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AtStart => "start",
            Self::IfRouted => "routed",
        }
    }

    /// The value of a name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::AtStart, Self::IfRouted].into_iter().find(|v| v.name() == name)
    }
}

/// How communicators are set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// Families to choose from.
    pub registry: Registry,
    /// This family instead of the nearest.
    pub family: Option<String>,
    /// The types whose sums get routes on GPUs, each tuned, proven and kept in a table of its own; other types go to NCCL.
    /// Kernels for them must be compiled in. `scratch_limit` is for all of them together.
    pub elements: Vec<Element>,
    /// In which type sums are rounded.
    pub partials: Partials,
    /// Sizes that are tuned.
    pub payloads: Payloads,
    /// What routes must beat. Without [`Compare::Nccl`] NCCL does not serve either.
    pub comparators: Vec<Compare>,
    /// When NCCL joins, to serve what routes do not.
    pub nccl: UseNccl,
    /// Also try programmatic launches. They pay only where the neighbouring kernels are launched so too, and up to seven
    /// further grids become resident while one spins: off by default.
    pub programmatic: bool,
    /// A table to read, or to write where there is none. Of several types each has its name before the extension, e.g.
    /// `routes.bf16.ron`.
    pub routes: Option<PathBuf>,
    /// When that table does not belong here.
    pub changed: Changed,
    /// A failed proof is an error instead of a route less.
    pub strict: bool,
    /// How long a wait may last.
    pub deadline: Duration,
    /// How long set-up waits for another process, at each step.
    pub patience: Duration,
    /// Ranks of several processes may share a GPU. Proofs count then and times do not; GPUs take turns between processes,
    /// so each exchange costs milliseconds.
    pub shared_gpus: bool,
    /// How device memory travels between processes; none for the best way that all ranks have.
    pub share: Option<Way>,
    /// One order of additions for all sizes: the same inputs give the same bits in an element whatever else is in its
    /// payload. Costs the routes that add in other orders, see `docs/serving.md`.
    pub batch_invariant: bool,
    /// Bytes of scratch that routes may take on each rank; the largest sizes are the comparator's where it is too little.
    pub scratch_limit: u64,
    /// Count every all-reduce by its shape, and write the counts here when a communicator of rank 0 is dropped:
    /// `topoforge tune --from-trace` reads them. Costs a question to the driver a call.
    pub trace: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            registry: Registry::builtin(),
            family: None,
            elements: vec![Element::F16],
            partials: Partials::F16,
            payloads: Payloads::serving(),
            comparators: vec![Compare::Nccl, Compare::Pull],
            nccl: UseNccl::AtStart,
            programmatic: false,
            routes: None,
            changed: Changed::Retune,
            strict: false,
            deadline: Duration::from_secs(30),
            patience: Duration::from_secs(60),
            shared_gpus: false,
            share: None,
            batch_invariant: false,
            scratch_limit: 32 << 20,
            trace: None,
        }
    }
}

impl Options {
    /// The defaults, with what the environment says: `TOPOFORGE_ROUTES` (file), `TOPOFORGE_TRACE` (file),
    /// `TOPOFORGE_FAMILY` (name), `TOPOFORGE_POLICY` (`retune`, `comparator` or `strict`), `TOPOFORGE_DEADLINE_MS`,
    /// `TOPOFORGE_BATCH_INVARIANT` (`1`), `TOPOFORGE_ELEMENT` (a list of `f16`, `bf16` and `f32`), `TOPOFORGE_USE_NCCL`
    /// (`start` or `routed`).
    ///
    /// # Errors
    /// A variable says what cannot be.
    pub fn from_env() -> Result<Self, CommError> {
        Self::from_vars(|name| std::env::var_os(name))
    }

    /// Refuses what no set-up can do.
    pub(super) fn check(&self) -> Result<(), CommError> {
        let twice = |e: &Element| self.elements.iter().filter(|other| *other == e).count() > 1;
        let reason = if self.elements.is_empty() {
            "no type of elements is to get routes: name one or more in Options::elements".to_owned()
        } else if let Some(element) = self.elements.iter().find(|e| twice(e)) {
            format!("{element} stands twice among the types that are to get routes: name each once")
        } else if self.deadline.is_zero() || self.deadline > Duration::from_secs(24 * 3600) {
            format!("a deadline of {:?}: give one above 0 and up to a day", self.deadline)
        } else {
            return Ok(());
        };
        Err(CommError::Misuse { reason })
    }

    fn from_vars(var: impl Fn(&str) -> Option<OsString>) -> Result<Self, CommError> {
        let set = |name: &str| var(name).filter(|v| !v.is_empty());
        let text = |name: &str| set(name).map(|v| v.to_string_lossy().into_owned());
        let mut options = Self {
            routes: set("TOPOFORGE_ROUTES").map(PathBuf::from),
            trace: set("TOPOFORGE_TRACE").map(PathBuf::from),
            family: text("TOPOFORGE_FAMILY"),
            ..Self::default()
        };
        match text("TOPOFORGE_POLICY").as_deref() {
            None | Some("retune") => {}
            Some("comparator") => options.changed = Changed::Comparator,
            Some("strict") => (options.changed, options.strict) = (Changed::Strict, true),
            Some(other) => {
                return Err(CommError::Misuse {
                    reason: format!("TOPOFORGE_POLICY={other}: give retune, comparator or strict"),
                });
            }
        }
        if let Some(given) = text("TOPOFORGE_ELEMENT") {
            let named = given.split(',').map(|name| Element::from_name(name.trim()));
            options.elements = named.collect::<Option<_>>().ok_or_else(|| CommError::Misuse {
                reason: format!("TOPOFORGE_ELEMENT={given}: give f16, bf16 or f32, or several with commas between"),
            })?;
        }
        if let Some(given) = text("TOPOFORGE_USE_NCCL") {
            options.nccl = UseNccl::from_name(&given).ok_or_else(|| CommError::Misuse {
                reason: format!("TOPOFORGE_USE_NCCL={given}: give start or routed"),
            })?;
        }
        match text("TOPOFORGE_BATCH_INVARIANT").as_deref() {
            None | Some("0") => {}
            Some("1") => options.batch_invariant = true,
            Some(other) => {
                return Err(CommError::Misuse {
                    reason: format!("TOPOFORGE_BATCH_INVARIANT={other}: give 0 or 1"),
                });
            }
        }
        if let Some(given) = text("TOPOFORGE_DEADLINE_MS") {
            let parsed = given.parse().ok().filter(|ms| *ms > 0).map(Duration::from_millis);
            options.deadline = parsed.ok_or_else(|| CommError::Misuse {
                reason: format!("TOPOFORGE_DEADLINE_MS={given}: give a positive number of milliseconds"),
            })?;
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(vars: &[(&str, &str)]) -> Result<Options, CommError> {
        Options::from_vars(|name| vars.iter().find(|v| v.0 == name).map(|v| v.1.into()))
    }

    #[test]
    fn the_environment_says_what_the_program_does_not() {
        let plain = from(&[("TOPOFORGE_ROUTES", "")]).unwrap();
        assert_eq!((&plain.routes, &plain.trace, plain.strict), (&None, &None, false));
        let set = from(&[
            ("TOPOFORGE_ROUTES", "a.ron"),
            ("TOPOFORGE_TRACE", "b.ron"),
            ("TOPOFORGE_FAMILY", "nvlink-pair"),
            ("TOPOFORGE_POLICY", "strict"),
            ("TOPOFORGE_DEADLINE_MS", "250"),
            ("TOPOFORGE_BATCH_INVARIANT", "1"),
            ("TOPOFORGE_ELEMENT", "bf16, f32"),
            ("TOPOFORGE_USE_NCCL", "routed"),
        ]);
        let set = set.unwrap();
        assert_eq!((set.routes, set.trace), (Some("a.ron".into()), Some("b.ron".into())));
        assert_eq!(
            (set.family.as_deref(), set.changed, set.strict),
            (Some("nvlink-pair"), Changed::Strict, true)
        );
        assert_eq!(
            (set.elements, set.nccl),
            (vec![Element::Bf16, Element::F32], UseNccl::IfRouted)
        );
        assert_eq!((plain.elements, plain.nccl), (vec![Element::F16], UseNccl::AtStart));
        assert_eq!((set.deadline, set.batch_invariant), (Duration::from_millis(250), true));
    }

    #[test]
    fn types_are_named_once_each_and_a_deadline_is_one() {
        let of = |elements: &[Element]| {
            let elements = elements.to_vec();
            let options = Options {
                elements,
                ..Options::default()
            };
            options.check().map_err(|e| e.to_string())
        };
        for deadline in [Duration::ZERO, Duration::MAX] {
            let options = Options {
                deadline,
                ..Options::default()
            };
            let refused = options.check().map_err(|e| e.to_string());
            assert!(refused.is_err_and(|e| e.contains("up to a day")));
        }
        assert_eq!(of(Element::ALL), Ok(()));
        assert!(of(&[]).is_err_and(|e| e.contains("Options::elements")));
        assert!(of(&[Element::F32, Element::F16, Element::F32]).is_err_and(|e| e.contains("f32 stands twice")));
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_can() {
        let refused = |name, value| from(&[(name, value)]).unwrap_err().to_string();
        assert!(refused("TOPOFORGE_POLICY", "maybe").contains("retune, comparator or strict"));
        assert!(refused("TOPOFORGE_ELEMENT", "f8").contains("bf16"));
        assert!(refused("TOPOFORGE_ELEMENT", "f16,").contains("commas"));
        assert!(refused("TOPOFORGE_USE_NCCL", "lazy").contains("start or routed"));
        assert!(refused("TOPOFORGE_BATCH_INVARIANT", "yes").contains("0 or 1"));
        for value in ["0", "-1", "soon"] {
            assert!(refused("TOPOFORGE_DEADLINE_MS", value).contains("positive number"));
        }
    }
}

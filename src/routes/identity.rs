//! What a table's figures depend on. When any of it changes, the figures are no longer known to hold.

use crate::registry::{Element, Partials};

/// Where and with what a table was measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Hash over all compiled kernels ([`crate::registry::Registry::kernel_set`]).
    pub kernel_set: String,
    /// Version of the NVIDIA driver.
    pub driver: String,
    /// The NCCL that was found, if any.
    pub nccl: Option<NcclIdentity>,
    /// Name of each rank's GPU.
    pub gpus: Vec<String>,
    /// Fingerprint of the machine's layout.
    pub layout: u64,
    /// Type of inputs and outputs.
    pub element: Element,
    /// In which type sums are rounded.
    pub partials: Partials,
    /// Name of the compiled family.
    pub family: String,
    /// `placement[r]` is the live rank that plays the family's rank `r`.
    pub placement: Vec<usize>,
}

/// Which NCCL was compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NcclIdentity {
    /// As it says itself, e.g. `2.28.3`.
    pub version: String,
    /// The file it was loaded from.
    pub path: String,
}

impl Identity {
    /// What differs between a table's identity (`self`) and the one here, one line each; empty if nothing. A line means
    /// "measure again or keep the comparator".
    pub fn differences(&self, here: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut say = |what: &str, table: String, here: String| {
            if table != here {
                lines.push(format!("{what}: measured with {table}, here {here}"));
            }
        };
        let quoted = |s: &str| format!("`{s}`");
        let nccl = |n: &Option<NcclIdentity>| match n {
            Some(n) => format!("{} from {}", n.version, n.path),
            None => "none".to_owned(),
        };
        say("kernel set", quoted(&self.kernel_set), quoted(&here.kernel_set));
        say("driver", quoted(&self.driver), quoted(&here.driver));
        say("NCCL", nccl(&self.nccl), nccl(&here.nccl));
        say("GPUs", format!("{:?}", self.gpus), format!("{:?}", here.gpus));
        say(
            "layout fingerprint",
            format!("{:016x}", self.layout),
            format!("{:016x}", here.layout),
        );
        say("element", self.element.to_string(), here.element.to_string());
        let sums = |i: &Self| i.partials.sums(i.element).to_string();
        say("partials", sums(self), sums(here));
        say("family", quoted(&self.family), quoted(&here.family));
        say(
            "placement",
            format!("{:?}", self.placement),
            format!("{:?}", here.placement),
        );
        lines
    }
}

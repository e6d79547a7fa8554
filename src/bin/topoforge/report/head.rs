//! What stands at the head of every report of measurements: on what, of what, and how it was sampled.
//!
//! On an emulation it says so: such times mean nothing. Start at [`Head`].

use serde::Serialize;
use topoforge::device::{DeviceInfo, Sampling};
use topoforge::registry::{Element, Partials};

const EMULATION: &str = "EMULATION: these times mean nothing, and no routes file is written from them";

/// The fields that reports of measurements have in common.
#[derive(Debug, Serialize)]
pub struct Head {
    device: String,
    gpus: Vec<String>,
    pub emulation: bool,
    family: String,
    ranks: usize,
    element: &'static str,
    partials: &'static str,
    sampling: SamplingLine,
}

/// How figures were sampled.
#[derive(Debug, Serialize)]
struct SamplingLine {
    calls: u32,
    warmups: u32,
    samples: u32,
}

impl Head {
    /// Of a family's measurement on a device.
    pub fn of(
        device: &DeviceInfo,
        emulation: bool,
        family: &str,
        (element, partials): (Element, Partials),
        sampling: Sampling,
    ) -> Self {
        Self {
            device: crate::device::spelled(device),
            gpus: device.names.clone(),
            emulation,
            family: family.to_owned(),
            ranks: device.names.len(),
            element: element.name(),
            partials: partials.sums(element).name(),
            sampling: SamplingLine {
                calls: sampling.calls,
                warmups: sampling.warmups,
                samples: sampling.samples,
            },
        }
    }

    /// A line; `group` tells one of several.
    pub fn text(&self, group: Option<&str>) -> String {
        let mut names = self.gpus.clone();
        names.dedup();
        let several = |n: u32, what: &str| {
            if n == 1 {
                format!("one {what}")
            } else {
                format!("{n} {what}s")
            }
        };
        let mut out = format!(
            "{} on {} ({}), {} with {} partials, median of {} of {}\n",
            self.family,
            self.device,
            names.join(", "),
            self.element,
            self.partials,
            several(self.sampling.samples, "sample"),
            several(self.sampling.calls, "dependent call")
        );
        if let Some(group) = group {
            out.push_str(&format!("group: {group}\n"));
        }
        if self.emulation {
            out.push_str(&format!("{EMULATION}\n"));
        }
        out
    }
}

//! Proves a read table's variants again, quickly, before any of them serves.

use super::table::{Routes, Served};
use crate::device::{Executor, Geometry};
use crate::qualify::{QualifyPlan, Refusal, qualify};
use crate::registry::{Family, Protocol, Variant};
use std::collections::BTreeMap;
use std::fmt;

/// A variant that no longer serves. Its sizes are the comparator's.
#[derive(Clone, Debug, PartialEq)]
pub struct Dropped {
    /// The name in the table.
    pub variant: String,
    /// The tuned sizes that it served.
    pub sizes: Vec<u64>,
    /// What was wrong; none where the family has no such variant, or only with other partials.
    pub refusal: Option<Refusal>,
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.refusal {
            Some(refusal) => write!(f, "{} no longer qualifies: {}", self.variant, refusal.reason),
            None => write!(
                f,
                "{} is not compiled in for this family and partials policy",
                self.variant
            ),
        }
    }
}

/// Proves every variant that `routes` names, in the payloads and geometries in which it serves besides `plan`'s own
/// payloads. Routes of a variant that fails are handed to the comparator with the reason, which is returned too.
pub fn requalify(
    exec: &mut dyn Executor,
    family: &'static Family,
    routes: &mut Routes,
    plan: &QualifyPlan,
) -> Vec<Dropped> {
    let mut named: BTreeMap<String, Vec<(u64, Geometry)>> = BTreeMap::new();
    for route in routes.routes() {
        if let Served::Variant { name, geometry } = &route.served {
            named.entry(name.clone()).or_default().push((route.up_to, *geometry));
        }
    }
    let (element, partials) = (routes.identity().element, routes.identity().partials);
    let mut all_dropped = Vec::new();
    for (name, uses) in named {
        let variant = family.variants.iter().find(|v| {
            v.name == name && v.element == element && v.partials.contains(&partials) && v.protocol != Protocol::Pull
        });
        let refusal = match variant {
            Some(variant) => match prove(exec, variant, &uses, plan) {
                Ok(()) => continue,
                Err(refusal) => Some(refusal),
            },
            None => None,
        };
        let sizes: Vec<u64> = uses.iter().map(|(up_to, _)| *up_to).collect();
        let dropped = Dropped {
            variant: name,
            sizes,
            refusal,
        };
        for up_to in &dropped.sizes {
            routes.hand_over(*up_to, &dropped.to_string());
        }
        all_dropped.push(dropped);
    }
    all_dropped
}

fn prove(
    exec: &mut dyn Executor,
    variant: &'static Variant,
    uses: &[(u64, Geometry)],
    plan: &QualifyPlan,
) -> Result<(), Refusal> {
    let plan = QualifyPlan {
        geometries: Vec::new(),
        ..plan.clone()
    }
    .covering(uses);
    qualify(exec, variant, &plan).map(|_| ())
}

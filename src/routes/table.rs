//! The table itself: ascending size ranges, each served by a compiled variant or by the comparator.

use super::error::RoutesError;
use super::identity::Identity;
use crate::device::Geometry;
use crate::device::abi::MAX_THREADS;
use crate::tune::TuneReport;
use crate::tune::payloads::MAX_BYTES;
use std::path::PathBuf;

/// A rule table. The same table gives the same route for a size on every run.
#[derive(Clone, Debug, PartialEq)]
pub struct Routes {
    identity: Identity,
    routes: Vec<Route>,
}

/// What serves the sizes from above the previous route up to `up_to`.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// The size that was tuned, in bytes; it and all smaller ones down to the previous route are served.
    pub up_to: u64,
    /// By what.
    pub served: Served,
    /// Median of the best variant, microseconds a call; none where no variant passed.
    pub us: Option<f64>,
    /// The fastest comparator that was asked for.
    pub comparator: Option<String>,
    /// Its median.
    pub comparator_us: Option<f64>,
    /// Why it is so.
    pub reason: String,
}

/// What serves a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Served {
    /// A compiled variant of the identity's family.
    Variant {
        /// Its name.
        name: String,
        /// The geometry that it was tuned in.
        geometry: Geometry,
    },
    /// Whatever the user has today.
    Comparator,
}

impl Routes {
    /// The table that a tuning gives. `identity` must be that of the machine it ran on.
    ///
    /// # Errors
    /// The tuning ran on an emulation, or the report and the identity do not belong together.
    pub fn from_report(report: &TuneReport, identity: Identity) -> Result<Self, RoutesError> {
        if report.emulation || !report.device.timed {
            let device = format!("{} ({})", report.device.kind, report.device.names.join(", "));
            return Err(RoutesError::Emulation { device });
        }
        let invalid = |fault: &str| RoutesError::Invalid {
            path: PathBuf::new(),
            fault: fault.to_owned(),
        };
        let measured = (report.family.as_str(), report.element, report.partials);
        if measured != (identity.family.as_str(), identity.element, identity.partials) {
            return Err(invalid(
                "the report is of another family, element type or partials policy than the identity",
            ));
        }
        let routes = report.rows.iter().map(|row| {
            let served = match (&row.route, row.geometry) {
                (Some(name), Some(geometry)) if row.selected => Served::Variant {
                    name: name.clone(),
                    geometry,
                },
                _ => Served::Comparator,
            };
            let (comparator, comparator_us) = (row.comparator.clone(), row.comparator_us);
            Route {
                up_to: row.bytes,
                served,
                us: row.us,
                comparator,
                comparator_us,
                reason: row.reason.clone(),
            }
        });
        Self::new(identity, routes.collect()).map_err(|fault| invalid(&fault))
    }

    /// A table in which the comparator serves everything.
    pub fn empty(identity: Identity) -> Self {
        Self {
            identity,
            routes: Vec::new(),
        }
    }

    /// The table of an emulation, whose figures mean nothing: the first proven route of every size, whatever it took.
    /// For serving in this process only; it cannot be written.
    pub(crate) fn untimed(report: &TuneReport, identity: Identity) -> Self {
        let route = |row: &crate::tune::Row| {
            let (name, geometry) = (row.route.clone()?, row.geometry?);
            Some(Route {
                up_to: row.bytes,
                served: Served::Variant { name, geometry },
                us: None,
                comparator: None,
                comparator_us: None,
                reason: "proven; not timed, since ranks share a GPU".to_owned(),
            })
        };
        let routes = report.rows.iter().filter_map(route).collect();
        Self { identity, routes }
    }

    /// Checks what every table must be.
    pub(super) fn new(identity: Identity, routes: Vec<Route>) -> Result<Self, String> {
        let ranks = identity.gpus.len();
        let mut seen: Vec<usize> = identity.placement.clone();
        seen.sort_unstable();
        if ranks < 2 || seen != (0..ranks).collect::<Vec<_>>() {
            return Err(format!(
                "placement {:?} must name each of the {ranks} GPUs once, 2 or more",
                identity.placement
            ));
        }
        let mut previous = 0;
        for route in &routes {
            let up_to = route.up_to;
            if up_to <= previous || up_to % identity.element.bytes() as u64 != 0 {
                return Err(format!(
                    "size {up_to} after {previous}: sizes must rise and be whole elements"
                ));
            }
            if up_to > MAX_BYTES {
                return Err(format!("size {up_to} is above 1 GiB, which no kernel is made for"));
            }
            previous = up_to;
            if let Served::Variant {
                name,
                geometry: Geometry { blocks, threads, .. },
            } = &route.served
            {
                if *blocks == 0 || *threads == 0 || threads % 32 != 0 || *threads > MAX_THREADS {
                    return Err(format!(
                        "{name} up to {up_to} bytes: no launch has geometry {blocks}x{threads}"
                    ));
                }
                if route.us.is_none() {
                    return Err(format!("{name} up to {up_to} bytes serves without a figure"));
                }
            }
            let figures = [route.us, route.comparator_us];
            if figures.into_iter().flatten().any(|us| !us.is_finite() || us <= 0.0) {
                return Err(format!(
                    "up to {up_to} bytes: a figure is no positive number of microseconds"
                ));
            }
        }
        Ok(Self { identity, routes })
    }

    /// Where and with what it was measured.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// All routes, ascending.
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// The route of a payload: the smallest tuned size that holds it. None above the largest one, for an empty payload
    /// and for one that is no whole number of elements: all of these are the comparator's.
    pub fn lookup(&self, bytes: u64) -> Option<&Route> {
        if bytes == 0 || !bytes.is_multiple_of(self.identity.element.bytes() as u64) {
            return None;
        }
        self.routes.get(self.routes.partition_point(|r| r.up_to < bytes))
    }

    /// Hands the sizes of the route at `up_to` to the comparator, and says why.
    pub(crate) fn hand_over(&mut self, up_to: u64, reason: &str) {
        if let Some(route) = self.routes.iter_mut().find(|r| r.up_to == up_to) {
            route.served = Served::Comparator;
            route.reason = reason.to_owned();
        }
    }
}

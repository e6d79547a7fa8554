//! What selectors need, and what a planner refuses before it plans.
//!
//! Start at [`Planner::with_catalogue`].

use super::Planner;
use crate::alltoallv::catalogue::Catalogue;
use crate::alltoallv::demand::Demand;
use crate::alltoallv::fabric::Fabric;
use crate::alltoallv::peel::{Families, FamilyFault};
use crate::alltoallv::strategy::{Refused, WrongRanks};

impl Planner {
    /// The same with the families of its machine, for [`super::super::Selector::Family`]; `fabric` is the one it was made for.
    ///
    /// # Errors
    /// A catalogue of another machine, or a machine of several nodes; see [`FamilyFault`].
    pub fn with_catalogue(mut self, fabric: &Fabric, catalogue: &Catalogue) -> Result<Self, FamilyFault> {
        let families = Families::new(&self.net, fabric, catalogue)?;
        self.peel.set_families(families);
        Ok(self)
    }

    pub(super) fn accepts(&self, demand: &Demand) -> Result<(), Refused> {
        if demand.ranks() != self.net.ranks {
            return Err(Refused::Ranks(WrongRanks {
                demand: demand.ranks(),
                machine: self.net.ranks,
            }));
        }
        if !self.peel.can(&self.effort) {
            return Err(Refused::Selector(FamilyFault::NoCatalogue));
        }
        Ok(())
    }
}

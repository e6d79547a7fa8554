//! What can be typed behind `topoforge alltoallv`.
//!
//! Start at [`AlltoallvCommand`].

use clap::Subcommand;

/// One verb each.
#[derive(Debug, Subcommand)]
pub enum AlltoallvCommand {
    /// Show what a node can carry at once: families of lanes, how they were found, and what they take up
    Catalogue(CatalogueArgs),
}

/// `topoforge alltoallv catalogue`
#[derive(Debug, clap::Args)]
pub struct CatalogueArgs {
    /// A compiled family's name, or a descriptor file; either states `alltoallv: Machine(..)`
    #[arg(value_name = "FAMILY|FILE.ron")]
    pub target: String,
}

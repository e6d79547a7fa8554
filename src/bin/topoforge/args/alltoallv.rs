//! What can be typed behind `topoforge alltoallv`.
//!
//! Start at [`AlltoallvCommand`].

use clap::{Subcommand, ValueEnum};
use std::path::PathBuf;

/// One verb each.
#[derive(Debug, Subcommand)]
pub enum AlltoallvCommand {
    /// Show what a node can carry at once: families of lanes, how they were found, and what they take up
    Catalogue(CatalogueArgs),
    /// Plan one exchange: activations, predicted time, the lower bound, and how long planning took
    Plan(AlltoallvPlanArgs),
    /// Predict our plan and what others would do, under three laws of what happens when lanes meet
    Simulate(AlltoallvSimulateArgs),
    /// Write recorded bytes as a `Profile(..)` for the `profiles` of a descriptor's machine
    Profile(ProfileArgs),
}

/// `topoforge alltoallv profile`
#[derive(Debug, clap::Args)]
pub struct ProfileArgs {
    /// A line for each rank of a node, bytes for each rank in it; several calls may be added up
    #[arg(value_name = "FILE")]
    pub demand: PathBuf,
    /// What the profile is called: `[a-z0-9][a-z0-9-]*`
    #[arg(long, value_name = "NAME")]
    pub name: String,
}

/// `topoforge alltoallv catalogue`
#[derive(Debug, clap::Args)]
pub struct CatalogueArgs {
    /// A compiled family's name, or a descriptor file; either states `alltoallv: Machine(..)`
    #[arg(value_name = "FAMILY|FILE.ron")]
    pub target: String,
}

/// What is to be exchanged on which machine.
#[derive(Debug, clap::Args)]
pub struct DemandArgs {
    /// A compiled family's name, or a descriptor file; either states `alltoallv: Machine(..)`
    #[arg(value_name = "FAMILY|FILE.ron")]
    pub target: String,
    /// Nodes of the machine [default: as its descriptor says, 1 for any number]
    #[arg(long, value_name = "N")]
    pub nodes: Option<u32>,
    /// uniform, zipf:0.6, hot:0.6, random, sparse:0.4, or a file: a line for each rank, bytes for each rank in it
    #[arg(long, value_name = "KIND|FILE", default_value = "uniform")]
    pub demand: String,
    /// Bytes that a rank sends, on average, with B, KiB, MiB, GiB or TiB; a file says it itself
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size)]
    pub bytes: u64,
    /// Seed of the demand
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// `topoforge alltoallv plan`
#[derive(Debug, clap::Args)]
pub struct AlltoallvPlanArgs {
    #[command(flatten)]
    pub exchange: DemandArgs,
    /// Plan in this way, however good it is [default: what is predicted to be fastest]
    #[arg(long, value_enum)]
    pub strategy: Option<StrategyArg>,
    /// Plan activation by activation (`--strategy peel`), with lanes selected in this way
    #[arg(long, value_enum)]
    pub selector: Option<SelectorArg>,
}

/// `topoforge alltoallv simulate`
#[derive(Debug, clap::Args)]
pub struct AlltoallvSimulateArgs {
    #[command(flatten)]
    pub exchange: DemandArgs,
    /// What is left of a rate where two or more lanes meet, under the lossy law
    #[arg(long, value_name = "PART", default_value_t = 0.85, value_parser = part)]
    pub eta: f64,
    /// Draw the load of links over time
    #[arg(long, value_name = "FILE.svg")]
    pub svg: Option<PathBuf>,
}

/// Ways to plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StrategyArg {
    /// Activation by activation, by what relieves the most loaded links.
    Peel,
    /// All lanes into rounds, longest first.
    Pack,
    /// A fixed order of peers.
    Rotation,
    /// The order recorded for uniform demand or a profile in a single node; a rotation where there is none.
    Base,
    /// Everything at once.
    Fluid,
}

/// Ways to select the lanes of an activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SelectorArg {
    /// For the most loaded links first.
    Critical,
    /// The heaviest lane that fits, again and again.
    Greedy,
    /// The heaviest family of the catalogue; one node only.
    Family,
}

/// Any number of bytes: unlike a payload it need be no whole number of elements, and nothing is sent.
fn size(text: &str) -> Result<u64, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let bits = match unit.trim_start() {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => 64,
    };
    if digits.is_empty() || bits == 64 {
        return Err(format!(
            "`{text}` is no size: write a whole number with B, KiB, MiB, GiB or TiB, e.g. 64MiB"
        ));
    }
    let bytes = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << bits));
    bytes.ok_or_else(|| format!("`{text}` is more than can be counted: a pair has at most 256TiB"))
}

fn part(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(part) if (0.01..=1.0).contains(&part) => Ok(part),
        _ => Err(format!("`{text}` is no part of a rate: write a number from 0.01 to 1")),
    }
}

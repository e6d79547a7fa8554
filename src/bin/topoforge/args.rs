//! What can be typed. Values are checked here, so that a command never sees a payload or device that cannot be.
//!
//! It runs nothing. Start at [`Args`].

mod alltoallv;

pub use alltoallv::{
    AlltoallvCommand, AlltoallvPlanArgs, AlltoallvSimulateArgs, CatalogueArgs, DemandArgs, ProfileArgs, SelectorArg,
    StrategyArg,
};

use crate::commands::groups::Kind as GroupKind;
use crate::device::{Choice, Virtual};
use crate::failure::Failure;
use clap::{Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use topoforge::comm::UseNccl;
use topoforge::device::Launch;
use topoforge::device::cuda::Way;
use topoforge::registry::{Element, Partials};
use topoforge::tune::payloads::parse_size;
use topoforge::tune::{Compare, Payloads, StepCalls, StepTime};

/// GPU topology descriptors become specialised, proven CUDA all-reduces ahead of time.
#[derive(Debug, Parser)]
#[command(
    name = "topoforge",
    version,
    propagate_version = false,
    arg_required_else_help = true
)]
#[command(after_help = "Exit codes: 0 success, 1 the work failed, 2 bad usage or unreadable input.")]
pub struct Args {
    /// One JSON document with "format": 1 on stdout instead of tables
    #[arg(long, global = true)]
    pub json: bool,
    /// No progress and no notes on stderr; warnings and errors stay
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// One verb each.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the compiled families
    Families,
    /// List devices and say which one commands take by default
    Devices,
    /// Plan a topology: candidates, how many verify, and the ranked shortlist
    Plan(PlanArgs),
    /// Predict a call's timeline, stage by stage, and the most loaded link
    Simulate(SimulateArgs),
    /// Prove every variant bit for bit
    Qualify(QualifyArgs),
    /// Choose the fastest proven route for each payload and write routes.ron
    Tune(TuneArgs),
    /// Time every proven variant over a sweep of payloads, without choosing
    Bench(BenchArgs),
    /// Measure what launches, copies and a word to a peer cost on two GPUs
    Floor(FloorArgs),
    /// Time the start from a routes file: read it, prove its variants again, ready to serve
    Start(StartArgs),
    /// Call a variant millions of times and check every word of every call on the device
    Soak(SoakArgs),
    /// Say which family fits the live machine or a descriptor
    Match(MatchArgs),
    /// Run one rank of a group of processes, as torchrun or `topoforge launch` starts it, and check its sums
    Rank(RankArgs),
    /// Start a `topoforge rank` for each rank on this machine and wait for all
    Launch(LaunchArgs),
    /// Fingerprint the live machine, or read what other tools say about one
    Probe(ProbeArgs),
    /// Say in plain words which family fits, why the others do not, and what would have to change
    Explain(ExplainArgs),
    /// Find what stands in the way of peer access and prove every pair of GPUs
    Doctor(DoctorArgs),
    /// Look into AlltoAllv on a machine whose descriptor states one for it
    #[command(subcommand)]
    Alltoallv(AlltoallvCommand),
    /// Say what this build holds: architectures, toolkits, kernel set
    Version,
}

/// `topoforge plan`
#[derive(Debug, clap::Args)]
pub struct PlanArgs {
    /// A compiled family's name, or a descriptor file; with --check also all
    #[arg(value_name = "FAMILY|FILE.ron")]
    pub target: String,
    /// Rank at this payload, e.g. 5KiB; without it, each size class at its own
    #[arg(long, value_parser = parse_size)]
    pub payload: Option<u64>,
    /// The type in which sums are rounded
    #[arg(long, value_name = "f16|f32", default_value = "f16", value_parser = partials)]
    pub partials: Partials,
    /// Most candidates to make [default: 2048, as families are planned]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    pub budget: Option<u32>,
    /// Most schedules to keep for a size class [default: 8, as families are planned]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub shortlist: Option<u32>,
    /// Draw the machine and a schedule's stages as SVG
    #[arg(long, value_name = "FILE.svg")]
    pub svg: Option<PathBuf>,
    /// The same for Graphviz
    #[arg(long, value_name = "FILE.dot")]
    pub dot: Option<PathBuf>,
    /// Which schedule to draw [default: the best one for the payload, or for the largest payloads]
    #[arg(long, value_name = "SCHEDULE")]
    pub draw: Option<String>,
    /// Print the CUDA text that the family is compiled from: all of it, or a variant's or kernel's
    #[arg(long, value_name = "VARIANT|HASH", num_args = 0..=1, default_missing_value = "all")]
    #[arg(conflicts_with_all = ["payload", "partials", "budget", "shortlist", "svg", "dot", "draw"])]
    pub show_cuda: Option<String>,
    /// Compare what the family is lowered to now with what this binary holds, hash by hash
    #[arg(long, conflicts_with_all = ["show_cuda", "payload", "partials", "budget", "shortlist", "svg", "dot", "draw"])]
    pub check: bool,
}

/// `topoforge simulate`
#[derive(Debug, clap::Args)]
pub struct SimulateArgs {
    /// A compiled family's name, or a descriptor file
    #[arg(value_name = "FAMILY|FILE.ron")]
    pub target: String,
    /// Payload a rank, e.g. 5KiB
    #[arg(long, value_parser = parse_size)]
    pub payload: u64,
    /// The type in which sums are rounded
    #[arg(long, value_name = "f16|f32", default_value = "f16", value_parser = partials)]
    pub partials: Partials,
    /// Which schedule [default: the one predicted to be fastest]
    #[arg(long, value_name = "SCHEDULE")]
    pub schedule: Option<String>,
}

/// Where to run.
#[derive(Clone, Debug, clap::Args)]
pub struct Where {
    /// host, cuda (all visible GPUs) or cuda:0,1 [default: the best, see `topoforge devices`]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<Choice>,
    /// Let ranks share a GPU where there are fewer GPUs than ranks; times then mean nothing. With N: only families of N
    /// ranks. Without N, or with 0: as many as each family needs
    #[arg(long = "virtual", value_name = "N", num_args = 0..=1, default_missing_value = "0")]
    pub virtual_ranks: Option<u32>,
    /// Seed of inputs and, on the host, of every scheduling choice
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = seed, allow_negative_numbers = true)]
    pub seed: u32,
}

impl Where {
    /// Whether ranks may share a GPU.
    pub fn sharing(&self) -> Virtual {
        match self.virtual_ranks {
            None => Virtual::No,
            Some(0) => Virtual::AsNeeded,
            Some(n) => Virtual::Exactly(n as usize),
        }
    }
}

/// Types of elements and of sums.
#[derive(Debug, clap::Args)]
pub struct Numbers {
    /// Type of inputs and outputs: f16, or bf16 and f32 in builds with those features
    #[arg(long, value_name = "f16|bf16|f32", default_value = "f16", value_parser = element)]
    pub dtype: Element,
    /// The type in which sums are rounded: the elements' own, or f32; then NCCL gets f32 tensors and both conversions
    /// are timed [default: the elements' own]
    #[arg(long, value_name = "TYPE")]
    partials: Option<String>,
}

impl Numbers {
    /// In which type sums are rounded.
    ///
    /// # Errors
    /// A type that elements of this type are not summed in.
    pub fn partials(&self) -> Result<Partials, Failure> {
        let dtype = self.dtype;
        let named = self.partials.as_deref().unwrap_or(dtype.name());
        let known = if dtype == Element::F32 {
            "f32".to_owned()
        } else {
            format!("{dtype} or f32")
        };
        Partials::for_element(dtype, named).ok_or_else(|| {
            Failure::usage(format!(
                "--partials {named}: sums of {dtype} elements are not rounded to that: write {known}"
            ))
        })
    }

    /// Refuses payloads that are no whole number of elements.
    ///
    /// # Errors
    /// Names the first one.
    pub fn check(&self, payloads: &Payloads) -> Result<(), Failure> {
        let size = self.dtype.bytes() as u64;
        match payloads.bytes().iter().find(|b| !b.is_multiple_of(size)) {
            None => Ok(()),
            Some(bytes) => Err(Failure::usage(format!(
                "a payload of {bytes} bytes is no whole number of {size}-byte {} elements",
                self.dtype
            ))),
        }
    }
}

/// `topoforge qualify`
#[derive(Debug, clap::Args)]
pub struct QualifyArgs {
    #[command(flatten)]
    pub place: Where,
    /// A family's name, or all
    #[arg(long, value_name = "NAME|all", default_value = "all")]
    pub family: String,
    /// Only variants of this element type [default: every type in this build]
    #[arg(long, value_name = "f16|bf16|f32", value_parser = element)]
    pub dtype: Option<Element>,
    /// On GPUs: more seeds, payloads to 1 MiB, late ranks. On the host: more seeds under every order of delivery
    #[arg(long)]
    pub thorough: bool,
    /// Also plant faults in every variant and report which ones the checks catch
    #[arg(long)]
    pub controls: bool,
}

/// `topoforge tune`
#[derive(Debug, clap::Args)]
pub struct TuneArgs {
    #[command(flatten)]
    pub place: Where,
    /// A family's name [default: the one that fits the devices; nvlink-pair on the host]
    #[arg(long, value_name = "NAME")]
    pub family: Option<String>,
    /// Payloads a rank [default: 1,5,10,25,40,80,256,512,1024KiB on GPUs, to 80KiB on the host]
    #[arg(long, value_name = "LIST", conflicts_with_all = ["hidden", "tokens"])]
    pub payloads: Option<Payloads>,
    /// Payloads from a program's dump of its calls (TOPOFORGE_TRACE); their counts serve --step-ms too
    #[arg(long, value_name = "FILE", conflicts_with_all = ["payloads", "hidden", "tokens", "calls"])]
    pub from_trace: Option<PathBuf>,
    /// Collectives of a step with their sizes, e.g. 5KiB:128,25KiB:64: what it would gain is projected. Without another
    /// list of payloads these are the payloads
    #[arg(long, value_name = "SIZE:COUNT,...", requires = "step_ms")]
    pub calls: Option<StepCalls>,
    /// Milliseconds of a step besides its collectives, e.g. 8..20
    #[arg(long, value_name = "FROM..TO")]
    pub step_ms: Option<StepTime>,
    /// Payloads from a model: elements of an activation
    #[arg(long, value_name = "N", requires = "tokens")]
    pub hidden: Option<u64>,
    /// Payloads from a model: tokens of a step, e.g. 1,5,16
    #[arg(long, value_name = "LIST", requires = "hidden", value_delimiter = ',')]
    pub tokens: Vec<u64>,
    #[command(flatten)]
    pub numbers: Numbers,
    /// What must be beaten: nccl as found, nccl-ll (with NCCL_PROTO=LL), nccl-ring (with NCCL_ALGO=Ring), pull (the
    /// peer-read kernels) or none [default: nccl,pull]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub comparator: Vec<CompareArg>,
    /// How kernels may be launched: plain, programmatic (compute capability 9.0 and up) or both
    #[arg(long, value_enum, default_value = "plain")]
    pub launch: LaunchArg,
    /// Also time beside so many busy streams on every GPU: a route that loses there is not taken
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=7))]
    pub concurrency: Option<u32>,
    /// Write the routes here; refused where times mean nothing
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// `topoforge bench`
#[derive(Debug, clap::Args)]
pub struct BenchArgs {
    #[command(flatten)]
    pub place: Where,
    /// A family's name [default: the one that fits the devices; nvlink-pair on the host]
    #[arg(long, value_name = "NAME")]
    pub family: Option<String>,
    /// Smallest payload
    #[arg(long, default_value = "1KiB", value_parser = parse_size)]
    pub from: u64,
    /// Largest payload
    #[arg(long, default_value = "512KiB", value_parser = parse_size)]
    pub to: u64,
    /// Only these variants, e.g. one-shot/packet128/any [default: all]; peer reads stay where they are a comparator
    #[arg(long, value_name = "NAME", value_delimiter = ',', conflicts_with = "groups")]
    pub variant: Vec<String>,
    #[command(flatten)]
    pub numbers: Numbers,
    /// What is timed beside our routes; as for tune [default: nccl,pull]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub comparator: Vec<CompareArg>,
    /// How kernels may be launched: plain, programmatic (compute capability 9.0 and up) or both
    #[arg(long, value_enum, default_value = "plain")]
    pub launch: LaunchArg,
    /// A column a variant, or the fastest one in the columns of nccl-tests, in and out of place, every word checked
    #[arg(long, value_enum, default_value = "table")]
    pub style: Style,
    /// Measure the first pair of every kind of link, all GPUs together, or both
    #[arg(long, value_name = "pairs,full", value_delimiter = ',', conflicts_with_all = ["family", "virtual_ranks"])]
    pub groups: Vec<GroupKind>,
    /// Write a JSON file a rank here, with the times of choosing routes and of starting from them; must be new or empty
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Draw latency over payload, a line a route or comparator
    #[arg(long, value_name = "FILE.svg")]
    pub svg: Option<PathBuf>,
}

/// How a sweep is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Style {
    /// A column a variant and comparator.
    Table,
    /// As nccl-tests shows it.
    NcclTests,
}

/// `topoforge floor`
#[derive(Debug, clap::Args)]
pub struct FloorArgs {
    #[command(flatten)]
    pub place: Where,
    /// A family's name [default: the one that fits the devices]
    #[arg(long, value_name = "NAME")]
    pub family: Option<String>,
    /// Payloads a rank [default: 1,5,10,25,40,80KiB]
    #[arg(long, value_name = "LIST")]
    pub payloads: Option<Payloads>,
}

/// `topoforge start`
#[derive(Debug, clap::Args)]
pub struct StartArgs {
    /// What `topoforge tune --out` wrote
    #[arg(long, value_name = "FILE")]
    pub routes: PathBuf,
    /// The GPUs, one a rank
    #[arg(long, value_name = "cuda:0,1")]
    pub device: Choice,
    /// When NCCL joins: at the start, or only if a range of the table is its
    #[arg(long, value_name = "start|routed", default_value = "start", value_parser = use_nccl)]
    pub nccl: UseNccl,
}

/// `topoforge soak`
#[derive(Debug, clap::Args)]
pub struct SoakArgs {
    #[command(flatten)]
    pub place: Where,
    /// A family's name [default: the one that fits the devices; nvlink-pair on the host]
    #[arg(long, value_name = "NAME")]
    pub family: Option<String>,
    /// A variant's name, or all [default: the first one compiled for the largest payload]
    #[arg(long, value_name = "NAME|all")]
    pub variant: Option<String>,
    /// Calls of each variant, e.g. 10M, 64k or 1000
    #[arg(long, value_name = "N", default_value = "1M", value_parser = parse_count)]
    pub calls: u64,
    /// Payloads a rank, taken in turn [default: 1,5,10,25,40,80KiB]
    #[arg(long, value_name = "LIST")]
    pub payloads: Option<Payloads>,
    #[command(flatten)]
    pub numbers: Numbers,
    /// Threads of a block
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(32..=512))]
    pub threads: u32,
    /// How kernels are launched
    #[arg(long, value_enum, default_value = "plain")]
    pub launch: SoakLaunch,
    /// First plant a fault, a contribution that never arrives, and fail unless the check sees it
    #[arg(long)]
    pub control: bool,
}

/// The launch mode of a soak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SoakLaunch {
    /// Each kernel starts when the one before it has ended.
    Plain,
    /// Each kernel waits on the device for the end of the one before it.
    Programmatic,
    /// The same, and lets the next one become resident from the start.
    Early,
}

/// `topoforge rank`
#[derive(Debug, clap::Args)]
pub struct RankArgs {
    /// Run on the processor instead of a GPU; needs --family. Sums are exact and times mean nothing
    #[arg(long, requires = "family", conflicts_with_all = ["gpu", "shared_gpus", "share", "routes"])]
    pub host: bool,
    /// CUDA's number of the GPU [default: the only visible one, else LOCAL_RANK]
    #[arg(long, value_name = "N")]
    pub gpu: Option<usize>,
    /// A family's name [default: the one that fits the ranks' GPUs]
    #[arg(long, value_name = "NAME")]
    pub family: Option<String>,
    /// Payloads a rank that are tuned [default: 1,5,10,25,40,80,256,512,1024KiB on GPUs, to 80KiB on the host]
    #[arg(long, value_name = "LIST")]
    pub payloads: Option<Payloads>,
    /// Types of elements that get routes, and that calls are made with in turn
    #[arg(long, value_name = "LIST", default_value = "f16", value_delimiter = ',', value_parser = element)]
    pub dtype: Vec<Element>,
    /// The type in which sums are rounded
    #[arg(long, value_name = "f16|f32", default_value = "f16", value_parser = partials)]
    pub partials: Partials,
    /// What must be beaten: nccl, pull (the peer-read kernels) or none [default: nccl,pull]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub comparator: Vec<CompareArg>,
    /// When NCCL joins: at the start, or only if a range of the tables is its
    #[arg(long, value_name = "start|routed", default_value = "start", value_parser = use_nccl)]
    pub nccl: UseNccl,
    /// A table of routes to read, or for rank 0 to write where there is none
    #[arg(long, value_name = "FILE")]
    pub routes: Option<PathBuf>,
    /// Let ranks share a GPU; times then mean nothing
    #[arg(long)]
    pub shared_gpus: bool,
    /// How device memory travels between processes: vmm, ipc or staged [default: the best that all ranks have]
    #[arg(long, value_name = "WAY", value_parser = way)]
    pub share: Option<Way>,
    /// Seconds that a kernel may wait for another rank
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = seconds)]
    pub deadline: f64,
    /// Seconds that set-up waits for another process
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = seconds)]
    pub patience: f64,
    /// Calls whose sums are checked, in each group
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub calls: usize,
    /// How often a group is made and left again
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub cycles: usize,
    /// Groups of different names do not meet
    #[arg(long, value_name = "NAME", default_value = "")]
    pub group: String,
}

impl RankArgs {
    /// The library's list.
    pub fn comparators(&self) -> Vec<Compare> {
        if self.comparator.is_empty() {
            return vec![Compare::Nccl, Compare::Pull];
        }
        self.comparator.iter().map(|c| (*c).into()).collect()
    }
}

/// `topoforge launch`
#[derive(Debug, clap::Args)]
pub struct LaunchArgs {
    /// How many ranks
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub processes: u8,
    /// GPUs by CUDA's numbers, rank by rank, from the beginning again where there are too few [default: each rank its own]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub gpus: Option<Vec<usize>>,
    /// Show each rank its own GPU only, by CUDA_VISIBLE_DEVICES
    #[arg(long, requires = "gpus")]
    pub masked: bool,
    /// Runs of different ports do not meet
    #[arg(long, value_name = "PORT", default_value_t = 29500)]
    pub port: u16,
    /// Seconds that the others may take to end once a rank has failed; then they are killed
    #[arg(long, value_name = "SECONDS", default_value_t = 120.0, value_parser = seconds)]
    pub grace: f64,
    /// What each `topoforge rank` is told, behind --
    #[arg(last = true, value_name = "ARGUMENTS OF RANK")]
    pub rest: Vec<String>,
}

/// `topoforge match`
#[derive(Debug, clap::Args)]
pub struct MatchArgs {
    /// A compiled family's name, or a descriptor file [default: the live machine]
    #[arg(value_name = "FAMILY|FILE.ron")]
    pub target: Option<String>,
    /// Pick the best GPUs for a smaller family instead of using all
    #[arg(long)]
    pub any: bool,
}

/// Launch modes that a timing tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LaunchArg {
    /// Each kernel starts when the one before it has ended.
    Plain,
    /// Each kernel waits on the device for the end of the one before it; with and without letting the next one in early.
    Programmatic,
    /// Either, whichever is faster.
    Both,
}

impl LaunchArg {
    /// The library's list.
    pub fn list(self) -> Vec<Launch> {
        match self {
            Self::Plain => vec![Launch::Plain],
            Self::Programmatic => Launch::PROGRAMMATIC.to_vec(),
            Self::Both => Launch::ALL.to_vec(),
        }
    }
}

/// Which machine.
#[derive(Debug, clap::Args)]
pub struct Source {
    /// Read this text instead of asking the live machine; - is stdin
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// What the text is: output of `nvidia-smi topo -m` (smi) or `-p2p` (p2p), NCCL's topology file, a descriptor
    #[arg(long, value_name = "KIND", default_value = "auto", requires = "from")]
    pub input: InputArg,
}

/// What a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InputArg {
    /// Told from the text.
    Auto,
    /// `nvidia-smi topo -m`.
    Smi,
    /// `nvidia-smi topo -p2p`.
    P2p,
    /// `NCCL_TOPO_DUMP_FILE`.
    NcclXml,
    /// A descriptor.
    Ron,
}

/// `topoforge probe`
#[derive(Debug, clap::Args)]
pub struct ProbeArgs {
    #[command(flatten)]
    pub source: Source,
    /// Also measure each directed edge, alone and to all peers at once: latency and rate of stores and loads
    #[arg(long, conflicts_with = "from")]
    pub measure: bool,
    /// Write a descriptor that compiles as it is
    #[arg(long, value_name = "FILE.ron")]
    pub save: Option<PathBuf>,
    /// Write over a file that probe did not write
    #[arg(long, requires = "save")]
    pub force: bool,
}

/// `topoforge explain`
#[derive(Debug, clap::Args)]
pub struct ExplainArgs {
    #[command(flatten)]
    pub source: Source,
}

/// `topoforge doctor`
#[derive(Debug, clap::Args)]
pub struct DoctorArgs {
    /// Test again, whatever was kept from an earlier run
    #[arg(long)]
    pub fresh: bool,
    /// Seconds that the test of a pair may take before it is killed and called a hang
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub deadline: u64,
    /// Test this pair in this very process and print its lines
    #[arg(long, value_name = "A,B", value_parser = ends, hide = true)]
    pub pair: Option<[usize; 2]>,
}

/// [`Compare`] as clap knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompareArg {
    /// NCCL as found.
    Nccl,
    /// NCCL with NCCL_PROTO=LL.
    NcclLl,
    /// NCCL with NCCL_ALGO=Ring.
    NcclRing,
    /// The compiled peer-read kernels.
    Pull,
    /// Nothing.
    None,
}

impl From<CompareArg> for Compare {
    fn from(arg: CompareArg) -> Self {
        match arg {
            CompareArg::Nccl => Self::Nccl,
            CompareArg::NcclLl => Self::NcclLl,
            CompareArg::NcclRing => Self::NcclRing,
            CompareArg::Pull => Self::Pull,
            CompareArg::None => Self::None,
        }
    }
}

/// A whole number above zero, with `k`, `M` or `G` for thousands, millions or thousand millions.
fn parse_count(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no number of calls: write a whole number such as 1000, 64k or 10M");
    let (digits, factor) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1_000),
        Some((at, 'm' | 'M')) => (&text[..at], 1_000_000),
        Some((at, 'g' | 'G')) => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let number = digits.parse::<u64>().ok().filter(|_| plain);
    let count = number.and_then(|n| n.checked_mul(factor)).ok_or_else(wrong)?;
    if (1..=1_000_000_000_000).contains(&count) {
        Ok(count)
    } else {
        Err(format!("{count} calls: give 1 to 1000G"))
    }
}

fn ends(text: &str) -> Result<[usize; 2], String> {
    let number = |text: &str| text.parse::<usize>().ok();
    let both = text.split_once(',').and_then(|(a, b)| Some([number(a)?, number(b)?]));
    both.filter(|[a, b]| a != b)
        .ok_or_else(|| format!("`{text}` names no two GPUs: write 0,1"))
}

fn seed(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is no seed: write a whole number from 0 to {}", u32::MAX))
}

fn way(text: &str) -> Result<Way, String> {
    let all = [Way::Descriptors, Way::Ipc, Way::Staged];
    let named = all.into_iter().find(|w| w.name() == text);
    named.ok_or_else(|| format!("`{text}` is no way of sharing memory: write vmm, ipc or staged"))
}

fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|s: &f64| *s > 0.0 && *s <= 86_400.0);
    number.ok_or_else(|| format!("`{text}` is no number of seconds above 0 and up to a day"))
}

fn partials(text: &str) -> Result<Partials, String> {
    Partials::for_element(Element::F16, text)
        .ok_or_else(|| format!("`{text}` is no type of partials: write f16 or f32"))
}

fn use_nccl(text: &str) -> Result<UseNccl, String> {
    UseNccl::from_name(text).ok_or_else(|| format!("`{text}` is neither start nor routed"))
}

fn element(text: &str) -> Result<Element, String> {
    Element::from_name(text).ok_or_else(|| format!("`{text}` is no type of elements: write f16, bf16 or f32"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn counts_have_units_and_slips_are_refused() {
        assert_eq!(
            ["7", "64k", "10M", "2g"].map(|t| parse_count(t).ok()),
            [Some(7), Some(64_000), Some(10_000_000), Some(2_000_000_000)]
        );
        for text in [
            "",
            "M",
            "-1",
            "+1",
            "1.5M",
            "10 M",
            "0",
            "0k",
            "99999999999G",
            "10Mi",
            "ten",
        ] {
            assert!(parse_count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn virtual_without_a_number_means_as_many_as_needed() {
        let sharing = |line: &[&str]| match Args::try_parse_from(line).expect("parses").command {
            Command::Qualify(args) => args.place.sharing(),
            other => panic!("{other:?}"),
        };
        assert_eq!(sharing(&["topoforge", "qualify"]), Virtual::No);
        assert_eq!(sharing(&["topoforge", "qualify", "--virtual"]), Virtual::AsNeeded);
        assert_eq!(
            sharing(&["topoforge", "qualify", "--virtual", "0", "--json"]),
            Virtual::AsNeeded
        );
        assert_eq!(
            sharing(&["topoforge", "qualify", "--virtual", "--json"]),
            Virtual::AsNeeded
        );
        assert_eq!(
            sharing(&["topoforge", "qualify", "--virtual", "8"]),
            Virtual::Exactly(8)
        );
    }
}

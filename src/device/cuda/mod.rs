//! The CUDA executor: one process, a stream a rank, real GPUs; several ranks may share one ("virtual ranks").
//!
//! It loads and allocates everything before the first kernel spins, launches call by call across ranks so that one
//! thread cannot deadlock itself, and waits with a bound. It never judges results or times. Start at [`CudaExecutor`];
//! the devices and ranks are in `gpu` and `machine`, the kernels around collectives in `nodes`, scratch and launching in `collective`, chains in `chain`, samples in `timing`,
//! what a dead wait says in `verdict`.

mod chain;
mod collective;
mod comparator;
mod cost;
mod edges;
mod floor;
mod gpu;
mod host_way;
mod joint;
mod lines;
mod load;
mod machine;
mod nodes;
mod served;
mod share;
mod soak;
mod timing;
mod two_stage_pull;
mod verdict;

use super::{
    Chain, Comparator, DeviceError, DeviceInfo, Executor, Fault, Geometry, Launch, Outputs, Preparation, Prepared,
    Sampling, Timed, whole,
};
use crate::device::edges::Measured;
use crate::device::floor::{Floor, LaunchCost};
use crate::device::lines::LineTally;
use crate::device::soak::{Soak, Tally};
use crate::process::Seen;
use crate::process::link::Steps;
use crate::process::watch::Kept;
use crate::registry::{Protocol, Variant};
use collective::{Collective, Compiled, Work};
use comparator::NcclAllReduce;
pub use joint::Member;
use load::Load;
use machine::Machine;
pub(crate) use served::ServedKernel;
pub use share::Way;
use std::sync::Arc;
use std::time::Duration;
use two_stage_pull::TwoStagePull;

/// How a CUDA executor behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaOptions {
    /// How long one wait of a kernel may last.
    pub deadline: Duration,
    /// Never enable peer access: different GPUs meet in host memory only, as on machines that allow nothing else.
    pub staged: bool,
    /// How device memory travels between processes; none for the best way that all ranks have.
    pub share: Option<Way>,
}

impl Default for CudaOptions {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(30),
            staged: false,
            share: None,
        }
    }
}

/// Runs collectives on GPUs, of this process or ([`CudaExecutor::joined`]) of one process a rank.
///
/// ```no_run
/// use topoforge::device::cuda::{CudaExecutor, CudaOptions};
/// // Four virtual ranks on one GPU: correctness counts, times do not.
/// let executor = CudaExecutor::new(&[0], 4, CudaOptions::default())?;
/// # Ok::<(), topoforge::device::DeviceError>(())
/// ```
pub struct CudaExecutor {
    info: DeviceInfo,
    machine: Option<Machine>,
    collectives: Vec<Option<Collective>>,
    /// Ordered pairs of ranks between which 128-byte lines may be cut.
    cut: Vec<(usize, usize)>,
}

impl CudaExecutor {
    /// `ranks` ranks over CUDA ordinals: rank `r` lives on `devices[r * devices.len() / ranks]`.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] without driver, device or GPU code in this build, or with more virtual ranks on a GPU
    /// than it has hardware queues for; [`DeviceError::Misuse`] for no ranks or no devices.
    pub fn new(devices: &[usize], ranks: usize, options: CudaOptions) -> Result<Self, DeviceError> {
        Ok(Self::of(Machine::new(devices, ranks, options)?))
    }

    /// This process's rank on the GPU `ordinal`, together with the ranks that `steps` joins; `members` are all of them.
    ///
    /// Every rank must then ask for the same things in the same order: each call is a step that all ranks take, and its
    /// result or error is the same on all of them. Outputs and times are those of all ranks.
    ///
    /// # Errors
    /// Any rank's, on all ranks; [`DeviceError::Lost`] names a rank whose process is gone.
    pub fn joined(ordinal: usize, members: &[Member], steps: Steps, options: CudaOptions) -> Result<Self, DeviceError> {
        Ok(Self::of(Machine::joined(ordinal, members, steps, options)?))
    }

    fn of(machine: Machine) -> Self {
        Self {
            info: machine.info().clone(),
            machine: Some(machine),
            collectives: Vec::new(),
            cut: Vec::new(),
        }
    }

    /// How device memory reaches other processes, and the bytes of it and of shared host memory that this rank holds;
    /// none where all ranks are here.
    pub fn sharing(&self) -> Option<(&'static str, u64, u64)> {
        self.machine.as_ref()?.with_joint(|j| {
            let device = j.device.as_ref();
            let way = device.map_or(Way::Staged.name(), |heap| heap.provider());
            (way, device.map_or(0, |heap| heap.held()), j.host.held())
        })
    }

    /// Takes a step with the ranks of other processes: everybody's bytes.
    ///
    /// # Errors
    /// Any rank's, on all ranks.
    pub(crate) fn agree(&self, what: &str, mine: Result<Vec<u8>, DeviceError>) -> Result<Vec<Vec<u8>>, DeviceError> {
        self.machine()?.agree(what, mine)
    }

    /// The first rank of this process.
    pub(crate) fn first(&self) -> usize {
        self.machine.as_ref().map_or(0, |m| m.first)
    }

    /// What is known of the other ranks' processes; none where all ranks are here.
    pub(crate) fn seen(&self) -> Option<Arc<Seen>> {
        self.machine.as_ref()?.with_joint(|j| j.seen.clone())
    }

    /// Has something done shortly after a rank's process is gone, for as long as what is returned lives.
    pub(crate) fn on_loss(&self, hook: impl Fn() + Send + Sync + 'static) -> Option<Kept> {
        let watched = |j: &mut joint::Joint| j.steps.mesh().and_then(|m| m.watch()).map(|w| w.on_loss(hook));
        self.machine.as_ref()?.with_joint(watched).flatten()
    }

    /// Whether a rank's process is gone.
    pub(crate) fn lost(&self) -> bool {
        self.seen().is_some_and(|seen| seen.lost().is_some())
    }

    /// Lets go of what measuring left behind.
    pub(crate) fn trim(&mut self) -> Result<(), DeviceError> {
        self.machine_mut()?.trim()
    }

    fn machine(&self) -> Result<&Machine, DeviceError> {
        let machine = self.machine.as_ref().ok_or(DeviceError::Poisoned)?;
        if machine.wedged() {
            let reason = "a kernel never ended: the GPU is stuck, end this process".to_owned();
            return Err(DeviceError::Unavailable { reason });
        }
        Ok(machine)
    }

    fn machine_mut(&mut self) -> Result<&mut Machine, DeviceError> {
        self.machine()?;
        self.machine.as_mut().ok_or(DeviceError::Poisoned)
    }

    fn collective(&self, id: Prepared) -> Result<&Collective, DeviceError> {
        self.collectives
            .get(id.0)
            .and_then(Option::as_ref)
            .ok_or_else(|| DeviceError::Misuse {
                reason: format!("collective {} is not prepared on this executor", id.0),
            })
    }

    fn keep(&mut self, work: Work, max_bytes: u64) -> Prepared {
        self.collectives.push(Some(Collective {
            work,
            max_bytes,
            dead: false,
        }));
        Prepared(self.collectives.len() - 1)
    }

    /// What a launch of this collective must satisfy, in the caller's words.
    fn admit(&self, id: Prepared, geometry: Geometry, bytes: u64) -> Result<(), DeviceError> {
        let misuse = |reason: String| Err(DeviceError::Misuse { reason });
        let collective = self.collective(id)?;
        if collective.dead {
            return Err(DeviceError::Poisoned);
        }
        whole(bytes, collective.work.element())?;
        if bytes > collective.max_bytes {
            return misuse(format!(
                "{bytes} bytes are more than the {} prepared for",
                collective.max_bytes
            ));
        }
        let Work::Compiled(compiled) = &collective.work else {
            return Ok(());
        };
        let threads = compiled.preparation.threads;
        if geometry.threads != threads {
            return misuse(format!(
                "blocks of {} threads, but prepared for {threads}",
                geometry.threads
            ));
        }
        let mut most = self.max_blocks(id, threads)?;
        if geometry.launch.is_programmatic() && self.info.arch < 90 {
            let reason = "programmatic launches need compute capability 9.0".to_owned();
            return Err(DeviceError::Unavailable { reason });
        }
        most = geometry.launch.most_blocks(most);
        if geometry.blocks == 0 || geometry.blocks > most {
            return misuse(format!(
                "geometry {geometry}: 1 to {most} blocks can spin at once on every rank's GPU"
            ));
        }
        Ok(())
    }

    /// Measures every directed edge between ranks that allows peer access.
    ///
    /// # Errors
    /// Ranks share a GPU, or the device fails.
    pub fn measure_edges(&mut self, sampling: &Sampling) -> Result<Measured, DeviceError> {
        if !self.info.timed || self.machine()?.is_joint() {
            let reason = "edges are measured between GPUs of one process: give each rank one of its own".to_owned();
            return Err(DeviceError::Misuse { reason });
        }
        edges::measure(self.machine_mut()?, sampling)
    }

    /// The launches of a prepared variant by one rank of this process. The executor must outlive them.
    /// Its errors call rank `r` by the name `names[r]`.
    pub(crate) fn served(&self, id: Prepared, rank: usize, names: &Arc<[usize]>) -> Result<ServedKernel, DeviceError> {
        let machine = self.machine()?;
        let here = rank.checked_sub(machine.first).filter(|h| *h < machine.ranks.len());
        match (&self.collective(id)?.work, here) {
            // A pull reads the inputs of that very call on all ranks, which one rank does not know.
            (Work::Compiled(compiled), Some(here)) if compiled.variant.kernel.inputs == 0 => {
                Ok(compiled.served(machine, here, names.clone()))
            }
            _ => Err(DeviceError::Misuse {
                reason: format!("collective {} has no kernel for rank {rank}", id.0),
            }),
        }
    }

    /// Refuses variants that need 128-byte lines to arrive whole where they put over one of these ordered pairs of ranks.
    pub fn avoid_lines(&mut self, cut: Vec<(usize, usize)>) {
        self.cut = cut;
    }

    fn lines(&self, variant: &Variant) -> Result<(), DeviceError> {
        if variant.protocol != Protocol::Packet128 {
            return Ok(());
        }
        let puts = (0..)
            .zip(variant.ranks)
            .flat_map(|(from, r)| r.puts.iter().map(move |p| (from, p.peer as usize)));
        match puts.into_iter().find(|put| self.cut.contains(put)) {
            None => Ok(()),
            Some((from, to)) => Err(DeviceError::Unavailable {
                reason: format!(
                    "`{}` needs 128-byte lines to arrive whole, which only NVLink is known to do: not from rank {from} to \
                     rank {to}",
                    variant.name
                ),
            }),
        }
    }

    /// For what is made in one process that has all ranks only.
    fn alone(&mut self, what: &str) -> Result<(), DeviceError> {
        if self.machine_mut()?.is_joint() {
            let reason = format!("{what} in one process that has all ranks");
            return Err(DeviceError::Unavailable { reason });
        }
        Ok(())
    }

    fn time_beside(
        &mut self,
        candidates: &[Timed],
        sampling: &Sampling,
        load: Option<&Load>,
    ) -> Result<Vec<Vec<Vec<f64>>>, DeviceError> {
        self.machine_mut()?;
        let mut works = Vec::new();
        for timed in candidates {
            self.admit(timed.collective, timed.geometry, timed.bytes)?;
        }
        let Some(machine) = self.machine.as_mut() else {
            return Err(DeviceError::Poisoned);
        };
        for timed in candidates {
            if let Some(Some(collective)) = self.collectives.get(timed.collective.0) {
                works.push((*timed, &collective.work));
            }
        }
        let (culprit, outcome) = match timing::time(machine, &works, sampling, load) {
            Ok(times) => (None, Ok(times)),
            Err((culprit, error)) => (culprit, Err(error)),
        };
        match machine.finish("timing", outcome) {
            Ok(times) => Ok(times),
            Err(error) => {
                if let Some(id) = culprit {
                    self.bury(id);
                }
                Err(error)
            }
        }
    }

    fn bury(&mut self, id: Prepared) {
        if let Some(collective) = self.collectives.get_mut(id.0).and_then(Option::as_mut) {
            collective.dead = true;
        }
    }
}

impl Executor for CudaExecutor {
    fn device(&self) -> &DeviceInfo {
        &self.info
    }

    fn ranks(&self) -> usize {
        self.info.names.len()
    }

    fn prepare(&mut self, variant: &'static Variant, preparation: &Preparation) -> Result<Prepared, DeviceError> {
        if let Some(fault) = preparation.fault.filter(|f| !self.plants(*f)) {
            let reason = format!("{fault:?} cannot be planted on a GPU: use the host executor");
            return Err(DeviceError::Unavailable { reason });
        }
        self.lines(variant)?;
        let machine = self.machine_mut()?;
        let compiled = Compiled::new(machine, variant, preparation);
        let compiled = machine.finish("preparing", compiled)?;
        Ok(self.keep(Work::Compiled(Box::new(compiled)), preparation.max_bytes))
    }

    fn prepare_comparator(&mut self, comparator: Comparator, max_bytes: u64) -> Result<Prepared, DeviceError> {
        let machine = self.machine_mut()?;
        let work = match comparator {
            Comparator::Nccl(setting, element, partials) => {
                NcclAllReduce::new(machine, setting, element, partials, max_bytes).map(Work::Nccl)
            }
            Comparator::TwoStagePull(partials) => {
                TwoStagePull::new(machine, partials, max_bytes).map(Work::TwoStagePull)
            }
        };
        let work = machine.finish("preparing a comparator", work)?;
        Ok(self.keep(work, max_bytes))
    }

    fn release(&mut self, collective: Prepared) {
        let wedged = self.machine().is_err();
        if let Some(slot) = self.collectives.get_mut(collective.0) {
            let old = slot.take();
            if wedged {
                // Freeing would wait for a kernel that never ends.
                std::mem::forget(old);
            } else if let (Some(old), Some(machine)) = (old, self.machine.as_ref()) {
                old.work.free(machine);
            }
        }
    }

    /// For a comparator, which chooses its own grid: no limit.
    fn max_blocks(&self, collective: Prepared, threads: u32) -> Result<u32, DeviceError> {
        let machine = self.machine()?;
        match &self.collective(collective)?.work {
            Work::Compiled(compiled) if machine.is_joint() => compiled.agreed_blocks(threads),
            Work::Compiled(compiled) => compiled.max_blocks(machine, threads),
            Work::Nccl(_) | Work::TwoStagePull(_) => Ok(u32::MAX),
        }
    }

    fn run(&mut self, chain: &Chain<'_>) -> Result<Outputs, DeviceError> {
        let id = chain.collective;
        self.machine_mut()?;
        // All ranks ask alike, so all are refused alike.
        self.admit(id, chain.geometry, chain.bytes)?;
        chain::check(self.collective(id)?, chain, self.ranks())?;
        let (Some(machine), Some(Some(collective))) = (self.machine.as_mut(), self.collectives.get(id.0)) else {
            return Err(DeviceError::Poisoned);
        };
        let outcome = chain::run(machine, collective, chain);
        let outcome = machine.finish("running", outcome);
        if outcome.is_err() {
            self.bury(id);
        }
        outcome
    }

    fn time(&mut self, candidates: &[Timed], sampling: &Sampling) -> Result<Vec<Vec<f64>>, DeviceError> {
        Ok(slowest(&self.time_beside(candidates, sampling, None)?))
    }

    fn time_ranks(&mut self, candidates: &[Timed], sampling: &Sampling) -> Result<Vec<Vec<Vec<f64>>>, DeviceError> {
        self.time_beside(candidates, sampling, None)
    }

    fn time_under_load(
        &mut self,
        candidates: &[Timed],
        sampling: &Sampling,
        streams: u32,
    ) -> Result<Vec<Vec<f64>>, DeviceError> {
        self.alone("load beside collectives is made")?;
        let load = Load::new(self.machine_mut()?, streams)?;
        let times = self.time_beside(candidates, sampling, Some(&load));
        if self.machine().is_err() {
            // Freeing would wait for a kernel that never ends.
            std::mem::forget(load);
        }
        Ok(slowest(&times?))
    }

    fn soak(&mut self, soak: &Soak<'_>, progress: &mut dyn FnMut(&Tally)) -> Result<Option<Tally>, DeviceError> {
        self.alone("a soak runs")?;
        let id = soak.collective;
        for (bytes, geometry) in soak.shapes {
            self.admit(id, *geometry, *bytes)?;
        }
        let (Some(machine), Some(Some(collective))) = (self.machine.as_mut(), self.collectives.get(id.0)) else {
            return Err(DeviceError::Poisoned);
        };
        let outcome = soak::run(machine, &collective.work, soak, progress);
        if outcome.is_err() {
            self.bury(id);
        }
        outcome.map(Some)
    }

    fn watch_lines(&mut self, from: usize, to: usize) -> Result<Option<LineTally>, DeviceError> {
        self.alone("lines are watched")?;
        if from == to || from.max(to) >= self.ranks() {
            let reason = format!("no edge from rank {from} to rank {to} of {}", self.ranks());
            return Err(DeviceError::Misuse { reason });
        }
        lines::watch(self.machine_mut()?, from, to).map(Some)
    }

    fn launch_cost(&mut self, timed: &Timed) -> Result<LaunchCost, DeviceError> {
        self.alone("the cost of launches is measured")?;
        let id = timed.collective;
        self.admit(id, timed.geometry, timed.bytes)?;
        let (Some(machine), Some(Some(collective))) = (self.machine.as_mut(), self.collectives.get(id.0)) else {
            return Err(DeviceError::Poisoned);
        };
        let Work::Compiled(compiled) = &collective.work else {
            let reason = "only compiled variants are launched by us".to_owned();
            return Err(DeviceError::Misuse { reason });
        };
        // A pull reads the inputs of that very call on all ranks, which one rank does not know.
        if compiled.variant.kernel.inputs > 0 {
            let reason = format!("`{}` is never served", compiled.variant.name);
            return Err(DeviceError::Misuse { reason });
        }
        let outcome = cost::measure(machine, &collective.work, compiled, timed);
        if outcome.is_err() {
            self.bury(id);
        }
        outcome
    }

    fn floor(&mut self, payloads: &[u64], launches: &[Launch], sampling: &Sampling) -> Result<Floor, DeviceError> {
        if self.machine()?.is_joint() {
            let reason = "the floor is measured in one process that has all ranks".to_owned();
            return Err(DeviceError::Unavailable { reason });
        }
        let programmatic = self.info.arch >= 90;
        let kept = launches.iter().copied().filter(|l| programmatic || *l == Launch::Plain);
        let launches: Vec<Launch> = kept.collect();
        floor::measure(self.machine_mut()?, payloads, &launches, sampling)
    }

    /// [`Fault::FrozenCounter`] is surely caught only in chains with skew. The others are not of a kind that launch
    /// parameters could plant: they would need another kernel.
    fn plants(&self, fault: Fault) -> bool {
        matches!(
            fault,
            Fault::DroppedContribution | Fault::SwappedCounter | Fault::FrozenCounter
        )
    }
}

/// Each sample of the slowest rank.
fn slowest(times: &[Vec<Vec<f64>>]) -> Vec<Vec<f64>> {
    let of = |ranks: &Vec<Vec<f64>>| {
        let samples = ranks.iter().map(Vec::len).min().unwrap_or(0);
        (0..samples)
            .map(|i| ranks.iter().map(|r| r[i]).fold(0.0, f64::max))
            .collect()
    };
    times.iter().map(of).collect()
}

impl Drop for CudaExecutor {
    fn drop(&mut self) {
        // A late rank may still store into another one's scratch; its waits are bounded, so this ends.
        if let Some(machine) = self.machine.as_ref().filter(|m| !m.wedged()) {
            // A dead context has nothing under way.
            let _ = machine.synchronise();
        }
        if self.machine.as_ref().is_some_and(Machine::wedged) {
            // Freeing would wait for a kernel that never ends.
            std::mem::forget(self.machine.take());
            std::mem::forget(std::mem::take(&mut self.collectives));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_ranks_or_no_devices_are_the_callers_fault() {
        for (devices, ranks) in [(&[][..], 2), (&[0][..], 0), (&[0][..], 65)] {
            let e = CudaExecutor::new(devices, ranks, CudaOptions::default()).err();
            assert!(matches!(e, Some(DeviceError::Misuse { .. })), "{e:?}");
        }
    }

    #[test]
    fn a_sample_is_the_slowest_ranks() {
        let times = [vec![vec![1.0, 4.0], vec![2.0, 3.0]], vec![]];
        assert_eq!(slowest(&times), [vec![2.0, 4.0], vec![]]);
    }

    #[test]
    fn an_executor_may_move_to_another_thread() {
        const fn is_send<T: Send>() {}
        const { is_send::<CudaExecutor>() }
    }

    #[test]
    fn without_a_gpu_the_executor_is_unavailable_and_says_why() {
        match CudaExecutor::new(&[0], 2, CudaOptions::default()) {
            Ok(executor) => assert_eq!(executor.ranks(), 2),
            Err(DeviceError::Unavailable { reason }) => assert!(!reason.is_empty()),
            Err(e) => assert!(matches!(e, DeviceError::Driver { .. }), "{e}"),
        }
    }
}

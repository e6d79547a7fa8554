//! Proven variants and comparators of one measurement, prepared on demand and released at the end.
//!
//! Nothing gets in unproven. It times what it is told and chooses nothing. Start at [`Pool::open`].

use super::geometry;
use super::options::{Compare, Progress, TuneError, TuneOptions};
use super::phases::Phases;
use super::report::LeftOut;
use super::select::median;
use crate::device::{
    Comparator, DeviceError, Executor, Geometry, Launch, NcclSetting, Preparation, Prepared, Sampling, Timed,
};
use crate::qualify::comparator::{name, qualify_prepared};
use crate::qualify::{Reason, qualify};
use crate::registry::{Element, Family, Memory, Protocol, Variant};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

pub(super) type Listener<'a> = &'a mut dyn FnMut(Progress);

/// Something that can be timed at one payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub who: Who,
    pub geometry: Geometry,
    prepared: Prepared,
}

impl Entry {
    const fn timed(&self, bytes: u64) -> Timed {
        Timed {
            collective: self.prepared,
            geometry: self.geometry,
            bytes,
            in_place: false,
        }
    }
}

/// Whose figure an entry is. Indices are into [`Pool::variants`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Variant(usize),
    /// A comparator that is no variant: index into [`Pool::others`].
    Other(usize),
}

pub(super) struct Pool<'e> {
    pub exec: &'e mut dyn Executor,
    /// Proven ones only, in the family's order.
    pub variants: Vec<&'static Variant>,
    pub left_out: Vec<LeftOut>,
    pub phases: Phases,
    max_bytes: u64,
    prepared: BTreeMap<(usize, u32), (Prepared, u32)>,
    /// None for one that died.
    others: Vec<(Comparator, Option<Prepared>)>,
}

fn class_of(variants: &[&'static Variant], bytes: u64) -> Option<u64> {
    let classes = || variants.iter().flat_map(|v| v.classes).copied();
    classes().filter(|c| *c >= bytes).min().or_else(|| classes().max())
}

impl Drop for Pool<'_> {
    fn drop(&mut self) {
        for (prepared, _) in self.prepared.values() {
            self.exec.release(*prepared);
        }
        for prepared in self.others.iter().filter_map(|(_, prepared)| *prepared) {
            self.exec.release(prepared);
        }
    }
}

impl<'e> Pool<'e> {
    /// Proves the family's variants of this policy, and the comparator where it was asked for and is to be had. With
    /// `listed` only those on the lists of the payloads' size classes, besides peer reads.
    pub fn open(
        exec: &'e mut dyn Executor,
        family: &'static Family,
        options: &TuneOptions,
        listed: bool,
        progress: Listener<'_>,
    ) -> Result<Self, TuneError> {
        let size = options.element.bytes() as u64;
        if let Some(bytes) = options.payloads.bytes().iter().find(|b| !b.is_multiple_of(size)) {
            let element = options.element;
            let reason = format!("a payload of {bytes} bytes is no whole number of {size}-byte {element} elements");
            return Err(TuneError::Misuse { reason });
        }
        let fits = |v: &&'static Variant| {
            let named = options.only.as_ref().is_none_or(|names| names.contains(&v.name));
            named
                && v.element == options.element
                && v.partials.contains(&options.partials)
                && v.memory == options.memory
        };
        let wanted: Vec<&'static Variant> = family.variants.iter().filter(fits).collect();
        let Some(ranks) = wanted.first().map(|v| v.ranks.len()) else {
            let (element, partials, memory) = (options.element, options.partials, options.memory);
            return Err(TuneError::NoVariants {
                family: family.name.to_owned(),
                element,
                partials,
                memory,
            });
        };
        if ranks != exec.ranks() {
            let (name, here) = (family.name, exec.ranks());
            let reason = format!("family {name} is for {ranks} ranks, this device has {here}: give it {ranks}");
            return Err(TuneError::Misuse { reason });
        }
        let max_bytes = options.payloads.max().max(options.qualify.max_bytes());
        let mut pool = Self {
            exec,
            variants: Vec::new(),
            left_out: Vec::new(),
            phases: Phases::default(),
            max_bytes,
            prepared: BTreeMap::new(),
            others: Vec::new(),
        };
        // The comparator first: warmed up before anything of ours spins.
        let since = Instant::now();
        let mut settings: Vec<NcclSetting> = options.comparators.iter().filter_map(|c| c.nccl()).collect();
        settings.sort_unstable();
        settings.dedup();
        for setting in settings {
            pool.open_other(
                Comparator::Nccl(setting, options.element, options.partials),
                options,
                progress,
            );
        }
        // Peer reads in one stage are variants of the family.
        let halves = options.element == Element::F16;
        let peer = halves && options.memory == Memory::Peer && pool.exec.device().kind == "cuda";
        if peer && options.comparators.contains(&Compare::Pull) {
            pool.open_other(Comparator::TwoStagePull(options.partials), options, progress);
        }
        pool.phases.add("comparator", since.elapsed());
        let classes: BTreeSet<u64> = (options.payloads.bytes().iter())
            .filter_map(|bytes| class_of(&wanted, *bytes))
            .collect();
        let serves = |v: &&'static Variant| {
            !listed
                || options.only.is_some()
                || v.protocol == Protocol::Pull
                || v.classes.iter().any(|c| classes.contains(c))
        };
        let wanted: Vec<&'static Variant> = wanted.into_iter().filter(serves).collect();
        let of = wanted.len();
        let since = Instant::now();
        let mut device = None;
        for (done, variant) in wanted.into_iter().enumerate() {
            progress(Progress::Qualifying {
                variant: variant.name.to_owned(),
                done,
                of,
            });
            match qualify(pool.exec, variant, &options.qualify) {
                Ok(_) => pool.variants.push(variant),
                Err(refusal) => {
                    if let Reason::Device(error @ DeviceError::Driver { .. }) = &refusal.reason {
                        device.get_or_insert(error.clone());
                    }
                    pool.leave_out(variant.name, &refusal.reason, progress);
                }
            }
        }
        pool.phases.add("proofs", since.elapsed());
        match device {
            Some(error) if pool.variants.is_empty() => Err(TuneError::Device(error)),
            _ => Ok(pool),
        }
    }

    fn open_other(&mut self, comparator: Comparator, options: &TuneOptions, progress: Listener<'_>) {
        match self.exec.prepare_comparator(comparator, self.max_bytes) {
            Err(error) => self.leave_out(name(comparator), &error, progress),
            Ok(prepared) => match qualify_prepared(self.exec, comparator, prepared, &options.qualify) {
                Ok(_) => self.others.push((comparator, Some(prepared))),
                Err(refusal) => {
                    self.exec.release(prepared);
                    self.leave_out(name(comparator), &refusal.reason, progress);
                }
            },
        }
    }

    pub fn leave_out(&mut self, name: &str, reason: &dyn ToString, progress: Listener<'_>) {
        let left_out = LeftOut {
            name: name.to_owned(),
            reason: reason.to_string(),
        };
        progress(Progress::LeftOut(left_out.clone()));
        self.left_out.push(left_out);
    }

    pub fn name(&self, who: Who) -> &'static str {
        match who {
            Who::Variant(index) => self.variants.get(index).map_or("", |v| v.name),
            Who::Other(index) => self.others.get(index).map_or("", |(comparator, _)| name(*comparator)),
        }
    }

    pub fn is_pull(&self, index: usize) -> bool {
        self.variants.get(index).is_some_and(|v| v.protocol == Protocol::Pull)
    }

    /// The size class that serves a payload: the smallest that holds it, or else the largest.
    pub fn class(&self, bytes: u64) -> Option<u64> {
        class_of(&self.variants, bytes)
    }

    /// Those launch modes that the device has.
    pub fn able(&self, launches: &[Launch]) -> Vec<Launch> {
        let programmatic = self.exec.device().arch >= 90;
        let able = launches
            .iter()
            .copied()
            .filter(|l| programmatic || !l.is_programmatic());
        able.collect()
    }

    /// A variant in blocks of these sizes, launched so. A geometry that cannot be prepared is left out, said aloud.
    pub fn entries(
        &mut self,
        index: usize,
        bytes: u64,
        threads: &[u32],
        launches: &[Launch],
        progress: Listener<'_>,
    ) -> Vec<Entry> {
        let since = Instant::now();
        let variant = self.variants[index];
        let mut entries = Vec::new();
        for &threads in threads {
            match self.prepare(index, threads) {
                Ok((prepared, max_blocks)) if max_blocks > 0 => {
                    for &launch in launches {
                        let most = launch.most_blocks(max_blocks);
                        let able = !launch.is_programmatic() || self.exec.device().arch >= 90;
                        if !able || most == 0 {
                            continue;
                        }
                        let geometry = geometry::for_threads(variant, bytes, threads, most).launched(launch);
                        entries.push(Entry {
                            who: Who::Variant(index),
                            geometry,
                            prepared,
                        });
                    }
                }
                Ok(_) => {}
                Err(error) => {
                    self.leave_out(&format!("{} with {threads} threads", variant.name), &error, progress);
                }
            }
        }
        self.phases.add("loading and scratch", since.elapsed());
        entries
    }

    fn prepare(&mut self, index: usize, threads: u32) -> Result<(Prepared, u32), DeviceError> {
        if let Some(known) = self.prepared.get(&(index, threads)) {
            return Ok(*known);
        }
        let preparation = Preparation {
            max_bytes: self.max_bytes,
            threads,
            fault: None,
        };
        let prepared = self.exec.prepare(self.variants[index], &preparation)?;
        let max_blocks = self
            .exec
            .max_blocks(prepared, threads)
            .inspect_err(|_| self.exec.release(prepared))?;
        self.prepared.insert((index, threads), (prepared, max_blocks));
        Ok((prepared, max_blocks))
    }

    /// Entries of comparators that are no variants and alive.
    pub fn other_entries(&self) -> Vec<Entry> {
        let geometry = Geometry::new(1, 32);
        let entry = |(index, (_, prepared)): (usize, &(Comparator, Option<Prepared>))| {
            Some(Entry {
                who: Who::Other(index),
                geometry,
                prepared: (*prepared)?,
            })
        };
        self.others.iter().enumerate().filter_map(entry).collect()
    }

    /// Medians beside so many busy streams, interleaved.
    pub fn time_under_load(
        &mut self,
        entries: &[Entry],
        bytes: u64,
        sampling: &Sampling,
        streams: u32,
    ) -> Result<Vec<Option<f64>>, DeviceError> {
        let all: Vec<Timed> = entries.iter().map(|e| e.timed(bytes)).collect();
        let samples = self.exec.time_under_load(&all, sampling, streams)?;
        Ok((0..all.len()).map(|i| samples.get(i).and_then(|s| median(s))).collect())
    }

    /// Medians of all entries, interleaved. None for one that failed: that is left out from now on.
    pub fn time(
        &mut self,
        entries: &[Entry],
        bytes: u64,
        sampling: &Sampling,
        progress: Listener<'_>,
    ) -> Result<Vec<Option<f64>>, TuneError> {
        let all: Vec<Timed> = entries.iter().map(|e| e.timed(bytes)).collect();
        if all.is_empty() {
            return Ok(Vec::new());
        }
        if let Ok(samples) = self.exec.time(&all, sampling) {
            return Ok((0..all.len()).map(|i| samples.get(i).and_then(|s| median(s))).collect());
        }
        // One of them failed and the error does not say which: each alone.
        let mut medians = Vec::new();
        let mut last = None;
        for entry in entries {
            match self.exec.time(&[entry.timed(bytes)], sampling) {
                Ok(samples) => medians.push(samples.first().and_then(|s| median(s))),
                Err(error) => {
                    let who = format!("{} at {}", self.name(entry.who), entry.geometry);
                    self.leave_out(&who, &error, progress);
                    self.forget(entry);
                    last = Some(error);
                    medians.push(None);
                }
            }
        }
        match last {
            Some(error) if medians.iter().all(Option::is_none) => Err(TuneError::Device(error)),
            _ => Ok(medians),
        }
    }

    /// Releases what died, so that it is prepared anew when it is needed again.
    fn forget(&mut self, entry: &Entry) {
        self.exec.release(entry.prepared);
        self.prepared.retain(|_, (prepared, _)| *prepared != entry.prepared);
        for (_, prepared) in self.others.iter_mut().filter(|(_, p)| *p == Some(entry.prepared)) {
            *prepared = None;
        }
    }
}

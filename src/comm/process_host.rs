//! Serving on the processor with a process a rank: the same calls and errors as on GPUs, exact bits, no meaningful times.
//!
//! Start at [`join`].

use super::dispatch::{Call, Decision, Dispatch, Range};
use super::host::{GEOMETRY, choose};
use super::process::{compare, patient};
use super::{CommError, Communicator, Options, Part, ReduceOp, Scalar};
use crate::device::host::PlainExecutor;
use crate::device::{DeviceError, Executor, Preparation, Prepared};
use crate::process::link::Steps;
use crate::process::mesh::Mesh;
use crate::process::wire::hash;
use crate::process::{Bootstrap, JoinError};
use crate::qualify::QualifyPlan;
use crate::registry::Family;
use std::cell::RefCell;

/// A rank's side.
pub(super) struct ProcessPart {
    executor: RefCell<PlainExecutor>,
    /// One a range.
    prepared: Vec<Prepared>,
    room: RefCell<Vec<u8>>,
}

/// Joins this process's rank with the others on the processor.
pub(super) fn join(family: &str, bootstrap: &mut dyn Bootstrap, options: &Options) -> Result<Communicator, CommError> {
    let mut mesh = Mesh::join(bootstrap, options.patience)?;
    mesh.set_patience(patient(options));
    let (rank, world) = (mesh.rank(), mesh.world());
    let found = compare(&mut mesh, options).and_then(|_| known(family, world, options));
    let family = match found {
        Ok(family) => family,
        Err(error) => {
            // The others wait for this rank: they are told why in vain.
            let reason = error.to_string();
            mesh.give_up(&JoinError::Misuse { reason });
            return Err(error);
        }
    };
    let mut executor = PlainExecutor::joined(Steps::new(mesh), options.deadline);
    let chosen = choose(&mut executor, family, options, &brief())?;
    let mut words = String::new();
    let mut prepared = Vec::new();
    for (range, variant) in &chosen {
        words.push_str(&format!("{} {}\n", range.up_to, variant.name));
        let preparation = Preparation {
            max_bytes: range.up_to,
            threads: GEOMETRY.threads,
            fault: None,
        };
        prepared.push(executor.prepare(variant, &preparation)?);
    }
    let table = hash(words.as_bytes()).to_le_bytes().to_vec();
    let all = executor.agree("the table of routes", Ok(table.clone()))?;
    if let Some(other) = all.iter().position(|t| *t != table) {
        let reason = format!("rank {other} made another table of routes than rank {rank}");
        return Err(CommError::Join(JoinError::Refused { reason }));
    }
    let ranges: Vec<Range> = chosen.into_iter().map(|(range, _)| range).collect();
    let name = family.name;
    Ok(Communicator {
        rank,
        world,
        dispatch: Dispatch::new(ranges),
        summary: format!("family {name} on the processor, a process a rank: emulation").into(),
        trace: None,
        part: Part::Process(Box::new(ProcessPart {
            executor: RefCell::new(executor),
            prepared,
            room: RefCell::default(),
        })),
    })
}

/// The kernels are proven elsewhere under every order of delivery: here, that these processes run them.
fn brief() -> QualifyPlan {
    QualifyPlan {
        rounds: 2,
        replays: 1,
        payloads: vec![1030, 18],
        geometries: vec![GEOMETRY],
        ..QualifyPlan::quick()
    }
}

fn known(name: &str, world: usize, options: &Options) -> Result<&'static Family, CommError> {
    let family = options.registry.family(name).ok_or_else(|| CommError::NoFamily {
        reasons: vec![format!("{name}: not in this build, `topoforge families` lists what is")],
    })?;
    let ranks = family.variants.first().map_or(0, |v| v.ranks.len());
    if ranks == world {
        return Ok(family);
    }
    let reason = format!("family {name} has {ranks} ranks, but {world} joined");
    Err(CommError::Misuse { reason })
}

impl ProcessPart {
    /// Sums `buffer` over all ranks, in pieces where it is larger than every range, and waits for it.
    pub fn all_reduce<T: Scalar>(&self, dispatch: &Dispatch, buffer: &mut [T]) -> Result<(), CommError> {
        let call = Call {
            count: buffer.len(),
            dtype: T::DTYPE,
            op: ReduceOp::Sum,
            aligned: true,
        };
        let bytes = size_of_val(buffer) as u64;
        match dispatch.decide(call) {
            Decision::Nothing => Ok(()),
            Decision::Range(range) => self.piece(range, buffer),
            Decision::Comparator(why) => {
                let range = T::DTYPE.element().and_then(|e| dispatch.piecewise(e, bytes));
                let range = range.ok_or_else(|| CommError::Unserved {
                    reason: format!(
                        "sum of {} {}: {why}, and the host executor has no comparator",
                        call.count, call.dtype
                    ),
                })?;
                let piece = (dispatch.ranges()[range].up_to & !15) as usize / size_of::<T>();
                buffer.chunks_mut(piece).try_for_each(|part| self.piece(range, part))
            }
        }
    }

    fn piece<T: Scalar>(&self, range: usize, buffer: &mut [T]) -> Result<(), CommError> {
        let id = self.prepared.get(range).copied().ok_or(DeviceError::Poisoned)?;
        let (size, mut room) = (size_of::<T>(), self.room.borrow_mut());
        room.resize(size_of_val(buffer), 0);
        for (value, room) in buffer.iter().zip(room.chunks_exact_mut(size)) {
            value.put(room);
        }
        self.executor.borrow_mut().call(id, GEOMETRY, &mut room)?;
        for (value, room) in buffer.iter_mut().zip(room.chunks_exact(size)) {
            *value = T::take(room);
        }
        Ok(())
    }

    /// Whether every process is still there.
    pub fn check(&self) -> Result<(), CommError> {
        Ok(crate::device::verdict::gone(self.executor.borrow().seen())?)
    }
}

//! Where ranks on the host executor hand their payloads in and get results back: one desk with a place a rank.
//!
//! Places have room for the largest payload from the start, so that a call allocates nothing on its own thread. Knows
//! nothing of kernels. Start at [`Desk::call`].

use super::Scalar;
use crate::device::DeviceError;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// One rank's call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    /// Index into the ranges.
    pub range: usize,
    /// Payload.
    pub bytes: usize,
}

enum Status {
    Idle,
    Waiting(Ticket),
    Done(Result<(), DeviceError>),
}

struct Place {
    payload: Vec<u8>,
    status: Status,
}

struct State {
    places: Vec<Place>,
    /// Ranks that are still there.
    present: usize,
    /// Nobody serves any more.
    closed: bool,
}

/// The desk.
pub(super) struct Desk {
    state: Mutex<State>,
    /// A call came or a rank left.
    bell: Condvar,
    /// Results lie ready.
    served: Condvar,
}

impl Desk {
    /// Places for `ranks` payloads of up to `room` bytes.
    pub fn new(ranks: usize, room: usize) -> Self {
        let place = || Place {
            payload: vec![0; room],
            status: Status::Idle,
        };
        Self {
            state: Mutex::new(State {
                places: (0..ranks).map(|_| place()).collect(),
                present: ranks,
                closed: false,
            }),
            bell: Condvar::new(),
            served: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Hands a payload in for `range`, waits for all ranks, and takes the result in place of it.
    pub fn call<T: Scalar>(&self, rank: usize, range: usize, buffer: &mut [T]) -> Result<(), DeviceError> {
        let (size, bytes) = (size_of::<T>(), size_of_val(buffer));
        let mut state = self.lock();
        if state.closed {
            return Err(DeviceError::Poisoned);
        }
        let place = state.places.get_mut(rank).ok_or(DeviceError::Poisoned)?;
        let room = place.payload.get_mut(..bytes).ok_or(DeviceError::Poisoned)?;
        for (value, room) in buffer.iter().zip(room.chunks_exact_mut(size)) {
            value.put(room);
        }
        place.status = Status::Waiting(Ticket { range, bytes });
        self.bell.notify_one();
        loop {
            let place = &mut state.places[rank];
            if matches!(place.status, Status::Done(_)) {
                if let Status::Done(result) = std::mem::replace(&mut place.status, Status::Idle) {
                    result?;
                }
                for (value, room) in buffer.iter_mut().zip(place.payload.chunks_exact(size)) {
                    *value = T::take(room);
                }
                return Ok(());
            }
            if state.closed {
                return Err(DeviceError::Poisoned);
            }
            state = self.served.wait(state).unwrap_or_else(|e| e.into_inner());
        }
    }

    /// A rank is gone for good.
    pub fn leave(&self) {
        self.lock().present -= 1;
        self.bell.notify_one();
    }

    /// Serves until all ranks are gone, one fails, or one stays away for longer than `patience` while another waits:
    /// then whoever waits is told which one. `run` gets all tickets and payloads and returns all results.
    pub fn serve(
        &self,
        patience: Duration,
        mut run: impl FnMut(&[Ticket], &[Vec<u8>]) -> Result<Vec<Vec<u8>>, DeviceError>,
    ) {
        let mut since = None;
        let mut state = self.lock();
        loop {
            if state.present == 0 {
                break;
            }
            let tickets: Vec<Ticket> = state.places.iter().filter_map(Place::waiting).collect();
            if tickets.len() == state.places.len() {
                since = None;
                let inputs = state
                    .places
                    .iter()
                    .zip(&tickets)
                    .map(|(p, t)| p.payload[..t.bytes].to_vec());
                let inputs: Vec<Vec<u8>> = inputs.collect();
                let outcome = run(&tickets, &inputs);
                state.hand_out(&outcome);
                self.served.notify_all();
                if outcome.is_err() {
                    break;
                }
                continue;
            }
            if tickets.is_empty() {
                state = self.bell.wait(state).unwrap_or_else(|e| e.into_inner());
                continue;
            }
            let waited = since.get_or_insert_with(Instant::now).elapsed();
            if waited >= patience {
                state.name_the_missing();
                break;
            }
            let woken = self.bell.wait_timeout(state, patience - waited);
            state = woken.unwrap_or_else(|e| e.into_inner()).0;
        }
        state.closed = true;
        self.served.notify_all();
    }
}

impl Place {
    const fn waiting(&self) -> Option<Ticket> {
        match self.status {
            Status::Waiting(ticket) => Some(ticket),
            _ => None,
        }
    }
}

impl State {
    fn hand_out(&mut self, outcome: &Result<Vec<Vec<u8>>, DeviceError>) {
        for (rank, place) in self.places.iter_mut().enumerate() {
            let result = match outcome {
                Ok(outputs) => outputs.get(rank).ok_or(DeviceError::Poisoned).and_then(|output| {
                    let room = place.payload.get_mut(..output.len()).ok_or(DeviceError::Poisoned)?;
                    room.copy_from_slice(output);
                    Ok(())
                }),
                Err(error) => Err(error.clone()),
            };
            place.status = Status::Done(result);
        }
    }

    fn name_the_missing(&mut self) {
        let peer = self.places.iter().position(|p| p.waiting().is_none());
        for (rank, place) in self.places.iter_mut().enumerate() {
            if place.waiting().is_some() {
                place.status = Status::Done(Err(DeviceError::Timeout {
                    rank,
                    peer,
                    stage: 0,
                    column: 0,
                }));
            }
        }
    }
}

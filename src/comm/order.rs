//! The calls of one communicator follow each other on the device, whatever streams they come on.
//!
//! Kernels of two calls that ran at once would use the same slots. While all calls come on one stream there is nothing to
//! do, and nothing is asked of the driver. From the first call on a second stream on, each change of stream puts an event
//! behind the last call and makes the new stream wait for it; inside one capture that joins its branches. What cannot be
//! ordered is refused with the next step. Allocates nothing. It does not see where graphs are launched: their launches
//! are the caller's to order, like those of any kernel that uses a buffer twice. Start at [`Order::enter`].

use super::CommError;
use std::cell::Cell;

/// A stream by its handle.
pub(super) type Stream = usize;

/// Whether work enqueued on a stream runs or becomes graph nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capture {
    /// It runs.
    None,
    /// It becomes nodes of the capture of this number.
    Active(u64),
    /// The capture broke, and only its end can follow.
    Broken,
}

/// What ordering asks of the driver.
pub(super) trait Streams {
    /// What a stream's work becomes.
    fn capture(&self, stream: Stream) -> Result<Capture, CommError>;
    /// What is enqueued on `to` from now on follows what is enqueued on `from`; both run, or both are in one capture.
    fn chain(&self, from: Stream, to: Stream, captured: bool) -> Result<(), CommError>;
}

/// Captures of one communicator that may be under way at once.
const CAPTURES: usize = 4;
/// `CU_STREAM_PER_THREAD`: another stream on each thread.
const PER_THREAD: Stream = 2;

thread_local! {
    static HERE: u8 = const { 0 };
}

/// What the last calls were enqueued on.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// Where the last call that ran was, or every call while `several` is unset.
    last: Cell<Option<Stream>>,
    several: Cell<bool>,
    captures: [Cell<Option<(u64, Stream)>>; CAPTURES],
    /// The thread whose own stream is used, by an address of its own.
    thread: Cell<usize>,
}

impl Order {
    /// Makes the next call on `stream` follow all earlier ones.
    pub fn enter(&self, streams: &impl Streams, stream: Stream) -> Result<(), CommError> {
        if stream == PER_THREAD {
            self.same_thread()?;
        }
        if !self.several.get() {
            match self.last.get() {
                Some(last) if last == stream => return Ok(()),
                None => {
                    self.last.set(Some(stream));
                    return Ok(());
                }
                Some(last) => self.begin(streams, last)?,
            }
        }
        match streams.capture(stream)? {
            Capture::None => self.run(streams, stream),
            Capture::Active(id) => self.capture(streams, stream, id),
            Capture::Broken => Err(refusal(
                "the stream's capture is broken by an earlier error: end it, then capture again",
            )),
        }
    }

    /// A second stream: what was one chain becomes a chain that runs and, if the stream is being captured, one in there.
    fn begin(&self, streams: &impl Streams, last: Stream) -> Result<(), CommError> {
        if let Capture::Active(id) = streams.capture(last)? {
            self.captures[0].set(Some((id, last)));
        }
        self.several.set(true);
        Ok(())
    }

    fn run(&self, streams: &impl Streams, stream: Stream) -> Result<(), CommError> {
        let Some(last) = self.last.get().filter(|last| *last != stream) else {
            self.last.set(Some(stream));
            return Ok(());
        };
        if streams.capture(last)? != Capture::None {
            return Err(refusal(
                "the stream of the last call that runs is being captured now, so that nothing can follow it: end that \
                 capture first, or make this call on that stream",
            ));
        }
        streams.chain(last, stream, false)?;
        self.last.set(Some(stream));
        Ok(())
    }

    fn capture(&self, streams: &impl Streams, stream: Stream, id: u64) -> Result<(), CommError> {
        for slot in &self.captures {
            if let Some((known, last)) = slot.get()
                && known == id
            {
                if last != stream {
                    streams.chain(last, stream, true)?;
                }
                slot.set(Some((id, stream)));
                return Ok(());
            }
        }
        for slot in &self.captures {
            let free = match slot.get() {
                None => true,
                // Ended, or its stream is in another capture by now.
                Some((known, last)) => streams.capture(last)? != Capture::Active(known),
            };
            if free {
                slot.set(Some((id, stream)));
                return Ok(());
            }
        }
        Err(refusal(
            "four captures already hold calls of this communicator: end one of them first",
        ))
    }

    fn same_thread(&self) -> Result<(), CommError> {
        let here = HERE.with(|mark| std::ptr::from_ref(mark).addr());
        match self.thread.get() {
            0 => self.thread.set(here),
            known if known == here => {}
            _ => {
                return Err(refusal(
                    "the per-thread default stream is another stream on this thread than on that of the last call: \
                     give the communicator a stream of its own",
                ));
            }
        }
        Ok(())
    }
}

fn refusal(reason: &str) -> CommError {
    CommError::Order {
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    /// Calls by where their stream's work goes: a capture, or none, and the stream.
    type Seen = BTreeMap<(Option<u64>, Stream), Vec<u32>>;

    /// Streams with vector clocks: `seen[stream]` is the set of calls that its next work follows.
    #[derive(Default)]
    struct Model {
        captures: RefCell<BTreeMap<Stream, Capture>>,
        seen: RefCell<Seen>,
        asked: Cell<u32>,
        calls: Cell<u32>,
    }

    impl Model {
        fn key(&self, stream: Stream) -> (Option<u64>, Stream) {
            match self.captures.borrow().get(&stream) {
                Some(Capture::Active(id)) => (Some(*id), stream),
                _ => (None, stream),
            }
        }

        fn begin(&self, stream: Stream, id: u64) {
            self.captures.borrow_mut().insert(stream, Capture::Active(id));
        }

        fn end(&self, id: u64) {
            self.captures.borrow_mut().retain(|_, c| *c != Capture::Active(id));
        }

        /// A call, which returns the earlier ones that it follows.
        fn call(&self, order: &Order, stream: Stream) -> Result<Vec<u32>, String> {
            order.enter(self, stream).map_err(|e| e.to_string())?;
            let number = self.calls.get();
            self.calls.set(number + 1);
            let mut seen = self.seen.borrow_mut();
            let mine = seen.entry(self.key(stream)).or_default();
            let before = mine.clone();
            mine.push(number);
            Ok(before)
        }
    }

    impl Streams for Model {
        fn capture(&self, stream: Stream) -> Result<Capture, CommError> {
            self.asked.set(self.asked.get() + 1);
            let known = self.captures.borrow().get(&stream).copied();
            Ok(known.unwrap_or(Capture::None))
        }

        fn chain(&self, from: Stream, to: Stream, captured: bool) -> Result<(), CommError> {
            let (a, b) = (self.key(from), self.key(to));
            assert_eq!(a.0, b.0, "an event cannot cross the border of a capture");
            assert_eq!(captured, a.0.is_some());
            let mut seen = self.seen.borrow_mut();
            let earlier = seen.get(&a).cloned().unwrap_or_default();
            let later = seen.entry(b).or_default();
            later.extend(earlier);
            later.sort_unstable();
            later.dedup();
            Ok(())
        }
    }

    #[test]
    fn one_stream_asks_the_driver_nothing() {
        let (model, order) = (Model::default(), Order::default());
        for _ in 0..100 {
            model.call(&order, 7).unwrap();
        }
        model.begin(7, 1);
        model.call(&order, 7).unwrap();
        assert_eq!(model.asked.get(), 0);
    }

    #[test]
    fn a_call_on_another_stream_follows_all_earlier_ones() {
        let (model, order) = (Model::default(), Order::default());
        for (n, stream) in [7, 8, 8, 9, 7, 9, 8, 8, 7].into_iter().enumerate() {
            let before = model.call(&order, stream).unwrap();
            assert_eq!(before, (0..n as u32).collect::<Vec<_>>());
        }
    }

    #[test]
    fn branches_of_one_capture_are_joined_call_by_call() {
        let (model, order) = (Model::default(), Order::default());
        model.begin(7, 1);
        model.begin(8, 1);
        model.begin(9, 1);
        for (n, stream) in [7, 8, 9, 7, 7, 8].into_iter().enumerate() {
            assert_eq!(model.call(&order, stream).unwrap(), (0..n as u32).collect::<Vec<_>>());
        }
    }

    #[test]
    fn captures_are_chains_of_their_own_between_calls_that_run() {
        let (model, order) = (Model::default(), Order::default());
        model.call(&order, 7).unwrap();
        model.begin(8, 1);
        assert_eq!(model.call(&order, 8).unwrap(), []);
        model.begin(9, 2);
        model.begin(10, 2);
        assert_eq!(model.call(&order, 9).unwrap(), []);
        assert_eq!(
            model.call(&order, 7).unwrap(),
            [0],
            "calls that run follow calls that run"
        );
        assert_eq!(model.call(&order, 10).unwrap(), [2]);
        assert_eq!(model.call(&order, 8).unwrap(), [1]);
        model.end(1);
        model.end(2);
        assert_eq!(model.call(&order, 8).unwrap(), [0, 3]);
    }

    #[test]
    fn many_captures_one_after_the_other_need_no_more_room() {
        let (model, order) = (Model::default(), Order::default());
        model.call(&order, 7).unwrap();
        for id in 0..50 {
            model.begin(8, id);
            model.begin(9, id);
            model.call(&order, 8).unwrap();
            assert_eq!(model.call(&order, 9).unwrap().len(), 1);
            model.end(id);
        }
    }

    #[test]
    fn what_cannot_be_ordered_is_refused_with_the_next_step() {
        let (model, order) = (Model::default(), Order::default());
        model.call(&order, 7).unwrap();
        model.begin(7, 1);
        assert!(model.call(&order, 8).unwrap_err().contains("end that capture first"));
        model.end(1);
        for (stream, id) in [(11, 11), (12, 12), (13, 13), (14, 14)] {
            model.begin(stream, id);
            model.call(&order, stream).unwrap();
        }
        model.begin(15, 15);
        assert!(model.call(&order, 15).unwrap_err().contains("end one of them"));
        model.captures.borrow_mut().insert(16, Capture::Broken);
        assert!(model.call(&order, 16).unwrap_err().contains("capture again"));
    }

    #[test]
    fn the_per_thread_stream_of_another_thread_is_refused() {
        let order = Order::default();
        Model::default().call(&order, PER_THREAD).unwrap();
        let order = std::thread::spawn(move || {
            let refused = Model::default().call(&order, PER_THREAD).unwrap_err();
            assert!(refused.contains("a stream of its own"), "{refused}");
            order
        });
        let order = order.join().unwrap();
        Model::default().call(&order, PER_THREAD).unwrap();
    }
}

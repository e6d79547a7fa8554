//! A call after set-up allocates nothing on the thread that makes it.
#![cfg(feature = "host-executor")]

use half::f16;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::thread;
use topoforge::comm::{Communicator, Options};

/// Counts what each thread allocates.
struct Counting;

thread_local! {
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is the system allocator's; counting touches a thread-local number only.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATED.try_with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocated_by(work: impl FnOnce()) -> u64 {
    let before = ALLOCATED.get();
    work();
    ALLOCATED.get() - before
}

#[test]
fn a_call_allocates_nothing() {
    assert!(
        allocated_by(|| drop(std::hint::black_box(Box::new(1)))) > 0,
        "the allocator counts"
    );
    let path = std::env::temp_dir().join(format!("topoforge-hot-path-{}.ron", std::process::id()));
    let options = Options {
        // Counting shapes allocates nothing either.
        trace: Some(path.clone()),
        ..Options::default()
    };
    let communicators = Communicator::on_host("nvlink-pair", &options).unwrap();
    let threads: Vec<_> = communicators
        .into_iter()
        .map(|c| {
            thread::spawn(move || {
                let largest = c.dispatch().ranges().last().unwrap().up_to as usize / 2;
                // Each range, an empty payload, and pieces.
                for elements in [0, 1, 512, 2560, 9000, largest + 8] {
                    let mut buffer = vec![f16::ONE; elements];
                    // The first call of a thread makes what its locks need.
                    c.all_reduce_slice(&mut buffer).unwrap();
                    let allocated = allocated_by(|| {
                        for _ in 0..3 {
                            c.all_reduce_slice(&mut buffer).unwrap();
                        }
                        c.check().unwrap();
                    });
                    assert_eq!(allocated, 0, "{elements} elements");
                    assert!(buffer.iter().all(|x| *x == f16::from_f32(16.0)));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    std::fs::remove_file(path).unwrap();
}

//! What must hold of any text: read whole into something that can be saved and read again, or refused with a line.

#[path = "../../src/probe/import/mod.rs"]
#[allow(dead_code)]
pub mod import;

use import::{Input, import_bytes};
use topoforge_planner::topology::{parse_descriptor, to_ron};

/// Reads `bytes` as `input` and as whatever they look like.
pub fn check(bytes: &[u8], input: Input) {
    for input in [Some(input), None] {
        match import_bytes(bytes, input) {
            Err(error) => {
                let lines = bytes.iter().filter(|b| **b == b'\n').count() + 1;
                assert!((1..=lines).contains(&error.line), "{error} in {lines} lines");
                assert!(!error.reason.is_empty() && !error.reason.contains('\n'), "{error:?}");
            }
            Ok(read) => {
                let n = read.gpus.len();
                assert_eq!(read.topology.ranks, n);
                if read.source != Input::Ron {
                    assert_eq!(read.links.len(), n * (n - 1) / 2, "a partial topology");
                    assert_eq!(read.topology.links.len(), n * (n - 1));
                }
                assert!(read.links.iter().all(|l| l.a < l.b));
                let text = to_ron(&read.topology);
                assert_eq!(parse_descriptor(&text, "again.ron").as_ref(), Ok(&read.topology), "{text}");
            }
        }
    }
}

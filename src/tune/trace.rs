//! The calls that a program made, by shape, as a text file: what a `Communicator` dumps and `tune --from-trace` reads.
//!
//! Counts only, no times and no order: equal shapes are one line. The file is read whole or not at all, and written so
//! that a reader never sees half of it. Start at [`CallTrace`].
//!
//! ```text
//! Calls(format: 1, calls: [
//!   (bytes: 5120, element: "f16", graph: true, count: 128),
//! ])
//! ```

use super::payloads::{PayloadError, Payloads, check};
use crate::registry::Element;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// The format that this version writes and the only one it reads.
const FORMAT: u32 = 1;

/// More than any program has shapes for; a larger file is something else.
const MAX_FILE: u64 = 16 << 20;

/// What all calls of one line have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallShape {
    /// Payload a rank; even and not zero.
    pub bytes: u64,
    /// Type of the elements.
    pub element: Element,
    /// Captured into a graph: counted once for the capture, since replays are not seen.
    pub graph: bool,
}

/// How often each shape was called.
///
/// ```
/// # use topoforge::{registry::Element, tune::{CallShape, CallTrace}};
/// let mut trace = CallTrace::default();
/// trace.record(CallShape { bytes: 5120, element: Element::F16, graph: true }, 128);
/// let read = CallTrace::parse(&trace.to_text(), "calls.ron".as_ref())?;
/// assert_eq!(read, trace);
/// assert_eq!(read.payloads(Element::F16)?.bytes(), [5120]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallTrace {
    calls: BTreeMap<CallShape, u64>,
}

/// Why a trace is not read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceError {
    /// The file system refuses.
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried, e.g. `read`.
        action: &'static str,
        /// Its words.
        error: String,
    },
    /// The file is something else, or cut off.
    Foreign {
        /// The file.
        path: PathBuf,
        /// 1-based; 0 where the file was not read so far.
        line: usize,
        /// What is wrong there.
        fault: String,
    },
    /// It parses but says something that cannot be.
    Invalid {
        /// The file.
        path: PathBuf,
        /// Which call, counted from 1.
        call: usize,
        /// What, and what would do.
        fault: String,
    },
    /// It holds no call that could be tuned.
    Empty {
        /// The type of elements that was asked for.
        element: Element,
    },
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, action, error } => write!(f, "cannot {action} {}: {error}", path.display()),
            Self::Foreign { path, line, fault } => write!(
                f,
                "{}:{line}: {fault}: no dump of calls, which looks like Calls(format: 1, calls: [(bytes: 5120, element: \
                 \"f16\", graph: true, count: 128)])",
                path.display()
            ),
            Self::Invalid { path, call, fault } => write!(f, "{}: call {call}: {fault}", path.display()),
            Self::Empty { element } => write!(f, "the trace holds no calls with {element} elements: nothing to tune"),
        }
    }
}

impl std::error::Error for TraceError {}

#[derive(Serialize, Deserialize)]
#[serde(rename = "Calls", deny_unknown_fields)]
struct File {
    format: u32,
    calls: Vec<FileCall>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename = "Call", deny_unknown_fields)]
struct FileCall {
    bytes: u64,
    element: String,
    graph: bool,
    count: u64,
}

impl CallTrace {
    /// Counts calls of one shape.
    pub fn record(&mut self, shape: CallShape, count: u64) {
        let known = self.calls.entry(shape).or_default();
        *known = known.saturating_add(count);
    }

    /// Adds another trace's counts, e.g. another rank's.
    pub fn merge(&mut self, other: &Self) {
        for (shape, count) in &other.calls {
            self.record(*shape, *count);
        }
    }

    /// Shapes with their counts, by size.
    pub fn shapes(&self) -> impl Iterator<Item = (CallShape, u64)> {
        self.calls.iter().map(|(shape, count)| (*shape, *count))
    }

    /// The sizes that occur with elements of this type: what to tune.
    ///
    /// # Errors
    /// There is none, or a recorded size is no payload.
    pub fn payloads(&self, element: Element) -> Result<Payloads, TraceError> {
        let mine = self
            .calls
            .iter()
            .filter(|(s, count)| s.element == element && **count > 0);
        let sizes: Vec<u64> = mine.map(|(s, _)| s.bytes).collect();
        Payloads::from_bytes(&sizes).map_err(|error| match error {
            PayloadError::Empty => TraceError::Empty { element },
            error => TraceError::Invalid {
                path: PathBuf::new(),
                call: 0,
                fault: error.to_string(),
            },
        })
    }

    /// Calls of each size with elements of this type, captured and eager ones together: what a step is projected from.
    pub fn counts(&self, element: Element) -> Vec<(u64, u64)> {
        let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
        for (shape, count) in self.shapes().filter(|(s, _)| s.element == element) {
            let known = counts.entry(shape.bytes).or_default();
            *known = known.saturating_add(count);
        }
        counts.into_iter().collect()
    }

    /// The text form.
    pub fn to_text(&self) -> String {
        let call = |(shape, count): (CallShape, u64)| FileCall {
            bytes: shape.bytes,
            element: shape.element.name().to_owned(),
            graph: shape.graph,
            count,
        };
        let file = File {
            format: FORMAT,
            calls: self.shapes().map(call).collect(),
        };
        let pretty = (ron::ser::PrettyConfig::new().struct_names(false))
            .indentor("  ")
            .depth_limit(2);
        // Nothing in these structs can fail to be written.
        let body = ron::ser::to_string_pretty(&file, pretty).unwrap_or_default();
        format!("// All-reduce calls by shape; `topoforge tune --from-trace` reads this.\nCalls{body}\n")
    }

    /// Writes the text form: a reader sees the old file or the whole new one.
    ///
    /// # Errors
    /// The file system refuses; the old file is untouched then.
    pub fn write(&self, path: &Path) -> Result<(), TraceError> {
        let io = |error: std::io::Error| TraceError::Io {
            path: path.to_owned(),
            action: "write",
            error: error.to_string(),
        };
        crate::routes::write_whole(path, &self.to_text()).map_err(io)
    }

    /// Reads a trace, all of it or nothing.
    ///
    /// # Errors
    /// The file cannot be read, is cut off, is something else, or says what cannot be.
    pub fn read(path: &Path) -> Result<Self, TraceError> {
        let io = |error: std::io::Error| TraceError::Io {
            path: path.to_owned(),
            action: "read",
            error: error.to_string(),
        };
        let foreign = |fault: String| TraceError::Foreign {
            path: path.to_owned(),
            line: 0,
            fault,
        };
        let meta = std::fs::metadata(path).map_err(io)?;
        if !meta.is_file() {
            return Err(foreign("it is no file".to_owned()));
        }
        if meta.len() > MAX_FILE {
            return Err(foreign(format!("it has {} bytes", meta.len())));
        }
        let bytes = std::fs::read(path).map_err(io)?;
        let text = String::from_utf8(bytes).map_err(|e| foreign(format!("it is no text: {e}")))?;
        Self::parse(&text, path)
    }

    /// Reads a trace from text; `path` is for messages.
    ///
    /// # Errors
    /// As [`CallTrace::read`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, TraceError> {
        let file: File = ron::from_str(text).map_err(|error| TraceError::Foreign {
            path: path.to_owned(),
            line: error.span.end.line,
            fault: error.code.to_string(),
        })?;
        if file.format != FORMAT {
            return Err(TraceError::Foreign {
                path: path.to_owned(),
                line: 1,
                fault: format!("format {}, this version reads format {FORMAT}", file.format),
            });
        }
        let mut trace = Self::default();
        for (index, call) in file.calls.into_iter().enumerate() {
            let invalid = |fault: String| TraceError::Invalid {
                path: path.to_owned(),
                call: index + 1,
                fault,
            };
            let element = Element::from_name(&call.element).ok_or_else(|| {
                let known: Vec<&str> = Element::ALL.iter().map(|e| e.name()).collect();
                invalid(format!("no element `{}`: there are {}", call.element, known.join(", ")))
            })?;
            check(call.bytes, &call.bytes.to_string()).map_err(|e| invalid(e.to_string()))?;
            let shape = CallShape {
                bytes: call.bytes,
                element,
                graph: call.graph,
            };
            trace.record(shape, call.count);
        }
        Ok(trace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(bytes: u64, graph: bool) -> CallShape {
        CallShape {
            bytes,
            element: Element::F16,
            graph,
        }
    }

    fn parse(text: &str) -> Result<CallTrace, TraceError> {
        CallTrace::parse(text, Path::new("calls.ron"))
    }

    #[test]
    fn what_is_written_is_read_and_equal_shapes_are_one_line() {
        let mut trace = CallTrace::default();
        trace.record(shape(5120, true), 100);
        trace.record(shape(5120, true), 28);
        trace.record(shape(5120, false), 2);
        trace.record(shape(1024, false), 7);
        let text = trace.to_text();
        assert_eq!(text.matches("count").count(), 3, "{text}");
        assert_eq!(parse(&text), Ok(trace.clone()), "{text}");
        assert_eq!(trace.counts(Element::F16), [(1024, 7), (5120, 130)]);
        assert_eq!(
            trace.payloads(Element::F16).map(|p| p.bytes().to_vec()),
            Ok(vec![1024, 5120])
        );
        let mut both = trace.clone();
        both.merge(&trace);
        assert_eq!(both.counts(Element::F16), [(1024, 14), (5120, 260)]);
    }

    #[test]
    fn a_trace_goes_through_a_file_and_a_missing_file_is_named() {
        let folder = std::env::temp_dir().join(format!("topoforge-trace-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let path = folder.join("calls.ron");
        let mut trace = CallTrace::default();
        trace.record(shape(10 << 10, true), 64);
        trace.write(&path).expect("written");
        assert_eq!(CallTrace::read(&path), Ok(trace));
        let left: Vec<_> = std::fs::read_dir(&folder).expect("listed").collect();
        assert_eq!(left.len(), 1, "no temporary file stays");
        std::fs::remove_dir_all(&folder).expect("removed");
        let error = CallTrace::read(&path).expect_err("gone").to_string();
        assert!(error.contains("calls.ron") && error.contains("read"), "{error}");
    }

    #[test]
    fn a_foreign_or_cut_file_is_refused_with_the_line() {
        let good = "Calls(format: 1, calls: [\n  (bytes: 5120, element: \"f16\", graph: true, count: 128),\n])";
        assert!(parse(good).is_ok());
        for end in 1..good.len() - 1 {
            let error = parse(&good[..end]).expect_err("cut off");
            assert!(
                matches!(error, TraceError::Foreign { line: 1..=3, .. }),
                "{end}: {error}"
            );
        }
        for (text, said) in [
            ("", "calls.ron:1"),
            ("[1, 2]", "calls.ron:1"),
            ("Calls(format: 2, calls: [])", "format 2"),
            ("Calls(format: 1, calls: [], more: 1)", "calls.ron:1"),
            (&good.replace("5120", "-1"), "calls.ron:2"),
            (&good.replace("5120", "3"), "call 1: payload `3`"),
            (&good.replace("5120", "0"), "call 1: payload `0`"),
            (&good.replace("f16", "f8"), "no element `f8`"),
            (&good.replace("128", "99999999999999999999999"), "calls.ron:2"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
        let empty = parse("Calls(format: 1, calls: [])").expect("no calls is a trace");
        let error = empty.payloads(Element::F16).expect_err("nothing to tune");
        assert_eq!(error, TraceError::Empty { element: Element::F16 });
    }
}

//! Which payload sizes are tuned: from a list in bytes or KiB, or from a model's shape.
//!
//! It knows nothing about devices. Sizes come out sorted, unique, even and not zero. Start at [`Payloads`].

use crate::registry::Element;
use std::fmt;
use std::str::FromStr;

/// Payload sizes in bytes, ascending, each even and not zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payloads {
    bytes: Vec<u64>,
}

/// The largest payload that is accepted, 1 GiB: beyond it this is a mistyped unit.
pub const MAX_BYTES: u64 = 1 << 30;

/// Why sizes are refused. The fault of whoever asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PayloadError {
    /// No sizes at all.
    Empty,
    /// Not a number with an optional unit.
    Syntax {
        /// The part that does not parse.
        text: String,
    },
    /// Zero, or not a whole number of elements.
    NotWhole {
        /// The part or size.
        text: String,
    },
    /// Larger than [`MAX_BYTES`].
    TooLarge {
        /// The part or size.
        text: String,
    },
}

impl fmt::Display for PayloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("no payload sizes: give at least one, e.g. 1,5,10KiB"),
            Self::Syntax { text } => {
                write!(
                    f,
                    "`{text}` is no payload size: write a number with B, KiB or MiB, e.g. 5KiB or 1,5,10KiB"
                )
            }
            Self::NotWhole { text } => {
                write!(
                    f,
                    "payload `{text}` is not a whole number of 2-byte elements above zero"
                )
            }
            Self::TooLarge { text } => write!(f, "payload `{text}` is above 1 GiB"),
        }
    }
}

impl std::error::Error for PayloadError {}

impl Payloads {
    /// The sizes that decode steps of small batches have on many models: 1 to 80 KiB.
    pub fn standard() -> Self {
        Self {
            bytes: [1, 5, 10, 25, 40, 80].map(|kib| kib << 10).to_vec(),
        }
    }

    /// [`Payloads::standard`], and 256 KiB to 1 MiB for larger batches and prefill: what a communicator serves by default.
    pub fn serving() -> Self {
        let mut all = Self::standard();
        all.bytes.extend([256, 512, 1024].map(|kib| kib << 10));
        all
    }

    /// From sizes in bytes, in any order.
    ///
    /// # Errors
    /// None given, or one is zero, odd or above 1 GiB.
    pub fn from_bytes(bytes: &[u64]) -> Result<Self, PayloadError> {
        for &size in bytes {
            check(size, &size.to_string())?;
        }
        let mut bytes = bytes.to_vec();
        bytes.sort_unstable();
        bytes.dedup();
        if bytes.is_empty() {
            Err(PayloadError::Empty)
        } else {
            Ok(Self { bytes })
        }
    }

    /// From a model: an activation of `hidden` elements a token, for each number of tokens in a step.
    ///
    /// # Errors
    /// As [`Payloads::from_bytes`].
    ///
    /// ```
    /// # use topoforge::{registry::Element, tune::Payloads};
    /// let payloads = Payloads::from_model(2560, &[1, 5, 16], Element::F16)?;
    /// assert_eq!(payloads.bytes(), [5120, 25_600, 81_920]);
    /// # Ok::<(), topoforge::tune::PayloadError>(())
    /// ```
    pub fn from_model(hidden: u64, tokens: &[u64], element: Element) -> Result<Self, PayloadError> {
        let size = |&t: &u64| {
            let bytes = hidden
                .checked_mul(t)
                .and_then(|n| n.checked_mul(element.bytes() as u64));
            bytes.ok_or_else(|| PayloadError::TooLarge {
                text: format!("{hidden} x {t} elements"),
            })
        };
        Self::from_bytes(&tokens.iter().map(size).collect::<Result<Vec<_>, _>>()?)
    }

    /// The sizes, ascending.
    pub fn bytes(&self) -> &[u64] {
        &self.bytes
    }

    /// The largest size.
    pub fn max(&self) -> u64 {
        self.bytes.last().copied().unwrap_or(0)
    }
}

pub(super) fn check(size: u64, text: &str) -> Result<(), PayloadError> {
    match size {
        _ if size > MAX_BYTES => Err(PayloadError::TooLarge { text: text.to_owned() }),
        _ if size == 0 || !size.is_multiple_of(2) => Err(PayloadError::NotWhole { text: text.to_owned() }),
        _ => Ok(()),
    }
}

/// Reads one size, e.g. `5KiB`, `1MiB`, `1030B` or `1030`; fractions as long as bytes come out whole. `K`, `KB` and
/// their like mean the binary unit.
///
/// # Errors
/// Not a number with a known unit, odd, zero or too large.
pub fn parse_size(text: &str) -> Result<u64, PayloadError> {
    let (number, unit) = split(text);
    size_of(text, number, unit.unwrap_or(1))
}

fn size_of(text: &str, number: &str, unit: u64) -> Result<u64, PayloadError> {
    let syntax = || PayloadError::Syntax {
        text: text.trim().to_owned(),
    };
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 9 || number.ends_with('.') {
        return Err(syntax());
    }
    let too_large = || PayloadError::TooLarge {
        text: text.trim().to_owned(),
    };
    let scale = 10_u128.pow(fraction.len() as u32);
    let value: u128 = format!("{whole}{fraction}").parse().map_err(|_| too_large())?;
    let scaled = value.checked_mul(u128::from(unit)).ok_or_else(too_large)?;
    if scaled % scale != 0 {
        return Err(PayloadError::NotWhole {
            text: text.trim().to_owned(),
        });
    }
    let size = u64::try_from(scaled / scale).map_err(|_| too_large())?;
    check(size, text.trim())?;
    Ok(size)
}

/// Number and factor of the unit; no factor where there is no unit. An unknown unit stays with the number.
fn split(text: &str) -> (&str, Option<u64>) {
    let text = text.trim();
    let lower = text.to_ascii_lowercase();
    for (unit, factor) in [
        ("gib", 1 << 30),
        ("gb", 1 << 30),
        ("g", 1 << 30),
        ("kib", 1 << 10),
        ("kb", 1 << 10),
        ("k", 1 << 10),
        ("mib", 1 << 20),
        ("mb", 1 << 20),
        ("m", 1 << 20),
        ("b", 1),
    ] {
        if lower.ends_with(unit) {
            return (text[..text.len() - unit.len()].trim_end(), Some(factor));
        }
    }
    (text, None)
}

impl FromStr for Payloads {
    type Err = PayloadError;

    /// Reads a list such as `1,5,10,25,40,80KiB`: a size without a unit has that of the next size with one.
    fn from_str(text: &str) -> Result<Self, PayloadError> {
        let mut bytes = Vec::new();
        let mut unit = 1;
        for part in text.split(',').rev().filter(|_| !text.trim().is_empty()) {
            let (number, own) = split(part);
            unit = own.unwrap_or(unit);
            bytes.push(size_of(part, number, unit)?);
        }
        Self::from_bytes(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<u64>, PayloadError> {
        text.parse::<Payloads>().map(|p| p.bytes().to_vec())
    }

    #[test]
    fn a_unit_reaches_back_to_the_sizes_before_it() {
        assert_eq!(read("1,5,10,25,40,80KiB"), Ok(Payloads::standard().bytes().to_vec()));
        assert_eq!(read("512B, 1 KiB,2,1MiB"), Ok(vec![512, 1024, 1 << 20, 2 << 20]));
        assert_eq!(read("80,40kb,40K"), Ok(vec![40 << 10, 80 << 10]));
        assert_eq!(read("1030"), Ok(vec![1030]));
        assert_eq!(read("2.5KiB"), Ok(vec![2560]));
    }

    #[test]
    fn what_is_no_size_is_named() {
        // A unit that is known, and a size that no payload has.
        assert!(matches!(read("5 GiB"), Err(PayloadError::TooLarge { .. })));
        for text in [
            "five",
            "1,,2KiB",
            "-4KiB",
            "5 QiB",
            "1..5KiB",
            "1.KiB",
            "KiB",
            "\u{2163}KiB",
        ] {
            assert!(
                matches!(read(text), Err(PayloadError::Syntax { .. })),
                "{text}: {:?}",
                read(text)
            );
        }
        for text in ["0", "3", "1,5B", "0.3KiB"] {
            assert!(
                matches!(read(text), Err(PayloadError::NotWhole { .. })),
                "{text}: {:?}",
                read(text)
            );
        }
        for text in ["2000MiB", "99999999999999999999999999999999999999999KiB"] {
            assert!(
                matches!(read(text), Err(PayloadError::TooLarge { .. })),
                "{text}: {:?}",
                read(text)
            );
        }
        assert_eq!(read(" "), Err(PayloadError::Empty));
        assert_eq!(Payloads::from_model(2560, &[], Element::F16), Err(PayloadError::Empty));
        assert!(matches!(
            Payloads::from_model(u64::MAX, &[2], Element::F16),
            Err(PayloadError::TooLarge { .. })
        ));
    }
}

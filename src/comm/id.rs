//! The 128 bytes by which ranks find each other: made once, handed to every rank by whatever means the caller has.
//!
//! As large as NCCL's id, so that plumbing made for that one carries it. Start at [`Id::new`].

use super::CommError;
use std::ffi::c_char;
use std::fmt;
use std::io::Read;

const MAGIC: &[u8; 16] = b"topoforge id 1\0\0";

/// Names one group of ranks. Whoever knows it may join.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Id {
    internal: [c_char; 128],
}

impl Id {
    /// A fresh one, unlike any other.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new() -> Result<Self, CommError> {
        let mut bytes = [0; 128];
        bytes[..16].copy_from_slice(MAGIC);
        let random = std::fs::File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut bytes[16..48]));
        random.map_err(|e| CommError::Misuse {
            reason: format!("no random numbers for an id: /dev/urandom: {e}"),
        })?;
        Ok(Self::from_bytes(bytes))
    }

    /// The id of bytes that another rank's [`Id::bytes`] gave.
    pub fn from_bytes(bytes: [u8; 128]) -> Self {
        Self {
            internal: bytes.map(|b| c_char::from_ne_bytes([b])),
        }
    }

    /// For handing it on.
    pub fn bytes(&self) -> [u8; 128] {
        self.internal.map(|c| c.to_ne_bytes()[0])
    }

    /// Whether [`Id::new`] of this version made it.
    pub fn is_ours(&self) -> bool {
        let bytes = self.bytes();
        bytes[..16] == MAGIC[..] && bytes[48..].iter().all(|b| *b == 0)
    }

    /// As cudarc's `Id::uninit`.
    pub const fn uninit(internal: [c_char; 128]) -> Self {
        Self { internal }
    }

    /// As cudarc's `Id::internal`.
    pub const fn internal(&self) -> &[c_char; 128] {
        &self.internal
    }
}

impl fmt::Debug for Id {
    /// The first bytes only: whoever reads a log should not be able to join.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes();
        write!(f, "Id({:02x}{:02x}…)", bytes[16], bytes[17])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_survive_being_handed_on_and_are_told_from_foreign_ones() {
        let (a, b) = (Id::new().unwrap(), Id::new().unwrap());
        assert_ne!(a, b);
        assert_eq!(Id::from_bytes(a.bytes()), a);
        assert_eq!(Id::uninit(*a.internal()), a);
        assert!(a.is_ours() && !Id::from_bytes([7; 128]).is_ours());
        assert!(format!("{a:?}").len() < 16, "an id is a secret");
    }
}

//! Bytes between ranks: numbers in little-endian order, lengths before texts. Reading never trusts a length.
//!
//! Start at [`Writer`].

/// Builds a message.
#[derive(Clone, Debug, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// One byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    /// Four bytes.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Eight bytes.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Length and bytes.
    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
        self.0.extend(&value[..value.len().min(u32::MAX as usize)]);
        self
    }

    /// Length and UTF-8.
    pub fn text(&mut self, value: &str) -> &mut Self {
        self.bytes(value.as_bytes())
    }

    /// The message.
    pub fn done(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

/// Takes a message apart; `None` where it is too short.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// From the beginning.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// So many bytes.
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    /// One byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|b| b[0])
    }

    /// Four bytes.
    pub fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    /// Length and bytes.
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = self.u32()? as usize;
        self.take(count)
    }

    /// Length and UTF-8.
    pub fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    /// What is left.
    pub const fn rest(&self) -> &'a [u8] {
        self.0
    }
}

/// FNV-1a of 64 bits: the same on every machine and in every version.
pub fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| {
        (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_a_cut_message_is_none() {
        let message = Writer::default().u8(1).u32(2).u64(3).text("vier").bytes(&[5, 5]).done();
        let read = |bytes: &[u8]| {
            let mut r = Reader::new(bytes);
            Some((r.u8()?, r.u32()?, r.u64()?, r.text()?, r.bytes()?.to_vec()))
        };
        assert_eq!(read(&message), Some((1, 2, 3, "vier".into(), vec![5, 5])));
        for cut in 0..message.len() {
            assert_eq!(read(&message[..cut]), None, "{cut}");
        }
        assert_eq!(Reader::new(&u32::MAX.to_le_bytes()).bytes(), None);
    }

    #[test]
    fn the_hash_is_that_of_the_books() {
        assert_eq!((hash(b""), hash(b"a")), (0xcbf2_9ce4_8422_2325, 0xaf63_dc4c_8601_ec8c));
    }
}

//! Reads what a Linux program asks of the machine it starts on: libraries, their symbol versions, its loader.
//!
//! ELF of 64 bits, little end first, dynamic section and version needs; anything else is refused. It judges nothing; `check`
//! does. Start at [`Needs::read`].

use crate::failure::{Done, Failure};

/// The processor, as the header numbers it.
pub const X86_64: u16 = 62;
/// The processor, as the header numbers it.
pub const AARCH64: u16 = 183;

/// What a program asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Number of the processor.
    pub machine: u16,
    /// The loader's path; empty in a library.
    pub interpreter: String,
    /// Libraries by name, in the program's order.
    pub libraries: Vec<String>,
    /// (library, version) of every versioned symbol it imports, e.g. (`libc.so.6`, `GLIBC_2.17`).
    pub versions: Vec<(String, String)>,
    /// Extra folders to search for libraries, which a program that travels must not have.
    pub search_paths: Vec<String>,
    /// Whether a table of symbols for debuggers is inside.
    pub has_symbol_table: bool,
}

const DYNAMIC: u32 = 6;
const SYMBOLS: u32 = 2;
const VERSION_NEEDS: u32 = 0x6fff_fffe;
const INTERPRETER: u32 = 3;

impl Needs {
    /// Reads a whole file's bytes.
    ///
    /// # Errors
    /// Not such a file, or cut.
    pub fn read(bytes: &[u8]) -> Done<Needs> {
        let file = File(bytes);
        if bytes.get(..6) != Some(&[0x7f, b'E', b'L', b'F', 2, 1]) {
            return Err(Failure::new("it is no 64-bit little-endian ELF file"));
        }
        let mut needs = Needs {
            machine: file.u16(0, 18)?,
            ..Needs::default()
        };
        for segment in file.table(32, 54)? {
            if file.u32(segment, 0)? == INTERPRETER {
                needs.interpreter = file.text(file.u64(segment, 8)?, 0)?;
            }
        }
        let sections = file.table(40, 58)?;
        for &section in &sections {
            // The section with the texts that this one's entries name.
            let link = sections
                .get(file.u32(section, 40)? as usize)
                .copied()
                .unwrap_or_default();
            let (start, bytes) = (file.u64(section, 24)?, file.u64(section, 32)?);
            match file.u32(section, 4)? {
                DYNAMIC => needs.dynamic(&file, start, bytes, file.u64(link, 24)?)?,
                VERSION_NEEDS => needs.version_needs(&file, start, file.u32(section, 44)?, file.u64(link, 24)?)?,
                SYMBOLS => needs.has_symbol_table = true,
                _ => {}
            }
        }
        Ok(needs)
    }

    fn dynamic(&mut self, file: &File<'_>, start: u64, bytes: u64, texts: u64) -> Done {
        for entry in 0..bytes / 16 {
            let value = file.u64(start, entry * 16 + 8)?;
            match file.u64(start, entry * 16)? {
                0 => break,
                1 => self.libraries.push(file.text(texts, value)?),
                15 | 29 => self.search_paths.push(file.text(texts, value)?),
                _ => {}
            }
        }
        Ok(())
    }

    fn version_needs(&mut self, file: &File<'_>, start: u64, count: u32, texts: u64) -> Done {
        let mut library_at = 0;
        for _ in 0..count {
            let library = file.text(texts, file.u32(start, library_at + 4)?.into())?;
            let mut version_at = library_at + u64::from(file.u32(start, library_at + 8)?);
            for _ in 0..file.u16(start, library_at + 2)? {
                let name = file.text(texts, file.u32(start, version_at + 8)?.into())?;
                self.versions.push((library.clone(), name));
                version_at += u64::from(file.u32(start, version_at + 12)?);
            }
            library_at += u64::from(file.u32(start, library_at + 12)?);
        }
        Ok(())
    }
}

/// Bytes with bounds: whatever a damaged file says, what lies outside is an error.
struct File<'a>(&'a [u8]);

impl File<'_> {
    fn tail(&self, base: u64, offset: u64) -> Option<&[u8]> {
        self.0.get(usize::try_from(base.checked_add(offset)?).ok()?..)
    }

    fn take<const N: usize>(&self, base: u64, offset: u64) -> Done<[u8; N]> {
        self.tail(base, offset)
            .and_then(|tail| tail.first_chunk::<N>().copied())
            .ok_or_else(|| Failure::new(format!("the ELF file is cut: nothing at byte {base} + {offset}")))
    }

    fn u16(&self, base: u64, offset: u64) -> Done<u16> {
        self.take(base, offset).map(u16::from_le_bytes)
    }

    fn u32(&self, base: u64, offset: u64) -> Done<u32> {
        self.take(base, offset).map(u32::from_le_bytes)
    }

    fn u64(&self, base: u64, offset: u64) -> Done<u64> {
        self.take(base, offset).map(u64::from_le_bytes)
    }

    /// Where the entries of a table begin. The header names its place at `place`, and size and number of entries at `shape`.
    /// A whole file holds all of each entry.
    fn table(&self, place: u64, shape: u64) -> Done<Vec<u64>> {
        let (start, size, count) = (self.u64(0, place)?, self.u16(0, shape)?, self.u16(0, shape + 2)?);
        let (size, count) = (u64::from(size), u64::from(count));
        if count == 0 || self.tail(start, size * count).is_none() {
            return Err(Failure::new("the ELF file is cut: its tables lie behind its end"));
        }
        Ok((0..count).map(|i| start + i * size).collect())
    }

    /// The text that ends with a zero byte.
    fn text(&self, base: u64, offset: u64) -> Done<String> {
        let tail = self.tail(base, offset).unwrap_or_default();
        let end = tail.iter().position(|byte| *byte == 0);
        let text = end.and_then(|end| std::str::from_utf8(&tail[..end]).ok());
        text.map(str::to_owned)
            .ok_or_else(|| Failure::new(format!("the ELF file is cut: no text at byte {base} + {offset}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_itself_is_read() {
        let needs = Needs::read(&std::fs::read("/proc/self/exe").unwrap()).unwrap();
        assert!(needs.libraries.iter().any(|l| l == "libc.so.6"), "{needs:?}");
        assert!(needs.interpreter.contains("ld-"), "{needs:?}");
        assert!(
            needs
                .versions
                .iter()
                .any(|(l, v)| l == "libc.so.6" && v.starts_with("GLIBC_2.")),
            "{needs:?}"
        );
        assert!(needs.has_symbol_table, "test programs are not stripped");
        assert!([X86_64, AARCH64].contains(&needs.machine));
    }

    #[test]
    fn other_files_and_cut_ones_are_refused_and_nothing_panics() {
        assert!(Needs::read(b"#!/bin/sh\n").is_err());
        let whole = std::fs::read("/proc/self/exe").unwrap();
        for length in [0, 6, 20, 63, 64, 200, 4096, whole.len() / 2, whole.len() - 1] {
            assert!(Needs::read(&whole[..length]).is_err(), "{length}");
        }
        // Whatever the header's numbers become, there is an answer.
        let head = &whole[..4096.min(whole.len())];
        for at in 16..64 {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bytes = head.to_vec();
                bytes[at] = value;
                let _ = Needs::read(&bytes);
            }
        }
    }
}

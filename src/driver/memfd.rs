//! Memory that several processes map: an anonymous file, sealed so that nobody can cut it under another one's feet.
//!
//! Rust sees it through copies and atomic words only, since other processes write it at any time. Start at
//! [`SharedMemory::create`]; the descriptor travels with [`super::socket`].

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

/// A mapping of an anonymous file, kept until dropped.
#[derive(Debug)]
pub struct SharedMemory {
    file: OwnedFd,
    pointer: *mut u8,
    bytes: usize,
}

// SAFETY: memory of its own; every access is a bounded copy or an atomic word.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

impl SharedMemory {
    /// Makes zeroed memory, rounded up to whole pages of 4 KiB.
    ///
    /// # Errors
    /// The system has no memory or no descriptor left.
    pub fn create(bytes: usize) -> io::Result<Self> {
        let bytes = round(bytes)?;
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // The C library has a function for it since glibc 2.27 only; a distributed program asks for 2.17.
        // SAFETY: a zero-ended name and known flags.
        let fd = unsafe { libc::syscall(libc::SYS_memfd_create, c"topoforge".as_ptr(), flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = i32::try_from(fd).map_err(io::Error::other)?;
        // SAFETY: just made, owned by nobody else.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        file.set_len(bytes as u64)?;
        // SAFETY: an open descriptor; adding seals touches no memory of ours.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Self::map(file.into(), bytes)
    }

    /// Maps what another process made.
    ///
    /// # Errors
    /// Not of that size, not sealed, or the system refuses.
    pub fn open(file: OwnedFd, bytes: usize) -> io::Result<Self> {
        let bytes = round(bytes)?;
        let file = File::from(file);
        let found = file.metadata()?.len();
        if found != bytes as u64 {
            let text = format!("shared memory of {found} bytes instead of {bytes}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        // SAFETY: an open descriptor.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & SEALS != SEALS {
            let text = "shared memory that its maker could still cut";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Self::map(file.into(), bytes)
    }

    fn map(file: OwnedFd, bytes: usize) -> io::Result<Self> {
        // SAFETY: a fresh mapping of an open file of that size, which is sealed and so stays that long.
        let pointer = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if pointer == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            file,
            pointer: pointer.cast(),
            bytes,
        })
    }

    /// The file, to be given away.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Size in bytes.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Address of the first byte in this process.
    pub fn address(&self) -> u64 {
        self.pointer as u64
    }

    fn at(&self, offset: usize, bytes: usize) -> Option<*mut u8> {
        let end = offset.checked_add(bytes)?;
        // SAFETY: within the mapping.
        (end <= self.bytes).then(|| unsafe { self.pointer.add(offset) })
    }

    /// Copies out; leaves `to` alone when the range is not inside.
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        if let Some(at) = self.at(offset, to.len()) {
            // SAFETY: checked range; no Rust reference to the mapping exists.
            unsafe { std::ptr::copy_nonoverlapping(at, to.as_mut_ptr(), to.len()) };
        }
    }

    /// Copies in; does nothing when the range is not inside.
    pub fn write(&self, offset: usize, from: &[u8]) {
        if let Some(at) = self.at(offset, from.len()) {
            // SAFETY: as in `read`.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), at, from.len()) };
        }
    }

    /// Sets a range to one byte; does nothing when it is not inside.
    pub fn fill(&self, offset: usize, bytes: usize, byte: u8) {
        if let Some(at) = self.at(offset, bytes) {
            // SAFETY: as in `read`.
            unsafe { at.write_bytes(byte, bytes) };
        }
    }

    /// The word of 4 bytes at an offset divisible by 4, as it is now; 0 past the end.
    pub fn load(&self, offset: usize) -> u32 {
        match self.at(offset, 4).filter(|_| offset.is_multiple_of(4)) {
            // SAFETY: inside the mapping and aligned.
            Some(at) => unsafe { AtomicU32::from_ptr(at.cast()) }.load(Ordering::Acquire),
            None => 0,
        }
    }

    /// Sets that word; past the end nothing happens. What was written before is seen by whoever sees this.
    pub fn store(&self, offset: usize, value: u32) {
        if let Some(at) = self.at(offset, 4).filter(|_| offset.is_multiple_of(4)) {
            // SAFETY: as in `load`.
            unsafe { AtomicU32::from_ptr(at.cast()) }.store(value, Ordering::SeqCst);
        }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this size and unmapped nowhere else.
        unsafe { libc::munmap(self.pointer.cast(), self.bytes) };
    }
}

fn round(bytes: usize) -> io::Result<usize> {
    let rounded = bytes.max(1).checked_next_multiple_of(4096);
    rounded.ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_of_one_file_are_one_memory() {
        let a = SharedMemory::create(100).expect("made");
        let b = SharedMemory::open(a.fd().try_clone_to_owned().expect("dup"), 100).expect("mapped");
        a.write(40, b"shared");
        b.store(64, 7);
        let mut seen = [0; 6];
        b.read(40, &mut seen);
        assert_eq!((&seen, a.load(64), a.bytes()), (b"shared", 7, 4096));
        a.write(4090, b"too long");
        a.fill(4095, 2, 9);
        b.read(4090, &mut seen);
        assert_eq!((seen, b.load(4096)), ([0; 6], 0));
    }

    #[test]
    fn a_file_of_another_size_or_without_seals_is_refused() {
        let a = SharedMemory::create(4096).expect("made");
        let size = SharedMemory::open(a.fd().try_clone_to_owned().expect("dup"), 8192).err();
        assert!(size.is_some_and(|e| e.to_string().contains("4096 bytes instead of 8192")));
        assert!(
            File::from(a.fd().try_clone_to_owned().expect("dup"))
                .set_len(0)
                .is_err()
        );
        let plain = File::open("/dev/null").expect("opens");
        assert!(SharedMemory::open(plain.into(), 4096).is_err());
    }
}

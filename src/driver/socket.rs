//! What Unix sockets can that the standard library does not offer yet: peer credentials, file descriptors as luggage,
//! waiting for several of them with a bound.
//!
//! Knows no protocol. Every call returns the system's error as it is. Start at [`wait`].

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Most descriptors that one message carries here; the kernel allows 253.
pub const MAX_FDS: usize = 8;

/// Who is at the other end, as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Process, as numbered in our PID name space; 0 where it is not visible from here.
    pub pid: i32,
    /// Effective user when it connected.
    pub uid: u32,
}

/// The process that connected or listens at the other end.
///
/// # Errors
/// The system refuses.
pub fn credentials(stream: &UnixStream) -> io::Result<Credentials> {
    let mut found = MaybeUninit::<libc::ucred>::zeroed();
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: room for a ucred and its size are passed; the descriptor is open.
    let code = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            found.as_mut_ptr().cast(),
            &mut bytes,
        )
    };
    checked(code as isize)?;
    // SAFETY: filled by the system; all zeroes is a ucred too.
    let found = unsafe { found.assume_init() };
    Ok(Credentials {
        pid: found.pid,
        uid: found.uid,
    })
}

/// A descriptor that turns readable when the process at the other end has ended. Its end of the socket says the same, but
/// not as long as a child of that process, forked and never told, holds a copy.
///
/// # Errors
/// The kernel knows no such descriptors, or the process is not visible from here.
pub fn process(stream: &UnixStream) -> io::Result<OwnedFd> {
    /// Linux 6.5 and later; `libc` does not name it everywhere.
    const SO_PEERPIDFD: i32 = 77;
    let mut found = -1_i32;
    let mut bytes = size_of::<i32>() as libc::socklen_t;
    // SAFETY: room for a descriptor and its size are passed; the socket is open.
    let code = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut found).cast(),
            &mut bytes,
        )
    };
    if code != 0 || found < 0 {
        let pid = credentials(stream)?.pid;
        if pid <= 0 {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        // SAFETY: takes two numbers; what it returns is a new descriptor or an error.
        let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        found = checked(opened as isize)? as i32;
    }
    // SAFETY: the kernel has just made it for this process, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(found) })
}

/// The effective user of this process.
pub fn own_uid() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// What [`wait`] waits for on one descriptor, and what it found.
#[derive(Clone, Copy, Debug)]
pub struct Interest<'a> {
    /// The descriptor.
    pub fd: BorrowedFd<'a>,
    /// Wait until something can be read or the other end is gone.
    pub read: bool,
    /// Wait until something can be written.
    pub write: bool,
    /// Something can be read, end of file included.
    pub readable: bool,
    /// Something can be written.
    pub writable: bool,
    /// The other end is gone; what it sent before may still be readable.
    pub gone: bool,
}

impl<'a> Interest<'a> {
    /// Waits for the end of the other side only, unless more is asked for.
    pub const fn in_end(fd: BorrowedFd<'a>) -> Self {
        Self {
            fd,
            read: false,
            write: false,
            readable: false,
            writable: false,
            gone: false,
        }
    }

    /// Also for something to read.
    #[must_use]
    pub const fn reading(mut self) -> Self {
        self.read = true;
        self
    }

    /// Also for room to write.
    #[must_use]
    pub const fn writing(mut self, wanted: bool) -> Self {
        self.write = wanted;
        self
    }
}

/// Waits until something of interest happened, at most until `deadline`; none waits for ever. False: nothing happened.
///
/// # Errors
/// The system refuses. Signals are no error.
pub fn wait(interests: &mut [Interest<'_>], deadline: Option<Instant>) -> io::Result<bool> {
    let mut polled: Vec<libc::pollfd> = interests
        .iter()
        .map(|i| libc::pollfd {
            fd: i.fd.as_raw_fd(),
            events: libc::POLLRDHUP | if i.read { libc::POLLIN } else { 0 } | if i.write { libc::POLLOUT } else { 0 },
            revents: 0,
        })
        .collect();
    loop {
        let patience = match deadline {
            None => -1,
            // Rounded up: a wait that ends early would spin.
            Some(end) => {
                let left = end.saturating_duration_since(Instant::now()) + Duration::from_micros(999);
                i32::try_from(left.as_millis()).unwrap_or(i32::MAX)
            }
        };
        // SAFETY: a slice of pollfd and its length; every descriptor is borrowed for the length of the call.
        let found = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, patience) };
        match checked(found as isize) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
            Ok(0) => return Ok(false),
            Ok(_) => break,
        }
    }
    for (interest, polled) in interests.iter_mut().zip(&polled) {
        let has = |bits| polled.revents & bits != 0;
        interest.gone = has(libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR | libc::POLLNVAL);
        interest.readable = has(libc::POLLIN);
        interest.writable = has(libc::POLLOUT);
    }
    Ok(true)
}

/// Room for the control message of [`MAX_FDS`] descriptors, aligned as the kernel wants it.
#[repr(C, align(16))]
struct Luggage([u8; 128]);

/// Sends what fits without waiting; descriptors go with the first byte.
///
/// # Errors
/// `WouldBlock` when nothing fits; else the system refuses.
pub fn send(stream: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    if fds.len() > MAX_FDS {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let raw: Vec<i32> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut luggage = Luggage([0; 128]);
    // SAFETY: all zeroes is a valid msghdr: null pointers with zero lengths.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if !raw.is_empty() {
        let size = size_of_val(raw.as_slice()) as u32;
        message.msg_control = luggage.0.as_mut_ptr().cast();
        // SAFETY: arithmetic only.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(size) } as _;
        // SAFETY: the control buffer holds CMSG_SPACE of at most MAX_FDS descriptors, so header and data lie inside it.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size) as _;
            std::ptr::copy_nonoverlapping(raw.as_ptr().cast::<u8>(), libc::CMSG_DATA(header), size as usize);
        }
    }
    // SAFETY: message, bytes and control buffer outlive the call, which only reads them.
    let sent = unsafe {
        libc::sendmsg(
            stream.as_raw_fd(),
            &raw const message,
            libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
        )
    };
    checked(sent)
}

/// Receives what is there without waiting; descriptors are added to `fds`. 0 bytes: the other end is gone.
///
/// # Errors
/// `WouldBlock` when nothing is there; `InvalidData` for more descriptors than anybody here sends; else the system
/// refuses.
pub fn receive(stream: &UnixStream, bytes: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let mut luggage = Luggage([0; 128]);
    // SAFETY: all zeroes is a valid msghdr.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = luggage.0.as_mut_ptr().cast();
    message.msg_controllen = luggage.0.len() as _;
    // SAFETY: message, bytes and control buffer outlive the call and have the sizes given.
    let got = unsafe {
        libc::recvmsg(
            stream.as_raw_fd(),
            &raw mut message,
            libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC,
        )
    };
    let got = checked(got)?;
    // SAFETY: the kernel filled the control buffer and set its length; the macros stay inside it. Descriptors in it are
    // ours from now on, each owned once.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(header);
                let count = ((*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize) / size_of::<i32>();
                for index in 0..count {
                    let mut fd = -1_i32;
                    std::ptr::copy_nonoverlapping(data.add(index * 4), (&raw mut fd).cast::<u8>(), 4);
                    fds.push(OwnedFd::from_raw_fd(fd));
                }
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    if message.msg_flags & libc::MSG_CTRUNC != 0 {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    }
    Ok(got)
}

fn checked(code: isize) -> io::Result<usize> {
    usize::try_from(code).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Seek, Write};
    use std::os::fd::AsFd;

    #[test]
    fn a_descriptor_travels_and_means_the_same_file() {
        let (a, b) = UnixStream::pair().expect("pair");
        let memory = super::super::memfd::SharedMemory::create(64).expect("memfd");
        assert_eq!(send(&a, b"x", &[memory.fd()]).expect("sent"), 1);
        let (mut byte, mut fds) = ([0], Vec::new());
        assert_eq!(receive(&b, &mut byte, &mut fds).expect("received"), 1);
        assert_eq!((byte, fds.len()), (*b"x", 1));
        let mut file = File::from(fds.remove(0));
        file.write_all(b"here").expect("written");
        file.rewind().expect("rewound");
        let mut text = [0; 4];
        file.read_exact(&mut text).expect("read");
        let mut seen = [0; 4];
        memory.read(0, &mut seen);
        assert_eq!((&text, &seen), (b"here", b"here"));
    }

    #[test]
    fn the_peer_is_known_and_its_end_shows() {
        let (a, b) = UnixStream::pair().expect("pair");
        let who = credentials(&a).expect("credentials");
        assert_eq!((who.uid, who.pid), (own_uid(), std::process::id() as i32));
        let soon = || Some(Instant::now() + Duration::from_millis(5));
        let mut alive = [Interest::in_end(a.as_fd())];
        assert!(!wait(&mut alive, soon()).expect("polls"), "nothing has happened");
        drop(b);
        assert!(wait(&mut alive, soon()).expect("polls") && alive[0].gone);
        assert_eq!(receive(&a, &mut [0; 4], &mut Vec::new()).expect("end of file"), 0);
        assert!(send(&a, b"x", &[]).is_err(), "and no signal ends the process");
    }
}

//! Whole messages over sockets that never block, each with a deadline.
//!
//! Knows nothing of ranks. Start at [`receive_message`].

use crate::driver::socket::{self, Interest};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// The largest message that is believed.
pub const MOST: usize = 16 << 20;

fn late() -> io::Error {
    io::Error::from(io::ErrorKind::TimedOut)
}

/// Sends all of it.
///
/// # Errors
/// `TimedOut` at `end`; else the system's.
pub fn send_all(stream: &UnixStream, mut bytes: &[u8], end: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        match socket::send(stream, bytes, &[]) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                if !socket::wait(&mut [Interest::in_end(stream.as_fd()).writing(true)], Some(end))? {
                    return Err(late());
                }
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Fills `bytes`.
///
/// # Errors
/// `TimedOut` at `end`, `UnexpectedEof` where the other side is gone; else the system's.
pub fn receive_all(stream: &UnixStream, bytes: &mut [u8], end: Instant) -> io::Result<()> {
    let mut got = 0;
    while got < bytes.len() {
        match socket::receive(stream, &mut bytes[got..], &mut Vec::new()) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            Ok(n) => got += n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                if !socket::wait(&mut [Interest::in_end(stream.as_fd()).reading()], Some(end))? {
                    return Err(late());
                }
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Reads on what somebody says who is to say `whole` bytes: true once all are there, none if they hung up.
pub fn hear(stream: &UnixStream, said: &mut Vec<u8>, whole: usize) -> Option<bool> {
    let mut part = vec![0; whole];
    while said.len() < whole {
        // What is passed along is dropped, and so closed.
        match socket::receive(stream, &mut part[..whole - said.len()], &mut Vec::new()) {
            Ok(0) => return None,
            Ok(n) => said.extend(&part[..n]),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Some(false),
            Err(_) => return None,
        }
    }
    Some(true)
}

/// A message with its length before it.
///
/// # Errors
/// As [`receive_all`]; `InvalidData` for a length that nobody here sends.
pub fn receive_message(stream: &UnixStream, end: Instant) -> io::Result<Vec<u8>> {
    let mut size = [0; 4];
    receive_all(stream, &mut size, end)?;
    let size = u32::from_le_bytes(size) as usize;
    if size > MOST {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    }
    let mut bytes = vec![0; size];
    receive_all(stream, &mut bytes, end)?;
    Ok(bytes)
}

/// A message that comes in parts.
#[derive(Default)]
pub struct Incoming(Vec<u8>);

impl Incoming {
    /// Reads what is there, no further than the message; the message once it is whole.
    ///
    /// # Errors
    /// As [`receive_message`], except that nothing is waited for.
    pub fn read(&mut self, stream: &UnixStream) -> io::Result<Option<Vec<u8>>> {
        let mut part = vec![0; 64 << 10];
        loop {
            let size = match self.0.first_chunk::<4>() {
                None => 4,
                Some(size) => 4 + u32::from_le_bytes(*size) as usize,
            };
            if size > 4 + MOST {
                return Err(io::Error::from(io::ErrorKind::InvalidData));
            }
            if self.0.len() >= 4 && self.0.len() == size {
                return Ok(Some(std::mem::take(&mut self.0).split_off(4)));
            }
            let most = (size - self.0.len()).min(part.len());
            match socket::receive(stream, &mut part[..most], &mut Vec::new()) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                Ok(n) => self.0.extend(&part[..n]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) => return Err(e),
            }
        }
    }
}

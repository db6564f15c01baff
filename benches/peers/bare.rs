//! Measures a TCP stream without iSCSI: sends of a header and its data, repeatedly.

use std::io::{self, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use serde_json::Value;

use crate::Trouble;
use crate::args::{BareArgs, Direction};
use crate::usage::Usage;

/// Length of the basic header segment of a PDU.
const HEADER: usize = 48;

/// Bytes of the longest send, as in the plan for a peer on this machine (`iscsi_tuner`): longer ones are
/// slower.
const LONGEST_CALL: usize = 112 << 10;

/// Moves the bytes between two threads. Returns the resources that this thread used.
pub(crate) fn run(args: &BareArgs) -> Result<Value, Trouble> {
    let (io, count) = (usize::try_from(args.io.0)?, args.bytes.0 / args.io.0.max(1));
    let buffers = usize::try_from(args.depth.max(1))?;
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let direction = args.direction;
    let other = thread::spawn(move || match direction {
        Direction::Read => send(far, io, count),
        Direction::Write => receive(far, io, count, 1),
    });
    let begun = Usage::of_thread()?;
    match direction {
        Direction::Read => receive(near, io, count, buffers)?,
        Direction::Write => send(near, io, count)?,
    }
    let taken = Usage::of_thread()?.since(&begun);
    other.join().map_err(|_| "the other end panicked")??;
    Ok(taken)
}

/// Sends all bytes, and waits until the other thread has received them.
fn send(mut socket: TcpStream, io: usize, count: u64) -> io::Result<()> {
    let (header, data) = ([0; HEADER], vec![0x5a; io]);
    for _ in 0..count {
        let mut at = 0;
        while at < HEADER + io {
            let end = (at + LONGEST_CALL).min(HEADER + io);
            let header = header.get(at..).unwrap_or_default();
            let data = &data[at.saturating_sub(HEADER)..end - HEADER];
            at += socket.write_vectored(&[IoSlice::new(header), IoSlice::new(data)])?;
        }
    }
    socket.read_exact(&mut [0])
}

/// Receives all bytes into `buffers` buffers in turn, and then sends one byte as the acknowledgement.
fn receive(mut socket: TcpStream, io: usize, count: u64, buffers: usize) -> io::Result<()> {
    let mut data = vec![vec![0x5a; HEADER + io]; buffers];
    for (_, buffer) in (0..count).zip((0..buffers).cycle()) {
        socket.read_exact(&mut data[buffer])?;
    }
    socket.write_all(&[0])
}

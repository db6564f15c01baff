//! Reads lines from a socket.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::unix::OwnedReadHalf;

/// Most bytes of a line.
const MAX_LINE: u64 = 4096;

/// The lines from the peer of a socket.
#[derive(Debug)]
pub(crate) struct Lines {
    reader: BufReader<OwnedReadHalf>,
    /// The received part of the next line.
    begun: Vec<u8>,
}

/// A line, or the beginning of a line that is too long, or the last bytes without a line feed.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) text: String,
    pub(crate) is_whole: bool,
}

impl Lines {
    pub(crate) fn new(reader: OwnedReadHalf) -> Self {
        Self { reader: BufReader::new(reader), begun: Vec::new() }
    }

    /// Waits for the next line; returns `None` at the end. If the future is dropped, no bytes are lost.
    ///
    /// # Errors
    /// The errors of `read(2)`.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Line>> {
        let room = MAX_LINE.saturating_sub(self.begun.len() as u64);
        (&mut self.reader).take(room).read_until(b'\n', &mut self.begun).await?;
        if self.begun.is_empty() {
            return Ok(None);
        }
        let is_whole = self.begun.ends_with(b"\n");
        let text = String::from_utf8_lossy(&self.begun).into_owned();
        self.begun.clear();
        Ok(Some(Line { text, is_whole }))
    }
}

//! Memory for input whose destination is not known yet.

/// Memory for the headers and short data segments of a connection, whose destination is not known before they
/// are read.
///
/// A connection allocates its own memory when it is first read from. A driver of many connections can lend
/// the same buffer to each of them while it reads, with
/// [`Session::lend_read_ahead`](crate::Session::lend_read_ahead). Then an idle connection holds no memory,
/// and reads go to memory that is in the processor's cache.
#[derive(Debug)]
pub struct ReadAhead(Box<[u8]>);

impl ReadAhead {
    /// Size of the read-ahead buffer, bytes: room for many small PDUs.
    pub const LEN: usize = 64 * 1024;

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Default for ReadAhead {
    fn default() -> Self {
        Self(vec![0; Self::LEN].into_boxed_slice())
    }
}

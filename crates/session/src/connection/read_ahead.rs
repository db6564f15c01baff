//! Memory for input whose destination is not known yet.

/// Memory in which headers and short data segments of a connection arrive, before it is known where they belong.
///
/// A connection allocates its own when it is first read from. A driver of many connections lends each of them the
/// same buffer while it reads: [`Session::lend_read_ahead`](crate::Session::lend_read_ahead). Then an idle
/// connection holds none, and reads go to memory that was used a moment ago.
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

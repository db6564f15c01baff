//! The source of random bytes.

/// A source of random bytes for a session. CHAP challenges need a cryptographic source.
pub trait Entropy: Send {
    /// Fills the whole slice.
    fn fill(&mut self, bytes: &mut [u8]);
}

impl<F: FnMut(&mut [u8]) + Send> Entropy for F {
    fn fill(&mut self, bytes: &mut [u8]) {
        self(bytes);
    }
}

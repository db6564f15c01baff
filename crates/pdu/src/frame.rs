use crate::{Bhs, Digest};
#[derive(Clone, Copy, Debug)]
pub struct FrameLayout { pub ahs_len: usize, pub header_digest_len: usize, pub data_len: usize, pub padding_len: usize, pub data_digest_len: usize }
pub const fn padding_of(n: usize) -> usize { n.next_multiple_of(4) - n }
impl FrameLayout { pub fn of(b: &Bhs, h: Digest, d: Digest) -> Self { let n = b.data_len(); Self { ahs_len: b.ahs_len(), header_digest_len: if h == Digest::Crc32c { 4 } else { 0 }, data_len: n, padding_len: padding_of(n), data_digest_len: if d == Digest::Crc32c && n > 0 { 4 } else { 0 } } } pub const fn trailer_len(&self) -> usize { self.padding_len + self.data_digest_len } }

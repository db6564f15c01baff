#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Digest { #[default] None, Crc32c }
#[derive(Debug)] pub struct Crc32c(crc_fast::Digest);
impl Crc32c { pub fn new() -> Self { Self(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi)) } pub fn update(&mut self, b: &[u8]) { self.0.update(b) } pub fn finish(self) -> [u8; 4] { (self.0.finalize() as u32).to_le_bytes() } }

//! Rules.
use crate::frame::FrameError;
use crate::pdu::Pdu;
use crate::target::ConnId;
/// V
#[derive(Clone, Debug)]
pub struct Violation {}
/// C
#[derive(Debug, Default)]
pub struct Checker { violations: Vec<Violation> }
impl Checker {
    /// V
    pub fn violations(&self) -> &[Violation] { &self.violations }
    /// F
    pub fn from_initiator(&mut self, _id: ConnId, _pdu: &Pdu) {}
    /// F
    pub fn from_target(&mut self, _id: ConnId, _pdu: &Pdu) {}
    /// F
    pub fn frame_error(&mut self, _id: ConnId, _e: &FrameError) {}
    /// F
    pub fn closed(&mut self, _id: ConnId) {}
}

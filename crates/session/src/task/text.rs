//! A text exchange in full feature phase (RFC 7143 §11.10-11.11).

use bytes::{Bytes, BytesMut};
use iscsi_pdu::scsi::Lun;
use iscsi_pdu::{TextResponse, Ttt};

use crate::error::ProtocolError;

/// The most text that one exchange may bring: lists of tens of thousands of targets fit.
const MAX_TEXT: usize = 16 * 1024 * 1024;

/// One exchange: a request, and as many empty ones as the target's answer needs.
#[derive(Debug)]
pub(crate) struct TextTask {
    /// What the next request carries.
    pub(crate) request: Bytes,
    /// Where the next request continues: TTT and LUN of the last response.
    pub(crate) continues: Option<(Ttt, Lun)>,
    answer: BytesMut,
    /// Whether the session itself requested it, so that no caller waits for the answer.
    pub(crate) internal: bool,
}

/// What a response means for the exchange.
#[derive(Debug)]
pub(crate) enum TextStep {
    /// An empty request asks for more.
    Continue,
    /// All of the text.
    Done(Bytes),
}

impl TextTask {
    pub(crate) fn new(request: Bytes, internal: bool) -> Self {
        Self { request, continues: None, answer: BytesMut::new(), internal }
    }

    /// Takes a response; every request of ours has the F bit, so F=1 is always in order.
    pub(crate) fn answered(
        &mut self,
        response: &TextResponse,
        text: &[u8],
    ) -> Result<TextStep, ProtocolError> {
        if self.answer.len() + text.len() > MAX_TEXT {
            return Err(ProtocolError::Text("the answer is longer than any list of targets"));
        }
        self.answer.extend_from_slice(text);
        if response.is_final && response.is_continued {
            return Err(ProtocolError::Text("F and C are set together"));
        }
        if response.is_final {
            return Ok(TextStep::Done(std::mem::take(&mut self.answer).freeze()));
        }
        let Some(ttt) = response.ttt else {
            return Err(ProtocolError::Text("more is announced without a Target Transfer Tag"));
        };
        self.request = Bytes::new();
        self.continues = Some((ttt, response.lun));
        Ok(TextStep::Continue)
    }
}

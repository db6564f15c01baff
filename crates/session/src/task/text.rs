//! A text exchange in full feature phase (RFC 7143 §11.10-11.11).

use bytes::{Bytes, BytesMut};
use iscsi_pdu::scsi::Lun;
use iscsi_pdu::{TextResponse, Ttt};

use crate::error::ProtocolError;

/// The most text of one exchange, bytes: enough for lists of tens of thousands of targets.
const MAX_TEXT: usize = 16 * 1024 * 1024;

/// One exchange: a request with text, and as many empty requests as the target's response needs.
#[derive(Debug)]
pub(crate) struct TextTask {
    /// The text of the next request.
    pub(crate) request: Bytes,
    /// Where the next request continues: TTT and LUN of the last response.
    pub(crate) continues: Option<(Ttt, Lun)>,
    answer: BytesMut,
    /// Whether the session itself began the exchange, so that no caller waits for the response.
    pub(crate) internal: bool,
}

/// The effect of a response on the exchange.
#[derive(Debug)]
pub(crate) enum TextStep {
    /// The text is not complete: the session sends an empty request for more.
    Continue,
    /// The exchange is complete. Contains the whole text.
    Done(Bytes),
}

impl TextTask {
    pub(crate) fn new(request: Bytes, internal: bool) -> Self {
        Self { request, continues: None, answer: BytesMut::new(), internal }
    }

    /// Processes a response. Every request of the initiator has the F bit, so F=1 is always allowed.
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

//! The result of a handshake.

use crate::export::Export;
use crate::meta_context::MetaContext;

/// The result of the negotiation between client and server.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Negotiated {
    /// The export, with the flags and block sizes that were reported to the client.
    pub export: Export,
    /// The name by which the client requested the export.
    pub name: String,
    /// Whether replies are structured (NBD, "`NBD_OPT_STRUCTURED_REPLY`").
    pub structured: bool,
    /// The selected metadata contexts, which requests for block status report; without any, such requests are
    /// refused.
    pub contexts: Vec<MetaContext>,
    /// Whether the server has reported the block sizes to the client. If not, the client assumes those in
    /// `export`.
    pub knows_block_sizes: bool,
}

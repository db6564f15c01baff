//! What a handshake comes to.

use crate::export::Export;
use crate::meta_context::MetaContext;

/// The result of the negotiation between client and server.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Negotiated {
    /// The export, with the flags and block sizes that were reported to the client.
    pub export: Export,
    /// The name by which the client asked for it.
    pub name: String,
    /// Whether replies are structured (NBD, "`NBD_OPT_STRUCTURED_REPLY`").
    pub structured: bool,
    /// The contexts that requests for block status are answered in; empty where there may be none.
    pub contexts: Vec<MetaContext>,
    /// Whether the client knows the block sizes.
    pub knows_block_sizes: bool,
}

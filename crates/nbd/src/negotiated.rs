//! What a handshake comes to.

use crate::export::Export;
use crate::meta_context::MetaContext;

/// What client and server have agreed on.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Negotiated {
    /// The export, with the flags and block sizes as the client was told them.
    pub export: Export,
    /// The name by which the client asked for it.
    pub name: String,
    /// Whether replies are structured (NBD, "`NBD_OPT_STRUCTURED_REPLY`").
    pub structured: bool,
    /// The contexts that requests for block status are answered in; empty where there may be none.
    pub contexts: Vec<MetaContext>,
    /// Whether the client was told the block sizes.
    pub knows_block_sizes: bool,
}

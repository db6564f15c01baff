//! The result of a handshake.

use crate::export::Export;

/// The context that reports where data and zeros are: [`crate::Extent::HOLE`] and [`crate::Extent::ZERO`]
/// (NBD, "`base:allocation` metadata context").
pub const BASE_ALLOCATION: &str = "base:allocation";

/// A metadata context that was selected for a connection (NBD, "Metadata querying").
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct MetaContext {
    /// Id of the context in replies; chosen by the server, valid for the connection.
    pub id: u32,
    /// Name of the context: a namespace, a colon, and a name within the namespace.
    pub name: String,
}

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

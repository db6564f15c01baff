//! Metadata contexts: kinds of block status.

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

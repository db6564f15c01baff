//! connections.

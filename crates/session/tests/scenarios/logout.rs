//! logout.

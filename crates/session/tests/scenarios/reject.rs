//! reject.

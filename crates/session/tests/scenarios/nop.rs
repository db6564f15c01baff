//! nop.

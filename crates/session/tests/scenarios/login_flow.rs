//! login_flow.

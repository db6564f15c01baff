//! async_message.

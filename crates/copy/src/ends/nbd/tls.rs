//! Encrypted connections to servers (`nbds://`).

use std::fmt;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::boxed::IoFuture;

/// Encrypts the connections to NBD servers: [`NbdUri::with_tls`](super::NbdUri::with_tls). This library has no cryptography of its
/// own.
pub trait NbdTls: fmt::Debug + Send + Sync {
    /// Encrypts a connection, after the server has agreed to start TLS. Returns after the handshake of TLS, in which the server has
    /// proved to be `host`, the host name or address in the URI.
    ///
    /// # Errors
    /// `InvalidData` if the server is not trusted, `InvalidInput` if the options of TLS cannot be used, `ConnectionAborted` if the server
    /// has ended the handshake, for example because it wants a certificate; other errors are those of the connection.
    fn secure<'a>(&'a self, stream: TcpStream, host: &'a str) -> IoFuture<'a, Box<dyn NbdStream>>;
}

/// An encrypted connection.
pub trait NbdStream: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin> NbdStream for T {}

/// What encrypts the connections of a URI, if anything does.
#[derive(Clone, Debug, Default)]
pub(super) struct Provider(pub(super) Option<Arc<dyn NbdTls>>);

/// URIs are equal if their texts are.
impl PartialEq for Provider {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Provider {}

//! The HTTP server of the page of metrics.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use iscsi_initiator::MetricsFormat;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::page::Page;
use super::{MetricsArgs, MetricsError};
use crate::boxed::BoxFuture;

/// Maximum number of concurrent connections. Few programs read the page.
const MAX_CONNECTIONS: usize = 32;
/// Time in which a client must complete a handshake of TLS, or the head of a request.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time after which a connection is closed, whatever it does.
const LIFETIME: Duration = Duration::from_secs(600);
/// Pause after a failed `accept`.
const PAUSE: Duration = Duration::from_millis(100);

/// Collects the metrics of a page.
pub type Collect = Arc<dyn Fn() -> BoxFuture<'static, Page> + Send + Sync>;

/// A listening server of metrics.
#[derive(Debug)]
pub struct MetricsServer {
    listener: TcpListener,
    acceptor: Option<Arc<Acceptor>>,
}

#[cfg(feature = "tls")]
type Acceptor = iscsi_tls::Acceptor;
/// A program without the feature `tls` has none.
#[cfg(not(feature = "tls"))]
#[derive(Debug)]
enum Acceptor {}

impl MetricsServer {
    /// Listens at the address of the options; returns `None` if they name none.
    ///
    /// # Errors
    /// [`MetricsError`], also if the files of the certificate cannot be used.
    pub async fn bind(args: &MetricsArgs) -> Result<Option<Self>, MetricsError> {
        let Some(address) = &args.metrics else { return Ok(None) };
        let failed = |cause| MetricsError { address: address.clone(), cause };
        if !address.is_encrypted && args.metrics_cert.is_some() {
            let cause = "a certificate is of no use without https://";
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, cause)));
        }
        let acceptor = address.is_encrypted.then(|| acceptor(args)).transpose().map_err(failed)?;
        let listener = TcpListener::bind(&address.place).await.map_err(failed)?;
        Ok(Some(Self { listener, acceptor: acceptor.map(Arc::new) }))
    }

    /// Answers requests with what `collect` returns. Never returns.
    pub async fn serve(&self, collect: Collect) -> Infallible {
        let mut connections = JoinSet::new();
        loop {
            let has_room = connections.len() < MAX_CONNECTIONS;
            tokio::select! {
                accepted = self.listener.accept(), if has_room => match accepted {
                    Ok((stream, _)) => drop(connections.spawn(converse(self.acceptor.clone(), stream, Arc::clone(&collect)))),
                    // Too many files are open, or the client has closed its connection already.
                    Err(_) => sleep(PAUSE).await,
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }
}

/// Serves one client.
async fn converse(acceptor: Option<Arc<Acceptor>>, stream: TcpStream, collect: Collect) {
    let Some(acceptor) = acceptor else { return answer(stream, collect).await };
    #[cfg(feature = "tls")]
    if let Ok(Ok(stream)) = timeout(PATIENCE, Box::pin(acceptor.accept(stream))).await {
        answer(stream, collect).await;
    }
    #[cfg(not(feature = "tls"))]
    match *acceptor {}
}

/// Answers the requests of a connection.
async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, collect: Collect) {
    let service = service_fn(|request| respond(request, Arc::clone(&collect)));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .serve_connection(TokioIo::new(stream), service);
    // A client that goes away is no error of this program.
    drop(timeout(LIFETIME, Box::pin(connection)).await);
}

async fn respond(
    request: Request<Incoming>,
    collect: Collect,
) -> Result<Response<Full<Bytes>>, hyper::http::Error> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let refusal = Response::builder().status(StatusCode::METHOD_NOT_ALLOWED);
        return refusal.header(ALLOW, "GET, HEAD").body(Full::default());
    }
    if request.uri().path() != "/metrics" {
        let nothing = Response::builder().status(StatusCode::NOT_FOUND);
        return nothing.body("the page is /metrics\n".into());
    }
    let format = format(&request);
    let text = collect().await.text(format);
    Response::builder().header(CONTENT_TYPE, format.content_type()).body(text.into())
}

/// Returns the format that the client reads. Each collector reads that of Prometheus.
fn format(request: &Request<Incoming>) -> MetricsFormat {
    let accepts = |value: &HeaderValue| {
        value.to_str().is_ok_and(|value| value.contains("application/openmetrics-text"))
    };
    if request.headers().get_all(ACCEPT).iter().any(accepts) {
        MetricsFormat::OpenMetrics
    } else {
        MetricsFormat::Prometheus
    }
}

/// Returns the server's side of TLS, with the certificate of the options, or with a new one that no authority has signed.
#[cfg(feature = "tls")]
fn acceptor(args: &MetricsArgs) -> io::Result<Acceptor> {
    if let (Some(certificate), Some(key)) = (&args.metrics_cert, &args.metrics_key) {
        let (certificate, key) = (certificate.clone(), key.clone());
        let files = iscsi_tls::ServerFiles { certificate, key, client_ca: None };
        return iscsi_tls::Acceptor::new(files);
    }
    let made =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).map_err(io::Error::other)?;
    iscsi_tls::Acceptor::from_pem(&made.cert.pem(), &made.signing_key.serialize_pem())
}

#[cfg(not(feature = "tls"))]
fn acceptor(_: &MetricsArgs) -> io::Result<Acceptor> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this program was built without TLS"))
}

#[cfg(test)]
#[cfg(feature = "tls")]
mod tests {
    use std::fs;

    use iscsi_initiator::TlsOptions;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::boxed::boxed;

    /// Asks for the page over TLS, and returns the answer, or the error of the handshake.
    async fn ask(args: &MetricsArgs, options: &TlsOptions) -> io::Result<String> {
        let server = MetricsServer::bind(args).await.unwrap().unwrap();
        let stream = TcpStream::connect(server.listener.local_addr().unwrap()).await.unwrap();
        let collect: Collect = Arc::new(|| boxed(async { Page::default() }));
        let asking = async {
            let rustls = iscsi_tls::Rustls::default();
            let mut stream = Box::pin(rustls.connect_nbd(stream, "localhost", options)).await?;
            let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            stream.write_all(request).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok(answer)
        };
        tokio::select! {
            answer = asking => answer,
            never = server.serve(collect) => match never {},
        }
    }

    #[tokio::test]
    async fn the_page_is_encrypted_by_the_certificate_that_is_named_or_by_a_new_one() {
        let folder = std::env::temp_dir().join(format!("metrics-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (folder.join("pem"), folder.join("key"));
        fs::write(&certificate, made.cert.pem()).unwrap();
        fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let mut options = TlsOptions::default();
        options.ca = Some(certificate.clone());
        let metrics = Some("https://127.0.0.1:0".parse().unwrap());
        let named = MetricsArgs {
            metrics: metrics.clone(),
            metrics_cert: Some(certificate),
            metrics_key: Some(key),
        };
        assert!(ask(&named, &options).await.unwrap().starts_with("HTTP/1.1 200 OK\r\n"));
        // A certificate of the program's own is another one, which this client does not trust.
        let own = MetricsArgs { metrics, ..MetricsArgs::default() };
        let error = ask(&own, &options).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        fs::remove_dir_all(&folder).unwrap();
    }
}

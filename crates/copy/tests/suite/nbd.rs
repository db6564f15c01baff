//! Tests with an NBD server that breaks the protocol.

use std::time::Duration;

use bytes::BytesMut;
use iscsi_copy::device::DeviceError;
use iscsi_copy::{Device, NbdDevice, NbdError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Serves one export of 1 MiB without options, and sends `answer` as the reply to the first request.
async fn serve(listener: TcpListener, answer: &'static [u8]) {
    let (mut stream, _) = listener.accept().await.unwrap();
    greet(&mut stream).await;
    let mut request = [0; 28];
    if stream.read_exact(&mut request).await.is_ok() {
        stream.write_all(answer).await.unwrap();
        // Waits until the client has gone.
        while stream.read(&mut request).await.is_ok_and(|count| count > 0) {}
    }
}

/// Sends NBDMAGIC, IHAVEOPT and no flags; then the reply to NBD_OPT_EXPORT_NAME: size, HAS_FLAGS, zeros.
async fn greet(stream: &mut TcpStream) {
    stream.write_all(b"NBDMAGICIHAVEOPT\0\0").await.unwrap();
    let mut flags_and_option = [0; 20];
    stream.read_exact(&mut flags_and_option).await.unwrap();
    let mut export = (1_u64 << 20).to_be_bytes().to_vec();
    export.extend_from_slice(&[0, 1]);
    export.resize(export.len() + 124, 0);
    stream.write_all(&export).await.unwrap();
}

async fn read_from(answer: &'static [u8]) -> DeviceError {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("nbd://{}/", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(serve(listener, answer));
    let work = async {
        let device = NbdDevice::open(&uri).await.unwrap();
        assert_eq!(device.capacity(), 1 << 20);
        let error = device.read_into(0, BytesMut::zeroed(512)).await.unwrap_err();
        // The device stays unusable.
        device.read_into(0, BytesMut::zeroed(512)).await.unwrap_err();
        device.flush().await.unwrap_err();
        error
    };
    timeout(Duration::from_secs(30), work).await.unwrap()
}

#[tokio::test]
async fn a_server_that_breaks_the_protocol_is_told_by_what_it_did() {
    for answer in
        [&b"this is no reply"[..], &[0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 77]]
    {
        let error = read_from(answer).await;
        let cause = error.source_as::<NbdError>();
        assert!(matches!(cause, Some(NbdError::Protocol(_))), "{error}");
    }
}

#[tokio::test]
async fn nobody_and_who_speaks_something_else_are_told_apart() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let uri = format!("nbd://{address}/").parse().unwrap();
    let web = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await);
    });
    let error = NbdDevice::open(&uri).await.unwrap_err();
    assert!(matches!(error, NbdError::Handshake { .. }), "{error}");
    web.await.unwrap();
    let error = NbdDevice::open(&uri).await.unwrap_err();
    assert!(matches!(error, NbdError::Connect { .. }), "{error}");
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

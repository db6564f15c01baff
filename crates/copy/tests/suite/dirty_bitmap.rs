//! Tests of reading dirty bitmaps from servers.

use std::time::Duration;

use bytes::BytesMut;
use iscsi_copy::{DirtyBitmap, NbdDevice, NbdError, NbdUri, RangeSet};
use iscsi_nbd::server::{Handshake, HandshakeEvent, Transmission, TransmissionEvent};
use iscsi_nbd::{BASE_ALLOCATION, BlockSizes, Export, Extent};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

const GIB: u64 = 1 << 30;

/// A server with one export and its bitmap, as extents of (length, status).
#[derive(Clone, Debug)]
struct Server {
    contexts: Vec<String>,
    bitmap: Vec<(u64, u32)>,
    /// Largest number of extents in one reply.
    at_once: usize,
    /// Whether the server closes the connection instead of replying.
    leaves: bool,
}

impl Server {
    fn of(bitmap: &[(u64, u32)]) -> Self {
        let contexts = ["base:allocation", "qemu:dirty-bitmap:b0"].map(str::to_owned).into();
        Self { contexts, bitmap: bitmap.into(), at_once: usize::MAX, leaves: false }
    }

    fn size(&self) -> u64 {
        self.bitmap.iter().map(|(len, _)| len).sum()
    }

    fn export(&self) -> Export {
        Export {
            size: self.size(),
            block_sizes: BlockSizes { minimum: 512, ..BlockSizes::default() },
            contexts: self.contexts.clone(),
            ..Export::default()
        }
    }

    /// Returns the extents of the bitmap from an offset on.
    fn extents(&self, offset: u64) -> Vec<Extent> {
        let (mut extents, mut at) = (Vec::new(), 0);
        for &(len, status) in &self.bitmap {
            let end = at + len;
            if end > offset {
                extents.push(Extent { length: end - offset.max(at), status });
            }
            at = end;
        }
        extents.truncate(self.at_once);
        extents
    }

    async fn serve(self, mut stream: TcpStream) {
        let (mut handshake, mut input) = (Handshake::new(), BytesMut::new());
        let negotiated = loop {
            let event = handshake.receive(&mut input).unwrap();
            let is_question = event.is_some();
            match event {
                Some(HandshakeEvent::Export(_)) => handshake.answer_export(self.export()),
                Some(HandshakeEvent::Negotiated(negotiated)) => break negotiated,
                Some(HandshakeEvent::List | HandshakeEvent::StartTls | HandshakeEvent::Aborted)
                | None => {}
            }
            while let Some(bytes) = handshake.poll_transmit() {
                stream.write_all(&bytes).await.unwrap();
            }
            if !is_question && stream.read_buf(&mut input).await.unwrap() == 0 {
                return;
            }
        };
        while let Some(bytes) = handshake.poll_transmit() {
            stream.write_all(&bytes).await.unwrap();
        }
        let mut transmission = Transmission::new(&negotiated);
        loop {
            while let Some(event) = transmission.receive(&mut input).unwrap() {
                let TransmissionEvent::Request(request) = event else { return };
                if self.leaves {
                    return;
                }
                let replies = transmission.replies();
                for (at, context) in negotiated.contexts.iter().enumerate() {
                    let extents = if context.name == "base:allocation" {
                        vec![Extent { length: self.size() - request.offset, status: 0 }]
                    } else {
                        self.extents(request.offset)
                    };
                    let is_last = at + 1 == negotiated.contexts.len();
                    let reply = replies.block_status(&request, context.id, extents, is_last);
                    stream.write_all(&reply.unwrap()).await.unwrap();
                }
            }
            if stream.read_buf(&mut input).await.unwrap_or(0) == 0 {
                return;
            }
        }
    }

    /// Reads the bitmap `b0`, over a connection of its own and over the connection of a device.
    async fn read_bitmap(self) -> Result<RangeSet, NbdError> {
        let of_device = self.clone().serve_to(async |uri: NbdUri| {
            let (device, marked) = NbdDevice::open_with_bitmap(&uri, "b0").await?;
            let base = [BASE_ALLOCATION.to_owned()];
            assert!(device.export().contexts.is_empty() || device.export().contexts == base);
            Ok(marked)
        });
        let of_device = of_device.await;
        let told = self.serve_to(async |uri| DirtyBitmap::new(uri, "b0").ranges().await).await;
        assert_eq!(of_device.as_ref().ok(), told.as_ref().ok());
        told
    }

    /// Serves one client.
    async fn serve_to(
        self,
        ask: impl AsyncFnOnce(NbdUri) -> Result<RangeSet, NbdError>,
    ) -> Result<RangeSet, NbdError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("nbd://{}/disk", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            self.serve(stream).await;
        });
        let told = timeout(Duration::from_secs(30), ask(uri.parse().unwrap())).await.unwrap();
        serving.abort();
        told
    }
}

#[tokio::test]
async fn all_that_is_marked_is_told_however_little_comes_at_once() {
    let bitmap =
        [(4096, 1), (4096, 0), (512, 1), (3 * GIB, 0), (GIB + 512, 1), (GIB, 0), (1024, 1)];
    let wanted: RangeSet =
        [0..4096, 8192..8704, 8704 + 3 * GIB..9216 + 4 * GIB, 9216 + 5 * GIB..10240 + 5 * GIB]
            .into_iter()
            .collect();
    for at_once in [1, 2, usize::MAX] {
        let server = Server { at_once, ..Server::of(&bitmap) };
        assert_eq!(server.read_bitmap().await.unwrap(), wanted, "{at_once}");
    }
    assert!(Server::of(&[(8192, 0)]).read_bitmap().await.unwrap().is_empty());
    assert!(Server::of(&[]).read_bitmap().await.unwrap().is_empty());
}

/// An undefined status may mean that the bytes were written to, so they count as marked.
#[tokio::test]
async fn what_is_not_known_counts_as_marked() {
    let told = Server::of(&[(512, 0), (512, 2), (512, 0x8000_0000), (512, 0)]).read_bitmap().await;
    assert_eq!(told.unwrap(), (512..1536).into());
}

#[tokio::test]
async fn a_bitmap_that_is_not_there_is_named() {
    for contexts in [vec![], vec!["base:allocation".to_owned(), "qemu:dirty-bitmap:b1".to_owned()]]
    {
        let error = Server { contexts, ..Server::of(&[(512, 0)]) }.read_bitmap().await.unwrap_err();
        assert!(matches!(error, NbdError::NoBitmap(_)), "{error}");
        assert!(error.to_string().contains("/disk qemu:dirty-bitmap:b0"), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_goes_away_has_told_nothing() {
    let error = Server { leaves: true, ..Server::of(&[(512, 1)]) }.read_bitmap().await.unwrap_err();
    assert!(matches!(error, NbdError::Bitmap { .. }), "{error}");
    assert!(error.to_string().contains("lost"), "{error}");
}

//! Writes JSON objects to standard output while the copy runs.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use serde_json::Value;
use tokio::task::spawn_blocking;

use crate::output::json_line;
use crate::stop::Stop;

/// Most lines in the queue. While it is full, further lines are omitted.
const ROOM: usize = 64;

/// Writes JSON objects to standard output, one line each, from a separate thread. So a slow reader of standard
/// output does not delay the copy.
#[derive(Debug)]
pub(crate) struct JsonLines {
    lines: SyncSender<String>,
    writer: JoinHandle<()>,
}

impl JsonLines {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(crate) fn start() -> io::Result<Arc<Self>> {
        let (lines, received) = sync_channel::<String>(ROOM);
        let writer = thread::Builder::new().name("json lines".to_owned()).spawn(move || {
            for line in received {
                let mut output = io::stdout().lock();
                // This error is ignored: if standard output is gone, writing the result at the end fails as well, and
                // that error is reported.
                if output.write_all(line.as_bytes()).and_then(|()| output.flush()).is_err() {
                    return;
                }
            }
        })?;
        Ok(Arc::new(Self { lines, writer }))
    }

    /// Queues an object, or omits it if the queue is full.
    pub(crate) fn put(&self, object: &Value) {
        drop(self.lines.try_send(json_line(object)));
    }

    /// Waits until all lines are written. After a request to stop, waits only a moment.
    pub(crate) async fn finish(this: Arc<Self>, stop: &Stop) {
        let Some(Self { lines, writer }) = Arc::into_inner(this) else { return };
        drop(lines);
        drop(stop.hurry(spawn_blocking(move || drop(writer.join()))).await);
    }
}

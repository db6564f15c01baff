//! Objects on standard output while the work goes on.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use serde_json::Value;
use tokio::task::spawn_blocking;

use crate::output::json_line;
use crate::stop::Stop;

/// Lines that wait until somebody reads them, at most; more of them are left out.
const ROOM: usize = 64;

/// Puts objects on standard output, a line each, by a thread of its own: who does not read them does not
/// hold up the work.
#[derive(Debug)]
pub(crate) struct JsonLines {
    lines: SyncSender<String>,
    writer: JoinHandle<()>,
}

impl JsonLines {
    /// Begins.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start() -> io::Result<Arc<Self>> {
        let (lines, received) = sync_channel::<String>(ROOM);
        let writer = thread::Builder::new().name("json lines".to_owned()).spawn(move || {
            for line in received {
                let mut output = io::stdout().lock();
                // The result that comes last finds the same error, and tells it.
                if output.write_all(line.as_bytes()).and_then(|()| output.flush()).is_err() {
                    return;
                }
            }
        })?;
        Ok(Arc::new(Self { lines, writer }))
    }

    /// Puts one there, if there is room.
    pub(crate) fn put(&self, object: &Value) {
        drop(self.lines.try_send(json_line(object)));
    }

    /// Waits until all are written; once the work shall stop, only a moment.
    pub(crate) async fn finish(this: Arc<Self>, stop: &Stop) {
        let Some(Self { lines, writer }) = Arc::into_inner(this) else { return };
        drop(lines);
        drop(stop.hurry(spawn_blocking(move || drop(writer.join()))).await);
    }
}

//! Speaks QMP, QEMU's control protocol: one JSON object per line.

use std::collections::VecDeque;
use std::path::Path;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::error::Error;

/// A control connection to QEMU.
#[derive(Debug)]
pub(super) struct Qmp {
    lines: Lines<BufReader<OwnedReadHalf>>,
    orders: OwnedWriteHalf,
    /// Events that were received and not returned yet.
    events: VecDeque<Value>,
}

/// A line from QEMU.
#[derive(Debug, PartialEq)]
enum Message {
    /// The result of the last command.
    Answer(Value),
    /// The reason why QEMU refused the last command.
    Refusal(String),
    Event(Value),
    /// The greeting, which needs no response.
    Greeting,
}

impl Qmp {
    /// Connects, and completes the negotiation.
    ///
    /// # Errors
    /// [`Error::System`] if the socket has no listener, [`Error::Tool`] if the listener is not QEMU.
    pub(super) async fn connect(socket: &Path) -> Result<Self, Error> {
        let (reader, orders) = UnixStream::connect(socket).await?.into_split();
        let lines = BufReader::new(reader).lines();
        let mut qmp = Self { lines, orders, events: VecDeque::new() };
        qmp.execute("qmp_capabilities", json!({})).await?;
        Ok(qmp)
    }

    /// Executes a command, and returns its result.
    ///
    /// # Errors
    /// [`Error::Tool`] with QEMU's reason.
    pub(super) async fn execute(&mut self, order: &str, arguments: Value) -> Result<Value, Error> {
        let mut line = json!({ "execute": order, "arguments": arguments }).to_string();
        line.push('\n');
        self.orders.write_all(line.as_bytes()).await?;
        loop {
            match self.next_message().await? {
                Message::Answer(answer) => return Ok(answer),
                Message::Refusal(reason) => return Err(refused(order, reason)),
                Message::Event(event) => self.events.push_back(event),
                Message::Greeting => {}
            }
        }
    }

    /// Returns the next event. The future may be dropped while it waits: no event is lost.
    ///
    /// # Errors
    /// [`Error::Tool`] if QEMU sends a message that is not an event, or closes the connection.
    pub(super) async fn event(&mut self) -> Result<Value, Error> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            match self.next_message().await? {
                Message::Event(event) => return Ok(event),
                Message::Greeting => {}
                Message::Answer(_) | Message::Refusal(_) => {
                    return Err(refused("event", "an answer to no question".to_owned()));
                }
            }
        }
    }

    async fn next_message(&mut self) -> Result<Message, Error> {
        match self.lines.next_line().await? {
            Some(line) => {
                parse_message(&line).ok_or_else(|| refused("QMP", format!("not QMP: {line}")))
            }
            None => Err(refused("QMP", "QEMU is gone".to_owned())),
        }
    }
}

fn refused(order: &str, message: String) -> Error {
    Error::Tool { program: format!("qemu-storage-daemon: {order}"), message }
}

/// Parses a line. `None` if it is not a QMP message.
fn parse_message(line: &str) -> Option<Message> {
    let mut line: Value = serde_json::from_str(line).ok()?;
    let object = line.as_object_mut()?;
    if let Some(answer) = object.remove("return") {
        return Some(Message::Answer(answer));
    }
    if let Some(error) = object.get("error") {
        return Some(Message::Refusal(error.get("desc")?.as_str()?.to_owned()));
    }
    if object.contains_key("event") {
        return Some(Message::Event(line));
    }
    object.contains_key("QMP").then_some(Message::Greeting)
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    #[test]
    fn each_kind_of_line_is_known() {
        assert_eq!(
            parse_message(r#"{"QMP": {"version": {}, "capabilities": []}}"#),
            Some(Message::Greeting)
        );
        assert_eq!(
            parse_message(r#"{"return": {"a": 1}}"#),
            Some(Message::Answer(json!({ "a": 1 })))
        );
        let refusal = r#"{"error": {"class": "GenericError", "desc": "no such node"}}"#;
        assert_eq!(parse_message(refusal), Some(Message::Refusal("no such node".to_owned())));
        let event = r#"{"event": "BLOCK_JOB_READY", "data": {}}"#;
        assert!(matches!(parse_message(event), Some(Message::Event(_))));
        for line in ["", "{}", "[1]", "{", r#"{"error": "odd"}"#] {
            assert_eq!(parse_message(line), None, "{line}");
        }
    }

    #[tokio::test]
    async fn events_between_order_and_answer_are_kept() {
        let path = std::env::temp_dir().join(format!("lab-qmp-{}.sock", std::process::id()));
        // A test that was killed may have left its socket, and process ids repeat.
        drop(std::fs::remove_file(&path));
        let listener = UnixListener::bind(&path).unwrap();
        let server = async {
            let (stream, _) = listener.accept().await.unwrap();
            let (reader, mut writer) = stream.into_split();
            let mut orders = BufReader::new(reader).lines();
            let answers = [
                "{\"QMP\": {}}\n{\"return\": {}}\n",
                "{\"event\": \"FIRST\"}\n{\"return\": 7}\n{\"event\": \"SECOND\"}\n",
                "{\"error\": {\"desc\": \"no\"}}\n",
            ];
            for answer in answers {
                orders.next_line().await.unwrap().unwrap();
                writer.write_all(answer.as_bytes()).await.unwrap();
            }
        };
        let client = async {
            let mut qmp = Qmp::connect(&path).await.unwrap();
            assert_eq!(qmp.execute("look", json!({})).await.unwrap(), 7);
            assert_eq!(qmp.event().await.unwrap()["event"], "FIRST");
            assert_eq!(qmp.event().await.unwrap()["event"], "SECOND");
            let error = qmp.execute("look", json!({})).await.unwrap_err();
            assert!(error.to_string().ends_with("look failed: no"), "{error}");
            // The server has closed the connection.
            assert!(qmp.event().await.is_err());
        };
        tokio::join!(server, client);
        std::fs::remove_file(&path).unwrap();
    }
}

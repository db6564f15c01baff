//! Reads the page of metrics of a program.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use tokio::time::sleep;

use crate::process::{TIME_LIMIT, within_time_limit};

/// Returns an address where nothing listens.
#[must_use]
pub fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Sends a request, with `more` lines in its head, and returns the answer, from the first line to the end of the page. `None` if
/// nothing listens.
#[must_use]
pub fn ask(address: SocketAddr, request: &str, more: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(TIME_LIMIT)).unwrap();
    let head = format!("{request} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{more}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    Some(answer)
}

/// Reads the page until `holds` returns true for it.
pub async fn page_until(address: SocketAddr, holds: impl Fn(&str) -> bool) -> String {
    let page = async {
        loop {
            match ask(address, "GET /metrics", "").filter(|page| holds(page)) {
                Some(page) => return page,
                None => sleep(Duration::from_millis(1)).await,
            }
        }
    };
    within_time_limit(page).await.expect("the page does not become so")
}

/// Returns the number in the line that begins with this name and these labels.
#[must_use]
pub fn number(page: &str, name: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

//! Tests of copies with a rate limit, and of commands on the control socket.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::time::sleep;

use crate::support::{
    Folder, Rig, TIME_LIMIT, block_copy, ends, fails, object, pattern, program, succeeds,
    within_time_limit,
};

/// Bytes of the source. At 1 kbit/s the copy takes hours.
const LEN: usize = 4 << 20;

pub(crate) fn start(arguments: &[&str]) -> Child {
    let mut command = program(&[arguments, &["--progress", "none", "--json"]].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Writes one byte to the standard input of a copy, closes it, and waits until the copy has ended.
async fn ends_with_a_byte(mut child: Child) -> Output {
    child.stdin.take().unwrap().write_all(b"x").unwrap();
    ends(child).await
}

/// Connects to the control socket of a program, as soon as the program listens.
pub(crate) async fn connect(path: &str) -> Orders {
    let connected = async {
        loop {
            match UnixStream::connect(path) {
                Ok(stream) => return stream,
                Err(error) => {
                    assert!(
                        matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused),
                        "{error}"
                    );
                    sleep(Duration::from_millis(1)).await;
                }
            }
        }
    };
    let stream = within_time_limit(connected).await.expect("the program takes no orders");
    stream.set_read_timeout(Some(TIME_LIMIT)).unwrap();
    Orders(BufReader::new(stream))
}

pub(crate) struct Orders(BufReader<UnixStream>);

impl Orders {
    /// Sends a command, and returns the response.
    pub(crate) fn give(&mut self, order: &str) -> Value {
        self.0.get_mut().write_all(format!("{order}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        self.0.read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap()
    }

    /// Requests the status of the only copy until `holds` returns true for it.
    async fn until(&mut self, holds: impl Fn(&Value) -> bool) -> Value {
        self.until_status(|status| holds(&status["jobs"][0])).await
    }

    /// Requests the status of the program until `holds` returns true for it.
    pub(crate) async fn until_status(&mut self, holds: impl Fn(&Value) -> bool) -> Value {
        let held = async {
            loop {
                let status = self.give("status");
                if holds(&status) {
                    return status;
                }
                sleep(Duration::from_millis(1)).await;
            }
        };
        within_time_limit(held).await.expect("the status does not become so")
    }
}

/// Checks that a copy whose limit would make it take hours ends after the limit is lifted.
async fn is_limited_until_it_is_lifted(source: &str, destination: &str) {
    let folder = Folder::new();
    let socket = folder.path("control");
    let slow = ["--rate-limit", "1kbit", "--io-size", "4k", "--control", &socket];
    let child = start(&[&[source, destination], &slow[..]].concat());
    let mut orders = connect(&socket).await;
    let status = orders.until(|job| job["bytes"].as_u64() > Some(0)).await;
    assert!(status["jobs"][0]["bytes"].as_u64().unwrap() < LEN as u64, "{status}");
    assert_eq!(status["jobs"][0]["bytes_total"], LEN);
    assert_eq!(status["all"]["rate_bit_per_s"], 1000);
    assert_eq!(orders.give("rate off")["all"]["rate_bit_per_s"], Value::Null);
    let output = ends(child).await;
    succeeds(&output);
    assert_eq!(object(&output)["bytes"], LEN);
    assert!(!fs::exists(&socket).unwrap(), "the socket goes with the program");
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_keep_to_the_limit_until_it_is_lifted() {
    let rig = Rig::start(512, LEN as u64).await;
    let folder = Folder::new();
    let image = folder.file("image", &pattern(LEN));
    is_limited_until_it_is_lifted(&image, &rig.url()).await;
    assert!(rig.disk.holds(0, &pattern(LEN)));
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn so_do_reads() {
    let rig = Rig::start(512, LEN as u64).await;
    rig.disk.write(0, &pattern(LEN));
    let folder = Folder::new();
    let copy = folder.path("copy");
    is_limited_until_it_is_lifted(&rig.url(), &copy).await;
    assert!(fs::read(&copy).unwrap() == pattern(LEN));
}

/// If the user's own limit holds a copy back, the diagnosis does not advise to read faster.
#[tokio::test(flavor = "multi_thread")]
async fn what_its_own_limit_holds_back_is_told_with_its_option() {
    let rig = Rig::start(512, LEN as u64).await;
    let folder = Folder::new();
    let (image, copy, url) = (folder.file("image", &pattern(LEN)), folder.path("copy"), rig.url());
    for (source, destination) in [(&*image, &*url), (&url, &copy)] {
        let options = ["--rate-limit", "16mbit", "--json", "--progress", "none"];
        let report = object(&block_copy(&[&[source, destination], &options[..]].concat()));
        let foremost = &report["diagnosis"][0]["findings"][0];
        assert_eq!(foremost["limiter"], "rate limit", "{report}");
        let (evidence, remedy) = (foremost["evidence"].as_str(), foremost["remedy"].as_str());
        assert!(evidence.unwrap().contains("16 Mbit/s"), "{foremost}");
        assert!(remedy.unwrap().contains("--rate-limit"), "{foremost}");
    }
}

/// The diagnosis names the limit even if it does not hold the copy back.
#[tokio::test(flavor = "multi_thread")]
async fn a_limit_is_told_with_what_held_the_copy_back() {
    let rig = Rig::start(512, LEN as u64).await;
    let folder = Folder::new();
    let (image, url) = (folder.file("image", &pattern(LEN)), rig.url());
    for (options, told) in
        [(&["--rate-limit", "1gbit"][..], Some("1 Gbit/s".into())), (&[], None::<Value>)]
    {
        let arguments = [&[&*image, &*url, "--json", "--progress", "none"], options].concat();
        let report = object(&block_copy(&arguments));
        let remarks = report["diagnosis"][0]["remarks"].as_array().unwrap();
        let limit = remarks.iter().find(|row| row["name"] == "rate limit");
        assert_eq!(limit.map(|row| row["value"].clone()), told, "{report}");
    }
}

/// A byte that is read from one unit and written to another unit is charged once.
#[tokio::test(flavor = "multi_thread")]
async fn between_units_each_byte_pays_once() {
    let from = Rig::start(512, LEN as u64).await;
    let to = Rig::start(512, LEN as u64).await;
    from.disk.write(0, &pattern(LEN));
    let folder = Folder::new();
    let socket = folder.path("control");
    let slow = ["--rate-limit", "1kbit", "--io-size", "4k", "--control", &socket];
    let child = start(&[&[&*from.url(), &*to.url()], &slow[..]].concat());
    let mut orders = connect(&socket).await;
    let status = orders.until(|job| job["bytes"].as_u64() > Some(0)).await;
    // The charge includes the response about holes, but not the bytes that were read.
    let sent = status["all"]["sent_bytes"].as_u64().unwrap();
    assert!((4096..2 * 4096).contains(&sent), "{status}");
    assert_eq!(orders.give("pause")["jobs"][0]["paused"], true);
    orders.give("rate off");
    assert_eq!(orders.give("resume")["jobs"][0]["paused"], false);
    succeeds(&ends(child).await);
    assert!(to.disk.holds(0, &pattern(LEN)));
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_that_make_no_sense_change_nothing() {
    let rig = Rig::start(512, LEN as u64).await;
    let folder = Folder::new();
    let socket = folder.path("control");
    let child = start(&["-", &rig.url(), "--control", &socket]);
    let mut orders = connect(&socket).await;
    let error = orders.give("rate fast")["error"].as_str().unwrap().to_owned();
    assert!(error.starts_with("\"fast\" is no rate; write"), "{error}");
    let status = orders.give("status");
    assert_eq!((&status["error"], &status["all"]["rate_bit_per_s"]), (&Value::Null, &Value::Null));
    // A line that is too long gets an error, and the connection is closed.
    let error = orders.give(&"x".repeat(5000))["error"].as_str().unwrap().to_owned();
    assert!(error.contains("is no order"), "{error}");
    let mut rest = String::new();
    assert!(matches!(orders.0.read_line(&mut rest), Ok(0) | Err(_)), "{rest}");
    assert_eq!(connect(&socket).await.give("status")["error"], Value::Null);
    succeeds(&ends_with_a_byte(child).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_is_the_users_own_and_one_in_use_is_left_alone() {
    let rig = Rig::start(512, LEN as u64).await;
    let folder = Folder::new();
    let socket = folder.path("control");
    // The listener is dropped here, and leaves the socket file.
    drop(UnixListener::bind(&socket).unwrap());
    let child = start(&["-", &rig.url(), "--control", &socket]);
    connect(&socket).await;
    let mode = fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let other = Rig::start(512, LEN as u64).await;
    let image = folder.file("image", b"x");
    let arguments = [&image, &other.url(), "--progress", "none", "--control", &socket];
    fails(&block_copy(&arguments), 75, &["control: another process listens there"]);
    assert_eq!(connect(&socket).await.give("status")["error"], Value::Null);
    succeeds(&ends_with_a_byte(child).await);
    assert!(!fs::exists(&socket).unwrap());
}

#[test]
fn what_is_no_socket_is_left_alone() {
    let folder = Folder::new();
    let image = folder.file("image", b"x");
    for path in [image.as_str(), "/nowhere/control"] {
        let arguments = [&image, "/dev/null", "--progress", "none", "--control", path];
        fails(&block_copy(&arguments), 1, &["control socket ", path]);
    }
    assert_eq!(fs::read(&image).unwrap(), b"x");
}

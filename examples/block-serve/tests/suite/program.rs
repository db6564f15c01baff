//! Tests of the program as a process: what it serves, its messages and its exit statuses.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::process::{
    client, ended, program, raw, ready, signal, socket, started, stderr, target, target_with,
};
use crate::support::soon;
use bytes::Bytes;
use iscsi_copy::{Device, NbdDevice};
use iscsi_examples_testkit::TARGET;
use iscsi_examples_testkit::page::{free_address, number, page_until};
use iscsi_testkit::config::{Chap, TargetConfig};
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::fault::Fault;
use iscsi_testkit::scsi::Access;
use iscsi_testkit::target::Target;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::time::{sleep, timeout};

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_it_when_everything_is_on_the_unit() {
    for name in ["-TERM", "-INT", "-HUP"] {
        ends_in_order_by(name).await;
    }
}

async fn ends_in_order_by(name: &str) {
    let rig = target().await;
    let socket = socket("signal");
    let (child, lines, ready) = started(&rig.url(), &socket, &[]);
    assert_eq!((&ready["ready"], &ready["capacity_bytes"]), (&true.into(), &4_194_304.into()));
    assert_eq!(ready["portals"].as_array().unwrap().len(), 1);
    let client = client(&socket).await;
    let data = Bytes::from(vec![7; 1 << 20]);
    client.write_at(1 << 20, vec![data.clone()]).await.unwrap();
    assert_eq!(client.read_at(1 << 20, 4096).await.unwrap(), data[..4096]);
    signal(&child, name);
    let (end, status) = ended(child, lines);
    assert_eq!(
        (status, &end["complete"], &end["requests_failed"]),
        (Some(0), &true.into(), &0.into()),
        "{name}"
    );
    assert_eq!(end["bytes_written"], 1 << 20);
    assert!(rig.disk.holds(1 << 20, &data) && !socket.exists());
    rig.assert_logged_out();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_measurements_has_clients_and_the_unit() {
    let rig = target().await;
    let (socket, address) = (socket("metrics"), free_address());
    let metrics = address.to_string();
    let (child, lines, _) = started(&rig.url(), &socket, &["--metrics", &metrics]);
    let client = client(&socket).await;
    client.write_at(0, vec![Bytes::from(vec![7; 4096])]).await.unwrap();
    let page = page_until(address, |page| page.contains("block_serve_pending_bytes 0\n")).await;
    for (name, expected) in [
        ("block_serve_written_bytes_total", 4096.0),
        ("block_serve_requests_failed_total", 0.0),
        (&format!("iscsi_disk_capacity_bytes{{target=\"{TARGET}\",lun=\"0\"}}"), 4_194_304.0),
    ] {
        assert_eq!(number(&page, name), Some(expected), "{name}\n{page}");
    }
    // An NBD client may have several connections.
    let connected = number(&page, "block_serve_clients_connected");
    assert!(connected > Some(0.0), "{page}");
    assert_eq!(connected, number(&page, "block_serve_clients_total"), "{page}");
    drop(client);
    page_until(address, |page| number(page, "block_serve_clients_connected") == Some(0.0)).await;
    signal(&child, "-TERM");
    assert_eq!(ended(child, lines).1, Some(0));
    // The second program cannot have the address of the first one.
    let listener = std::net::TcpListener::bind(address).unwrap();
    let at = format!("unix:{}", socket.display());
    let output = program(&[&rig.url(), "--listen", &at, "--metrics", &metrics]).output().unwrap();
    assert_eq!(output.status.code(), Some(75), "{}", stderr(&output));
    drop(listener);
}

/// A signal must not abort a write in flight: the write may have received the report of a reset. Then the flush
/// would have to count all writes as lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_signal_aborts_no_write_in_flight() {
    let rig = target().await;
    let socket = socket("in-flight");
    let (child, lines, _) = started(&rig.url(), &socket, &["--sessions", "1"]);
    let slow = Fault::delay(.., Duration::from_millis(300)).on_access(Access::Write);
    rig.server.with(|target| target.config_mut().faults.push(slow));
    let client = client(&socket).await;
    let data = Bytes::from(vec![7; 4 << 20]);
    let pages = vec![data.clone()];
    let writing = tokio::spawn(async move { client.write_at(0, pages).await });
    let in_flight = async {
        while rig.server.with(|target| target.active_tasks()) == 0 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    soon(in_flight).await;
    signal(&child, "-TERM");
    let (end, status) = ended(child, lines);
    writing.await.unwrap().unwrap();
    assert_eq!((status, &end["complete"]), (Some(0), &true.into()), "{end}");
    assert!(rig.disk.holds(0, &data));
    assert_eq!(rig.server.with(|target| target.functions_carried_out()), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_lost_is_said_at_the_end_if_no_client_was_told() {
    for is_told in [false, true] {
        let rig = target().await;
        let socket = socket(if is_told { "told" } else { "untold" });
        let (child, lines, _) = started(&rig.url(), &socket, &[]);
        let fault = Fault::write_error(0..u64::MAX).times(1);
        rig.server.with(|target| target.config_mut().faults.push(fault));
        let client = client(&socket).await;
        client.write_at(0, vec![Bytes::from(vec![7; 4096])]).await.unwrap();
        if is_told {
            client.flush().await.unwrap_err();
        }
        drop(client);
        signal(&child, "-TERM");
        let (end, status) = ended(child, lines);
        assert_eq!(
            (status, &end["complete"]),
            (Some(if is_told { 0 } else { 65 }), &is_told.into()),
            "{end}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_ends_with_its_last_client_if_it_is_told_to() {
    let rig = target().await;
    let socket = socket("last");
    let (child, lines, _) = started(&rig.url(), &socket, &["--until-last", "--read-only"]);
    let client = client(&socket).await;
    assert!(client.limits().is_read_only);
    client.write_at(0, vec![Bytes::from_static(b"x")]).await.unwrap_err();
    drop(client);
    let (end, status) = ended(child, lines);
    assert_eq!((status, &end["bytes_written"]), (Some(0), &0.into()));
    assert_eq!(rig.disk.mapped_blocks(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_served_is_said_in_one_line() {
    let rig = target().await;
    let at = format!("unix:{}", socket("refused").display());
    let url = rig.url();
    let half = url.rsplit_once('/').unwrap().0.to_owned();
    let absent = format!("{half}/9");
    for (arguments, status, part) in [
        (&[url.as_str()][..], 2, "--listen"),
        (&[&half, "--listen", &at], 2, "unit"),
        (&[&absent, "--listen", &at], 69, "no logical unit 9"),
        (&["iscsi://127.0.0.1:1/iqn.2026-01.org.example:x/0", "--listen", &at], 75, "127.0.0.1:1"),
        (&[&url, "--listen", "unix:/nowhere/at/all"], 1, "/nowhere/at/all"),
        (&["http://host/", "--listen", &at], 2, "iscsi"),
    ] {
        let output = program(arguments).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(status), "{said}");
        assert!(said.contains(part) && said.lines().count() == 1, "{arguments:?}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_server_at_a_socket_is_refused_and_the_first_goes_on() {
    let rig = target().await;
    let socket = socket("second");
    let (mut child, _lines, _) = started(&rig.url(), &socket, &[]);
    let output =
        program(&[&rig.url(), "--listen", &format!("unix:{}", socket.display())]).output().unwrap();
    assert_eq!(output.status.code(), Some(75));
    assert!(stderr(&output).contains("another process listens there"), "{}", stderr(&output));
    client(&socket).await.read_at(0, 512).await.unwrap();
    // The next server replaces the socket file that a killed server has left.
    child.kill().unwrap();
    child.wait().unwrap();
    let (mut child, _lines, _) = started(&rig.url(), &socket, &[]);
    client(&socket).await.read_at(0, 512).await.unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    fs::remove_file(&socket).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_comes_from_a_file_that_others_should_not_read() {
    let chap = Chap::new("me", "hunter2hunter2");
    let rig = target_with(|config| config.chap = Some(chap)).await;
    let (socket, path) = (socket("password"), socket("password-file"));
    let mine = rig.url().replace("iscsi://", "iscsi://me@");
    let file = |content: &str, mode| {
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap()
    };
    let good = file("hunter2hunter2\n", 0o640);
    let (mut child, lines, _) = started(&mine, &socket, &["--password-file", good]);
    client(&socket).await.read_at(0, 512).await.unwrap();
    let mut said = child.stderr.take().unwrap();
    signal(&child, "-TERM");
    assert_eq!(ended(child, lines).1, Some(0));
    let mut warning = String::new();
    said.read_to_string(&mut warning).unwrap();
    assert!(warning.contains("others may read it; chmod 600"), "{warning}");

    let listen = format!("unix:{}", socket.display());
    let refused = |url: &str, path: &str, status, part| {
        let arguments = [url, "--listen", &listen, "--password-file", path];
        let output = program(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{}", stderr(&output));
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
    };
    refused(&mine, file("hunter3hunter3", 0o600), 77, "password");
    refused(&mine, file("\n", 0o600), 1, "holds no password");
    refused(&rig.url(), file("hunter2hunter2", 0o600), 2, "--password-file needs a user");
    let both = [
        &*mine,
        "--listen",
        &listen,
        "--password-file",
        file("hunter2hunter2", 0o600),
        "--target-password-file",
        path.to_str().unwrap(),
    ];
    let output = program(&both).output().unwrap();
    assert!(stderr(&output).contains("same secret"), "{}", stderr(&output));
    fs::remove_file(&path).unwrap();
    refused(&mine, path.to_str().unwrap(), 1, "check the path");
    assert_eq!(rig.server.with(|target| target.sessions()), 0);
}

/// The server notices the change even while all clients are idle, because it polls the unit.
#[tokio::test(flavor = "multi_thread")]
async fn a_unit_that_has_grown_is_told_in_the_log() {
    let rig = target().await;
    let socket = socket("resize");
    let (mut child, lines, _) = started(&format!("{}?poll=1", rig.url()), &socket, &[]);
    let idle = client(&socket).await;
    let mut said = BufReader::new(child.stderr.take().unwrap());
    rig.disk.resize(16_384);
    let line = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        (line, said)
    });
    let (line, _said) = timeout(Duration::from_secs(60), line).await.unwrap().unwrap();
    assert!(line.contains("a unit had 4 MiB and has 8 MiB now"), "{line}");
    drop(idle);
    signal(&child, "-TERM");
    assert_eq!(ended(child, lines).1, Some(0));
    assert_eq!(rig.server.with(|target| target.sessions()), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_has_as_many_sessions_as_it_is_told_to() {
    let rig = target().await;
    let socket = socket("sessions");
    let (child, lines, _) = started(&rig.url(), &socket, &["--sessions", "3"]);
    let client = client(&socket).await;
    let all_there = async {
        while rig.server.with(|target| target.sessions()) < 3 {
            client.read_at(0, 4096).await.unwrap();
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(60), all_there).await.unwrap();
    signal(&child, "-TERM");
    assert_eq!(ended(child, lines).1, Some(0));
    assert_eq!(rig.server.with(|target| target.sessions()), 0);
}

/// The permissions and the group of the socket are those of the options, whatever the umask is.
#[tokio::test(flavor = "multi_thread")]
async fn others_may_connect_where_that_is_said() {
    let rig = target().await;
    let own = fs::metadata("/proc/self").unwrap().gid();
    let group = own.to_string();
    for (further, mode) in [
        (&[][..], 0o600),
        (&["--socket-mode", "660", "--socket-group", &group], 0o660),
        (&["--socket-mode", "0666"], 0o666),
    ] {
        let socket = socket("access");
        let (mut child, ..) = started(&rig.url(), &socket, further);
        let file = fs::metadata(&socket).unwrap();
        assert_eq!((file.permissions().mode() & 0o7777, file.gid()), (mode, own), "{further:?}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
    for (option, value, part) in [
        ("--socket-mode", "rw", "write three octal digits"),
        ("--socket-mode", "4755", "write three octal digits"),
        ("--socket-group", "no-such-group", "this host has no such group"),
    ] {
        let output = program(&[&rig.url(), "--listen", "tcp:127.0.0.1:0", option, value]).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains(part), "{output:?}");
    }
}

/// With `Accept=yes` systemd starts a server per client, and hands over the client's connection instead of a
/// listening socket. The server refuses that.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_no_socket_that_listens() {
    let rig = target().await;
    let (_client, connection) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut command = Command::new("sh");
    let line = "exec 3<&0; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" \"$1\"";
    command.args(["-c", line, env!("CARGO_BIN_EXE_block-serve"), &rig.url()]);
    command.stdin(OwnedFd::from(connection));
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("(LISTEN_FDS): it is the connection of a client"), "{said}");
    assert!(said.contains("Accept=no"), "{said}");
}

/// Idle clients hold no memory, so requests of 32 MiB still succeed. The test connects up to 3000 clients, as
/// far as the hard limit of open files allows.
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_ask_for_nothing_hold_no_memory() {
    const ALL: u32 = 32 << 20;
    let rig = target_with(|config| {
        let big = RamDisk::new(512, 2 * u64::from(ALL) / 512);
        config.units.values_mut().for_each(|unit| unit.disk = big.clone());
    })
    .await;
    let socket = socket("idle");
    let further = ["--memory", "128M", "--sessions", "1", "--max-clients", "3001"];
    let (child, lines, _) = started(&rig.url(), &socket, &further);
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let count = usize::try_from(hard).unwrap_or(usize::MAX).saturating_sub(200).min(3000);
    let mut idle = Vec::new();
    for _ in 0..count {
        idle.push(raw(&socket).await);
    }
    // A request of 32 MiB needs the memory that is reserved for the longest request.
    let mut client = raw(&socket).await;
    for client in [&mut client, &mut idle[450]] {
        assert_eq!(client.write(0, 0, &vec![5; ALL as usize]).await, 0);
        assert_eq!(client.read(0, ALL).await, Ok(vec![5; ALL as usize]));
    }
    drop((client, idle));
    signal(&child, "-TERM");
    let (end, status) = ended(child, lines);
    assert_eq!(
        (status, &end["clients"], &end["requests_failed"]),
        (Some(0), &(count + 1).into(), &0.into())
    );
}

/// Idle clients take all open files that are meant for clients. The next client is refused until one of them
/// disconnects. Meanwhile a lost session can still be reconnected.
#[tokio::test(flavor = "multi_thread")]
async fn clients_leave_the_sessions_their_files() {
    let rig = target_with(|_| ()).await;
    let socket = socket("files");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 160 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_block-serve")]);
    let listen = format!("unix:{}", socket.display());
    command.args([&rig.url(), "--listen", &listen, "--json", "--sessions", "1"]);
    command.args(["--max-clients", "65"]);
    let (mut child, lines, _) = ready(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let mut clients = Vec::new();
    for _ in 0..64 {
        clients.push(raw(&socket).await);
    }
    let uri = format!("nbd+unix:///?socket={}&patience=0", socket.display()).parse().unwrap();
    for _ in 0..30 {
        let error = soon(NbdDevice::open(&uri)).await.unwrap_err();
        assert!(error.to_string().contains("--max-clients"), "{error}");
    }
    rig.server.with(Target::drop_connections);
    assert_eq!(clients[63].write(0, 0, &[7; 512]).await, 0);
    drop(clients);
    let next = soon(async {
        loop {
            if let Ok(client) = NbdDevice::open(&uri).await {
                return client;
            }
        }
    })
    .await;
    assert_eq!(soon(next.read_at(0, 512)).await.unwrap(), vec![7; 512]);
    drop(next);
    let mut said = child.stderr.take().unwrap();
    signal(&child, "-TERM");
    assert_eq!(ended(child, lines).1, Some(0));
    let mut told = String::new();
    said.read_to_string(&mut told).unwrap();
    assert!(told.contains("leaves room for 64 clients, and --max-clients is 65"), "{told}");
    let refusals = told.lines().filter(|line| line.contains("all 64 places are taken")).count();
    assert!((1..30).contains(&refusals), "not a line for each: {told}");
}

/// Two units are served as one device: the data of a client are on both units, chunk by chunk.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_is_served_as_one_device() {
    const CHUNK: usize = 64 << 10;
    let first = target_with(|config| identify(config, "0001", 0x3000_0000_0000_0001)).await;
    let second = target_with(|config| identify(config, "0002", 0x3000_0000_0000_0002)).await;
    let member = |url: &str, number: u32| {
        format!(
            "[[member]]\nurl = {url:?}\nname = \"naa.300000000000000{number}\"\ncapacity = 4194304\n"
        )
    };
    let text = format!(
        "version = 1\nchunk = {CHUNK}\n{}{}",
        member(&first.url(), 1),
        member(&second.url(), 2)
    );
    let file = socket("volume.toml");
    fs::write(&file, text).unwrap();
    let place = format!("volume:{}", file.display());
    let socket = socket("volume");
    let (child, lines, ready) = started(&place, &socket, &[]);
    assert_eq!(
        (&ready["capacity_bytes"], &ready["block_size_bytes"]),
        (&8_388_608.into(), &512.into())
    );
    let client = client(&socket).await;
    let data: Vec<_> = (0..CHUNK * 4).map(|at| (at / 97 % 251).to_le_bytes()[0]).collect();
    client.write_at(0, vec![data.clone().into()]).await.unwrap();
    assert_eq!(client.read_at(0, data.len()).await.unwrap(), data);
    signal(&child, "-TERM");
    let (end, status) = ended(child, lines);
    assert_eq!((status, &end["complete"]), (Some(0), &true.into()));
    for (number, chunk) in data.chunks(CHUNK).enumerate() {
        let disk = if number % 2 == 0 { &first.disk } else { &second.disk };
        assert!(disk.holds((number / 2 * CHUNK) as u64, chunk), "chunk {number}");
    }
    // Replaces the second unit by another one.
    second.server.with(|target| identify(target.config_mut(), "0003", 0x3000_0000_0000_0003));
    let listen = format!("unix:{}", socket.display());
    let output = program(&[&place, "--listen", &listen]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    assert!(
        said.contains("member 1 (naa.3000000000000002) is the unit naa.3000000000000003"),
        "{said}"
    );
    fs::remove_file(&file).unwrap();
}

fn identify(config: &mut TargetConfig, serial: &str, naa: u64) {
    for unit in config.units.values_mut() {
        (unit.serial, unit.naa) = (serial.to_owned(), naa);
    }
}

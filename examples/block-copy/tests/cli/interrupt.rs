//! Tests of copies that end early because of a signal. [`ends`] kills a program that runs much longer than it
//! should.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::time::Duration;

use iscsi_testkit::target::{Outcome, Target};
use nix::pty::{OpenptyResult, Winsize, openpty};
use tokio::net::unix::pipe;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

use crate::support::{
    Folder, Rig, TARGET, ends, fails, full_pipe, listen_again, object, pattern, program, signal,
    succeeds, through_shell, until,
};

const CHUNK: usize = 4096;
const BUSY: u8 = 0x08;
/// Operation codes of SYNCHRONIZE CACHE (10) and (16).
const FLUSHES: [u8; 2] = [0x35, 0x91];
/// Operation codes of READ (10) and (16).
const READS: [u8; 2] = [0x28, 0x88];

fn start(arguments: &[&str]) -> Child {
    let mut command = program(&[arguments, &["--progress", "none"]].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Checks that the program was interrupted and wrote two lines about it. The second line must contain all of
/// `parts`.
fn was_interrupted(output: &Output, parts: &[&str]) {
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert!(lines[0].contains("stopping"), "{said}");
    assert!(lines[1].starts_with("block-copy: interrupted"), "{said}");
    for part in parts {
        assert!(lines[1].contains(part), "{said:?} does not say {part:?}");
    }
}

/// Starts a copy from a pipe to a unit, and waits until its first chunk is written.
async fn waiting(rig: &Rig) -> (Child, ChildStdin) {
    let mut child = start(&["-", &rig.url(), "--io-size", "4k", "--sessions", "1"]);
    let mut input = child.stdin.take().unwrap();
    let chunk = pattern(CHUNK);
    input.write_all(&chunk).unwrap();
    until(&mut child, || rig.disk.holds(0, &chunk)).await;
    (child, input)
}

/// Returns the number of commands with one of these operation codes that the target has received.
fn count(target: &Target, codes: [u8; 2]) -> usize {
    target.commands().iter().filter(|command| codes.contains(&command.cdb[0])).count()
}

fn seen(rig: &Rig, codes: [u8; 2]) -> usize {
    rig.server.with(|target| count(target, codes))
}

/// Sends the signal to a copy whose source pauses after its first chunk, and checks how the copy ends.
async fn stopped_by(name: &str) {
    let rig = Rig::start(512, 1 << 20).await;
    let (child, input) = waiting(&rig).await;
    signal(&child, name);
    let output = ends(child).await;
    drop(input);
    was_interrupted(
        &output,
        &["interrupted; 4 KiB were written and flushed, the destination is incomplete"],
    );
    // The program has logged out: the target has no session left.
    assert_eq!(rig.server.with(|target| target.sessions()), 0);
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_is_told_to_programs() {
    let rig = Rig::start(512, 1 << 20).await;
    let mut child = start(&["-", &rig.url(), "--io-size", "4k", "--json"]);
    let mut input = child.stdin.take().unwrap();
    input.write_all(&pattern(CHUNK)).unwrap();
    until(&mut child, || rig.disk.holds(0, &pattern(CHUNK))).await;
    signal(&child, "-INT");
    let output = ends(child).await;
    was_interrupted(&output, &[]);
    let failure = object(&output);
    assert_eq!((&failure["kind"], &failure["bytes"]), (&"interrupted".into(), &CHUNK.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_stops_in_order() {
    stopped_by("-INT").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn so_does_a_request_to_terminate() {
    stopped_by("-TERM").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn so_does_a_terminal_that_is_gone() {
    stopped_by("-HUP").await;
}

/// Signals shortly after the first one count as part of it: `timeout` signals the program, and then the
/// program's process group.
#[tokio::test(flavor = "multi_thread")]
async fn a_signal_that_comes_twice_is_one() {
    is_one_wish(["-INT", "-INT", "-TERM"]).await;
}

/// A terminal that is gone causes several signals, which count as one. The kernel sends SIGHUP, the shell sends
/// it again, and systemd-logind ends the rest of the session by SIGTERM.
#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_that_is_gone_is_told_more_than_once() {
    is_one_wish(["-HUP", "-HUP", "-TERM"]).await;
}

/// Sends the signals; the second and third after the program has reported the first one. The program must flush
/// and log out as after a single signal.
async fn is_one_wish(signals: [&str; 3]) {
    let rig = Rig::start(512, 1 << 20).await;
    let (mut child, input) = waiting(&rig).await;
    // The target is held, so the flush does not end, and the program is still running when the further signals
    // arrive.
    rig.server.with(|target| target.hold());
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    signal(&child, signals[0]);
    let mut said = String::new();
    errors.read_line(&mut said).unwrap();
    assert!(said.contains("stopping"), "{said}");
    signals[1..].iter().for_each(|later| signal(&child, later));
    let output = ends(child).await;
    errors.read_to_string(&mut said).unwrap();
    drop(input);
    was_interrupted(&Output { stderr: said.into_bytes(), ..output }, &["4 KiB"]);
}

/// SIGHUP that is ignored at the start, as with `nohup`, does not end the copy.
#[tokio::test(flavor = "multi_thread")]
async fn who_ignores_that_the_terminal_is_gone_goes_on() {
    let rig = Rig::start(512, 1 << 20).await;
    let mut command =
        through_shell("trap '' HUP", &["-", &rig.url(), "--io-size", "4k", "--progress", "none"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let both = pattern(2 * CHUNK);
    input.write_all(&both[..CHUNK]).unwrap();
    until(&mut child, || rig.disk.holds(0, &both[..CHUNK])).await;
    signal(&child, "-HUP");
    input.write_all(&both[CHUNK..]).unwrap();
    drop(input);
    succeeds(&ends(child).await);
    assert!(rig.disk.holds(0, &both));
}

/// Returns whether this machine is connecting to the port (state SYN-SENT).
fn is_connecting_to(portal: SocketAddr) -> bool {
    let remote = format!(":{:04X} 02 ", portal.port());
    std::fs::read_to_string("/proc/net/tcp").unwrap().lines().any(|line| line.contains(&remote))
}

/// Interrupts a program that reads from a pipe without a writer, which blocks. Checks that no destination file
/// was created.
async fn while_it_reads(name: &str, arguments: impl Fn(&Folder, &str) -> Vec<String>) {
    let folder = Folder::new();
    let fifo = folder.path(name);
    assert!(Command::new("mkfifo").args(["-m", "600", &fifo]).status().unwrap().success());
    let arguments = arguments(&folder, &fifo);
    let mut child = start(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let mut writer = None;
    until(&mut child, || {
        writer = pipe::OpenOptions::new().open_sender(&fifo).ok();
        writer.is_some()
    })
    .await;
    signal(&child, "-INT");
    was_interrupted(&ends(child).await, &[]);
    assert!(!std::fs::exists(folder.path("copy")).unwrap());
    drop(writer);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_it_reads_what_has_changed() {
    while_it_reads("ranges", |folder, fifo| {
        let image = folder.file("image", &pattern(CHUNK));
        [&*image, &folder.path("copy"), "--ranges", fifo].map(str::to_owned).into()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_it_reads_a_password() {
    let url = format!("iscsi://me@127.0.0.1/{TARGET}/0");
    for verifies in [false, true] {
        while_it_reads("password", |folder, fifo| {
            let digests = folder.path("digests");
            let alone = [&*url, "--verify=digests", "--digests", &digests];
            let both = [&*url, &folder.path("copy")];
            let ends = if verifies { &alone[..] } else { &both[..] };
            [ends, &["--password-file", fifo]].concat().iter().map(|&word| word.into()).collect()
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_it_reads_what_a_volume_is() {
    while_it_reads("volume", |folder, fifo| vec![format!("volume:{fifo}"), folder.path("copy")])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_it_reads_what_is_known() {
    while_it_reads("digests", |folder, fifo| {
        let image = folder.file("image", &pattern(CHUNK));
        [&*image, "--verify=digests", "--digests", fifo].map(str::to_owned).into()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_it_reads_its_jobs() {
    while_it_reads("jobs", |_, fifo| vec!["--jobs".to_owned(), fifo.to_owned()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_it_connects() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let portal = listener.local_addr().unwrap();
    // No task accepts connections, so connections beyond the backlog get no response.
    let mut crowd = Vec::new();
    while let Ok(one) = timeout(Duration::from_millis(100), TcpStream::connect(portal)).await {
        crowd.push(one.unwrap());
    }
    while is_connecting_to(portal) {
        sleep(Duration::from_millis(1)).await;
    }
    let mut child = start(&[&format!("iscsi://{portal}/{TARGET}/0"), "/dev/null"]);
    until(&mut child, || is_connecting_to(portal)).await;
    signal(&child, "-INT");
    was_interrupted(&ends(child).await, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_it_logs_in() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let portal = listener.local_addr().unwrap();
    let child = start(&[&format!("iscsi://{portal}/{TARGET}/0"), "/dev/null"]);
    let connection = listener.accept().await.unwrap();
    signal(&child, "-INT");
    was_interrupted(&ends(child).await, &[]);
    drop(connection);
}

/// A signal ends a copy while its writes in flight wait for a lost session. The target has ended, and the next
/// listener at its address sends nothing, so each reconnect fails.
#[tokio::test(flavor = "multi_thread")]
async fn while_a_lost_session_is_opened_again() {
    let rig = Rig::start_at("127.0.0.78", 512, 1 << 20, Duration::ZERO, |_| {}).await;
    let (child, mut input) = waiting(&rig).await;
    let portal = rig.server.address();
    rig.server.stop().await;
    let silent = listen_again(portal).await;
    input.write_all(&pattern(CHUNK)).unwrap();
    let connection = silent.accept().await.unwrap();
    signal(&child, "-INT");
    let output = ends(child).await;
    // The response to the first write may have been lost with the session, so two messages are possible.
    let answered =
        ["4 KiB in flight, which may be written or not", "4 KiB were written and not flushed"];
    let lost = ["8 KiB in flight, which may be written or not"];
    let is_lost = String::from_utf8_lossy(&output.stderr).contains("8 KiB in flight");
    was_interrupted(&output, if is_lost { &lost } else { &answered });
    drop(connection);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_busy_unit_is_waited_for() {
    let rig = Rig::start(512, 1 << 20).await;
    let (mut child, mut input) = waiting(&rig).await;
    rig.server.with(|target| {
        (0..1000).for_each(|_| target.end_next_with(Outcome::status(BUSY)));
    });
    let before = rig.server.with(|target| target.commands().len());
    input.write_all(&pattern(CHUNK)).unwrap();
    until(&mut child, || rig.server.with(|target| target.commands().len()) > before + 2).await;
    signal(&child, "-INT");
    was_interrupted(&ends(child).await, &["4 KiB in flight", "4 KiB were written and not flushed"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_it_flushes() {
    let rig = Rig::start(512, 1 << 20).await;
    let (mut child, input) = waiting(&rig).await;
    rig.server.with(|target| target.hold());
    let before = seen(&rig, FLUSHES);
    drop(input);
    until(&mut child, || seen(&rig, FLUSHES) > before).await;
    signal(&child, "-INT");
    was_interrupted(&ends(child).await, &["all of it, 4 KiB, was written, but not flushed"]);
}

/// At 1 kbit/s the first chunk passes immediately, and the next one half a minute later. The checkpoint is in
/// memory, because the program gives it only a moment to be written, and a busy disk may need longer.
#[tokio::test(flavor = "multi_thread")]
async fn while_writes_wait_for_their_rate() {
    let rig = Rig::start(512, 1 << 20).await;
    let folder = Folder::new();
    let source = folder.file("image", &pattern(1 << 20));
    let memory = Folder::in_memory();
    let checkpoint = memory.path("checkpoint");
    let options = ["--io-size", "4k", "--checkpoint", &checkpoint];
    let destination = rig.url();
    let both = [&[source.as_str(), &destination][..], &options].concat();
    let mut child = start(&[&both[..], &["--rate-limit", "1kbit"]].concat());
    until(&mut child, || rig.written() > 0).await;
    signal(&child, "-INT");
    was_interrupted(&ends(child).await, &["interrupted; 4 KiB of 1 MiB were written and flushed"]);
    assert_eq!(rig.server.with(|target| target.sessions()), 0);

    let output = ends(start(&[&both[..], &["--resume", "--json"]].concat())).await;
    assert_eq!(object(&output)["bytes_resumed"], CHUNK);
    assert!(rig.disk.holds(0, &pattern(1 << 20)));
    assert_eq!(rig.written(), 1 << 20, "nothing was written twice");
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn while_it_verifies() {
    let rig = Rig::start(512, 1 << 20).await;
    let folder = Folder::new();
    let source = folder.file("image", &pattern(1 << 20));
    let options = ["--verify", "--io-size", "512", "--queue-depth", "1"];
    let mut child = start(&[&[source.as_str(), &rig.url()][..], &options].concat());
    // The target is held as soon as it has received a read after the first flush: the verification may end a
    // moment later. Reads before that flush belong to the check of the data on the destination.
    let hold = |target: &mut Target| {
        let mut commands = target.commands().iter().map(|command| command.cdb[0]);
        let is_flushed = commands.any(|code| FLUSHES.contains(&code));
        let reads = is_flushed && commands.any(|code| READS.contains(&code));
        reads.then(|| target.hold()).is_some()
    };
    until(&mut child, || rig.server.with(hold)).await;
    signal(&child, "-INT");
    was_interrupted(&ends(child).await, &["everything was written and flushed, but not verified"]);
}

/// A signal ends a copy that is blocked in a write to standard output, a full pipe.
#[tokio::test(flavor = "multi_thread")]
async fn while_standard_output_is_full() {
    let folder = Folder::new();
    let source = folder.file("image", &pattern(4 << 20));
    let mut child = start(&[&source, "-", "--io-size", "1m"]);
    let mut output = child.stdout.take().unwrap();
    output.read_exact(&mut [0]).unwrap();
    signal(&child, "-INT");
    was_interrupted(&ends(child).await, &["1 MiB in flight, which may be written or not"]);
}

/// A signal ends the program after a complete copy, while no process reads the JSON object with the result.
#[tokio::test(flavor = "multi_thread")]
async fn while_nobody_reads_the_result() {
    let folder = Folder::new();
    let source = folder.file("image", &pattern(CHUNK));
    let (reader, full) = full_pipe().await;

    let mut command = program(&[&source, &folder.path("copy"), "--json", "--progress", "plain"]);
    let mut child = command.stdout(Stdio::from(full)).stderr(Stdio::piped()).spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("flushed") {
        line.clear();
        assert!(errors.read_line(&mut line).unwrap() > 0, "the program ended early");
    }
    signal(&child, "-INT");
    let output = ends(child).await;
    let mut said = String::new();
    errors.read_to_string(&mut said).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.ends_with("no program read it; the copy itself is complete\n"), "{said}");
    drop(reader);
}

/// A stopped terminal takes no output, so the program may block while it writes a message. A signal ends it
/// even so.
#[tokio::test(flavor = "multi_thread")]
async fn while_nobody_reads_what_it_says() {
    let rig = Rig::start(512, 1 << 20).await;
    let (reader, full) = full_pipe().await;
    let mut command = program(&["-", &rig.url(), "--progress", "plain"]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::from(full)).spawn().unwrap();
    until(&mut child, || rig.server.with(|target| target.sessions()) > 0).await;
    signal(&child, "-INT");
    assert_eq!(ends(child).await.status.code(), Some(130));
    drop(reader);
}

/// A signal ends the program even while the only worker of its runtime is blocked in a write: another thread
/// handles signals.
#[tokio::test(flavor = "multi_thread")]
async fn while_nobody_reads_what_its_only_worker_says() {
    let rig = Rig::start(512, 1 << 20).await;
    let (reader, full) = full_pipe().await;
    let mut command = program(&["-", &rig.url(), "--progress", "plain"]);
    command.env("TOKIO_WORKER_THREADS", "1");
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::from(full)).spawn().unwrap();
    until(&mut child, || rig.server.with(|target| target.sessions()) > 0).await;
    signal(&child, "-INT");
    assert_eq!(ends(child).await.status.code(), Some(130));
    drop(reader);
}

/// Returns whether a process handles SIGTERM, the fifteenth signal.
fn catches_termination(id: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & 1 << 14 != 0
}

/// The program cannot write the message of its failure, because the pipe of standard error is full. A signal
/// ends it even so, although the work has ended and has nothing to stop.
#[tokio::test(flavor = "multi_thread")]
async fn while_nobody_reads_why_it_failed() {
    let (reader, full) = full_pipe().await;
    let mut command = program(&["/nonexistent", "/dev/null", "--progress", "none"]);
    let mut child = command.stderr(Stdio::from(full)).spawn().unwrap();
    let id = child.id();
    until(&mut child, || catches_termination(id)).await;
    signal(&child, "-INT");
    assert_eq!(ends(child).await.status.code(), Some(130));
    drop(reader);
}

/// Starts a copy from a pipe, with a bar on a terminal. The terminal is closed after the first chunk.
async fn on_a_terminal_that_goes_away(rig: &Rig) -> (Child, ChildStdin) {
    let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    let OpenptyResult { master, slave } = openpty(&size, None).unwrap();
    // This clone of the terminal is closed when the program starts, so it does not keep the terminal open.
    let mut terminal = File::from(master.try_clone().unwrap());
    drop(master);
    let mut command = program(&["-", &rig.url(), "--io-size", "4k", "--sessions", "1"]);
    let mut child = command.stdin(Stdio::piped()).stderr(slave).spawn().unwrap();
    // Drops the command's copy of the descriptor: the program must hold the only one.
    drop(command);
    let mut input = child.stdin.take().unwrap();
    let chunk = pattern(CHUNK);
    input.write_all(&chunk).unwrap();
    until(&mut child, || rig.disk.holds(0, &chunk)).await;
    // Waits until the bar is shown.
    let mut shown = Vec::new();
    while !String::from_utf8_lossy(&shown).contains("copy ") {
        let mut part = [0; 256];
        let count = terminal.read(&mut part).unwrap();
        shown.extend_from_slice(&part[..count]);
    }
    drop(terminal);
    (child, input)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bar_on_a_terminal_that_goes_away() {
    let rig = Rig::start(512, 1 << 20).await;
    let (child, mut input) = on_a_terminal_that_goes_away(&rig).await;
    let all = pattern(4 * CHUNK);
    input.write_all(&all[CHUNK..]).unwrap();
    drop(input);
    assert_eq!(ends(child).await.status.code(), Some(0));
    assert!(rig.disk.holds(0, &all));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bar_on_a_terminal_whose_end_is_told() {
    let rig = Rig::start(512, 1 << 20).await;
    let (child, input) = on_a_terminal_that_goes_away(&rig).await;
    signal(&child, "-HUP");
    assert_eq!(ends(child).await.status.code(), Some(130));
    drop(input);
    assert_eq!(rig.server.with(|target| target.sessions()), 0, "it has ended in order");
}

/// A closed terminal or pipe does not end a copy.
#[test]
fn nobody_hears_how_it_goes() {
    let folder = Folder::new();
    let source = folder.file("image", &pattern(1 << 20));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let copy = folder.path("copy");
    let mut command = program(&[&source, &copy, "--progress", "plain"]);
    let status = command.stderr(writer).status().unwrap();
    assert_eq!(status.code(), Some(0));
    assert_eq!(std::fs::read(copy).unwrap(), pattern(1 << 20));
}

#[test]
fn a_reader_that_goes_away() {
    let folder = Folder::new();
    let source = folder.file("image", &pattern(1 << 20));
    let mut command = program(&[&source, "-", "--io-size", "64k", "--progress", "none"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdout.take().unwrap();
    pipe.read_exact(&mut [0; 1000]).unwrap();
    drop(pipe);
    let output = child.wait_with_output().unwrap();
    fails(&output, 1, &["standard output", "the program that reads it has ended"]);
}

//! Tests of texts of targets and NBD clients that contain control characters of terminals: none may reach
//! standard output, standard error or the log.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::hostile_text::{TEXT, configs, obeyed};
use iscsi_testkit::serve::Server;
use iscsi_testkit::target::Target;

const TARGET: &str = "iqn.2026-01.org.example:disk";

/// Requests exports and metadata contexts whose names contain control characters of terminals.
fn ask(socket: &Path) {
    let mut stream = UnixStream::connect(socket).unwrap();
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).unwrap();
    stream.write_all(&[0, 0, 0, 1]).unwrap();
    let counted =
        |bytes: &[u8]| [&u32::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat();
    let name = counted(TEXT.as_bytes());
    let contexts = [&name[..], &[0, 0, 0, 1], &name].concat();
    for (option, data) in [
        (6_u32, [&name[..], &[0, 0]].concat()),
        (7, [&name[..], &[0, 0]].concat()),
        (9, contexts.clone()),
        (10, contexts),
        (77, TEXT.as_bytes().to_vec()),
        (2, Vec::new()),
    ] {
        let head = [&b"IHAVEOPT"[..], &option.to_be_bytes()].concat();
        // If the write fails, the server has disconnected the client, and has received enough.
        if stream.write_all(&[head, counted(&data)].concat()).is_err() {
            return;
        }
    }
    drop(stream.read_to_end(&mut Vec::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_text_of_a_target_or_a_client_is_obeyed() {
    let path = |name: &str| {
        std::env::temp_dir().join(format!("block-serve-hostile-{name}-{}", std::process::id()))
    };
    let (socket, log) = (path("socket"), path("log"));
    let config = TargetConfig::new(TARGET, RamDisk::new(512, 64));
    let mut served = 0;
    for (place, config) in configs(&config) {
        let server = Server::start(Target::new(config)).await.unwrap();
        let url = format!("iscsi://{}/{TARGET}/0", server.address());
        for json in [false, true] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_block-serve"));
            command.args([&url, "--listen", &format!("unix:{}", socket.display())]);
            command.args(json.then_some("--json")).env("RUST_LOG", "trace");
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log).unwrap());
            let mut child = command.spawn().unwrap();
            let mut stdout = BufReader::new(child.stdout.take().unwrap());
            let mut said = Vec::new();
            if json
                && stdout.read_until(b'\n', &mut said).unwrap() > 0
                && said.starts_with(b"{\"add")
            {
                served += 1;
                ask(&socket);
            }
            // The program may have ended already, so an error is ignored.
            drop(Command::new("kill").arg(child.id().to_string()).status());
            stdout.read_to_end(&mut said).unwrap();
            child.wait().unwrap();
            for text in [said, fs::read(&log).unwrap()] {
                assert_eq!(obeyed(&text), None, "{place}: {json}");
            }
        }
        server.stop().await;
    }
    assert!(served > 3, "a client has come {served} times");
    drop(fs::remove_file(&socket));
    fs::remove_file(&log).unwrap();
}

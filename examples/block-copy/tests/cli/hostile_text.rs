//! Tests of texts of targets and NBD servers that contain control characters of terminals: none may reach
//! standard output, standard error or the log.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Output;
use std::thread;

use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::hostile_text::{TEXT, configs, obeyed};
use iscsi_testkit::serve::Server;
use iscsi_testkit::target::Target;

use crate::support::{TARGET, program};

/// Runs a copy from `source` with the log enabled, once with text output and once with JSON output. Returns the
/// output of the run with JSON output.
fn copies(place: &str, source: &str, more: &[&str]) -> Output {
    let mut last = None;
    for told in [&["--progress", "plain"][..], &["--json", "--progress", "none"]] {
        let mut command = program(&[&[source, "/dev/null"][..], more, told].concat());
        let output = command.env("RUST_LOG", "trace").output().unwrap();
        for stream in [&output.stdout, &output.stderr] {
            assert_eq!(obeyed(stream), None, "{place}: {told:?}");
        }
        last = Some(output);
    }
    last.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_text_of_a_target_is_obeyed() {
    let config = TargetConfig::new(TARGET, RamDisk::new(512, 64));
    for (place, config) in configs(&config) {
        let server = Server::start(Target::new(config)).await.unwrap();
        let url = format!("iscsi://{}/{TARGET}/0?portals=auto", server.address());
        copies(&place, &url, &[]);
        server.stop().await;
    }
}

/// The message of an NBD server that contains the hostile text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Says {
    /// The refusal of all options.
    Refusal,
    /// The refusal of the export, and a list of other exports.
    List,
    /// The name and the description of the export.
    Information,
    /// The names of the metadata contexts.
    Contexts,
    /// The errors of the reads.
    Error,
}

const OPTION: u64 = 0x4948_4156_454f_5054;
const REPLY: u64 = 0x0003_e889_0455_65a9;
const SIZE: u64 = 1 << 16;

/// Sends a reply to an option.
fn answer(stream: &mut TcpStream, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    let length = u32::try_from(data.len()).unwrap().to_be_bytes();
    let head = [&REPLY.to_be_bytes()[..], &option.to_be_bytes(), &kind.to_be_bytes(), &length];
    stream.write_all(&[&head.concat(), data].concat())
}

fn array<const N: usize>(stream: &mut TcpStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Serves one client as the protocol requires (NBD, "Newstyle negotiation"). The messages that `says` selects
/// contain the hostile text.
fn serve(mut stream: TcpStream, says: Says) -> io::Result<()> {
    const ERROR: u32 = 1 << 31;
    let with_length =
        |text: &str| [&u32::try_from(text.len()).unwrap().to_be_bytes(), text.as_bytes()].concat();
    stream.write_all(b"NBDMAGIC")?;
    stream.write_all(&[&OPTION.to_be_bytes()[..], &[0, 3]].concat())?;
    array::<4>(&mut stream)?;
    loop {
        assert_eq!(array(&mut stream)?, OPTION.to_be_bytes());
        let option = u32::from_be_bytes(array(&mut stream)?);
        let length = u32::from_be_bytes(array(&mut stream)?);
        io::copy(&mut (&mut stream).take(length.into()), &mut io::sink())?;
        let mut send = |kind, data: &[u8]| answer(&mut stream, option, kind, data);
        match (says, option) {
            (_, 2) => return send(1, &[]),
            (Says::Refusal, _) => send(ERROR + 2, TEXT.as_bytes())?,
            (Says::List, 6 | 7) => send(ERROR + 6, TEXT.as_bytes())?,
            (_, 3) => {
                send(2, &[with_length(TEXT), TEXT.as_bytes().to_vec()].concat())?;
                send(1, &[])?;
            }
            (_, 6 | 7) => {
                let size = [&[0, 0][..], &SIZE.to_be_bytes(), &[0, 3]].concat();
                send(3, &size)?;
                if says == Says::Information {
                    send(3, &[&[0, 1], TEXT.as_bytes()].concat())?;
                    send(3, &[&[0, 2], TEXT.as_bytes()].concat())?;
                }
                send(1, &[])?;
                if option == 7 {
                    break;
                }
            }
            (_, 8) => send(1, &[])?,
            (_, 9 | 10) => {
                if says == Says::Contexts {
                    for name in ["base:allocation".to_owned(), format!("qemu:dirty-bitmap:{TEXT}")]
                    {
                        send(4, &[&[0, 0, 0, 1], name.as_bytes()].concat())?;
                    }
                }
                send(1, &[])?;
            }
            _ => send(ERROR + 1, TEXT.as_bytes())?,
        }
    }
    loop {
        let request: [u8; 28] = array(&mut stream)?;
        let message = TEXT.as_bytes();
        let length = u16::try_from(message.len()).unwrap();
        // NBD_EIO in an error chunk, which is also the last chunk of the reply.
        let payload = [&5_u32.to_be_bytes()[..], &length.to_be_bytes(), message].concat();
        let head = [
            &0x668e_33ef_u32.to_be_bytes()[..],
            &[0, 1, 0x80, 1],
            &request[8..16],
            &u32::try_from(payload.len()).unwrap().to_be_bytes(),
        ];
        stream.write_all(&[&head.concat(), &payload[..]].concat())?;
    }
}

/// Starts a server for any number of clients. Its threads end with the process.
fn listen(says: Says) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || drop(serve(stream, says)));
        }
    });
    address
}

#[test]
fn no_text_of_an_nbd_server_is_obeyed() {
    for (says, expected) in [
        (Says::Refusal, "[2J"),
        (Says::List, "[2J"),
        (Says::Information, ""),
        (Says::Contexts, ""),
        (Says::Error, "[2J"),
    ] {
        let address = listen(says);
        for (export, ranges) in [("disk", &[][..]), ("", &["--ranges", "qemu:dirty-bitmap:b0"])] {
            let output = copies(&format!("{says:?}"), &format!("nbd://{address}/{export}"), ranges);
            let told = String::from_utf8(output.stdout).unwrap();
            assert!(told.contains(expected) || !ranges.is_empty(), "{says:?}: {told}");
        }
    }
}

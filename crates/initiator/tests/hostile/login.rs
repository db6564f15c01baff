//! Tests of Login Responses that do not match the request (RFC 7143 §6.3, §11.13).

use iscsi_initiator::Fault;
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::{CONTINUE, FINAL, NO_TAG, Pdu};

use crate::row::{Job, Row};

const RESPONSE: Opcode = Opcode::LoginResponse;

pub(crate) fn rows() -> Vec<Row> {
    [headers(), refusals(), lengths(), strangers()].concat()
}

fn open(name: &'static str) -> Row {
    Row::new(Job::Open, name)
}

fn headers() -> Vec<Row> {
    vec![
        open("another Initiator Task Tag")
            .on_send(RESPONSE, 0, |pdu, _| pdu.set_u32(16, 0x7777))
            .ends(Fault::Target, &["Initiator Task Tag"]),
        open("another ISID").on_send(RESPONSE, 0, |pdu, _| pdu.set(8, &[0; 6])),
        open("no TSIH").on_send(RESPONSE, 0, |pdu, _| pdu.set(14, &[0; 2])),
        open("a version that was not proposed")
            .on_send(RESPONSE, 0, |pdu, _| pdu.set(3, &[9]))
            .ends(Fault::Target, &["version 9"]),
        open("another stage than the request's")
            .on_send(RESPONSE, 0, |pdu, _| pdu.header[1] = FINAL | 0x03)
            .ends(Fault::Target, &["CSG"]),
        open("a transition to the stage that is reserved")
            .on_send(RESPONSE, 0, |pdu, _| pdu.header[1] = FINAL | 0x06)
            .ends(Fault::Target, &[]),
        open("a transition back to the first stage")
            .on_send(RESPONSE, 0, |pdu, _| pdu.header[1] = FINAL | 0x04)
            .ends(Fault::Target, &["transition"]),
        open("T and C together")
            .on_send(RESPONSE, 0, |pdu, _| pdu.header[1] |= CONTINUE)
            .ends(Fault::Target, &["T with C"]),
    ]
}

fn refusals() -> Vec<Row> {
    vec![
        open("a status class that does not exist")
            .on_send(RESPONSE, 0, |pdu, _| pdu.set(36, &[9, 9]))
            .ends(Fault::Target, &[]),
        open("an error of the target without a meaning")
            .on_send(RESPONSE, 0, |pdu, _| pdu.set(36, &[3, 0x99]))
            .ends(Fault::Target, &["try again later"]),
        open("a refusal for no reason")
            .on_send(RESPONSE, 0, |pdu, _| pdu.set(36, &[2, 0]))
            .ends(Fault::Target, &["refused the login"]),
        open("a redirection to nowhere")
            .on_send(RESPONSE, 0, |pdu, _| {
                pdu.set(36, &[1, 1]);
                pdu.data = bytes::Bytes::new();
            })
            .ends(Fault::Target, &["TargetAddress"]),
        open("a redirection to no address")
            .on_send(RESPONSE, 0, |pdu, _| {
                pdu.set(36, &[1, 1]);
                pdu.data = bytes::Bytes::from_static(b"TargetAddress=nowhere/at all\0");
            })
            .ends(Fault::Target, &["TargetAddress"]),
        open("a redirection to where nothing listens")
            .on_send(RESPONSE, 0, |pdu, _| {
                pdu.set(36, &[1, 1]);
                pdu.data = bytes::Bytes::from_static(b"TargetAddress=127.0.0.1:1\0");
            })
            .ends(Fault::Network, &["nothing listens at 127.0.0.1:1"]),
        open("redirections in a circle")
            .always_on_send(RESPONSE, |pdu, line| {
                pdu.set(36, &[1, 1]);
                pdu.data = format!("TargetAddress={}\0", line.address()).into();
            })
            .ends(Fault::Target, &["circle"]),
    ]
}

fn lengths() -> Vec<Row> {
    vec![
        open("a login that never ends")
            .always_on_receive(Opcode::LoginRequest, |pdu, line| {
                line.first_as_is(&answer(pdu));
                line.drop_pdu();
            })
            .ends(Fault::Target, &["no end of the login"]),
        open("a text that never ends")
            .always_on_receive(Opcode::LoginRequest, |pdu, line| {
                let mut part = answer(pdu);
                part.header[1] |= CONTINUE;
                part.data = vec![b'x'; 8192].into();
                line.first_as_is(&part);
                line.drop_pdu();
            })
            .bounded(256 << 10)
            .ends(Fault::Target, &["text"]),
        open("a data segment of 16 MiB that is announced")
            .on_send(RESPONSE, 0, |_, line| line.patch_length(0xff_ffff))
            .ends(Fault::Target, &["16777215 bytes", "8192"]),
        open("a data segment that is announced longer than it is")
            .on_send(RESPONSE, 0, |pdu, line| line.patch_length(pdu.data.len() as u32 + 64))
            .limits(|timeouts, soon| timeouts.with_login(soon))
            .ends(Fault::Network, &["did not answer in time", "login"]),
        open("a data segment that is announced shorter than it is")
            .on_send(RESPONSE, 0, |_, line| line.patch_length(8))
            .ends(Fault::Target, &[]),
        open("an additional header that is not there")
            .on_send(RESPONSE, 0, |_, line| line.patch(4, 1))
            .limits(|timeouts, soon| timeouts.with_login(soon))
            .ends(Fault::Network, &["did not answer in time", "login"]),
    ]
}

fn strangers() -> Vec<Row> {
    vec![
        open("the response twice")
            .on_send(RESPONSE, 0, |pdu, line| {
                let again = pdu.clone();
                line.then_as_is(&again);
            })
            .ends(Fault::Target, &["Login Response", "not allowed"]),
        open("a response before the request")
            .on_receive(Opcode::LoginRequest, 0, |pdu, line| {
                line.first_as_is(&answer(pdu));
                line.first_as_is(&answer(pdu));
            })
            .ends(Fault::Target, &[]),
        open("a NOP-In in place of the response")
            .on_send(RESPONSE, 0, |pdu, _| {
                pdu.header[0] = Opcode::NopIn as u8;
                pdu.set_u32(20, NO_TAG);
            })
            .ends(Fault::Target, &["NOP-In", "not allowed"]),
        open("a Reject in place of the response")
            .on_send(RESPONSE, 0, |pdu, _| pdu.header[0] = Opcode::Reject as u8)
            .ends(Fault::Target, &["Reject", "not allowed"]),
        open("a PDU of the initiator in place of the response")
            .on_send(RESPONSE, 0, |pdu, _| pdu.header[0] = Opcode::LoginRequest as u8)
            .ends(Fault::Target, &["opcode 0x03"]),
        open("an opcode that does not exist")
            .on_send(RESPONSE, 0, |pdu, _| pdu.header[0] = 0x3e)
            .ends(Fault::Target, &["opcode 0x3e"]),
        open("a web server")
            .on_receive(Opcode::LoginRequest, 0, |_, line| {
                line.first_bytes(
                    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\nno such page",
                );
                line.close();
            })
            .ends(Fault::Target, &["does not speak iSCSI"]),
        open("zeros")
            .on_receive(Opcode::LoginRequest, 0, |_, line| {
                line.first_bytes(&[0; 512]);
                line.hush();
            })
            .ends(Fault::Target, &["does not speak iSCSI"]),
    ]
}

/// Returns a Login Response that accepts no key and does not end the stage.
fn answer(request: &Pdu) -> Pdu {
    let mut response = Pdu::new(RESPONSE);
    response.header[1] = request.csg() << 2;
    response.set(8, &request.header[8..20]);
    response.set_u32(24, request.exp_stat_sn());
    response.set_u32(28, request.cmd_sn());
    response.set_u32(32, request.cmd_sn());
    response
}

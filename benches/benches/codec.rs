//! Benchmarks of the codec: encoding and decoding a header, and the checksum of a data segment.
#![allow(missing_docs, clippy::unwrap_used, reason = "a bench may panic, and names itself")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use iscsi_pdu::scsi::{Cdb, Lun};
use iscsi_pdu::{
    Bhs, CmdSn, Crc32c, DataOut, DataSn, Header, Itt, ScsiCommand, StatSn, TargetPdu,
    TaskAttribute, Ttt,
};

fn command() -> ScsiCommand {
    ScsiCommand {
        immediate: false,
        is_final: true,
        read: false,
        write: true,
        attribute: TaskAttribute::Simple,
        priority: 0,
        lun: Lun::ZERO,
        itt: Itt::new(1).unwrap(),
        expected_data_transfer_length: 1 << 20,
        cmd_sn: CmdSn::new(7),
        exp_stat_sn: StatSn::new(9),
        cdb: Cdb::write_10(0, 2048),
        bidirectional_read_length: None,
    }
}

/// Returns a header from the target with this opcode and plausible tags.
fn from_target(opcode: u8) -> Header {
    let mut bytes = [0; Bhs::LEN];
    bytes[0] = opcode;
    bytes[1] = 0x80;
    bytes[23] = 5;
    bytes[47] = 1;
    Header::from(Bhs::from_bytes(bytes))
}

fn headers(c: &mut Criterion) {
    let mut group = c.benchmark_group("header");
    let command = command();
    group.bench_function("encode SCSI Command", |b| b.iter(|| black_box(&command).encode()));
    let data_out = DataOut {
        is_final: false,
        lun: Lun::ZERO,
        itt: Itt::new(1).unwrap(),
        ttt: Ttt::new(2),
        exp_stat_sn: StatSn::new(9),
        data_sn: DataSn::new(3),
        buffer_offset: 4096,
    };
    group.bench_function("encode SCSI Data-Out", |b| b.iter(|| black_box(&data_out).encode()));
    for (name, opcode) in [("Data-In", 0x25), ("SCSI Response", 0x21), ("Ready To Transfer", 0x31)]
    {
        let header = from_target(opcode);
        group.bench_function(format!("decode {name}"), |b| {
            b.iter(|| TargetPdu::decode(black_box(&header)).unwrap());
        });
    }
}

fn digests(c: &mut Criterion) {
    let mut group = c.benchmark_group("crc32c");
    for len in [48, 4096, 65536, 262_144] {
        let data = vec![0x5a; len];
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function(format!("{len} bytes"), |b| {
            b.iter(|| {
                let mut crc = Crc32c::new();
                crc.update(black_box(&data));
                crc.finish()
            });
        });
        group.bench_function(format!("{len} bytes, crate crc32c"), |b| {
            b.iter(|| crc32c::crc32c(black_box(&data)));
        });
    }
}

criterion_group!(benches, headers, digests);
criterion_main!(benches);

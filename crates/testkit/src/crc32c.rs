//! CRC32C, the digest of iSCSI (RFC 7143 §13.1), eight bytes per step.

/// The Castagnoli polynomial, bit-reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// `TABLES[k][b]`: the effect of byte `b` followed by `k` zero bytes.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0_usize;
    let mut seed = 0_u32;
    while byte < 256 {
        tables[0][byte] = shift_out(seed);
        byte += 1;
        seed += 1;
    }
    let mut level = 1;
    while level < 8 {
        byte = 0;
        while byte < 256 {
            let previous: u32 = tables[level - 1][byte];
            tables[level][byte] = (previous >> 8) ^ tables[0][(previous & 0xff) as usize];
            byte += 1;
        }
        level += 1;
    }
    tables
}

const fn shift_out(mut crc: u32) -> u32 {
    let mut bit = 0;
    while bit < 8 {
        crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
        bit += 1;
    }
    crc
}

/// Returns the CRC32C of several pieces, taken as one run of bytes.
#[must_use]
pub fn crc32c(pieces: &[&[u8]]) -> u32 {
    !pieces.iter().fold(u32::MAX, |crc, piece| update(crc, piece))
}

/// Returns the CRC32C of several pieces as the four bytes on the wire: least significant byte first.
#[must_use]
pub fn digest(pieces: &[&[u8]]) -> [u8; 4] {
    crc32c(pieces).to_le_bytes()
}

fn update(mut crc: u32, bytes: &[u8]) -> u32 {
    let mut steps = bytes.chunks_exact(8);
    for step in &mut steps {
        crc = eight(crc, step);
    }
    steps.remainder().iter().fold(crc, |crc, &byte| (crc >> 8) ^ entry(0, crc ^ u32::from(byte)))
}

fn eight(crc: u32, step: &[u8]) -> u32 {
    let [a, b, c, d] = crc.to_le_bytes();
    let first = [a ^ step[0], b ^ step[1], c ^ step[2], d ^ step[3]];
    let near = first.iter().zip([7, 6, 5, 4]);
    let far = step[4..].iter().zip([3, 2, 1, 0]);
    near.chain(far).fold(0, |crc, (&byte, level)| crc ^ entry(level, u32::from(byte)))
}

fn entry(level: usize, byte: u32) -> u32 {
    TABLES[level][(byte & 0xff) as usize]
}

#[cfg(test)]
mod tests {
    use super::digest;

    /// RFC 7143 appendix A.4: the test vectors have the expected CRC32C.
    #[test]
    fn matches_the_vectors_of_the_standard() {
        let rising: Vec<u8> = (0..32).collect();
        let falling: Vec<u8> = (0..32).rev().collect();
        assert_eq!(digest(&[&[0; 32]]), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(digest(&[&[0xff; 32]]), [0x43, 0xab, 0xa8, 0x62]);
        assert_eq!(digest(&[&rising]), [0x4e, 0x79, 0xdd, 0x46]);
        assert_eq!(digest(&[&falling]), [0x5c, 0xdb, 0x3f, 0x11]);
    }

    #[test]
    fn pieces_of_any_length_make_one_run() {
        let bytes: Vec<u8> = (0..100).collect();
        for cut in 0..bytes.len() {
            let (left, right) = bytes.split_at(cut);
            assert_eq!(digest(&[left, right]), digest(&[&bytes]));
        }
    }
}

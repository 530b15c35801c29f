//! What the numbers in quantised blocks stand for, written as the formats define them.
//!
//! A scale `d` is an f16; products are rounded to f32 one at a time in the order of ggml's own code, so that
//! every value equals its bit for bit.

use half::f16;

/// 32 values `d · (q − 8)`, q of 4 bits: the low nibbles are the first half.
pub(crate) fn q4_0(block: &[u8; 18]) -> [f32; 32] {
    let d = scale(block, 0);
    std::array::from_fn(|i| d * (nibble(&block[2..], i) - 8) as f32)
}

/// 32 values `d · q + m`, q of 4 bits.
pub(crate) fn q4_1(block: &[u8; 20]) -> [f32; 32] {
    let (d, m) = (scale(block, 0), scale(block, 2));
    std::array::from_fn(|i| d * nibble(&block[4..], i) as f32 + m)
}

/// 32 values `d · (q − 16)`, q of 5 bits: the fifth ones are bits of a u32.
pub(crate) fn q5_0(block: &[u8; 22]) -> [f32; 32] {
    let d = scale(block, 0);
    std::array::from_fn(|i| {
        let q = nibble(&block[6..], i) | bit(&block[2..6], i) << 4;
        d * (q - 16) as f32
    })
}

/// 32 values `d · q + m`, q of 5 bits.
pub(crate) fn q5_1(block: &[u8; 24]) -> [f32; 32] {
    let (d, m) = (scale(block, 0), scale(block, 2));
    std::array::from_fn(|i| {
        let q = nibble(&block[8..], i) | bit(&block[4..8], i) << 4;
        d * q as f32 + m
    })
}

/// 32 values `d · q`, q an i8.
pub(crate) fn q8_0(block: &[u8; 34]) -> [f32; 32] {
    let d = scale(block, 0);
    std::array::from_fn(|i| d * f32::from(block[2 + i].cast_signed()))
}

/// 256 values `(d · scale) · q − (dmin · min)`, q of 4 bits, a 6-bit scale and min for each 32 values.
pub(crate) fn q4_k(block: &[u8; 144]) -> [f32; 256] {
    let subs = sub_blocks(block);
    std::array::from_fn(|i| {
        let (d, m) = subs[i / 32];
        d * pair_nibble(&block[16..], i) as f32 - m
    })
}

/// As `q4_k` with a fifth bit: bit j of byte l belongs to value l of sub-block j.
pub(crate) fn q5_k(block: &[u8; 176]) -> [f32; 256] {
    let subs = sub_blocks(block);
    std::array::from_fn(|i| {
        let (d, m) = subs[i / 32];
        let high = i32::from(block[16 + i % 32] >> (i / 32) & 1);
        d * (pair_nibble(&block[48..], i) | high << 4) as f32 - m
    })
}

/// 256 values `(d · scale) · (q − 32)`, q of 6 bits, an i8 scale for each 16 values.
pub(crate) fn q6_k(block: &[u8; 210]) -> [f32; 256] {
    let d = scale(block, 208);
    std::array::from_fn(|i| {
        // Each half of 128 values has 64 bytes of low nibbles and 32 bytes of upper pairs of bits.
        let (half, quarter, l) = (i / 128, i / 32 % 4, i % 32);
        let low = block[64 * half + 32 * (quarter % 2) + l] >> (4 * (quarter / 2)) & 15;
        let high = block[128 + 32 * half + l] >> (2 * quarter) & 3;
        let scale = f32::from(block[192 + i / 16].cast_signed());
        d * scale * (i32::from(low | high << 4) - 32) as f32
    })
}

/// 32 values `d · (q − 8)`, q of 4 bits: two neighbours share a byte, the first in its low nibble.
pub(crate) fn apr_q4(block: &[u8; 18]) -> [f32; 32] {
    let d = scale(block, 0);
    std::array::from_fn(|i| {
        let q = block[2 + i / 2] >> (4 * (i % 2)) & 15;
        (i32::from(q) - 8) as f32 * d
    })
}

/// Decodes whole blocks one after another.
pub(crate) fn each<const BYTES: usize, const VALUES: usize>(
    bytes: &[u8],
    decode: impl Fn(&[u8; BYTES]) -> [f32; VALUES],
    out: &mut Vec<f32>,
) {
    for block in bytes.as_chunks().0 {
        out.extend_from_slice(&decode(block));
    }
}

fn scale(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// The 4 bits of value `i` of 32: the low nibbles of 16 bytes, then the high ones.
fn nibble(bytes: &[u8], i: usize) -> i32 {
    i32::from(bytes[i % 16] >> (4 * (i / 16)) & 15)
}

/// The 4 bits of value `i` of 256: for each 64, the low nibbles of 32 bytes, then the high ones.
fn pair_nibble(bytes: &[u8], i: usize) -> i32 {
    i32::from(bytes[32 * (i / 64) + i % 32] >> (4 * (i / 32 % 2)) & 15)
}

fn bit(bytes: &[u8], i: usize) -> i32 {
    i32::from(bytes[i / 8] >> (i % 8) & 1)
}

/// `(d · scale, dmin · min)` of the eight sub-blocks. Scales and mins have 6 bits: those of the first four are
/// bytes 0–3 and 4–7; of the last four, the low bits are the nibbles of bytes 8–11 and the upper two are the
/// upper two of bytes 0–7.
fn sub_blocks(block: &[u8]) -> [(f32, f32); 8] {
    let (d, dmin) = (scale(block, 0), scale(block, 2));
    let packed = &block[4..16];
    std::array::from_fn(|j| {
        let (sc, m) = if j < 4 {
            (packed[j] & 63, packed[j + 4] & 63)
        } else {
            (packed[j + 4] & 15 | packed[j - 4] >> 6 << 4, packed[j + 4] >> 4 | packed[j] >> 6 << 4)
        };
        (d * f32::from(sc), dmin * f32::from(m))
    })
}

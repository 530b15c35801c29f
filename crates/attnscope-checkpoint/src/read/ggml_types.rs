//! The numbers under which ggml knows its types, shared by GGUF and whisper.cpp's files.

use crate::dtype::DType;
use crate::error::ErrorKind;

/// Elements and bytes of a block are those of `ggml-common.h`.
const OPAQUE: &[(u32, &str, usize, usize)] = &[
    (9, "q8_1", 32, 36),
    (10, "q2_k", 256, 84),
    (11, "q3_k", 256, 110),
    (15, "q8_k", 256, 292),
    (16, "iq2_xxs", 256, 66),
    (17, "iq2_xs", 256, 74),
    (18, "iq3_xxs", 256, 98),
    (19, "iq1_s", 256, 50),
    (20, "iq4_nl", 32, 18),
    (21, "iq3_s", 256, 110),
    (22, "iq2_s", 256, 82),
    (23, "iq4_xs", 256, 136),
    (29, "iq1_m", 256, 56),
    // Repacked for one processor; ggml has since dropped them, and files of 2024 hold them.
    (31, "q4_0_4_4", 32, 18),
    (32, "q4_0_4_8", 32, 18),
    (33, "q4_0_8_8", 32, 18),
    (34, "tq1_0", 256, 54),
    (35, "tq2_0", 256, 66),
    (36, "iq4_nl_4_4", 32, 18),
    (37, "iq4_nl_4_8", 32, 18),
    (38, "iq4_nl_8_8", 32, 18),
    (39, "mxfp4", 32, 17),
    (40, "nvfp4", 64, 36),
    (41, "q1_0", 128, 18),
];

/// The type that ggml numbers `number`, or an error that names `tensor`.
pub(crate) fn dtype(number: u32, tensor: &str) -> Result<DType, ErrorKind> {
    Ok(match number {
        0 => DType::F32,
        1 => DType::F16,
        2 => DType::Q4_0,
        3 => DType::Q4_1,
        6 => DType::Q5_0,
        7 => DType::Q5_1,
        8 => DType::Q8_0,
        12 => DType::Q4K,
        13 => DType::Q5K,
        14 => DType::Q6K,
        24 => DType::I8,
        25 => DType::I16,
        26 => DType::I32,
        27 => DType::I64,
        28 => DType::F64,
        30 => DType::BF16,
        _ => {
            let known = OPAQUE.iter().find(|(n, ..)| *n == number);
            let &(_, name, block, block_bytes) = known.ok_or_else(|| {
                ErrorKind::invalid(format!("type of tensor {tensor:?}"), "a ggml type number", number)
            })?;
            DType::Opaque { name, block, block_bytes }
        }
    })
}

/// The bytes of a tensor. ggml quantises row by row, so a row must fill whole blocks.
pub(crate) fn size(dtype: DType, shape: &[usize], elements: usize, tensor: &str) -> Result<u64, ErrorKind> {
    let (block, _) = dtype.block();
    let row = shape.last().copied().unwrap_or(1);
    match dtype.bytes_for(elements) {
        Some(bytes) if row.is_multiple_of(block) => Ok(bytes as u64),
        _ => Err(ErrorKind::invalid(
            format!("shape of tensor {tensor:?}"),
            format!("rows of whole blocks of {block} {dtype} elements"),
            format!("{shape:?}"),
        )),
    }
}

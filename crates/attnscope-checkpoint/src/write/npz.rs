//! NumPy's `.npz`: a zip of `.npy` files, each a short header and an array. Members are stored, not deflated, so
//! that they can be mapped; `rawzip` turns to zip64 where sizes ask for it.

use std::io::Write;

use rawzip::path::ZipFilePath;
use rawzip::{CompressionMethod, ZipArchiveWriter};

use super::{Entry, Out, pour};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind};

/// NumPy's name of a type. It has none for bf16 and the 8-bit floats.
pub(super) fn name(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::F64 => "<f8",
        DType::F32 => "<f4",
        DType::F16 => "<f2",
        DType::I64 => "<i8",
        DType::I32 => "<i4",
        DType::I16 => "<i2",
        DType::I8 => "|i1",
        DType::U64 => "<u8",
        DType::U32 => "<u4",
        DType::U16 => "<u2",
        DType::U8 => "|u1",
        DType::Bool => "|b1",
        _ => return None,
    })
}

pub(super) fn write(out: &mut Out<'_>, entries: &[Entry<'_>]) -> Result<(), Error> {
    let path = out.path;
    let zip_error = |e: rawzip::Error| Error::new(path, ErrorKind::Write(std::io::Error::other(e)));
    let io_error = |e| Error::new(path, ErrorKind::Write(e));
    let mut zip = ZipArchiveWriter::new(&mut out.file);
    for entry in entries {
        let member = member(entry).map_err(|kind| Error::new(path, kind))?;
        let file = zip.new_file(&*member).compression_method(CompressionMethod::STORE);
        let (mut file, config) = file.start().map_err(zip_error)?;
        let mut body = config.wrap(&mut file);
        body.write_all(&header(entry)).map_err(io_error)?;
        pour(entry, path, &mut |bytes| body.write_all(bytes).map_err(io_error))?;
        let (_, sizes) = body.finish().map_err(zip_error)?;
        file.finish(sizes).map_err(zip_error)?;
    }
    zip.finish().map_err(zip_error)?;
    Ok(())
}

/// NumPy's limit before version 2.
const MAX_DIMS: usize = 32;

/// The name in the zip; a tensor whose name is not a clean path would be read back under another name.
fn member(entry: &Entry<'_>) -> Result<String, ErrorKind> {
    let member = format!("{}.npy", entry.name);
    let is_clean = ZipFilePath::from_str(&member).as_str() == member;
    if is_clean && member.len() <= usize::from(u16::MAX) && entry.shape.len() <= MAX_DIMS {
        return Ok(member);
    }
    let what = format!("npz cannot hold a tensor named {:?} of rank {}", entry.name, entry.shape.len());
    Err(ErrorKind::Unsupported { what, help: "choose safetensors or apr".into() })
}

/// Version 1.0 of the `.npy` header: a Python dictionary, padded so that the array begins at a multiple of 64.
fn header(entry: &Entry<'_>) -> Vec<u8> {
    let dims: String = entry.shape.iter().map(|d| format!("{d}, ")).collect();
    let shape = if entry.shape.len() == 1 { dims.trim_end() } else { dims.trim_end_matches(", ") };
    let descr = name(entry.dtype).unwrap_or_default();
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    let total = (10 + text.len() + 1).next_multiple_of(64);
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend(((total - 10) as u16).to_le_bytes());
    header.extend(text.as_bytes());
    header.resize(total - 1, b' ');
    header.push(b'\n');
    header
}

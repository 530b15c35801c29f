//! `.apr`, version 2. The reader has the layout and its constants.

use serde_json::{Map, Value};

use super::{Entry, Out, pour};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind};
use crate::read::apr::{ALIGN, HEADER, MAGIC, MAX_DIMS, MAX_METADATA, MAX_NAME, ROW_MAJOR, number};

const QUANTISED: u16 = 0x20;

pub(super) fn holds(dtype: DType) -> bool {
    number(dtype).is_some()
}

pub(super) fn write(
    out: &mut Out<'_>,
    mut entries: Vec<Entry<'_>>,
    metadata: &Map<String, Value>,
) -> Result<(), Error> {
    entries.sort_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
    let sections = Sections::new(&entries, metadata).map_err(|kind| out.error(kind))?;
    let header = header(&entries, &sections).map_err(|kind| out.error(kind))?;
    let mut out = Summed { out, sum: crc32fast::Hasher::new() };
    out.put(&header)?;
    out.padded(&sections.metadata)?;
    out.padded(&sections.index)?;
    for entry in &entries {
        let path = out.out.path;
        pour(entry, path, &mut |bytes| out.put(bytes))?;
        out.pad()?;
    }
    let sum = out.sum.clone().finalize();
    out.put(&sum.to_le_bytes())
}

/// The part between the header and the data, without padding.
struct Sections {
    metadata: Vec<u8>,
    index: Vec<u8>,
}

impl Sections {
    fn new(entries: &[Entry<'_>], metadata: &Map<String, Value>) -> Result<Self, ErrorKind> {
        let metadata = serde_json::to_vec(metadata).map_err(std::io::Error::from)?;
        if metadata.len() as u64 > MAX_METADATA {
            let (place, found) = ("metadata".into(), metadata.len() as u64);
            return Err(ErrorKind::TooLarge { place, found, cap: MAX_METADATA });
        }
        let (mut index, mut offset) = (Vec::new(), 0u64);
        for entry in entries {
            let size = entry.size()?;
            add_line(&mut index, entry, offset, size)?;
            // Views that repeat their elements may claim any size.
            let end = offset.checked_add(size).and_then(|end| end.checked_next_multiple_of(ALIGN));
            offset = end.ok_or_else(|| ErrorKind::invalid("data", "fewer than 2^64 bytes", "more"))?;
        }
        Ok(Self { metadata, index })
    }
}

fn add_line(index: &mut Vec<u8>, entry: &Entry<'_>, offset: u64, size: u64) -> Result<(), ErrorKind> {
    let name = entry.name.as_bytes();
    if name.len() as u64 > MAX_NAME {
        let (place, found) = (format!("tensor name {:?}", entry.name), name.len() as u64);
        return Err(ErrorKind::TooLarge { place, found, cap: MAX_NAME });
    }
    let (rank, most) = (entry.shape.len(), usize::from(MAX_DIMS));
    let (Some(number), true) = (number(entry.dtype), rank <= most) else {
        let place = format!("tensor {:?}", entry.name);
        return Err(ErrorKind::invalid(place, format!("at most {most} dimensions"), rank));
    };
    index.extend((name.len() as u16).to_le_bytes());
    index.extend(name);
    index.extend([number, rank as u8]);
    entry.shape.iter().for_each(|&dim| index.extend((dim as u64).to_le_bytes()));
    index.extend(offset.to_le_bytes());
    index.extend(size.to_le_bytes());
    Ok(())
}

fn header(entries: &[Entry<'_>], sections: &Sections) -> Result<Vec<u8>, ErrorKind> {
    let count = u32::try_from(entries.len())
        .map_err(|_| ErrorKind::invalid("tensor count", "fewer than 2^32", entries.len()))?;
    let index = HEADER + (sections.metadata.len() as u64).next_multiple_of(ALIGN);
    let data = index + (sections.index.len() as u64).next_multiple_of(ALIGN);
    let quantised = entries.iter().any(|e| !e.dtype.is_plain());
    let flags = ROW_MAJOR | if quantised { QUANTISED } else { 0 };

    let mut header = Vec::with_capacity(HEADER as usize);
    header.extend(MAGIC);
    header.extend([2, 0]);
    header.extend(flags.to_le_bytes());
    header.extend(count.to_le_bytes());
    header.extend(HEADER.to_le_bytes());
    header.extend((sections.metadata.len() as u32).to_le_bytes());
    header.extend(index.to_le_bytes());
    header.extend(data.to_le_bytes());
    // The checksum leaves out its own field; the bytes after it are zero.
    let mut sum = crc32fast::Hasher::new();
    sum.update(&header);
    sum.update(&[0; 20]);
    header.extend(sum.finalize().to_le_bytes());
    header.extend([0; 20]);
    Ok(header)
}

/// The output and the checksum of everything written to it.
struct Summed<'a, 'b> {
    out: &'a mut Out<'b>,
    sum: crc32fast::Hasher,
}

impl Summed<'_, '_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.sum.update(bytes);
        self.out.put(bytes)
    }

    fn padded(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.put(bytes)?;
        self.pad()
    }

    fn pad(&mut self) -> Result<(), Error> {
        let short = self.out.written.next_multiple_of(ALIGN) - self.out.written;
        self.put([0; ALIGN as usize].get(..short as usize).unwrap_or_default())
    }
}

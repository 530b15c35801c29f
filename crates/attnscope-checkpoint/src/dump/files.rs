//! Arrays in files of any format that is read: one file, a folder of them, an archive of such a folder.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{DumpTensor, MAX_TENSORS};
use crate::error::{Error, ErrorKind};
use crate::folder::{inside, list};
use crate::format::Format;
use crate::read::{self, npz, zip};
use crate::source::Source;

/// What files of arrays end in.
const ENDINGS: [&str; 6] = ["npy", "npz", "safetensors", "pt", "pth", "bin"];
/// What a lone tensor is called where nobody has given it a name: safetensors, torch.save, np.savez.
const NAMELESS: [&str; 5] = ["data", "tensor", "arr_0", "array", "value"];
/// Folders within folders.
const MAX_DEPTH: usize = 8;
/// The most that an archive is unpacked to, in bytes.
const MAX_UNPACKED: u64 = 1 << 40;

/// The tensors of one file.
pub(super) fn file(path: &Path, source: &Source) -> Result<Vec<DumpTensor>, Error> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    tensors(path, source, &stem)
}

fn tensors(path: &Path, source: &Source, stem: &str) -> Result<Vec<DumpTensor>, Error> {
    let file: Arc<Path> = path.into();
    let listed = if source.bytes().starts_with(b"\x93NUMPY") {
        npz::array_file(source, stem).map(|info| vec![info])
    } else {
        read::read(source).map(|(_, listing)| listing.tensors)
    };
    let listed = listed.map_err(|kind| source.error(kind))?;
    let lone = listed.len() == 1;
    let named = |info: crate::TensorInfo| {
        let nameless = lone && NAMELESS.contains(&info.name.as_str());
        let name = if nameless { stem.to_owned() } else { info.name.clone() };
        DumpTensor::in_file(name, &file, info)
    };
    Ok(listed.into_iter().map(named).collect())
}

/// The tensors of every file in a folder and in the folders in it. A name that two files have is preceded by the file's.
pub(super) fn folder(path: &Path) -> Result<Vec<DumpTensor>, Error> {
    let mut files = Vec::new();
    walk(path, "", 0, &mut files)?;
    let mut found: Vec<(String, DumpTensor)> = Vec::new();
    let mut times: HashMap<String, usize> = HashMap::new();
    for (file, stem) in files {
        for tensor in tensors(&file, &Source::open(&file)?, &stem)? {
            *times.entry(tensor.name.clone()).or_insert(0) += 1;
            found.push((stem.clone(), tensor));
        }
        if found.len() > MAX_TENSORS {
            break;
        }
    }
    let unique = |(stem, mut tensor): (String, DumpTensor)| {
        if times.get(&tensor.name).is_some_and(|&n| n > 1) {
            tensor.name = format!("{stem}.{}", tensor.name);
        }
        tensor
    };
    Ok(found.into_iter().map(unique).collect())
}

fn is_array_file(name: &str) -> bool {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    ending.is_some_and(|ending| ENDINGS.contains(&ending.as_str()))
}

/// Files of arrays with their paths from the top, without ending, joined with dots.
fn walk(folder: &Path, prefix: &str, depth: usize, files: &mut Vec<(PathBuf, String)>) -> Result<(), Error> {
    for name in list(folder).map_err(|e| Error::new(folder, e))? {
        let path = folder.join(&name);
        // A link may lead round in circles: the depth ends it.
        if path.is_dir() && depth < MAX_DEPTH {
            walk(&path, &format!("{prefix}{name}."), depth + 1, files)?;
        } else if let Some((stem, _)) =
            name.rsplit_once('.').filter(|_| is_array_file(&name) && path.is_file())
        {
            files.push((path, format!("{prefix}{stem}")));
        }
        if files.len() > MAX_TENSORS {
            break;
        }
    }
    Ok(())
}

/// Unpacks a zip archive of files that must be on disk to be read; `None` for anything else, .npz and .pt among it.
pub(super) fn unpack(source: &Source) -> Result<Option<tempfile::TempDir>, Error> {
    let bytes = source.bytes();
    if !bytes.starts_with(b"PK\x03\x04") {
        return Ok(None);
    }
    let entries = zip::entries(bytes).map_err(|kind| source.error(kind))?;
    let plain = |entry: &zip::Entry| entry.name.ends_with(".npy") || !is_array_file(&entry.name);
    if matches!(crate::format::sniff(bytes), Ok(Format::PyTorch)) || entries.iter().all(plain) {
        return Ok(None);
    }
    let failed = |e: std::io::Error| source.error(ErrorKind::Write(e));
    let folder = tempfile::Builder::new().prefix("attnscope-dump-").tempdir().map_err(failed)?;
    let mut left = MAX_UNPACKED;
    for entry in entries {
        if !inside(&entry.name) {
            let kind =
                ErrorKind::invalid(entry.place(), "a path inside the archive", "one that leads out of it");
            return Err(source.error(kind));
        }
        let target = folder.path().join(&entry.name);
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent).map_err(failed)?;
        }
        let unpacked = entry.unpack(source, left).map_err(|kind| source.error(kind))?;
        left = left.saturating_sub(unpacked.len() as u64);
        std::fs::write(&target, unpacked).map_err(failed)?;
    }
    Ok(Some(folder))
}

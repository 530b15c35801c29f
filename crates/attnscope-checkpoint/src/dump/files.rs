//! Arrays in files of any format that is read: one file, a folder of them, an archive of such a folder.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{DumpTensor, MAX_TENSORS};
use crate::error::{Error, ErrorKind};
use crate::folder::{inside, list};
use crate::format::Format;
use crate::read::{self, npz, zip};
use crate::source::Source;
use crate::unfinished::{Purpose, Unfinished};

/// The file name endings of arrays.
const ENDINGS: [&str; 6] = ["npy", "npz", "safetensors", "pt", "pth", "bin"];
/// The names that safetensors, torch.save and np.savez give to a single tensor without a name.
const NAMELESS: [&str; 5] = ["data", "tensor", "arr_0", "array", "value"];
/// How deep folders may be nested.
const MAX_DEPTH: usize = 8;
/// How many times its own size an archive may unpack to. An archive of zeros would reach 1000.
const MAX_RATIO: u64 = 64;
/// Below this many bytes the ratio is not checked.
const SMALL_ARCHIVE: u64 = 1 << 30;

/// The tensors of one file.
pub(super) fn file(path: &Path, source: &Source) -> Result<Vec<DumpTensor>, Error> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    tensors(path, source, &stem)
}

fn tensors(path: &Path, source: &Source, stem: &str) -> Result<Vec<DumpTensor>, Error> {
    let file: Arc<Path> = path.into();
    let listed = if source.start(6).is_ok_and(|start| *start == *b"\x93NUMPY") {
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
    let mut files = Files::default();
    files.walk(path, "", 0)?;
    let mut found: Vec<(String, DumpTensor)> = Vec::new();
    let mut times: HashMap<String, usize> = HashMap::new();
    for (file, stem) in files.found {
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
#[derive(Default)]
struct Files {
    found: Vec<(PathBuf, String)>,
    /// Folders that were visited. Links can lead to one folder by many paths, and in circles.
    seen: HashSet<PathBuf>,
}

impl Files {
    fn walk(&mut self, folder: &Path, prefix: &str, depth: usize) -> Result<(), Error> {
        let at = |e| Error::new(folder, ErrorKind::Io(e));
        if !self.seen.insert(folder.canonicalize().map_err(at)?) {
            return Ok(());
        }
        for name in list(folder).map_err(at)? {
            let path = folder.join(&name);
            if path.is_dir() && depth < MAX_DEPTH {
                self.walk(&path, &format!("{prefix}{name}."), depth + 1)?;
            } else if let Some((stem, _)) =
                name.rsplit_once('.').filter(|_| is_array_file(&name) && path.is_file())
            {
                self.found.push((path, format!("{prefix}{stem}")));
            }
            if self.found.len() > MAX_TENSORS {
                break;
            }
        }
        Ok(())
    }
}

/// Unpacks a zip archive of files that must be on disk to be read; `None` for anything else, .npz and .pt among it.
pub(super) fn unpack(source: &Source) -> Result<Option<Unfinished>, Error> {
    let error = |kind| source.error(kind);
    if *source.start(4).map_err(error)? != *b"PK\x03\x04" {
        return Ok(None);
    }
    let entries = zip::entries(source).map_err(error)?;
    let plain = |entry: &zip::Entry| entry.name.ends_with(".npy") || !is_array_file(&entry.name);
    if matches!(crate::format::sniff(source), Ok(Format::PyTorch)) || entries.iter().all(plain) {
        return Ok(None);
    }
    let wanted: Vec<&zip::Entry> =
        entries.iter().filter(|e| is_array_file(&e.name) || e.name.ends_with(".json")).collect();
    let temporary = std::env::temp_dir();
    // The folder for temporary files is at fault then, not the archive.
    let error = |kind| match kind {
        ErrorKind::Write(e) if is_of_folder(&e) => Error::new(&temporary, not_unpacked(&e)),
        kind => source.error(kind),
    };
    let folder = Unfinished::folder(&temporary, Purpose::Unpacked).map_err(|e| error(ErrorKind::Write(e)))?;
    check_room(source, &wanted, folder.path()).map_err(error)?;
    for entry in wanted {
        unpack_entry(source, entry, &folder).map_err(error)?;
    }
    Ok(Some(folder))
}

/// Whether a file was not written because of the folder that it was to be in, not because of its name.
fn is_of_folder(e: &std::io::Error) -> bool {
    use std::io::ErrorKind as Kind;
    matches!(
        e.kind(),
        Kind::StorageFull
            | Kind::QuotaExceeded
            | Kind::PermissionDenied
            | Kind::ReadOnlyFilesystem
            | Kind::NotFound
    )
}

fn not_unpacked(e: &std::io::Error) -> ErrorKind {
    ErrorKind::Unsupported {
        what: format!("{e}: archives are unpacked there while they are read"),
        help: "set TMPDIR to a folder that you may write to and that has free space, or unpack the archive and give the folder".into(),
    }
}

/// Refuses what would fill the disk, or is packed more tightly than tensors are.
fn check_room(source: &Source, wanted: &[&zip::Entry], folder: &Path) -> Result<(), ErrorKind> {
    let total = wanted.iter().fold(0u64, |sum, entry| sum.saturating_add(entry.size));
    let most = source.len().saturating_mul(MAX_RATIO).max(SMALL_ARCHIVE);
    let (largest, place) = match wanted.iter().max_by_key(|entry| entry.size) {
        Some(entry) => (entry.size, format!("the archive, whose largest is {}", entry.place())),
        None => return Ok(()),
    };
    if total > most {
        return Err(ErrorKind::TooLarge { place, found: total, cap: most });
    }
    let free = crate::disk::free_space(folder).unwrap_or(u64::MAX);
    if total > free {
        let what = format!(
            "the archive unpacks to {total} bytes ({largest} of them in its largest entry), and {} has {free} free",
            folder.parent().unwrap_or(folder).display()
        );
        let help =
            "unpack it on a disk with enough space and give the folder, or set TMPDIR to such a place".into();
        return Err(ErrorKind::Unsupported { what, help });
    }
    Ok(())
}

fn unpack_entry(source: &Source, entry: &zip::Entry, folder: &Unfinished) -> Result<(), ErrorKind> {
    if !inside(&entry.name) {
        let expected = "a path inside the archive";
        return Err(ErrorKind::invalid(entry.place(), expected, "one that leads out of it"));
    }
    let mut file = folder.file_inside(&entry.name).map_err(ErrorKind::Write)?;
    // The size in the directory was checked against the disk; the stream itself may be longer.
    let copied = entry.copy(source, entry.size, &mut file)?;
    if copied != entry.size {
        let expected = format!("{} bytes, as in the directory", entry.size);
        let more = if copied > entry.size { "more" } else { "fewer" };
        return Err(ErrorKind::invalid(entry.place(), expected, more));
    }
    Ok(())
}

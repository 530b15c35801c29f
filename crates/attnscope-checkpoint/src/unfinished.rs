//! Files and folders that are not whole yet. They have hidden names until they are whole, and are listed in one registry, so
//! that a process that is asked to end can remove them first.
//!
//! One lock covers beginning, committing and removing: a signal cannot come between a file's creation and its entry in the
//! registry, nor in the middle of a rename.
//!
//! A process that is killed leaves its part behind. Each part is locked by the process that writes it, and the system releases
//! that lock when the process ends. The next process that writes to the same folder removes parts without a lock.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// The prefix of the names of all parts.
const PREFIX: &str = ".attnscope-";

/// A part this young may belong to a process that has not locked it yet.
const YOUNG: Duration = Duration::from_secs(60);

/// The parts of this process.
static PARTS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// The purpose of a part, which is in its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A file that is written.
    File,
    /// A trace's folder.
    Trace,
    /// An archive that is unpacked for as long as it is read.
    Unpacked,
}

impl Purpose {
    const ALL: [Self; 3] = [Self::File, Self::Trace, Self::Unpacked];

    fn prefix(self) -> String {
        let word = match self {
            Self::File => "file",
            Self::Trace => "trace",
            Self::Unpacked => "unpacked",
        };
        format!("{PREFIX}{word}-")
    }
}

/// A file or folder that is not whole. Dropped before it is committed, it is removed.
#[derive(Debug)]
pub struct Unfinished {
    path: PathBuf,
    /// Locked as long as this process lives.
    handle: Option<File>,
}

impl Unfinished {
    /// A new empty file in a folder, with the permissions of any other new file.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn file(folder: &Path) -> io::Result<Self> {
        Self::begin(folder, Purpose::File, |path| File::options().write(true).create_new(true).open(path))
    }

    /// A new empty folder in a folder. Others may read a trace's folder, as far as the umask allows; other folders are private.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn folder(parent: &Path, purpose: Purpose) -> io::Result<Self> {
        Self::begin(parent, purpose, |path| {
            let mut builder = fs::DirBuilder::new();
            #[cfg(unix)]
            {
                use std::os::unix::fs::DirBuilderExt;
                builder.mode(if purpose == Purpose::Trace { 0o777 } else { 0o700 });
            }
            builder.create(path)?;
            File::open(path).inspect_err(|_| remove(path))
        })
    }

    fn begin(
        folder: &Path,
        purpose: Purpose,
        create: impl Fn(&Path) -> io::Result<File>,
    ) -> io::Result<Self> {
        // Checked first, because an error about the part would mention a name that the user does not know.
        fs::metadata(folder)?;
        remove_abandoned(folder);
        let mut parts = lock();
        for number in 0u32.. {
            let name = format!("{}{}-{number}.part", purpose.prefix(), std::process::id());
            let path = folder.join(name);
            match create(&path) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
                Ok(handle) => {
                    // Not every file system has locks; without a lock, a part that is left behind is never removed.
                    let _ = handle.try_lock();
                    parts.push(path.clone());
                    return Ok(Self { path, handle: Some(handle) });
                }
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Where it is for now.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file, to be written to.
    ///
    /// # Errors
    /// Never before it is committed.
    pub fn handle(&self) -> io::Result<&File> {
        self.handle.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// A new file in an unfinished folder, with the folders that lead to it. Under the lock: a signal that removes the
    /// folder meanwhile would leave behind what is made in it after it was looked through.
    ///
    /// # Errors
    /// The system's.
    pub fn file_inside(&self, name: impl AsRef<Path>) -> io::Result<File> {
        let _parts = lock();
        let path = self.path.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        File::create(path)
    }

    /// Renames it to its final name, and replaces a file of that name.
    ///
    /// # Errors
    /// The system's; then it is removed.
    pub fn commit(mut self, target: &Path) -> io::Result<()> {
        let mut parts = lock();
        if cfg!(windows) {
            // Windows does not rename an open file. Elsewhere the lock is kept until the rename is done.
            self.handle = None;
        }
        fs::rename(&self.path, target)?;
        parts.retain(|part| *part != self.path);
        self.path = PathBuf::new();
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.path.as_os_str().is_empty() {
            return;
        }
        let mut parts = lock();
        self.handle = None;
        remove(&self.path);
        parts.retain(|part| *part != self.path);
    }
}

/// The registry, locked: nothing can be begun or committed for as long as this is held.
#[derive(Debug)]
pub struct Abandoned {
    _parts: Option<MutexGuard<'static, Vec<PathBuf>>>,
}

/// Removes all unfinished parts, for a process that is about to end. The caller keeps the result until then.
pub fn abandon_all() -> Abandoned {
    // A rename takes a moment. A thread that holds the lock for longer is blocked and will not release it.
    for _ in 0..200 {
        let parts = match PARTS.try_lock() {
            Ok(parts) => Some(parts),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        if let Some(mut parts) = parts {
            parts.drain(..).for_each(|part| remove(&part));
            return Abandoned { _parts: Some(parts) };
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Abandoned { _parts: None }
}

fn lock() -> MutexGuard<'static, Vec<PathBuf>> {
    PARTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn remove(part: &Path) {
    // A file or a folder. Errors are ignored: the process ends, and nobody would read them.
    if fs::remove_file(part).is_err() {
        let _ = fs::remove_dir_all(part);
    }
}

/// Removes parts in a folder whose process is gone. What cannot be removed belongs to another user.
fn remove_abandoned(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_part = name.ends_with(".part") && Purpose::ALL.iter().any(|p| name.starts_with(&p.prefix()));
        if is_part && is_abandoned(&entry) {
            remove(&entry.path());
        }
    }
}

fn is_abandoned(entry: &fs::DirEntry) -> bool {
    // The type of the entry itself, not of what it links to. Opening anything but a file or a folder could block for ever.
    let Ok(meta) = entry.metadata() else { return false };
    let old = meta.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > YOUNG));
    // Its process holds the lock for as long as it lives.
    (meta.is_file() || meta.is_dir())
        && old
        && File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::SystemTime;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn what_is_committed_stays_and_what_is_not_goes() {
        let dir = tempfile::tempdir().unwrap();
        let part = Unfinished::file(dir.path()).unwrap();
        part.handle().unwrap().write_all(b"whole").unwrap();
        part.commit(&dir.path().join("out")).unwrap();
        drop(Unfinished::file(dir.path()).unwrap());
        let folder = Unfinished::folder(dir.path(), Purpose::Trace).unwrap();
        fs::write(folder.path().join("inside"), b"x").unwrap();
        drop(folder);
        assert_eq!(names(dir.path()), ["out"]);
        assert_eq!(fs::read(dir.path().join("out")).unwrap(), b"whole");
    }

    /// A folder that is filled while the process is asked to end.
    #[test]
    fn nothing_is_made_in_a_folder_that_is_being_removed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Unfinished::folder(dir.path(), Purpose::Unpacked).unwrap();
        let path = folder.path().to_owned();
        let filling = std::thread::spawn(move || {
            (0..20_000).try_for_each(|i| folder.file_inside(format!("{}/{i}", i % 7)).map(drop))
        });
        while fs::read_dir(path.join("6")).is_err() && !filling.is_finished() {
            std::thread::yield_now();
        }
        // As `abandon_all` does, which would remove the parts of other tests, too.
        let parts = lock();
        remove(&path);
        assert!(!path.exists(), "not empty when it was removed");
        std::thread::sleep(Duration::from_millis(20));
        assert!(!path.exists(), "made again while the process ends");
        drop(parts);
        filling.join().unwrap().unwrap();
    }

    #[test]
    fn a_part_whose_process_is_gone_is_removed_and_one_that_is_held_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let held = Unfinished::file(dir.path()).unwrap();
        let old = SystemTime::now() - 2 * YOUNG;
        held.handle().unwrap().set_modified(old).unwrap();
        for (name, age) in
            [(".attnscope-file-1-0.part", 2), (".attnscope-file-2-0.part", 0), ("mine.part", 2)]
        {
            let file = File::create(dir.path().join(name)).unwrap();
            file.set_modified(SystemTime::now() - age * YOUNG).unwrap();
        }
        let gone = dir.path().join(".attnscope-trace-3-0.part");
        fs::create_dir(&gone).unwrap();
        File::open(&gone).unwrap().set_modified(old).unwrap();
        let next = Unfinished::file(dir.path()).unwrap();
        let mut left = names(dir.path());
        left.sort();
        let own = |part: &Unfinished| part.path().file_name().unwrap().to_string_lossy().into_owned();
        let mut expected =
            vec![own(&held), own(&next), ".attnscope-file-2-0.part".into(), "mine.part".into()];
        expected.sort();
        assert_eq!(left, expected);
    }
}

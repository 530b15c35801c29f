//! PyTorch's zip of a pickle and its storages, TorchScript archives that hold the same, and the files of before
//! version 1.6 that hold them one after the other.

mod facts;
pub(crate) mod legacy;
mod tensor;
mod walk;

use std::collections::HashMap;
use std::rc::Rc;

use crate::error::ErrorKind;
use crate::listing::{Listing, Placeholder};
use crate::read::fields::check_unique;
use crate::read::pickle::{self, Pickle};
use crate::read::zip;
use crate::source::Source;
use tensor::{Archive, Storages};

/// The pickle holds names and shapes, not weights: real ones are kilobytes, a few reach megabytes.
const MAX_PICKLE: u64 = 64 << 20;

/// One that must be inflated costs its bytes in memory; torch itself does not deflate.
const MAX_INFLATED: u64 = 32 << 20;

/// The path shown for a placeholder whose value the pickle built and dropped.
const NOT_KEPT: &str = "(built and dropped)";

/// Lists a PyTorch file of any kind.
pub(crate) fn read(source: &Source) -> Result<Listing, ErrorKind> {
    if legacy::is(&source.start(legacy::MAGIC_PICKLE)?) { legacy::read(source) } else { read_zip(source) }
}

fn read_zip(source: &Source) -> Result<Listing, ErrorKind> {
    let entries = zip::entries(source)?;
    let main = main_pickle(&entries)?;
    let folder = main.name.strip_suffix("data.pkl").unwrap_or_default();
    let by_name: HashMap<&str, &zip::Entry> = entries.iter().map(|e| (e.name.as_str(), e)).collect();
    check_byte_order(source, by_name.get(format!("{folder}byteorder").as_str()).copied())?;

    let cap = if main.method == zip::Method::Stored { MAX_PICKLE } else { MAX_INFLATED };
    let bytes = main.unpack(source, cap)?;
    let pickle = pickle::load(&main.name, &bytes)?;
    listing(&pickle, Storages::of_archive(Archive { source, folder, entries: by_name }))
}

fn listing(pickle: &Pickle<'_>, storages: Storages<'_>) -> Result<Listing, ErrorKind> {
    let found = walk::walk(pickle, storages)?;
    check_unique(&found.tensors)?;
    Ok(Listing {
        tensors: found.tensors,
        configs: facts::configs(pickle),
        placeholders: placeholders(pickle, &found.places),
        ..Listing::default()
    })
}

/// The one `data.pkl`, in the archive's one folder.
fn main_pickle(entries: &[zip::Entry]) -> Result<&zip::Entry, ErrorKind> {
    let mut pickles = entries.iter().filter(|e| is_main_pickle(&e.name));
    match (pickles.next(), pickles.next()) {
        (Some(one), None) => Ok(one),
        (Some(one), Some(two)) => {
            let found = format!("{} and {}", one.place(), two.place());
            Err(ErrorKind::invalid("zip directory", "one data.pkl", found))
        }
        (None, _) => Err(ErrorKind::invalid("zip directory", "a data.pkl", "none")),
    }
}

/// Whether an entry of a zip makes it a PyTorch file.
pub(crate) fn is_main_pickle(name: &str) -> bool {
    name.rsplit('/').next() == Some("data.pkl")
}

/// torch writes the storages in the machine's own order and says which in an entry of the archive.
fn check_byte_order(source: &Source, entry: Option<&zip::Entry>) -> Result<(), ErrorKind> {
    let Some(entry) = entry else { return Ok(()) };
    match entry.unpack(source, 64)?.as_ref() {
        b"little" => Ok(()),
        b"big" => Err(ErrorKind::Unsupported {
            what: "the file was written on a big-endian machine".into(),
            help: "load it in PyTorch on a little-endian machine and torch.save it again".into(),
        }),
        other => {
            let found = format!("{:?}", String::from_utf8_lossy(other));
            Err(ErrorKind::invalid(entry.place(), "\"little\" or \"big\"", found))
        }
    }
}

/// Every unknown global once, with the first place where it stands.
fn placeholders(pickle: &Pickle<'_>, places: &HashMap<Rc<str>, String>) -> Vec<Placeholder> {
    let place = |global: &str| places.get(global).map_or(NOT_KEPT, String::as_str).to_owned();
    pickle
        .unknown
        .iter()
        .map(|(global, &called)| Placeholder { global: global.to_string(), place: place(global), called })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::tensor::{Packing, TensorInfo};

    fn fixture(name: &str) -> (Source, Listing) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/formats/pytorch").join(name);
        let source = Source::open(&path).unwrap();
        let listing = read(&source).unwrap();
        (source, listing)
    }

    fn tensor<'l>(listing: &'l Listing, name: &str) -> &'l TensorInfo {
        listing.tensors.iter().find(|t| t.name == name).unwrap()
    }

    #[test]
    fn places_are_the_bytes_of_the_tensor() {
        let (source, listing) = fixture("mixed.pt");
        let place = |name| &tensor(&listing, name).place;
        let embed = place("model.embed.weight").range.clone();
        assert_eq!(place("model.part").range, embed.start + 16..embed.start + 48);
        assert_eq!(place("model.part").strides, None);
        assert_eq!(place("model.transposed").strides, Some(vec![1, 4]));
        assert_eq!(place("model.column").strides, Some(vec![4]));
        assert_eq!(place("model.expanded").strides, Some(vec![0, 1]));
        // The column of 0..12 in rows of four begins with 1 and ends with 9.
        let column = source.read(place("model.column").range.clone(), "column").unwrap();
        assert_eq!(
            (&column[..4], &column[column.len() - 4..]),
            (&1f32.to_le_bytes()[..], &9f32.to_le_bytes()[..])
        );
    }

    #[test]
    fn a_deflated_storage_is_read_from_the_offset() {
        let (_, listing) = fixture("deflated.pt");
        let (part, whole) = (tensor(&listing, "model.part"), tensor(&listing, "model.embed.weight"));
        assert_eq!(part.place.range, whole.place.range);
        assert_eq!(part.place.packing, Packing::Deflated { skip: 16, len: 32 });
    }

    #[test]
    fn objects_of_omegaconf_are_their_values() {
        // What a DictConfig of one value looks like, with a parent that points back.
        let pickle =
            b"(dS'cfg'\ncomegaconf\nDictConfig\n(tRp0\n(dS'_content'\n(dS'layers'\ncomegaconf\nAnyNode\n(tR\
            (dS'_val'\nI6\nsS'_parent'\ng0\nsbssbs.";
        let pickle = pickle::load("data.pkl", pickle).unwrap();
        let configs = facts::configs(&pickle);
        assert_eq!(configs[0].source, "cfg");
        assert_eq!(configs[0].facts["layers"], 6);
    }
}

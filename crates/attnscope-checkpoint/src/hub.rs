//! Names on the Hugging Face hub that were given instead of a path: where a copy may be, and how to fetch one.

use std::path::{Component, Path, PathBuf};

use crate::error::{Error, ErrorKind};

/// The name on the hub that a path looks like: `owner/model`, where there is no folder `owner`.
pub(crate) fn name(path: &Path) -> Option<String> {
    let parts: Vec<&str> = path
        .components()
        .map(|part| match part {
            Component::Normal(part) => part.to_str(),
            _ => None,
        })
        .collect::<Option<_>>()?;
    let [owner, model] = parts[..] else { return None };
    let plain = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    let named = plain(owner) && plain(model) && !Path::new(owner).exists();
    named.then(|| format!("{owner}/{model}"))
}

/// The error for a name that was given instead of a path.
pub(crate) fn no_path(path: &Path, name: &str) -> Error {
    let what =
        "expected a file or a folder, found no such path; it looks like a name on the Hugging Face hub, and \
                attnscope fetches nothing"
            .to_owned();
    let help = match cached(name) {
        Some(folder) => format!("it is in your cache: give {}", folder.display()),
        None => {
            let folder = name.rsplit('/').next().unwrap_or(name);
            format!("fetch it with `hf download {name} --local-dir {folder}`, then give the folder {folder}")
        }
    };
    Error::new(path, ErrorKind::Unsupported { what, help })
}

/// The newest copy in the cache of Hugging Face's own tools.
fn cached(name: &str) -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let hub = variable("HF_HUB_CACHE")
        .or_else(|| variable("HF_HOME").map(|home| home.join("hub")))
        .or_else(|| variable("HOME").map(|home| home.join(".cache/huggingface/hub")))?;
    let snapshots = hub.join(format!("models--{}", name.replace('/', "--"))).join("snapshots");
    let folders = std::fs::read_dir(snapshots).ok()?.filter_map(Result::ok);
    let dated = folders.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())));
    dated.max().map(|(_, path)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_name_on_the_hub() {
        assert_eq!(
            name(Path::new("Helsinki-NLP/opus-mt-en-de")).as_deref(),
            Some("Helsinki-NLP/opus-mt-en-de")
        );
        for path in
            ["opus-mt-en-de", "/models/opus-mt", "../models/opus", "a/b/c", "src/lib.rs", "a b/c", "./a/b"]
        {
            assert_eq!(name(Path::new(path)), None, "{path}");
        }
    }
}

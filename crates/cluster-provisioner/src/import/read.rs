//! Reads the directories of the older scripts.

use super::Directory;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A file that cannot be read, or none at all.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file that cannot be read.
    #[error("cannot read {path}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Nothing that looks like a cluster.
    #[error("found neither clusterctl.yaml in {path} or a folder in it nor clusterctl-*.yaml")]
    Nothing {
        /// Where.
        path: PathBuf,
    },
}

fn text(path: &Path) -> Result<String, ReadError> {
    fs::read_to_string(path).map_err(|source| ReadError::File { path: path.to_owned(), source })
}

fn optional(path: &Path) -> Result<Option<String>, ReadError> {
    if path.is_file() { text(path).map(Some) } else { Ok(None) }
}

fn entries(path: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let failed = |source| ReadError::File { path: path.to_owned(), source };
    let entries = fs::read_dir(path).map_err(failed)?;
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.map_err(failed)?.path());
    }
    paths.sort();
    Ok(paths)
}

fn folder(path: &Path) -> Result<BTreeMap<String, String>, ReadError> {
    let mut files = BTreeMap::new();
    if path.is_dir() {
        for file in entries(path)?.into_iter().filter(|file| file.is_file()) {
            files.insert(name(&file), text(&file)?);
        }
    }
    Ok(files)
}

fn name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The clusters of a directory: its own, those of its folders, and those of the oldest layout, which had one file for
/// each cluster.
///
/// # Errors
///
/// When a file cannot be read, or there is no cluster.
pub fn directories(path: &Path) -> Result<Vec<Directory>, ReadError> {
    let mut found = Vec::new();
    if path.join("clusterctl.yaml").is_file() {
        let path = path.canonicalize().map_err(|source| ReadError::File { path: path.to_owned(), source })?;
        found.push(directory(&path)?);
    } else if path.is_dir() {
        for entry in entries(path)? {
            let file = name(&entry);
            let old = file.strip_prefix("clusterctl-").and_then(|rest| rest.strip_suffix(".yaml"));
            if let Some(cluster) = old.filter(|_| entry.is_file()) {
                let settings = text(&entry)?;
                found.push(Directory { name: cluster.to_owned(), settings, ..Directory::default() });
            } else if entry.join("clusterctl.yaml").is_file() && file != "cluster-defaults" {
                found.push(directory(&entry)?);
            }
        }
    } else {
        found.push(Directory { name: "cluster".to_owned(), settings: text(path)?, ..Directory::default() });
    }
    if found.is_empty() {
        return Err(ReadError::Nothing { path: path.to_owned() });
    }
    Ok(found)
}

fn directory(path: &Path) -> Result<Directory, ReadError> {
    Ok(Directory {
        name: name(path),
        settings: text(&path.join("clusterctl.yaml"))?,
        harbor: optional(&path.join("harbor-settings"))?,
        cloud_conf: optional(&path.join("cloud.conf"))?,
        has_template: path.join("cluster-template.yaml").is_file(),
        registries: folder(&path.join("containerd/hosts"))?,
        certificates: folder(&path.join("containerd/certs"))?,
        ingress: optional(&path.join("deployed-manifests.d/nginx-ingress.yaml"))?,
    })
}

//! Images of the test ground: `multicluster-<name>:<tag>` is the local program `target/<profile>/<name>`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// Where the local programs are.
#[derive(Debug, Clone)]
pub struct Images {
    folder: PathBuf,
}

/// A program that stands for an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The file on this machine.
    pub file: PathBuf,
    /// Where the image has it.
    pub entry: String,
}

impl Images {
    /// The programs that were built with the same profile as this one.
    ///
    /// # Errors
    /// When this program's own file cannot be found.
    pub fn beside_this_program() -> Result<Self> {
        let own = std::env::current_exe().context("cannot find this program's own file")?;
        let folder = own.parent().context("this program lies in no folder")?;
        let folder = if folder.ends_with("deps") { folder.parent().unwrap_or(folder) } else { folder };
        Ok(Self { folder: folder.to_path_buf() })
    }

    /// The profile of these programs, as `cargo build --profile` wants it.
    #[must_use]
    pub fn profile(&self) -> String {
        let name = self.folder.file_name().unwrap_or_default().to_string_lossy();
        if name == "debug" { "dev".into() } else { name.into_owned() }
    }

    /// The file of a program that runs on a person's machine and in no image.
    ///
    /// # Errors
    /// When it was not built.
    pub fn program(&self, name: &str) -> Result<PathBuf> {
        let file = self.folder.join(name);
        if !file.is_file() {
            bail!("{} is not built", file.display());
        }
        Ok(file)
    }

    /// Finds the program of an image, whatever its registry, tag and digest.
    ///
    /// # Errors
    /// When the image is not one of ours or was not built.
    pub fn find(&self, image: &str) -> Result<Image> {
        let Some(name) = program(image) else {
            bail!("image {image} is not called multicluster-<name>, and the test ground pulls none");
        };
        let file = self.folder.join(name);
        if !Path::is_file(&file) {
            bail!("image {image} needs {}, which is not built", file.display());
        }
        Ok(Image { file, entry: format!("/usr/local/bin/multicluster-{name}") })
    }
}

fn program(image: &str) -> Option<&str> {
    let (image, _digest) = image.split_once('@').unwrap_or((image, ""));
    let last = image.rsplit('/').next()?;
    let (name, _tag) = last.split_once(':').unwrap_or((last, ""));
    name.strip_prefix("multicluster-").filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::program;

    #[test]
    fn an_image_is_named_after_its_program() {
        assert_eq!(program("multicluster-webhook:0.1.0"), Some("webhook"));
        assert_eq!(
            program("registry.example:5000/a/multicluster-virtual-kubelet@sha256:00"),
            Some("virtual-kubelet")
        );
        assert_eq!(program("multicluster-webhook"), Some("webhook"));
    }

    #[test]
    fn other_images_have_no_program() {
        assert_eq!(program("nginx:1"), None);
        assert_eq!(program("registry.example/multicluster-/nginx"), None);
        assert_eq!(program("multicluster-:1"), None);
    }
}

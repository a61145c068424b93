//! The control plane's programs: built once from their Go modules, then taken from a cache.

use std::io::IsTerminal as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};

use crate::tools::find;

const PROGRAMS: [&str; 10] = [
    "etcd",
    "helm",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
    "kwok",
    "metrics-server",
    "referee",
    "streams",
];

const MANIFESTS: &str = "testing-manifests-2";
/// What stands for placeholders of the manifests.
const IMAGES: [(&str, &str); 2] = [
    ("{{.AgnhostImage}}", "registry.k8s.io/e2e-test-images/agnhost:2.59"),
    ("{{.BusyBoxImage}}", "registry.k8s.io/e2e-test-images/busybox:1.37.0-1"),
];

/// Which of them.
const PARTS: [&str; 7] = [
    "guestbook",
    "kubectl",
    "statefulset/cassandra",
    "statefulset/cockroachdb",
    "statefulset/etcd",
    "statefulset/mysql-upgrade",
    "statefulset/zookeeper",
];

/// The release that `go.mod` builds; without these flags the API server says that it is v0.0.0.
const LINKER_FLAGS: &str = "-s -w \
    -X k8s.io/component-base/version.gitVersion=v1.37.2 \
    -X k8s.io/component-base/version.gitMajor=1 \
    -X k8s.io/component-base/version.gitMinor=37 \
    -X k8s.io/component-base/version.gitTreeState=clean";

/// The folder that has one program per name.
#[derive(Debug, Clone)]
pub struct Binaries {
    folder: PathBuf,
}

impl Binaries {
    /// Finds the programs in the cache, or builds them, which takes some ten minutes on two cores.
    ///
    /// # Errors
    /// One line when Go is missing; else what the build said.
    pub fn ensure() -> Result<Self> {
        let module = module();
        let folder = cache()?.join(format!("controlplane-{}", fingerprint(&module)?));
        if !folder.join("controlplane").is_file() {
            build(&module, &folder)?;
        }
        if !folder.join(MANIFESTS).is_dir() {
            manifests(&module, &folder)?;
        }
        for program in PROGRAMS {
            let link = folder.join(program);
            if !link.is_symlink() {
                // Another run may have made it in the meantime.
                drop(symlink("controlplane", &link));
            }
            if !link.exists() {
                bail!("cannot make {}", link.display());
            }
        }
        Ok(Self { folder })
    }

    /// A manifest of the public workloads that the release's own tests use, such as `guestbook/frontend-service.yaml`,
    /// with images for its placeholders.
    ///
    /// # Errors
    /// When there is none.
    pub fn manifest(&self, path: &str) -> Result<String> {
        let file = self.folder.join(MANIFESTS).join(path);
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        Ok(IMAGES.iter().fold(text, |text, (placeholder, image)| text.replace(placeholder, image)))
    }

    /// The path of one program, such as `kube-apiserver`.
    #[must_use]
    pub fn path(&self, program: &str) -> PathBuf {
        self.folder.join(program)
    }
}

/// Copies the workloads out of the Go module, so that a run needs Go for the first build only.
fn manifests(module: &Path, folder: &Path) -> Result<()> {
    let output = Command::new(find("go")?)
        .current_dir(module)
        .args(["list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"])
        .stdin(Stdio::null())
        .output()
        .context("cannot start go")?;
    let source = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let source = Path::new(&source).join("test/e2e/testing-manifests");
    let unfinished = folder.join(format!("{MANIFESTS}.{}", std::process::id()));
    for part in PARTS {
        let (from, to) = (source.join(part), unfinished.join(part));
        std::fs::create_dir_all(&to).with_context(|| format!("cannot make {}", to.display()))?;
        let entries = std::fs::read_dir(&from).with_context(|| format!("cannot read {}", from.display()))?;
        for file in entries.filter_map(Result::ok).map(|entry| entry.path()).filter(|path| path.is_file()) {
            let text = std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
            let to = to.join(file.file_name().unwrap_or_default());
            std::fs::write(&to, text).with_context(|| format!("cannot write {}", to.display()))?;
        }
    }
    // Another run may have been faster.
    drop(std::fs::rename(&unfinished, folder.join(MANIFESTS)));
    Ok(())
}

fn module() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("controlplane")
}

fn cache() -> Result<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))
        .context("neither XDG_CACHE_HOME nor HOME is set: no place for the built control plane")?;
    Ok(base.join("multicluster-scheduler"))
}

/// The first 16 hexadecimal digits of a hash over the module's files and the flags.
fn fingerprint(module: &Path) -> Result<String> {
    let mut hash = Sha256::new();
    hash.update(LINKER_FLAGS);
    let mut files = Vec::new();
    list(module, &mut files)?;
    files.sort();
    for file in files {
        hash.update(file.strip_prefix(module).unwrap_or(&file).as_os_str().as_encoded_bytes());
        hash.update(std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?);
    }
    Ok(hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
}

/// Adds the files below a folder that make a Go program.
fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry.with_context(|| format!("cannot read {}", folder.display()))?.path();
        let test = path.to_string_lossy().ends_with("_test.go");
        if path.is_dir() {
            list(&path, files)?;
        } else if path.extension().is_some_and(|end| ["go", "mod", "sum"].iter().any(|known| end == *known))
            && !test
        {
            files.push(path);
        }
    }
    Ok(())
}

fn build(module: &Path, folder: &Path) -> Result<()> {
    let go = find("go")?;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let unfinished = folder.join(format!("controlplane.{}", std::process::id()));
    eprintln!("building the control plane from Go modules, once: about ten minutes on two cores");
    let mut build = Command::new(go)
        .current_dir(module)
        .args(["build", "-trimpath", "-ldflags", LINKER_FLAGS, "-o"])
        .arg(&unfinished)
        .arg(".")
        .stdin(Stdio::null())
        .spawn()
        .context("cannot start go")?;
    let start = Instant::now();
    let every = Duration::from_secs(if std::io::stderr().is_terminal() { 5 } else { 30 });
    let mut said = start;
    let status = loop {
        if let Some(status) = build.try_wait().context("cannot wait for go")? {
            break status;
        }
        if said.elapsed() >= every {
            said = Instant::now();
            eprintln!("  still building the control plane, {} s", start.elapsed().as_secs());
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    if !status.success() {
        bail!("go build of {} failed with {status}", module.display());
    }
    std::fs::rename(&unfinished, folder.join("controlplane")).context("cannot keep the built control plane")
}

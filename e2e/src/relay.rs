//! A way from an ordinary shell to the API servers of a run, whose network has no way out.
//!
//! The file system is shared where the network is not: inside, a Unix socket per cluster leads to its API
//! server; outside, a port on 127.0.0.1 leads to the socket, because kubectl speaks to no Unix sockets.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::process::Command;

use crate::cluster::Cluster;
use crate::controlplane::API_PORT;

const DOOR: &str = "MULTICLUSTER_E2E_DOOR";

/// The outside of the relay: a folder with a socket and a kubeconfig per cluster.
#[derive(Debug)]
pub struct Door {
    folder: PathBuf,
    clusters: Vec<String>,
}

impl Door {
    /// A door for these clusters, in a new folder below the machine's folder for temporary files.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn new(clusters: &[String]) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("multicluster-playground-{}", std::process::id()));
        let private = std::fs::DirBuilder::new().mode(0o700).create(&folder);
        private.with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self { folder, clusters: clusters.to_vec() })
    }

    /// Listens on one port of 127.0.0.1 per cluster and tells the program inside about it.
    pub(crate) async fn open(&self, inside: &mut Command) -> Result<()> {
        let mut doors = vec![self.folder.display().to_string()];
        for cluster in &self.clusters {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("cannot listen on 127.0.0.1")?;
            doors.push(format!("{cluster}={}", listener.local_addr().context("no port")?.port()));
            let socket = socket(&self.folder, cluster);
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(join(stream, UnixStream::connect(socket.clone())));
                }
            });
        }
        inside.env(DOOR, doors.join("\n"));
        Ok(())
    }

    pub(crate) fn close(&self) {
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

/// The inside of the relay.
#[derive(Debug)]
pub struct Inside {
    folder: PathBuf,
    ports: Vec<(String, u16)>,
}

impl Inside {
    /// The door that the outer process opened, if it did.
    #[must_use]
    pub fn find() -> Option<Self> {
        let value = std::env::var_os(DOOR)?.to_string_lossy().into_owned();
        let mut lines = value.lines();
        let folder = PathBuf::from(lines.next()?);
        let ports = lines.filter_map(|line| {
            let (cluster, port) = line.split_once('=')?;
            Some((cluster.to_owned(), port.parse().ok()?))
        });
        Some(Self { folder, ports: ports.collect() })
    }

    /// Leads the door of a cluster to its API server, and returns the kubeconfig file that works outside.
    ///
    /// # Errors
    /// When the socket or the file cannot be made.
    pub fn serve(&self, cluster: &Cluster) -> Result<PathBuf> {
        let (_, port) = self
            .ports
            .iter()
            .find(|(name, _)| *name == cluster.name)
            .with_context(|| format!("no door for {}", cluster.name))?;
        let listener = UnixListener::bind(socket(&self.folder, &cluster.name)).context("cannot listen")?;
        let address = (cluster.local()?.network.api(), API_PORT);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(join(stream, TcpStream::connect(address)));
            }
        });
        let inside = std::fs::read_to_string(&cluster.kubeconfig).context("cannot read a kubeconfig")?;
        let outside = inside.replace(&cluster.server, &format!("https://127.0.0.1:{port}"));
        let file = self.folder.join(format!("{}.kubeconfig", cluster.name));
        std::fs::write(&file, outside).context("cannot write a kubeconfig")?;
        Ok(file)
    }
}

fn socket(folder: &Path, cluster: &str) -> PathBuf {
    folder.join(format!("{cluster}.sock"))
}

async fn join<T>(
    mut one: impl AsyncRead + AsyncWrite + Unpin,
    other: impl Future<Output = std::io::Result<T>>,
) where
    T: AsyncRead + AsyncWrite + Unpin,
{
    if let Ok(mut other) = other.await {
        // A broken connection is the business of its two ends.
        drop(copy_bidirectional(&mut one, &mut other).await);
    }
}

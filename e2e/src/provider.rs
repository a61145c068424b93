//! Where clusters come from: this run, or the kubeconfig files of `MULTICLUSTER_E2E_KUBECONFIGS`.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::controlplane::Options;
use crate::ground::Ground;

/// Where the clusters of a run come from.
#[derive(Debug, Clone)]
pub enum Provider {
    /// The run starts control planes of its own.
    Local(Options),
    /// The clusters are there already: their names and kubeconfig files.
    Kubeconfigs(Vec<(String, PathBuf)>),
}

impl Provider {
    /// Reads `MULTICLUSTER_E2E_KUBECONFIGS`, as in `source=/a/config,target-1=/b/config`; local when unset.
    ///
    /// # Errors
    /// When the variable is not of that form.
    pub fn from_environment(options: Options) -> Result<Self> {
        let Some(value) = std::env::var_os("MULTICLUSTER_E2E_KUBECONFIGS") else {
            return Ok(Self::Local(options));
        };
        let value = value.to_string_lossy().into_owned();
        let pairs = value.split(',').map(|pair| {
            let (name, file) = pair.split_once('=').with_context(|| format!("{pair} is not name=file"))?;
            Ok((name.to_owned(), PathBuf::from(file)))
        });
        Ok(Self::Kubeconfigs(pairs.collect::<Result<_>>()?))
    }

    /// Whether the run starts the clusters itself.
    #[must_use]
    pub fn is_local(&self) -> bool {
        matches!(self, Self::Local(_))
    }

    /// Brings the clusters up, or finds them.
    ///
    /// # Errors
    /// When one does not come up or does not answer.
    pub async fn provide(&self, names: &[&str]) -> Result<Ground> {
        match self {
            Self::Local(options) => Ground::start(names, options.clone()).await,
            Self::Kubeconfigs(files) => Ground::adopt(files).await,
        }
    }
}

pub(crate) fn decode(data: &str) -> Result<String> {
    let bytes = STANDARD.decode(data.trim()).context("not base64")?;
    String::from_utf8(bytes).context("not text")
}

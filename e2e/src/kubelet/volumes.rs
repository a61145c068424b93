//! The volumes of a pod, as folders that are bound into its containers.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{
    DownwardAPIVolumeFile, KeyToPath, Pod, ProjectedVolumeSource, ServiceAccount,
    ServiceAccountTokenProjection, Volume,
};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::Host;
use super::env::{Data, Fields, Objects};

/// Why a container cannot start.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Something may still appear.
    NotYet(String),
    /// The test ground does not know what was asked for.
    Never(String),
}

/// How often volumes are filled again; a kubelet needs about a minute.
pub(super) const REFRESH: Duration = Duration::from_secs(5);

/// The volumes of one pod.
pub(super) struct Volumes<'a> {
    pub(super) host: &'a Host,
    pub(super) pod: &'a Pod,
    pub(super) address: std::net::Ipv4Addr,
    /// The folder that has one folder per volume.
    pub(super) folder: PathBuf,
}

impl Volumes<'_> {
    /// Fills all volumes, or fills them again with what changed.
    pub(super) async fn fill(&self) -> Result<(), Trouble> {
        let volumes = self.pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
        for volume in volumes.into_iter().flatten() {
            let folder = self.folder.join(&volume.name);
            make(&folder).map_err(|error| Trouble::NotYet(error.to_string()))?;
            if volume.empty_dir.is_some() {
                continue;
            }
            for (path, file) in self.content(volume, &folder).await? {
                write(&folder.join(path), &file).map_err(|error| Trouble::NotYet(error.to_string()))?;
            }
        }
        Ok(())
    }

    async fn content(&self, volume: &Volume, folder: &Path) -> Result<Data, Trouble> {
        let objects = self.objects();
        if let Some(source) = &volume.config_map {
            return pick(objects.config_map(&source.name, source.optional).await?, source.items.as_deref());
        }
        if let Some(source) = &volume.secret {
            let name = source.secret_name.clone().unwrap_or_default();
            return pick(objects.secret(&name, source.optional).await?, source.items.as_deref());
        }
        if let Some(source) = &volume.downward_api {
            return self.downward(source.items.as_deref());
        }
        if let Some(source) = &volume.projected {
            return self.projected(source, folder).await;
        }
        Err(Trouble::Never(format!("the kind of volume {}", volume.name)))
    }

    fn objects(&self) -> Objects<'_> {
        Objects { host: self.host, namespace: self.pod.namespace().unwrap_or_default() }
    }

    async fn projected(&self, volume: &ProjectedVolumeSource, folder: &Path) -> Result<Data, Trouble> {
        let objects = self.objects();
        let mut all = Data::new();
        for source in volume.sources.iter().flatten() {
            let files = if let Some(source) = &source.config_map {
                pick(objects.config_map(&source.name, source.optional).await?, source.items.as_deref())?
            } else if let Some(source) = &source.secret {
                pick(objects.secret(&source.name, source.optional).await?, source.items.as_deref())?
            } else if let Some(source) = &source.downward_api {
                self.downward(source.items.as_deref())?
            } else if let Some(source) = &source.service_account_token {
                self.token(source, folder).await?
            } else {
                return Err(Trouble::Never("the kind of a projected volume's source".into()));
            };
            all.extend(files);
        }
        Ok(all)
    }

    fn downward(&self, items: Option<&[DownwardAPIVolumeFile]>) -> Result<Data, Trouble> {
        let fields = Fields { pod: self.pod, address: self.address, host: self.host.address() };
        let mut files = Data::new();
        for item in items.unwrap_or_default() {
            let Some(field) = &item.field_ref else {
                return Err(Trouble::Never("resourceFieldRef in a downwardAPI volume".into()));
            };
            files.insert(item.path.clone(), fields.value(&field.field_path)?.into_bytes());
        }
        Ok(files)
    }

    /// A token that is bound to this pod, asked for again when four fifths of its time are over.
    async fn token(&self, source: &ServiceAccountTokenProjection, folder: &Path) -> Result<Data, Trouble> {
        let marker = folder.with_extension(format!("{}.renew-at", source.path.replace('/', "-")));
        let due = std::fs::read_to_string(&marker).ok().and_then(|text| text.parse::<i64>().ok());
        let now = Timestamp::now().as_second();
        if due.is_some_and(|due| now < due) {
            return Ok(Data::new());
        }
        let spec = self.pod.spec.as_ref();
        let account = spec.and_then(|spec| spec.service_account_name.clone());
        let account = account.unwrap_or_else(|| "default".into());
        let seconds = source.expiration_seconds.unwrap_or(3600);
        let request = json!({"spec": {
            "audiences": source.audience.iter().collect::<Vec<_>>(),
            "expirationSeconds": seconds,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": self.pod.name_any(),
                "uid": self.pod.uid()},
        }});
        let not_yet = |error: String| Trouble::NotYet(format!("token of {account}: {error}"));
        let request: TokenRequest =
            serde_json::from_value(request).map_err(|error| not_yet(error.to_string()))?;
        let accounts: Api<ServiceAccount> =
            Api::namespaced(self.host.client.clone(), &self.pod.namespace().unwrap_or_default());
        let answer = accounts.create_token_request(&account, &PostParams::default(), &request).await;
        let status = answer.map_err(|error| not_yet(error.to_string()))?.status;
        let token = status.and_then(|status| status.token).ok_or_else(|| not_yet("no token".into()))?;
        let due = now.saturating_add(seconds.saturating_mul(4) / 5);
        std::fs::write(&marker, due.to_string()).map_err(|error| not_yet(error.to_string()))?;
        Ok(BTreeMap::from([(source.path.clone(), token.into_bytes())]))
    }
}

/// The keys of an object that a volume shows: all, or those of `items` under their paths.
fn pick(mut data: Data, items: Option<&[KeyToPath]>) -> Result<Data, Trouble> {
    let Some(items) = items.filter(|items| !items.is_empty()) else { return Ok(data) };
    let mut picked = Data::new();
    for item in items {
        let value = data.remove(&item.key).ok_or_else(|| Trouble::NotYet(format!("no key {}", item.key)))?;
        picked.insert(item.path.clone(), value);
    }
    Ok(picked)
}

fn make(folder: &Path) -> std::io::Result<()> {
    if !folder.is_dir() {
        std::fs::create_dir_all(folder)?;
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777))?;
    }
    Ok(())
}

/// Writes a file in one step, so that nobody reads half of it, and only when it changed.
fn write(file: &Path, content: &[u8]) -> std::io::Result<()> {
    if std::fs::read(file).is_ok_and(|old| old == content) {
        return Ok(());
    }
    if let Some(parent) = file.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let unfinished = file.with_extension("unfinished");
    std::fs::write(&unfinished, content)?;
    std::fs::set_permissions(&unfinished, std::fs::Permissions::from_mode(0o644))?;
    std::fs::rename(unfinished, file)
}

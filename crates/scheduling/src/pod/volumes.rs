use std::borrow::Cow;

use crate::field::{Field, FieldError};
use crate::pod::{PodInfo, PodSpec};
use crate::volumes::InlineDisk;

/// A volume of a pod that scheduling looks at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PodVolume {
    /// A PersistentVolumeClaim of the pod's namespace, by name, and what the pod calls the volume.
    Claim { volume: String, claim: String },
    /// A volume with a claim of its own, which is called after the pod and this volume.
    Ephemeral { volume: String },
    /// A CSI driver that the pod names itself.
    Csi { driver: String },
    /// A disk that the pod names itself.
    Disk { volume: String, disk: InlineDisk },
}

impl PodVolume {
    pub(super) fn parse_all(spec: &Field<'_>) -> Result<Vec<Self>, FieldError> {
        let mut volumes = Vec::new();
        for volume in spec.get("volumes").items()? {
            volumes.extend(Self::parse(&volume)?);
        }
        Ok(volumes)
    }

    fn parse(volume: &Field<'_>) -> Result<Option<Self>, FieldError> {
        let name = || volume.get("name").text().map(|name| name.unwrap_or_default().to_owned());
        let claim = volume.get("persistentVolumeClaim");
        if claim.present() {
            let claim = claim.get("claimName").text()?.unwrap_or_default().to_owned();
            return Ok(Some(Self::Claim { volume: name()?, claim }));
        }
        if volume.get("ephemeral").present() {
            return Ok(Some(Self::Ephemeral { volume: name()? }));
        }
        let csi = volume.get("csi");
        if csi.present() {
            let driver = csi.get("driver").text()?.unwrap_or_default();
            return Ok(Some(Self::Csi { driver: driver.to_owned() }));
        }
        let disk = InlineDisk::parse(volume)?;
        disk.map(|disk| Ok(Self::Disk { volume: name()?, disk })).transpose()
    }

    /// The name of the claim behind this volume of `pod`.
    pub fn claim_name(&self, pod: &PodInfo) -> Option<Cow<'_, str>> {
        match self {
            Self::Claim { claim, .. } => Some(Cow::Borrowed(claim)),
            Self::Ephemeral { volume } => Some(Cow::Owned(format!("{}-{volume}", pod.name))),
            Self::Csi { .. } | Self::Disk { .. } => None,
        }
    }

    /// What a scheduler says that places no pods with storage, as between clusters.
    fn refusal(&self) -> Option<String> {
        let (plural, name) = match self {
            Self::Claim { volume, .. } => ("PersistentVolumeClaims", volume),
            Self::Ephemeral { volume } => ("ephemeral volumes", volume),
            Self::Disk { volume, disk } => (disk.plural()?, volume),
            Self::Csi { .. } => return None,
        };
        Some(format!("{plural} are not supported yet (volume {name:?})"))
    }
}

impl PodSpec {
    /// Names of the claims that its manifest names, in its order.
    pub fn claims(&self) -> impl Iterator<Item = &str> {
        self.volumes.iter().filter_map(|volume| match volume {
            PodVolume::Claim { claim, .. } => Some(claim.as_str()),
            PodVolume::Ephemeral { .. } | PodVolume::Csi { .. } | PodVolume::Disk { .. } => None,
        })
    }

    /// Why a scheduler that does not know the cluster's storage must not place the pod, each as a sentence for
    /// the user; empty if storage has no say.
    pub fn storage_refusals(&self) -> Vec<String> {
        self.volumes.iter().filter_map(PodVolume::refusal).collect()
    }
}

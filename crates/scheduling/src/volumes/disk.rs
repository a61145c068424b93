use crate::field::{Field, FieldError};
use crate::volumes::migration::{self, Plugin};

/// A disk that a pod names itself, without a claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum InlineDisk {
    Gce {
        name: String,
        read_only: bool,
        handle: Result<String, String>,
    },
    Ebs {
        id: String,
        handle: Result<String, String>,
    },
    Iscsi {
        iqn: String,
        read_only: bool,
    },
    Rbd {
        monitors: Vec<String>,
        pool: String,
        image: String,
        read_only: bool,
    },
    /// Another kind that Kubernetes once served itself.
    Other {
        plugin: Plugin,
        handle: Result<String, String>,
    },
}

impl InlineDisk {
    pub(crate) fn parse(volume: &Field<'_>) -> Result<Option<Self>, FieldError> {
        let text = |source: &Field<'_>, key: &str| {
            source.get(key).text().map(|text| text.unwrap_or_default().to_owned())
        };
        if let Some(plugin) = Plugin::of_volume(volume) {
            let source = volume.get(plugin.field());
            let handle = migration::inline_handle(plugin, volume)?;
            return Ok(Some(match plugin {
                Plugin::GcePersistentDisk => Self::Gce {
                    name: text(&source, "pdName")?,
                    read_only: source.get("readOnly").flag()?,
                    handle,
                },
                Plugin::AwsElasticBlockStore => Self::Ebs { id: text(&source, "volumeID")?, handle },
                Plugin::AzureDisk
                | Plugin::AzureFile
                | Plugin::Cinder
                | Plugin::Vsphere
                | Plugin::Portworx => Self::Other { plugin, handle },
            }));
        }
        let source = volume.get("iscsi");
        if source.present() {
            let read_only = source.get("readOnly").flag()?;
            return Ok(Some(Self::Iscsi { iqn: text(&source, "iqn")?, read_only }));
        }
        let source = volume.get("rbd");
        if !source.present() {
            return Ok(None);
        }
        Ok(Some(Self::Rbd {
            monitors: source.get("monitors").texts()?,
            pool: text(&source, "pool")?,
            image: text(&source, "image")?,
            read_only: source.get("readOnly").flag()?,
        }))
    }

    /// True if a node can have the disk only once, or only for reading.
    pub(crate) fn is_exclusive(&self) -> bool {
        !matches!(self, Self::Other { .. })
    }

    /// True if both cannot be used on one node.
    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Gce { name, read_only, .. },
                Self::Gce { name: other, read_only: other_read_only, .. },
            ) => name == other && !(*read_only && *other_read_only),
            (Self::Ebs { id, .. }, Self::Ebs { id: other, .. }) => id == other,
            (Self::Iscsi { iqn, read_only }, Self::Iscsi { iqn: other, read_only: other_read_only }) => {
                iqn == other && !(*read_only && *other_read_only)
            }
            (
                Self::Rbd { monitors, pool, image, read_only },
                Self::Rbd { monitors: others, pool: pool2, image: image2, read_only: read_only2 },
            ) => {
                let shared = monitors.iter().any(|monitor| others.contains(monitor));
                shared && pool == pool2 && image == image2 && !(*read_only && *read_only2)
            }
            (
                Self::Gce { .. }
                | Self::Ebs { .. }
                | Self::Iscsi { .. }
                | Self::Rbd { .. }
                | Self::Other { .. },
                _,
            ) => false,
        }
    }

    /// The kind of disk, and what its CSI driver calls this one; None for kinds that never had another driver.
    pub(crate) fn migrated(&self) -> Option<(Plugin, &Result<String, String>)> {
        match self {
            Self::Gce { handle, .. } => Some((Plugin::GcePersistentDisk, handle)),
            Self::Ebs { handle, .. } => Some((Plugin::AwsElasticBlockStore, handle)),
            Self::Other { plugin, handle } => Some((*plugin, handle)),
            Self::Iscsi { .. } | Self::Rbd { .. } => None,
        }
    }

    /// What users call disks of this kind, where using one matters between clusters.
    pub(crate) fn plural(&self) -> Option<&'static str> {
        match self {
            Self::Gce { .. } => Some("GCE persistent disks"),
            Self::Ebs { .. } => Some("AWS EBS volumes"),
            Self::Iscsi { .. } => Some("iSCSI volumes"),
            Self::Rbd { .. } => Some("RBD volumes"),
            Self::Other { .. } => None,
        }
    }
}

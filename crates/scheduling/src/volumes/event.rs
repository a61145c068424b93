use std::sync::Arc;

use crate::volumes::{
    Claim, CsiDriver, CsiNode, PersistentVolume, StorageCapacity, StorageClass, VolumeAttachment,
};

/// What happened to an object that says where storage is. `old` is None for an object that appeared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StorageEvent {
    Claim { old: Option<Arc<Claim>>, new: Arc<Claim> },
    Volume { old: Option<Arc<PersistentVolume>>, new: Arc<PersistentVolume> },
    Class { old: Option<Arc<StorageClass>>, new: Arc<StorageClass> },
    CsiNode { old: Option<Arc<CsiNode>>, new: Arc<CsiNode> },
    CsiDriver { old: Option<Arc<CsiDriver>>, new: Arc<CsiDriver> },
    Capacity { old: Option<Arc<StorageCapacity>>, new: Arc<StorageCapacity> },
    AttachmentGone(Arc<VolumeAttachment>),
}

impl StorageEvent {
    /// The name by which metrics count it.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Claim { old: None, .. } => "PersistentVolumeClaimAdd",
            Self::Claim { .. } => "PersistentVolumeClaimUpdate",
            Self::Volume { old: None, .. } => "PersistentVolumeAdd",
            Self::Volume { .. } => "PersistentVolumeUpdate",
            Self::Class { old: None, .. } => "StorageClassAdd",
            Self::Class { .. } => "StorageClassUpdate",
            Self::CsiNode { old: None, .. } => "CSINodeAdd",
            Self::CsiNode { .. } => "CSINodeUpdate",
            Self::CsiDriver { old: None, .. } => "CSIDriverAdd",
            Self::CsiDriver { .. } => "CSIDriverUpdate",
            Self::Capacity { old: None, .. } => "CSIStorageCapacityAdd",
            Self::Capacity { .. } => "CSIStorageCapacityUpdate",
            Self::AttachmentGone(_) => "VolumeAttachmentDelete",
        }
    }
}

use std::sync::Arc;

use crate::devices::claim::ResourceClaim;

/// What happened to claims or to the devices that drivers have.
#[derive(Debug, Clone)]
pub enum DeviceEvent {
    /// A claim appeared (then there is no old one), changed, or vanished (then there is no new one).
    Claim { old: Option<Arc<ResourceClaim>>, new: Option<Arc<ResourceClaim>> },
    /// Devices appeared, or changed.
    Slice { added: bool },
}

impl DeviceEvent {
    /// The name by which metrics count it.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Claim { old: None, .. } => "ResourceClaimAdd",
            Self::Claim { new: None, .. } => "ResourceClaimDelete",
            Self::Claim { .. } => "ResourceClaimUpdate",
            Self::Slice { added: true } => "ResourceSliceAdd",
            Self::Slice { added: false } => "ResourceSliceUpdate",
        }
    }
}

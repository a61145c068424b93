//! Stages of a cluster, and why one is not through.

/// A stage of a cluster: the type of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// The spec can be met: version, cloud, catalogue.
    PreflightPassed,
    /// The credentials are valid and in their Secrets.
    CredentialsReady,
    /// The image can be booted.
    ImageReady,
    /// Server groups are there, with the policy that is wanted.
    ServerGroupsReady,
    /// Networks and the load balancer of the API server are there.
    InfrastructureReady,
    /// The control plane answers.
    ControlPlaneReady,
    /// All workers are ready.
    WorkersReady,
    /// All add-ons are applied.
    AddonsReady,
    /// Nothing is to be rolled out.
    UpToDate,
    /// The cluster is a Target.
    TargetReady,
    /// All stages but the Target are through.
    Ready,
    /// Somebody must decide before the deletion goes on. Absent unless it is so.
    DeletionBlocked,
}

impl Stage {
    /// The word in `type`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PreflightPassed => "PreflightPassed",
            Self::CredentialsReady => "CredentialsReady",
            Self::ImageReady => "ImageReady",
            Self::ServerGroupsReady => "ServerGroupsReady",
            Self::InfrastructureReady => "InfrastructureReady",
            Self::ControlPlaneReady => "ControlPlaneReady",
            Self::WorkersReady => "WorkersReady",
            Self::AddonsReady => "AddonsReady",
            Self::UpToDate => "UpToDate",
            Self::TargetReady => "TargetReady",
            Self::Ready => "Ready",
            Self::DeletionBlocked => "DeletionBlocked",
        }
    }
}

//! What a failed test leaves for a person to read: objects, events and logs of every cluster.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::api::{DynamicObject, ListParams};
use tokio::time::timeout;

use crate::cluster::Cluster;

const KINDS: [(&str, &str); 24] = [
    ("v1", "Node"),
    ("v1", "Namespace"),
    ("v1", "Pod"),
    ("v1", "Event"),
    ("v1", "Service"),
    ("v1", "ServiceAccount"),
    ("v1", "ConfigMap"),
    ("discovery.k8s.io/v1", "EndpointSlice"),
    ("coordination.k8s.io/v1", "Lease"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("batch/v1", "Job"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"),
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
    ("multicluster.admiralty.io/v1alpha1", "PodChaperon"),
    ("multicluster.admiralty.io/v1alpha1", "ClusterSummary"),
    ("multicluster.admiralty.io/v1alpha1", "Target"),
    ("multicluster.admiralty.io/v1alpha1", "ClusterTarget"),
    ("multicluster.admiralty.io/v1alpha1", "Source"),
    ("multicluster.admiralty.io/v1alpha1", "ClusterSource"),
];

/// Writes one file per kind, `events.txt` in the order of time, and `logs/`. Secrets are left out.
///
/// # Errors
/// When a file cannot be written; what the cluster does not answer is noted in the kind's file.
pub async fn cluster(cluster: &Cluster, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for (group_version, kind) in KINDS {
        let api = cluster.dynamic(group_version, kind, None);
        let parameters = ListParams::default();
        let text = match timeout(Duration::from_secs(10), api.list(&parameters)).await {
            Ok(Ok(list)) if list.items.is_empty() => continue,
            Ok(Ok(list)) if kind == "Event" => events(&list.items),
            Ok(Ok(list)) => serde_yaml::to_string(&list.items).context("cannot write objects as YAML")?,
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => continue,
            Ok(Err(error)) => format!("# cannot list: {error}\n"),
            Err(_) => String::from("# cannot list: no answer within 10 s\n"),
        };
        let name =
            if kind == "Event" { "events.txt".into() } else { format!("{}.yaml", kind.to_lowercase()) };
        std::fs::write(folder.join(name), text).context("cannot write a dump")?;
    }
    if let Ok(local) = cluster.local() {
        copy(&local.folder.join("logs"), &folder.join("logs"))?;
        let audit = local.folder.join("audit.log");
        if audit.is_file() {
            std::fs::copy(&audit, folder.join("audit.log")).context("cannot copy the audit log")?;
        }
    }
    Ok(())
}

fn events(items: &[DynamicObject]) -> String {
    let text = |event: &DynamicObject, pointer: &str| {
        event.data.pointer(pointer).and_then(|value| value.as_str()).unwrap_or_default().to_owned()
    };
    let mut lines: Vec<String> = items
        .iter()
        .map(|event| {
            let mut line =
                event.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string()).unwrap_or_default();
            for pointer in [
                "/type",
                "/involvedObject/kind",
                "/involvedObject/namespace",
                "/involvedObject/name",
                "/reason",
                "/message",
            ] {
                line.push(' ');
                line.push_str(&text(event, pointer));
            }
            line
        })
        .collect();
    lines.sort();
    lines.join("\n")
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in std::fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry.context("cannot read a folder of logs")?;
        std::fs::copy(entry.path(), to.join(entry.file_name())).context("cannot copy a log")?;
    }
    Ok(())
}

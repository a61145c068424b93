//! The objects in the making, and what is told about them.

use super::parse::Settings;
use super::release::Release;
use super::{Directory, Options};
use api::provisioning::{
    Adopt, AdoptNames, Cidr, CloudAccountSpec, CloudReference, CredentialsMode, GROUP_VERSION, NodePool,
    Rendering, SecretKey, WorkloadClusterSpec,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;

/// How bad something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Good to know.
    Note,
    /// Something is different from before, or a person should look.
    Warning,
    /// The objects are not what the settings say.
    Error,
}

/// What is told about a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// The setting; empty when it is about all.
    pub setting: String,
    /// What it is, and what to do.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Note => "note",
            Level::Warning => "warning",
            Level::Error => "error",
        };
        if self.setting.is_empty() {
            write!(f, "{level}: {}", self.text)
        } else {
            write!(f, "{level}: {}: {}", self.setting, self.text)
        }
    }
}

/// The objects that declare a cluster, and what is to be said about them.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    /// The WorkloadCluster, the CloudAccount and Secrets.
    pub objects: Vec<Value>,
    /// The spec of the WorkloadCluster.
    pub spec: WorkloadClusterSpec,
    /// The spec of the CloudAccount.
    pub account: CloudAccountSpec,
    /// What is to be said.
    pub findings: Vec<Finding>,
}

impl Imported {
    /// Whether the objects are not what the settings say.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.findings.iter().any(|finding| finding.level == Level::Error)
    }
}

/// At the end of a key: the content is in base64 already.
pub(super) const ENCODED: &str = ".b64";

pub(super) struct Draft {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) release: Release,
    pub(super) settings: Settings,
    pub(super) spec: WorkloadClusterSpec,
    pub(super) account: CloudAccountSpec,
    pub(super) pool: NodePool,
    /// Secrets by name: key to content.
    pub(super) secrets: BTreeMap<String, BTreeMap<String, String>>,
    pub(super) findings: Vec<Finding>,
    prefix: String,
    adopt: bool,
}

impl Draft {
    pub(super) fn new(name: &str, options: &Options, release: Release, settings: Settings) -> Self {
        let secret = format!("{name}-cloud");
        let account = CloudAccountSpec {
            clouds_yaml: SecretKey { name: secret, key: "clouds.yaml".to_owned() },
            cloud_name: "openstack".to_owned(),
            concurrency: 8,
            ..CloudAccountSpec::default()
        };
        Self {
            name: name.to_owned(),
            namespace: options.namespace.clone(),
            release,
            settings,
            spec: WorkloadClusterSpec::default(),
            account,
            pool: NodePool::default(),
            secrets: BTreeMap::new(),
            findings: Vec::new(),
            prefix: options.prefix.clone(),
            adopt: options.adopt,
        }
    }

    fn say(&mut self, level: Level, setting: &str, text: impl Into<String>) {
        self.findings.push(Finding { level, setting: setting.to_owned(), text: text.into() });
    }

    pub(super) fn note(&mut self, setting: &str, text: impl Into<String>) {
        self.say(Level::Note, setting, text);
    }

    pub(super) fn warn(&mut self, setting: &str, text: impl Into<String>) {
        self.say(Level::Warning, setting, text);
    }

    pub(super) fn master(&mut self, setting: &str) {
        self.warn(setting, "was the development branch of that day; now the catalogue's version");
    }

    pub(super) fn error(&mut self, setting: &str, text: impl Into<String>) {
        self.say(Level::Error, setting, text);
    }

    pub(super) fn secret(&mut self, name: &str, key: &str, content: &str) -> SecretKey {
        self.secrets.entry(name.to_owned()).or_default().insert(key.to_owned(), content.to_owned());
        SecretKey { name: name.to_owned(), key: key.to_owned() }
    }

    /// Names of a running cluster, as each release gave them.
    fn adopted(&mut self) {
        let (prefix, name) = (&self.prefix, &self.name);
        let pool = match self.release {
            Release::R1 | Release::R2 => format!("{name}-md-0-genw1"),
            Release::R3 | Release::R4 | Release::R5 | Release::R6 => format!("{prefix}-{name}-md-0-no1"),
        };
        let mut adopt = self.spec.adopt.take().unwrap_or_default();
        adopt.names = Some(AdoptNames {
            cluster: Some(name.clone()),
            infrastructure_cluster: Some(name.clone()),
            control_plane: Some(format!("{name}-control-plane")),
            secret: Some(format!("{name}-cloud-config")),
        });
        adopt.node_pools = BTreeMap::from([("md-0".to_owned(), pool)]);
        self.spec.adopt = Some(adopt);
        self.spec.paused = true;
        // Its controllers go on with the credential that they have.
        self.spec.credentials.mode = CredentialsMode::Shared;
        if self.release == Release::R6 {
            self.spec.rendering = Rendering::Topology;
        }
        self.note(
            "",
            "the running cluster is taken over as it is: spec.paused is true until you have read status.plan",
        );
    }

    pub(super) fn finish(mut self) -> Imported {
        self.pool.name = "md-0".to_owned();
        if self.spec.control_plane.etcd.unsafe_filesystem && self.spec.control_plane.replicas < 3 {
            self.spec.control_plane.etcd.unsafe_filesystem = false;
            self.warn("ETCD_UNSAFE_FS", "left out: it needs at least three control plane nodes");
        }
        if self.adopt {
            self.adopted();
        } else if let Some(adopt) = self.spec.adopt.take() {
            drop::<Adopt>(adopt);
        }
        self.spec.node_pools = vec![self.pool.clone()];
        let cloud = self.account.cloud_name.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        self.spec.cloud_ref = CloudReference { name: cloud.trim_matches('-').to_owned() };
        if self.spec.control_plane.flavor.is_empty() || self.pool.flavor.is_empty() {
            self.error(
                "",
                "no flavors: set OPENSTACK_CONTROL_PLANE_MACHINE_FLAVOR and OPENSTACK_NODE_MACHINE_FLAVOR",
            );
        }
        if self.spec.kubernetes.version.is_empty() {
            self.error("KUBERNETES_VERSION", "is missing");
        }
        self.findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
        Imported { objects: self.objects(), spec: self.spec, account: self.account, findings: self.findings }
    }

    fn objects(&self) -> Vec<Value> {
        let object = |kind: &str, name: &str, spec: Value| {
            json!({"apiVersion": GROUP_VERSION, "kind": kind,
                "metadata": {"name": name, "namespace": self.namespace}, "spec": spec})
        };
        let mut objects: Vec<Value> = self
            .secrets
            .iter()
            .map(|(name, content)| {
                let mut secret = json!({"apiVersion": "v1", "kind": "Secret",
                    "metadata": {"name": name, "namespace": self.namespace}});
                for (key, value) in content {
                    match key.strip_suffix(ENCODED) {
                        Some(key) => secret["data"][key] = json!(value),
                        None => secret["stringData"][key] = json!(value),
                    }
                }
                secret
            })
            .collect();
        objects.push(object("CloudAccount", &self.spec.cloud_ref.name, json!(self.account)));
        objects.push(object("WorkloadCluster", &self.name, json!(self.spec)));
        objects
    }
}

/// A range from what the older scripts took: a bare address is a range of one.
pub(super) fn range(text: &str) -> Cidr {
    if text.contains('/') {
        Cidr(text.to_owned())
    } else if text.contains(':') {
        Cidr(format!("{text}/128"))
    } else {
        Cidr(format!("{text}/32"))
    }
}

/// For signatures that need it.
pub(super) type Files = Directory;

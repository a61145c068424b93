//! The command lines of a control plane: one etcd, one API server, the controllers, the scheduler and kwok.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::process::Command;

use crate::binaries::Binaries;
use crate::network::ClusterNetwork;
use crate::pki::Pki;
use crate::process::Process;

/// Where kwok serves the kubelet API of all fake nodes.
const KUBELET_PORT: u16 = 10_247;
/// The port of every API server.
pub const API_PORT: u16 = 6443;

/// The folder below a cluster's own in which fake containers have their logs and run their commands.
pub const STREAMS: &str = "streams";

const STAGES: &str = include_str!("stages.yaml");
const AUDIT: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
  "rules": [{"level": "Metadata"}]}"#;

/// How clusters are started.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Write an audit log of every request, `audit.log` in the cluster's folder.
    pub audit: bool,
    /// Lift the limits of API server and controllers on requests, for benchmarks.
    pub unlimited: bool,
    /// How long containers on fake nodes need to stop; their whole grace period when `None`.
    pub stops_after: Option<Duration>,
}

/// What all command lines of one cluster share.
#[derive(Debug)]
pub struct Plane<'a> {
    /// Where the programs are.
    pub binaries: &'a Binaries,
    /// The cluster's network.
    pub network: &'a ClusterNetwork,
    /// The cluster's own folder.
    pub folder: &'a Path,
    /// How it is started.
    pub options: &'a Options,
}

impl Plane<'_> {
    fn pki(&self, file: &str) -> String {
        self.folder.join("pki").join(file).display().to_string()
    }

    /// The URL of the API server, the same from everywhere.
    #[must_use]
    pub fn server(&self) -> String {
        format!("https://{}:{API_PORT}", self.network.api())
    }

    /// Makes all certificates and kubeconfigs of the cluster.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn identities(&self) -> Result<Pki> {
        let folder = self.folder.join("pki");
        let pki = Pki::create(&folder, "ca")?;
        let local = std::net::Ipv4Addr::LOCALHOST;
        let names = [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ];
        pki.server("apiserver", &names, &[self.network.api(), [10, 96, 0, 1].into(), local])?;
        pki.server("kubelet", &["kwok"], &[self.network.api(), local])?;
        pki.client("kubelet-client", "kube-apiserver", "system:masters")?;
        pki.signing_key("service-accounts")?;
        Pki::create(&folder, "front-proxy-ca")?.client("front-proxy", "front-proxy", "front-proxy")?;
        let server = self.server();
        for (name, user, group) in [
            ("admin", "admin", "system:masters"),
            ("kwok", "kwok", "system:masters"),
            ("controller-manager", "system:kube-controller-manager", "system:controllers"),
            ("scheduler", "system:kube-scheduler", "system:schedulers"),
            ("metrics-server", "metrics-server", "e2e:metrics-servers"),
        ] {
            let client = pki.client(name, user, group)?;
            let file = self.folder.join(format!("{name}.kubeconfig"));
            std::fs::write(file, pki.kubeconfig(&server, &client)).context("cannot write a kubeconfig")?;
        }
        Ok(pki)
    }

    /// Starts one program with these arguments in the cluster's network.
    fn start(&self, program: &str, arguments: &[String]) -> Result<Process> {
        let mut command: Command = self.network.command(&self.binaries.path(program))?;
        command.args(arguments).env_clear().env("HOME", self.folder).current_dir(self.folder);
        if ["kwok", "streams"].contains(&program) {
            // Commands in fake containers are programs of the machine.
            command.env("PATH", "/usr/bin:/bin");
        }
        let log: PathBuf = self.folder.join("logs").join(format!("{program}.log"));
        Process::spawn(program, command, &log)
    }

    /// Starts etcd.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn etcd(&self) -> Result<Process> {
        let data = self.folder.join("etcd");
        self.start(
            "etcd",
            &[
                format!("--data-dir={}", data.display()),
                "--unsafe-no-fsync".into(),
                "--listen-client-urls=http://127.0.0.1:2379".into(),
                "--advertise-client-urls=http://127.0.0.1:2379".into(),
                "--listen-peer-urls=http://127.0.0.1:2380".into(),
                "--initial-advertise-peer-urls=http://127.0.0.1:2380".into(),
                "--initial-cluster=default=http://127.0.0.1:2380".into(),
                "--quota-backend-bytes=4294967296".into(),
                "--log-level=warn".into(),
            ],
        )
    }

    /// Starts the API server.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn api_server(&self) -> Result<Process> {
        let mut arguments = vec![
            "--etcd-servers=http://127.0.0.1:2379".into(),
            "--bind-address=0.0.0.0".into(),
            format!("--advertise-address={}", self.network.api()),
            format!("--secure-port={API_PORT}"),
            "--service-cluster-ip-range=10.96.0.0/16".into(),
            "--authorization-mode=Node,RBAC".into(),
            "--enable-admission-plugins=NodeRestriction".into(),
            "--enable-aggregator-routing=true".into(),
            "--allow-privileged=true".into(),
            format!("--tls-cert-file={}", self.pki("apiserver.crt")),
            format!("--tls-private-key-file={}", self.pki("apiserver.key")),
            format!("--client-ca-file={}", self.pki("ca.crt")),
            format!("--kubelet-certificate-authority={}", self.pki("ca.crt")),
            "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname".into(),
            format!("--kubelet-client-certificate={}", self.pki("kubelet-client.crt")),
            format!("--kubelet-client-key={}", self.pki("kubelet-client.key")),
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local".into(),
            format!("--service-account-key-file={}", self.pki("service-accounts.pub")),
            format!("--service-account-signing-key-file={}", self.pki("service-accounts.key")),
            format!("--requestheader-client-ca-file={}", self.pki("front-proxy-ca.crt")),
            "--requestheader-allowed-names=front-proxy".into(),
            "--requestheader-username-headers=X-Remote-User".into(),
            "--requestheader-group-headers=X-Remote-Group".into(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
            format!("--proxy-client-cert-file={}", self.pki("front-proxy.crt")),
            format!("--proxy-client-key-file={}", self.pki("front-proxy.key")),
        ];
        if self.options.audit {
            let policy = self.folder.join("audit.json");
            std::fs::write(&policy, AUDIT).context("cannot write the audit policy")?;
            arguments.push(format!("--audit-policy-file={}", policy.display()));
            arguments.push(format!("--audit-log-path={}", self.folder.join("audit.log").display()));
        }
        if self.options.unlimited {
            arguments.push("--enable-priority-and-fairness=false".into());
            arguments.push("--max-requests-inflight=0".into());
            arguments.push("--max-mutating-requests-inflight=0".into());
        }
        self.start("kube-apiserver", &arguments)
    }

    /// Starts the controllers.
    ///
    /// # Errors
    /// When they cannot be started.
    pub fn controllers(&self) -> Result<Process> {
        let kubeconfig = self.folder.join("controller-manager.kubeconfig");
        let mut arguments = vec![
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--authentication-kubeconfig={}", kubeconfig.display()),
            format!("--authorization-kubeconfig={}", kubeconfig.display()),
            "--bind-address=127.0.0.1".into(),
            "--leader-elect=false".into(),
            "--use-service-account-credentials".into(),
            format!("--root-ca-file={}", self.pki("ca.crt")),
            format!("--service-account-private-key-file={}", self.pki("service-accounts.key")),
            format!("--cluster-signing-cert-file={}", self.pki("ca.crt")),
            format!("--cluster-signing-key-file={}", self.pki("ca.key")),
        ];
        if self.options.unlimited {
            arguments.push("--kube-api-qps=1000".into());
            arguments.push("--kube-api-burst=2000".into());
        }
        self.start("kube-controller-manager", &arguments)
    }

    /// Starts the scheduler.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn scheduler(&self) -> Result<Process> {
        let kubeconfig = self.folder.join("scheduler.kubeconfig");
        let mut arguments = vec![
            format!("--authentication-kubeconfig={}", kubeconfig.display()),
            format!("--authorization-kubeconfig={}", kubeconfig.display()),
            "--bind-address=127.0.0.1".into(),
        ];
        let (qps, burst) = if self.options.unlimited { (1000, 2000) } else { (50, 100) };
        let file = self.folder.join("scheduler.json");
        let configuration = serde_json::json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": false},
            "clientConnection": {"kubeconfig": kubeconfig, "qps": qps, "burst": burst},
        });
        std::fs::write(&file, configuration.to_string())
            .context("cannot write the scheduler's configuration")?;
        arguments.push(format!("--config={}", file.display()));
        self.start("kube-scheduler", &arguments)
    }

    /// Starts kwok, which plays the kubelets of all fake nodes.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn kwok(&self) -> Result<Process> {
        let stages = self.folder.join("stages.yaml");
        let stops_after = match self.options.stops_after {
            Some(duration) => format!("\"{}ms\"", duration.as_millis()),
            None => ".metadata.deletionTimestamp".to_owned(),
        };
        let streams = self.folder.join(STREAMS);
        std::fs::create_dir_all(&streams).context("cannot make the folder of fake containers")?;
        let streams = streams.display().to_string();
        let text = STAGES.replace("@STOPS_AFTER@", &stops_after).replace("@STREAMS@", &streams);
        std::fs::write(&stages, text).context("cannot write the stages of kwok")?;
        let kubeconfig = self.folder.join("kwok.kubeconfig");
        self.start(
            "kwok",
            &[
                format!("--kubeconfig={}", kubeconfig.display()),
                format!("--config={}", stages.display()),
                "--manage-all-nodes=false".into(),
                format!("--manage-nodes-with-annotation-selector={}=fake", crate::keys::FAKE_NODE),
                format!("--cidr={}", self.network.fake_pods()),
                format!("--node-ip={}", self.network.api()),
                format!("--node-port={KUBELET_PORT}"),
                format!("--server-address=0.0.0.0:{KUBELET_PORT}"),
                format!("--tls-cert-file={}", self.pki("kubelet.crt")),
                format!("--tls-private-key-file={}", self.pki("kubelet.key")),
                "--node-lease-duration-seconds=40".into(),
            ],
        )
    }

    /// Starts a server of streams, which plays the part of a kubelet that people talk to on a port.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn streams(&self, port: u16) -> Result<Process> {
        self.start(
            "streams",
            &[
                format!("--address=0.0.0.0:{port}"),
                format!("--tls-cert-file={}", self.pki("kubelet.crt")),
                format!("--tls-private-key-file={}", self.pki("kubelet.key")),
                format!("--folder={}", self.folder.join(STREAMS).display()),
                format!("--others=https://127.0.0.1:{KUBELET_PORT}"),
            ],
        )
    }

    /// Starts a metrics-server, which reads the nodes under an identity of its own.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn metrics_server(&self, port: u16) -> Result<Process> {
        let (own, admin) =
            (self.folder.join("metrics-server.kubeconfig"), self.folder.join("admin.kubeconfig"));
        self.start(
            "metrics-server",
            &[
                format!("--kubeconfig={}", own.display()),
                format!("--authentication-kubeconfig={}", admin.display()),
                format!("--authorization-kubeconfig={}", admin.display()),
                format!("--secure-port={port}"),
                format!("--cert-dir={}", self.folder.join("metrics-server").display()),
                format!("--kubelet-certificate-authority={}", self.pki("ca.crt")),
                "--kubelet-preferred-address-types=InternalIP".into(),
                "--kubelet-use-node-status-port=true".into(),
                "--metric-resolution=10s".into(),
                "--kubelet-request-timeout=5s".into(),
            ],
        )
    }
}

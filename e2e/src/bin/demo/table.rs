//! The live table: pod, cluster, node, phase. Without a terminal it prints a line for each change instead.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use e2e::connect::has_condition;
use e2e::ground::Ground;
use e2e::setup::{self, SOURCE};
use kube::api::{DynamicObject, ListParams};
use kube::{Api, ResourceExt as _};
use serde_json::Value;

use crate::workloads::NAMESPACE;

/// How long all pods may take to get where they should; the CronJob alone begins up to a minute later.
const PATIENCE: Duration = Duration::from_secs(240);
const PAUSE: Duration = Duration::from_millis(500);
const PARENT: &str = "multicluster.admiralty.io/parent-uid";

/// One pod of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// The target that it runs in; empty when it is not bound, `source` when it is bound to no virtual node.
    pub(crate) cluster: String,
    /// The node in that target.
    node: String,
    pub(crate) phase: String,
    pub(crate) is_ready: bool,
    pub(crate) is_leaving: bool,
}

impl Row {
    fn state(&self) -> String {
        let ready = if self.is_ready { ", Ready" } else { "" };
        let leaving = if self.is_leaving { ", leaving" } else { "" };
        format!("{}{ready}{leaving}", self.phase)
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:<34} {:<10} {:<8} {}", self.name, self.cluster, self.node, self.state())
    }
}

/// The table of all pods of the electing namespace.
pub(crate) struct Table<'a> {
    ground: &'a Ground,
    targets: BTreeMap<String, String>,
    shown: BTreeMap<String, Row>,
    is_live: bool,
}

impl<'a> Table<'a> {
    pub(crate) async fn new(ground: &'a Ground) -> Result<Self> {
        let mut targets = BTreeMap::new();
        for cluster in setup::targets(ground) {
            targets.insert(setup::virtual_node(ground, &cluster.name).await?, cluster.name.clone());
        }
        Ok(Self { ground, targets, shown: BTreeMap::new(), is_live: std::io::stdout().is_terminal() })
    }

    /// Shows the table until `check` is content.
    pub(crate) async fn watch(
        &mut self,
        what: &str,
        mut check: impl AsyncFnMut(&[Row]) -> Result<()>,
    ) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let rows = self.rows().await?;
            self.show(what, &rows)?;
            let Err(error) = check(&rows).await else { return Ok(()) };
            if Instant::now() > end {
                bail!("{what}: not within {PATIENCE:?}: {error:#}");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn rows(&self) -> Result<Vec<Row>> {
        let mut nodes: BTreeMap<String, String> = BTreeMap::new();
        for target in self.targets.values() {
            for pod in self.list(target).await? {
                let parent = pod.labels().get(PARENT).cloned();
                if let (Some(parent), Some(node)) = (parent, text(&pod, "/spec/nodeName")) {
                    nodes.insert(parent, node);
                }
            }
        }
        let rows = self.list(SOURCE).await?.into_iter().map(|pod| {
            let node = text(&pod, "/spec/nodeName").unwrap_or_default();
            let virtual_node = self.targets.get(&node).map(String::as_str);
            Row {
                name: pod.name_any(),
                cluster: virtual_node.unwrap_or(if node.is_empty() { "" } else { SOURCE }).to_owned(),
                node: pod.uid().and_then(|uid| nodes.get(&uid).cloned()).unwrap_or_default(),
                phase: text(&pod, "/status/phase").unwrap_or_default(),
                is_ready: has_condition(&pod, "Ready", "True"),
                is_leaving: pod.metadata.deletion_timestamp.is_some(),
            }
        });
        Ok(rows.collect())
    }

    async fn list(&self, cluster: &str) -> Result<Vec<DynamicObject>> {
        let pods: Api<DynamicObject> = self.ground.cluster(cluster)?.dynamic("v1", "Pod", Some(NAMESPACE));
        let list = pods.list(&ListParams::default()).await;
        Ok(list.with_context(|| format!("cannot list pods of {cluster}"))?.items)
    }

    fn show(&mut self, what: &str, rows: &[Row]) -> Result<()> {
        let mut out = std::io::stdout().lock();
        let now: BTreeMap<String, Row> = rows.iter().map(|row| (row.name.clone(), row.clone())).collect();
        if self.is_live {
            write!(
                out,
                "\x1b[H\x1b[2Jwaiting until {what}\n\n{:<34} {:<10} {:<8} PHASE\n",
                "POD", "CLUSTER", "NODE"
            )
            .context("cannot print")?;
            for row in rows {
                writeln!(out, "{row}").context("cannot print")?;
            }
        } else {
            for row in rows.iter().filter(|row| self.shown.get(&row.name) != Some(row)) {
                writeln!(out, "  {row}").context("cannot print")?;
            }
            for gone in self.shown.keys().filter(|name| !now.contains_key(*name)) {
                writeln!(out, "  {gone:<34} gone").context("cannot print")?;
            }
        }
        self.shown = now;
        out.flush().context("cannot print")
    }
}

fn text(pod: &DynamicObject, pointer: &str) -> Option<String> {
    pod.data.pointer(pointer).and_then(Value::as_str).map(ToOwned::to_owned)
}

//! Fake nodes whose kubelets stream as real ones do: with exit codes, terminals and the ends of inputs.

use anyhow::Result;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::ground::Ground;
use crate::keys::KUBELET_PORT;
use crate::nodes::{self, Shape};
use crate::process::Process;
use crate::wait;

/// The taint that keeps other pods away.
const TAINT: &str = "e2e.multicluster-scheduler.io/streams";

/// The port of every pod that sends back what comes.
pub const ECHO: u16 = 7;
/// The port of every pod that never stops to send the bytes 0 to 255 in turn.
pub const CHARGEN: u16 = 19;

/// The name of the node that streams on a port.
#[must_use]
pub fn node(port: u16) -> String {
    format!("streams-{port}")
}

/// Makes a node that streams on a port of its own, and starts what answers there.
///
/// # Errors
/// When the node is refused or does not get Ready, or nothing answers.
pub async fn serve(ground: &Ground, cluster: &Cluster, port: u16) -> Result<Process> {
    let server = answer(ground, cluster, port).await?;
    let mut shape = Shape { cpu: "4".into(), ..Shape::default() };
    shape.taints.push(json!({"key": TAINT, "value": port.to_string(), "effect": "NoSchedule"}));
    shape.annotations.insert(KUBELET_PORT.into(), port.to_string());
    nodes::create(&cluster.client, &node(port), &shape).await?;
    nodes::ready(&cluster.client, &node(port)).await?;
    Ok(server)
}

/// Starts what answers on a port, and waits until it does.
///
/// # Errors
/// When it ends or stays silent.
pub async fn answer(ground: &Ground, cluster: &Cluster, port: u16) -> Result<Process> {
    let server = ground.start_streams(cluster, port)?;
    let address = (cluster.local()?.network.api(), port);
    wait::until(wait::SOON, &format!("streams of {} are served on {port}", cluster.name), async || {
        if server.ended().is_some() {
            anyhow::bail!("it ended: {}", server.tail());
        }
        Ok(tokio::net::TcpStream::connect(address).await.is_ok().then_some(()))
    })
    .await?;
    Ok(server)
}

/// A pod for such a node, with containers of these names. Each takes input.
#[must_use]
pub fn pod(name: &str, port: u16, containers: &[&str]) -> Value {
    let container = |name: &&str| json!({"name": name, "image": "nowhere.example/any:1", "stdin": true, "stdinOnce": true});
    json!({
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "nodeSelector": {"kubernetes.io/hostname": node(port)},
            "tolerations": [{"key": TAINT, "operator": "Equal", "value": port.to_string()}],
            "containers": containers.iter().map(container).collect::<Vec<_>>(),
        },
    })
}

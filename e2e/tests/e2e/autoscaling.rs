//! What proxy pods use: `kubectl top` and a HorizontalPodAutoscaler in the source, by a metrics-server there that reads
//! virtual nodes as it reads others, and one in the target.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use e2e::ground::Ground;
use e2e::keys::USAGE_CPU;
use e2e::nodes::{self, Shape};
use e2e::setup::virtual_node;
use e2e::{helm, usage};
use serde_json::{Value, json};

use crate::scene::{LONG, Scene, key, merge, remove_node};

const TARGET: &str = "target-2";
const NODE: &str = "measured";
const METRICS_PATH: &str = "metrics.k8s.io/resource-metrics-path";

fn deployment() -> Value {
    let constraints = format!("nodeSelector: {{\"{}\": \"{TARGET}\"}}", key("cluster-target-name"));
    json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {
                    "labels": {"app": "web"},
                    "annotations": {key("proxy-pod-scheduling-constraints"): constraints},
                },
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "nodeSelector": {"kubernetes.io/hostname": NODE},
                    "tolerations": [{"key": NODE, "operator": "Exists"}],
                    "containers": [{
                        "name": "main", "image": "nowhere.example/any:1",
                        "resources": {"requests": {"cpu": "100m"}},
                    }],
                },
            },
        },
    })
}

fn autoscaler() -> Value {
    json!({
        "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 1,
            "maxReplicas": 4,
            "metrics": [{
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
            }],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
        },
    })
}

async fn replicas_are(scene: &Scene<'_>, wanted: impl Fn(i64) -> bool, what: &str) -> Result<()> {
    let autoscalers =
        scene.source.dynamic("autoscaling/v2", "HorizontalPodAutoscaler", Some(&scene.namespace));
    e2e::wait::until(LONG, &format!("the autoscaler wants {what}"), async || {
        let status = autoscalers.get("web").await?.data["status"].clone();
        let replicas = status["desiredReplicas"].as_i64().unwrap_or_default();
        if wanted(replicas) {
            return Ok(Some(()));
        }
        bail!("{status}")
    })
    .await
}

pub(crate) async fn w38_an_autoscaler_follows_what_proxy_pods_use(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "autoscaling").await?;
    let target = ground.cluster(TARGET)?;
    let shape = Shape {
        cpu: "4".into(),
        taints: vec![json!({"key": NODE, "effect": "NoSchedule"})],
        annotations: BTreeMap::from([
            (METRICS_PATH.into(), format!("/metrics/nodes/{NODE}/metrics/resource")),
            (USAGE_CPU.into(), "20m".into()),
        ]),
        ..Shape::default()
    };
    nodes::create(&target.client, NODE, &shape).await?;
    nodes::ready(&target.client, NODE).await?;
    let servers = (usage::serve(ground, target).await?, usage::serve(ground, scene.source).await?);
    scene.create("apps/v1", "Deployment", deployment()).await?;
    scene.ready(1).await?;
    let top = async |what: &[&str]| {
        let mut arguments = vec!["-n", scene.namespace.as_str(), "top"];
        arguments.extend(what);
        let output = helm::command(ground, scene.source, "kubectl", &arguments)?.output().await?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        anyhow::Ok(text)
    };
    e2e::wait::until(LONG, "kubectl top shows the pod", async || {
        let text = top(&["pods", "--containers", "--no-headers"]).await?;
        let line = text.lines().find(|line| line.contains("web-")).context("no line")?;
        let words: Vec<&str> = line.split_whitespace().collect();
        ensure!(words.get(1) == Some(&"main") && words.get(3) == Some(&"64Mi"), "{line}");
        let cpu = words.get(2).and_then(|word| word.trim_end_matches('m').parse::<u32>().ok());
        Ok(cpu.is_some_and(|cpu| (15..=25).contains(&cpu)).then_some(()))
    })
    .await?;
    let node = virtual_node(ground, TARGET).await?;
    e2e::wait::until(LONG, "kubectl top shows the virtual node", async || {
        let text = top(&["nodes", &node, "--no-headers"]).await?;
        Ok(text.contains("Mi").then_some(()))
    })
    .await?;
    scene.create("autoscaling/v2", "HorizontalPodAutoscaler", autoscaler()).await?;
    let uses = async |cpu: &str| {
        let change = json!({"metadata": {"annotations": {USAGE_CPU: cpu}}});
        merge(target, None, ("v1", "Node"), NODE, change).await
    };
    uses("400m").await?;
    replicas_are(&scene, |count| count == 4, "four replicas").await?;
    scene.ready(4).await?;
    uses("5m").await?;
    replicas_are(&scene, |count| count == 1, "one replica").await?;
    scene.ready(1).await?;
    usage::end(target, &servers.0).await?;
    usage::end(scene.source, &servers.1).await?;
    scene.close().await?;
    remove_node(target, NODE).await
}

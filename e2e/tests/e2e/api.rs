//! The kinds as users meet them: what is refused at once, and what kubectl shows.

use anyhow::{Context as _, Result, ensure};
use e2e::ground::Ground;
use e2e::helm::kubectl;
use e2e::install::RELEASE;
use e2e::setup::SOURCE;
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::guest::{becomes, fake_pod};
use crate::installed::installed;
use crate::scene::{GROUP_VERSION, Scene, component_pods, refused, try_create};

/// The label that names the component of an object.
const COMPONENT: &str = "app.kubernetes.io/component";

pub(crate) async fn invalid_objects_are_refused_with_their_reason(ground: &Ground) -> Result<()> {
    installed(ground).await?;
    let source = ground.cluster(SOURCE)?;
    let secret = json!({"name": "secret"});
    let cluster_secret = json!({"name": "secret", "namespace": "default"});
    let cases: [(&str, Value, Option<&str>); 16] = [
        ("Target", json!({"self": true}), None),
        ("Target", json!({"kubeconfigSecret": secret, "ask": "all", "excludedLabelsRegexp": "^a=.*$"}), None),
        ("Target", json!({}), Some("exactly one of")),
        ("Target", json!({"self": true, "kubeconfigSecret": secret}), Some("exactly one of")),
        ("Target", json!({"self": false}), Some("exactly one of")),
        ("Target", json!({"kubeconfigSecret": {}}), Some("kubeconfigSecret")),
        ("Target", json!({"self": true, "excludedLabelsRegexp": "("}), Some("excludedLabelsRegexp")),
        ("Target", json!({"self": true, "ask": "0"}), Some("ask")),
        ("Target", json!({"self": true, "labelRewriting": "Sometimes"}), Some("labelRewriting")),
        ("ClusterTarget", json!({"kubeconfigSecret": cluster_secret}), None),
        ("ClusterTarget", json!({"kubeconfigSecret": cluster_secret, "self": true}), Some("exactly one of")),
        ("Source", json!({"serviceAccountName": "one"}), None),
        ("Source", json!({}), Some("serviceAccountName")),
        ("Source", json!({"userName": ""}), Some("serviceAccountName")),
        ("ClusterSource", json!({"serviceAccount": cluster_secret, "userName": "one"}), None),
        ("ClusterSource", json!({}), Some("serviceAccount")),
    ];
    for (kind, spec, wrong) in cases {
        let namespace = (!kind.starts_with("Cluster")).then_some("default");
        let shown = format!("{kind} with {spec}");
        let object = json!({"metadata": {"name": "tried"}, "spec": spec});
        let outcome = try_create(source, namespace, (GROUP_VERSION, kind), object).await;
        match wrong {
            None => drop(outcome.with_context(|| format!("{shown} was refused"))?),
            Some(word) => refused(outcome, &[word]).context(shown)?,
        }
    }
    let bare =
        try_create(source, Some("default"), (GROUP_VERSION, "Target"), json!({"metadata": {"name": "bare"}}));
    refused(bare.await, &["spec"])
}

pub(crate) async fn case_011_a_service_leads_to_the_pods_of_its_component_only(
    ground: &Ground,
) -> Result<()> {
    installed(ground).await?;
    let mut seen = 0;
    for cluster in ground.clusters() {
        let services = cluster.dynamic("v1", "Service", Some(RELEASE)).list(&ListParams::default()).await?;
        let slices = cluster.dynamic("discovery.k8s.io/v1", "EndpointSlice", Some(RELEASE));
        for service in services.items {
            let component = service.labels().get(COMPONENT).cloned().context("a Service of no component")?;
            let own = component_pods(cluster, &component).await?;
            let selector = format!("kubernetes.io/service-name={}", service.name_any());
            for slice in slices.list(&ListParams::default().labels(&selector)).await?.items {
                for endpoint in slice.data["endpoints"].as_array().into_iter().flatten() {
                    let pod = endpoint["targetRef"]["name"].as_str().unwrap_or_default();
                    ensure!(
                        own.iter().any(|one| one.name_any() == pod),
                        "{} leads to {pod}",
                        service.name_any()
                    );
                    seen += 1;
                }
            }
        }
    }
    ensure!(seen >= 14, "only {seen} endpoints were seen");
    Ok(())
}

pub(crate) async fn kubectl_knows_short_names_and_columns(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "columns").await?;
    scene.pod(fake_pod("one")).await?;
    becomes(scene.source, &scene.namespace, "one", "Ready").await?;
    let targets = kubectl(ground, scene.source, &["get", "ctg"]).await?;
    let line = targets.lines().find(|line| line.starts_with("target-1")).unwrap_or_default();
    let words: Vec<&str> = line.split_whitespace().collect();
    ensure!(words.get(1..3) == Some(&["True", "True"][..]), "{targets}");
    ensure!(words.get(3).is_some_and(|node| node.starts_with("admiralty-target-1")), "{targets}");
    for short in ["tg", "csrc", "src"] {
        kubectl(ground, scene.source, &["get", short, "--all-namespaces=false"]).await?;
    }
    let (cluster, _) = scene.chaperons().await?.into_iter().next().context("no chaperon")?;
    let target = ground.cluster(&cluster)?;
    let chaperons = kubectl(ground, target, &["get", "chap", "-n", &scene.namespace]).await?;
    let mut lines =
        chaperons.lines().map(|line| line.split_whitespace().map(str::to_lowercase).collect::<Vec<_>>());
    let (head, row) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    for column in ["reserved", "allowed"] {
        let at = head
            .iter()
            .position(|name| name == column)
            .with_context(|| format!("no {column}: {chaperons}"))?;
        ensure!(row.get(at).map(String::as_str) == Some("true"), "{column}: {chaperons}");
    }
    let summary =
        kubectl(ground, target, &["get", "mcsum", "singleton", "-o", "jsonpath={.allocatable.cpu}"]).await?;
    ensure!(!summary.is_empty() && summary != "0", "the summary says {summary:?} CPUs");
    let sources = kubectl(ground, target, &["get", "csrc", "source"]).await?;
    ensure!(sources.lines().nth(1).is_some_and(|line| line.contains("True")), "{sources}");
    scene.close().await
}

//! What admission makes of pods, and what it lets alone.

use anyhow::{Context as _, Result, bail, ensure};
use e2e::connect::apply;
use e2e::ground::Ground;
use e2e::install::RELEASE;
use e2e::wait::{SOON, until};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, DynamicObject};
use serde_json::{Value, json};

use crate::guest::{becomes, fake_pod, gone, with};
use crate::installed::installed;
use crate::scene::{
    LONG, Scene, condition, create, key, merge, pinned, refused, remove_namespace, scale, try_create,
};

const POD: (&str, &str) = ("v1", "Pod");
const PROVIDER: &str = "virtual-kubelet.io/provider";

/// A pod with everything that placement looks at.
fn rich(name: &str) -> Value {
    let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "rich"}}}]}});
    json!({
        "metadata": {
            "name": name,
            "labels": {"app": "rich", "example.com/tier": "front"},
            "annotations": {"example.com/note": "kept", key("no-prefix-label-regexp"): "^example.com/tier=front$"},
            "finalizers": ["example.com/theirs"],
        },
        "spec": {
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "tolerations": [{"key": "theirs", "operator": "Exists"},
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
                    "tolerationSeconds": 7}],
            "affinity": affinity,
            "topologySpreadConstraints": [{"maxSkew": 5, "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": "rich"}}}],
            "schedulerName": "theirs",
            "terminationGracePeriodSeconds": 2,
            "hostUsers": false,
            "initContainers": [{"name": "sidecar", "image": "any", "restartPolicy": "Always"}],
            "containers": [{"name": "main", "image": "any",
                "resources": {"requests": {"cpu": "10m"}},
                "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]}],
        },
    })
}

/// Fails unless all these places of an object hold these values.
fn holds(object: &DynamicObject, wanted: &[(&str, Value)]) -> Result<()> {
    let object = json!(object);
    for (pointer, value) in wanted {
        let found = object.pointer(pointer).unwrap_or(&Value::Null);
        ensure!(found == value, "{pointer} is {found}, not {value}");
    }
    Ok(())
}

pub(crate) async fn an_elected_pod_becomes_a_proxy_pod(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "proxies").await?;
    let proxy = try_create(scene.source, Some(&scene.namespace), POD, rich("rich")).await?;
    holds(
        &proxy,
        &[
            ("/metadata/finalizers", json!(["example.com/theirs", key("delegate")])),
            ("/metadata/labels/app", json!("rich")),
            ("/metadata/labels/multicluster.admiralty.io~1has-finalizer", json!("true")),
            ("/metadata/annotations/example.com~1note", json!("kept")),
            ("/spec/nodeSelector", json!({PROVIDER: "admiralty"})),
            ("/spec/affinity", Value::Null),
            ("/spec/topologySpreadConstraints", Value::Null),
            ("/spec/schedulerName", json!("admiralty-proxy")),
            ("/spec/terminationGracePeriodSeconds", json!(0)),
            ("/spec/hostUsers", json!(false)),
            ("/spec/initContainers/0/restartPolicy", json!("Always")),
        ],
    )?;
    let tolerations = proxy.data["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    let tolerated = |name: &str| tolerations.iter().find(|one| one["key"] == name);
    ensure!(tolerated(PROVIDER).is_some_and(|one| one["value"] == "admiralty"), "{tolerations:?}");
    ensure!(tolerated("theirs").is_none(), "the user's tolerations are the delegate's: {tolerations:?}");
    for outage in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let without_limit = tolerated(outage).is_some_and(|one| one.get("tolerationSeconds").is_none());
        ensure!(without_limit, "{outage} is not tolerated without limit: {tolerations:?}");
    }
    let manifest = proxy.annotations().get(&key("sourcepod-manifest")).context("no manifest")?;
    let manifest: Value = serde_json::from_str(manifest).context("the manifest is no JSON")?;
    ensure!(manifest["spec"]["schedulerName"] == "theirs", "the manifest is not the user's pod: {manifest}");
    ensure!(manifest["spec"]["terminationGracePeriodSeconds"] == 2, "{manifest}");
    scene.close().await
}

pub(crate) async fn w34_a_delegate_has_the_whole_spec_of_the_users_pod(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "delegates").await?;
    let pod = with(rich("rich"), "/metadata/finalizers", json!([]))?;
    let uid = scene.pod(pod).await?.uid().context("a pod without UID")?;
    let (_, life) = scene.delegate(&uid, &[]).await?;
    let cluster = ground.cluster(&life.cluster)?;
    let delegate = cluster.dynamic("v1", "Pod", Some(&scene.namespace)).get(&life.name).await?;
    let rewritten = json!({"matchLabels": {key("app"): "rich"}});
    let anti =
        "/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/0/labelSelector";
    holds(
        &delegate,
        &[
            ("/metadata/labels/multicluster.admiralty.io~1app", json!("rich")),
            ("/metadata/labels/app", Value::Null),
            ("/metadata/labels/example.com~1tier", json!("front")),
            ("/metadata/labels/multicluster.admiralty.io~1parent-uid", json!(uid)),
            ("/metadata/annotations/example.com~1note", json!("kept")),
            ("/metadata/annotations/multicluster.admiralty.io~1parent-name", json!("rich")),
            ("/metadata/annotations/multicluster.admiralty.io~1parent-namespace", json!(scene.namespace)),
            ("/metadata/annotations/multicluster.admiralty.io~1sourcepod-manifest", Value::Null),
            ("/metadata/finalizers", json!([key("chaperon")])),
            ("/metadata/ownerReferences/0/kind", json!("PodChaperon")),
            ("/spec/nodeSelector", json!({"kubernetes.io/os": "linux"})),
            ("/spec/schedulerName", json!("admiralty-candidate")),
            ("/spec/terminationGracePeriodSeconds", json!(2)),
            ("/spec/hostUsers", json!(false)),
            ("/spec/initContainers/0/restartPolicy", json!("Always")),
            ("/spec/containers/0/resizePolicy/0/restartPolicy", json!("RestartContainer")),
            ("/spec/topologySpreadConstraints/0/labelSelector", rewritten.clone()),
            (anti, rewritten),
        ],
    )?;
    let tolerations = &delegate.data["spec"]["tolerations"];
    ensure!(
        tolerations.to_string().contains("\"tolerationSeconds\":7"),
        "the user's toleration: {tolerations}"
    );
    let cluster_name = delegate.labels().get(&key("parent-cluster-name")).cloned().unwrap_or_default();
    ensure!(!cluster_name.is_empty(), "parent-cluster-name is empty");
    scene.close().await
}

pub(crate) async fn w29_what_only_components_may_write_is_refused_from_users(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "forgeries").await?;
    let namespace = Some(scene.namespace.as_str());
    for name in
        ["sourcepod-manifest", "sourcepod-manifest-mac", "elected-target", "elected-chaperon", "grant"]
    {
        let forged = with(fake_pod("forged"), "/metadata/annotations", json!({key(name): "{}"}))?;
        refused(try_create(scene.source, namespace, POD, forged).await, &[&key(name)])?;
    }
    let pretender = with(fake_pod("pretender"), "/spec/schedulerName", json!("admiralty-proxy"))?;
    let opted_out = with(pretender.clone(), "/metadata/annotations", json!({key("elect"): "never"}))?;
    refused(try_create(scene.source, namespace, POD, opted_out).await, &["admiralty-proxy"])?;
    // The same in a namespace that is not enabled at all.
    refused(try_create(scene.source, Some("default"), POD, pretender).await, &["admiralty-proxy"])?;
    let cuckoo = with(fake_pod("cuckoo"), "/spec/nodeName", json!("admiralty-target-1"))?;
    refused(try_create(scene.source, namespace, POD, cuckoo).await, &["nodeName"])?;
    // What was recorded on a proxy pod stays as it is.
    scene.pod(fake_pod("honest")).await?;
    becomes(scene.source, &scene.namespace, "honest", "Ready").await?;
    let change = json!({"metadata": {"annotations": {key("elected-target"): "elsewhere"}}});
    refused(merge(scene.source, namespace, POD, "honest", change).await, &["elected-target"])?;
    scene.close().await
}

pub(crate) async fn pods_elect_themselves_or_opt_out(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "elections").await?;
    let never = with(fake_pod("never"), "/metadata/annotations", json!({key("elect"): "never"}))?;
    scene.pod(never).await?;
    let local = becomes(scene.source, &scene.namespace, "never", "Ready").await?;
    let node = local.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    ensure!(node.starts_with("fake-") && local.finalizers().is_empty(), "a pod that opted out is on {node}");
    let enabled = "elections-enabled";
    scene.source.create_namespace(enabled, &[("multicluster-scheduler", "enabled")]).await?;
    scene.source.create_namespace("elections-not", &[]).await?;
    let elect = with(fake_pod("one"), "/metadata/annotations", json!({key("elect"): ""}))?;
    for (namespace, pod, want) in [
        (enabled, fake_pod("one"), false),
        (enabled, elect.clone(), true),
        ("elections-not", elect, false),
        (scene.namespace.as_str(), fake_pod("one"), true),
    ] {
        let made = try_create(scene.source, Some(namespace), POD, pod).await?;
        let is_proxy = made.data["spec"]["schedulerName"] == "admiralty-proxy";
        ensure!(is_proxy == want, "in {namespace} the pod became {}", json!(made));
    }
    remove_namespace(scene.source, enabled).await?;
    remove_namespace(scene.source, "elections-not").await?;
    scene.close().await
}

pub(crate) async fn case_040_pods_of_the_release_are_never_elected(ground: &Ground) -> Result<()> {
    installed(ground).await?;
    let source = ground.cluster("source")?;
    let labels = |value: Option<(&str, &str)>| {
        let (enabled, elect) = value.unzip();
        json!({"metadata": {"labels": {"multicluster-scheduler": enabled, key("elect"): elect}}})
    };
    let namespace = ("v1", "Namespace");
    merge(source, None, namespace, RELEASE, labels(Some(("enabled", "all")))).await?;
    let elect = with(fake_pod("one"), "/metadata/annotations", json!({key("elect"): ""}))?;
    let made = try_create(source, Some(RELEASE), POD, elect).await;
    merge(source, None, namespace, RELEASE, labels(None)).await?;
    let made = made?;
    ensure!(
        made.finalizers().is_empty() && made.data["spec"]["schedulerName"] == "default-scheduler",
        "{}",
        json!(made)
    );
    Ok(())
}

pub(crate) async fn case_009_priorities_are_those_of_the_target(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "priorities").await?;
    let target = ground.cluster("target-1")?;
    let class = ("scheduling.k8s.io/v1", "PriorityClass");
    let default = json!({"metadata": {"name": "case-009"}, "value": 1000, "globalDefault": true});
    create(target, None, class, default).await?;
    let uid = scene.pod(pinned(fake_pod("one"), "target-1")?).await?.uid().context("a pod without UID")?;
    let outcome = becomes(scene.source, &scene.namespace, "one", "Ready").await;
    target.dynamic(class.0, class.1, None).delete("case-009", &DeleteParams::default()).await?;
    outcome?;
    let (_, life) = scene.delegate(&uid, &[]).await?;
    let delegate = scene.beside(&life)?.get(&life.name).await?;
    let priority = delegate.spec.and_then(|spec| spec.priority);
    ensure!(priority == Some(1000), "the delegate's priority is {priority:?}");

    create(scene.source, None, class, json!({"metadata": {"name": "case-009-here"}, "value": 5})).await?;
    let urgent = with(fake_pod("urgent"), "/spec/priorityClassName", json!("case-009-here"))?;
    until(SOON, "the source knows the class", async || {
        Ok(Some(try_create(scene.source, Some(&scene.namespace), POD, urgent.clone()).await?))
    })
    .await?;
    scene.pod(urgent).await?;
    until(LONG, "a class that targets lack is named", async || {
        let status = json!(scene.pods().get("urgent").await?.status);
        let message = condition(&status, "PodScheduled").context("no condition")?["message"].to_string();
        if message.contains("case-009-here") { Ok(Some(())) } else { bail!(message) }
    })
    .await?;
    scene.source.dynamic(class.0, class.1, None).delete("case-009-here", &DeleteParams::default()).await?;
    scene.close().await
}

pub(crate) async fn w44_case_007_an_outage_of_the_webhook_stops_elected_pods_only(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "outage").await?;
    scene.source.create_namespace("outage-enabled", &[("multicluster-scheduler", "enabled")]).await?;
    scene.pod(fake_pod("before")).await?;
    becomes(scene.source, &scene.namespace, "before", "Ready").await?;
    let replicas = scale(scene.source, "webhook", 0).await?;
    let outcome = without_webhook(&scene).await;
    scale(scene.source, "webhook", replicas).await?;
    outcome?;
    until(SOON, "elected pods are admitted again", async || {
        Ok(Some(try_create(scene.source, Some(&scene.namespace), POD, fake_pod("after")).await?))
    })
    .await?;
    remove_namespace(scene.source, "outage-enabled").await?;
    scene.close().await
}

async fn without_webhook(scene: &Scene<'_>) -> Result<()> {
    let (source, own) = (scene.source, scene.namespace.as_str());
    let never = with(fake_pod("never"), "/metadata/annotations", json!({key("elect"): "never"}))?;
    for (namespace, pod) in
        [("kube-system", fake_pod("system")), ("outage-enabled", fake_pod("plain")), (own, never)]
    {
        let made = try_create(source, Some(namespace), POD, pod).await;
        made.with_context(|| format!("a pod that does not elect, in {namespace}"))?;
    }
    let elect = with(fake_pod("elected"), "/metadata/annotations", json!({key("elect"): ""}))?;
    for (namespace, pod) in [("outage-enabled", elect), (own, fake_pod("elected"))] {
        refused(
            try_create(source, Some(namespace), POD, pod).await,
            &["failed calling webhook", "multicluster"],
        )?;
    }
    // Nothing else of a proxy pod's life needs the webhook.
    let change = json!({"metadata": {"labels": {"example.com/changed": "yes"}}});
    merge(source, Some(own), POD, "before", change).await?;
    scene.pods().delete("before", &DeleteParams::default()).await?;
    gone(source, own, "before").await?;
    // An outage holds up no Target either: its schema and its readers judge it too.
    apply(source, "Target", Some(own), "late", json!({"kubeconfigSecret": {"name": "none"}})).await
}

pub(crate) async fn case_008_updates_of_a_proxy_pod_are_not_mutated(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "case-008").await?;
    let held = with(fake_pod("held"), "/metadata/finalizers", json!(["example.com/theirs"]))?;
    scene.pod(held).await?;
    becomes(scene.source, &scene.namespace, "held", "Ready").await?;
    scene.pods().delete("held", &DeleteParams::default()).await?;
    until(LONG, "only the user's finalizer holds the pod", async || {
        let pod = scene.pods().get("held").await?;
        if pod.finalizers() == ["example.com/theirs"] {
            Ok(Some(()))
        } else {
            bail!("{:?}", pod.finalizers())
        }
    })
    .await?;
    merge(scene.source, Some(&scene.namespace), POD, "held", json!({"metadata": {"finalizers": null}}))
        .await?;
    gone(scene.source, &scene.namespace, "held").await?;
    scene.close().await
}

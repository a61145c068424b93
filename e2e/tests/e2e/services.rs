//! Services lead to the delegates of the pods that they select.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::cluster::Cluster;
use e2e::ground::Ground;
use e2e::setup::targets;
use e2e::wait::{throughout, until};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::budget::requests;
use crate::guest::{becomes, fake_pod, gone, with};
use crate::scene::{LONG, Scene, key, merge, pinned};

fn services(cluster: &Cluster, namespace: &str) -> Api<DynamicObject> {
    cluster.dynamic("v1", "Service", Some(namespace))
}

fn web(kind: &str) -> Value {
    json!({"metadata": {"name": "web"}, "spec": {"type": kind, "selector": {"app": "web", "x.io/tier": "front"},
        "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}})
}

fn pod(name: &str, target: &str) -> Result<Value> {
    pinned(with(fake_pod(name), "/metadata/labels", json!({"app": "web", "x.io/tier": "front"}))?, target)
}

/// Waits until a cluster has the copy, and returns it.
async fn copy(cluster: &Cluster, namespace: &str, name: &str) -> Result<DynamicObject> {
    until(LONG, &format!("a copy of {name} in {}", cluster.name), async || {
        let found = services(cluster, namespace).get_opt(name).await?;
        Ok(found.filter(|one| one.annotations().contains_key(&key("is-delegate"))))
    })
    .await
}

/// Waits until the Service leads to so many addresses in a cluster.
async fn leads_to(cluster: &Cluster, namespace: &str, name: &str, count: usize) -> Result<()> {
    let slices: Api<EndpointSlice> = cluster.api(namespace);
    let of = ListParams::default().labels(&format!("kubernetes.io/service-name={name}"));
    until(LONG, &format!("{name} leads to {count} pods in {}", cluster.name), async || {
        let list = slices.list(&of).await?.items;
        let found: usize = list.iter().map(|slice| slice.endpoints.as_ref().map_or(0, Vec::len)).sum();
        ensure!(found == count, "{found} addresses");
        Ok(Some(()))
    })
    .await
}

/// Fails when a Service or slices of it are in a cluster.
async fn stays_away(cluster: &Cluster, namespace: &str, name: &str) -> Result<()> {
    ensure!(services(cluster, namespace).get_opt(name).await?.is_none(), "nobody serves {name}");
    let slices: Api<EndpointSlice> = cluster.api(namespace);
    let of = ListParams::default().labels(&format!("kubernetes.io/service-name={name}"));
    ensure!(slices.list(&of).await?.items.is_empty(), "slices of a Service that does not follow");
    Ok(())
}

fn patches(cluster: &Cluster, namespace: &str) -> Result<usize> {
    let seen = requests(cluster, "services", namespace)?;
    Ok(seen.iter().filter(|event| ["patch", "update"].iter().any(|verb| event["verb"] == *verb)).count())
}

pub(crate) async fn w36_case_082_a_service_follows_only_where_its_pods_run(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "followed-services").await?;
    let (one, two) = (ground.cluster("target-1")?, ground.cluster("target-2")?);
    scene.create("v1", "Service", web("LoadBalancer")).await?;
    let mut unserved = web("ClusterIP");
    unserved["metadata"]["name"] = json!("unserved");
    unserved["spec"]["selector"] = json!({"app": "nobody"});
    scene.create("v1", "Service", unserved).await?;
    for name in ["a", "b"] {
        scene.pod(pod(name, "target-1")?).await?;
        becomes(scene.source, &scene.namespace, name, "Ready").await?;
    }
    let made = copy(one, &scene.namespace, "web").await?;
    let selector = json!({key("app"): "web", key("tier"): "front"});
    ensure!(made.data["spec"]["selector"] == selector, "{}", made.data["spec"]);
    ensure!(made.data["spec"]["type"] == "ClusterIP", "{}", made.data["spec"]);
    ensure!(made.data["spec"]["ports"][0].get("nodePort").is_none(), "{}", made.data["spec"]);
    for cilium in ["io.cilium/global-service", "service.cilium.io/global", &key("global")] {
        ensure!(made.annotations().get(cilium).is_some_and(|is| is == "true"), "{:?}", made.annotations());
    }
    leads_to(one, &scene.namespace, "web", 2).await?;
    until(LONG, "the original is rerouted", async || {
        let original = services(scene.source, &scene.namespace).get("web").await?;
        let kept = original.annotations().get(&key("original-selector")).map(String::as_str);
        ensure!(original.data["spec"]["selector"] == selector, "{}", original.data["spec"]);
        ensure!(kept == Some("app=web,x.io/tier=front"), "{kept:?}");
        Ok(original.finalizers().contains(&key("follow")).then_some(()))
    })
    .await?;
    ensure!(services(two, &scene.namespace).get_opt("web").await?.is_none(), "a copy where no pod runs");
    stays_away(one, &scene.namespace, "unserved").await?;
    let marked = ground.is_local().then(|| patches(scene.source, &scene.namespace)).transpose()?;
    ensure!(marked.is_none_or(|count| count == 1), "{marked:?} writes of the original");
    let versions = async || {
        let original = services(scene.source, &scene.namespace).get("web").await?.resource_version();
        anyhow::Ok((original, services(one, &scene.namespace).get("web").await?.resource_version()))
    };
    let before = versions().await?;
    throughout(Duration::from_secs(6), "w40: nothing is written", async || Ok(versions().await? == before))
        .await?;
    for name in ["a", "b"] {
        scene.pods().delete(name, &DeleteParams::default()).await?;
        gone(scene.source, &scene.namespace, name).await?;
    }
    until(LONG, "the reroute is undone", async || {
        let original = services(scene.source, &scene.namespace).get("web").await?;
        ensure!(
            original.data["spec"]["selector"] == web("")["spec"]["selector"],
            "{}",
            original.data["spec"]
        );
        let clean = original.finalizers().iter().all(|finalizer| !finalizer.starts_with(&key("")))
            && !original.annotations().contains_key("service.cilium.io/global");
        Ok((clean && services(one, &scene.namespace).get_opt("web").await?.is_none()).then_some(()))
    })
    .await?;
    scene.close().await
}

pub(crate) async fn case_079_a_manifest_that_is_applied_again_costs_one_write_each(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "reapplied").await?;
    let target = ground.cluster("target-2")?;
    let mut manifest = web("ClusterIP");
    manifest["apiVersion"] = json!("v1");
    manifest["kind"] = json!("Service");
    let apply = PatchParams::apply("gitops").force();
    let originals = services(scene.source, &scene.namespace);
    originals.patch("web", &apply, &Patch::Apply(&manifest)).await?;
    scene.pod(pod("a", "target-2")?).await?;
    becomes(scene.source, &scene.namespace, "a", "Ready").await?;
    leads_to(target, &scene.namespace, "web", 1).await?;
    let rerouted = async || {
        until(LONG, "the original is rerouted", async || {
            let selector = originals.get("web").await?.data["spec"]["selector"].clone();
            ensure!(selector == json!({key("app"): "web", key("tier"): "front"}), "{selector}");
            Ok(Some(()))
        })
        .await
    };
    rerouted().await?;
    let made = copy(target, &scene.namespace, "web").await?.resource_version();
    for _ in 0..5 {
        originals.patch("web", &apply, &Patch::Apply(&manifest)).await?;
        rerouted().await?;
    }
    let now = copy(target, &scene.namespace, "web").await?.resource_version();
    ensure!(made == now, "the copy was written");
    if ground.is_local() {
        let by_us = patches(scene.source, &scene.namespace)?;
        ensure!(by_us <= 6, "{by_us} writes of the original");
    }
    originals.delete("web", &DeleteParams::default()).await?;
    until(LONG, "original and copy are gone", async || {
        let original = originals.get_opt("web").await?;
        let copy = services(target, &scene.namespace).get_opt("web").await?;
        Ok((original.is_none() && copy.is_none()).then_some(()))
    })
    .await?;
    scene.close().await
}

pub(crate) async fn case_110_a_headless_service_leads_to_the_peers(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "headless").await?;
    let target = ground.cluster("target-1")?;
    let mut headless = web("ClusterIP");
    headless["spec"]["clusterIP"] = json!("None");
    headless["spec"]["publishNotReadyAddresses"] = json!(true);
    scene.create("v1", "Service", headless).await?;
    for name in ["peer-0", "peer-1"] {
        let peer = with(pod(name, "target-1")?, "/spec/subdomain", json!("web"))?;
        scene.pod(with(peer, "/spec/hostname", json!(name))?).await?;
    }
    scene.ready(2).await?;
    let made = copy(target, &scene.namespace, "web").await?;
    ensure!(made.data["spec"]["clusterIP"] == "None", "{}", made.data["spec"]);
    leads_to(target, &scene.namespace, "web", 2).await?;
    let slices: Api<EndpointSlice> = target.api(&scene.namespace);
    let of = ListParams::default().labels("kubernetes.io/service-name=web");
    let mut names: Vec<String> = slices
        .list(&of)
        .await?
        .items
        .into_iter()
        .flat_map(|slice| slice.endpoints.unwrap_or_default())
        .filter_map(|endpoint| endpoint.hostname)
        .collect();
    names.sort();
    ensure!(names == ["peer-0", "peer-1"], "peers are called {names:?}");
    scene.close().await
}

pub(crate) async fn w36_a_service_that_its_user_shares_is_in_every_target(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "user-shared").await?;
    let mut shared = web("ClusterIP");
    shared["metadata"]["annotations"] = json!({"service.cilium.io/global": "true"});
    scene.create("v1", "Service", shared).await?;
    for target in targets(ground) {
        let made = copy(target, &scene.namespace, "web").await?;
        ensure!(made.data["spec"]["selector"]["app"] == "web", "{}", made.data["spec"]);
    }
    let original = services(scene.source, &scene.namespace).get("web").await?;
    ensure!(original.data["spec"]["selector"]["app"] == "web", "{}", original.data["spec"]);
    let change = json!({"metadata": {"annotations": {"service.cilium.io/global": null}}});
    merge(scene.source, Some(&scene.namespace), ("v1", "Service"), "web", change).await?;
    for target in targets(ground) {
        until(LONG, "the copy is gone", async || {
            Ok(services(target, &scene.namespace).get_opt("web").await?.is_none().then_some(()))
        })
        .await
        .context(target.name.clone())?;
    }
    scene.close().await
}

pub(crate) async fn w16_case_131_an_ingress_follows_its_services(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "ingresses").await?;
    let (one, two) = (ground.cluster("target-1")?, ground.cluster("target-2")?);
    scene.create("v1", "Service", web("ClusterIP")).await?;
    let cert = json!({"metadata": {"name": "cert"}, "type": "kubernetes.io/tls",
        "data": {"tls.crt": "YQ==", "tls.key": "Yg=="}});
    scene.create("v1", "Secret", cert).await?;
    let path = json!({"path": "/", "pathType": "Prefix",
        "backend": {"service": {"name": "web", "port": {"name": "http"}}}});
    let annotations = json!({"cert-manager.io/cluster-issuer": "x", "external-dns.alpha.kubernetes.io/hostname": "a",
        "argocd.argoproj.io/tracking-id": "x", "kubectl.kubernetes.io/last-applied-configuration": "{}", "kept": "1"});
    // The first rule has no paths: legal, and it leads nowhere.
    let ingress = json!({"metadata": {"name": "web", "annotations": annotations}, "spec": {
        "tls": [{"hosts": ["a.example.com"], "secretName": "cert"}],
        "rules": [{"host": "b.example.com"}, {"host": "a.example.com", "http": {"paths": [path]}}]}});
    scene.create("networking.k8s.io/v1", "Ingress", ingress).await?;
    scene.pod(pod("a", "target-2")?).await?;
    becomes(scene.source, &scene.namespace, "a", "Ready").await?;
    let ingresses =
        |cluster: &Cluster| cluster.dynamic("networking.k8s.io/v1", "Ingress", Some(&scene.namespace));
    let made =
        until(LONG, "the Ingress is where its pods are", async || Ok(ingresses(two).get_opt("web").await?))
            .await?;
    let kept: Vec<&String> = made.annotations().keys().filter(|name| !name.starts_with(&key(""))).collect();
    ensure!(kept == ["kept"], "{kept:?}");
    ensure!(made.data["spec"]["rules"][0]["host"] == "b.example.com", "{}", made.data);
    until(LONG, "so are its certificates", async || {
        let secrets = two.dynamic("v1", "Secret", Some(&scene.namespace));
        Ok(secrets.get_opt("cert").await?)
    })
    .await?;
    ensure!(ingresses(one).get_opt("web").await?.is_none(), "a copy where no pod runs");
    until(LONG, "the original is marked", async || {
        let original = ingresses(scene.source).get("web").await?;
        let is_global = original.annotations().get(&key("global")).is_some_and(|is| is == "true");
        Ok((is_global && original.finalizers().contains(&key("follow"))).then_some(()))
    })
    .await?;
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}});
    ingresses(two).patch_status("web", &PatchParams::default(), &Patch::Merge(&status)).await?;
    until(LONG, "the original says where its copy is reached", async || {
        let status = ingresses(scene.source).get("web").await?.data["status"].clone();
        Ok((status["loadBalancer"]["ingress"] == json!([{"ip": "192.0.2.7"}])).then_some(()))
    })
    .await?;
    let rule = json!({"spec": {"defaultBackend": {"service": {"name": "web", "port": {"name": "http"}}}}});
    merge(scene.source, Some(&scene.namespace), ("networking.k8s.io/v1", "Ingress"), "web", rule).await?;
    until(LONG, "a change follows", async || {
        Ok(ingresses(two).get("web").await?.data["spec"].get("defaultBackend").is_some().then_some(()))
    })
    .await?;
    ingresses(scene.source).delete("web", &DeleteParams::default()).await?;
    until(LONG, "the copy goes with its original", async || {
        let left = (ingresses(scene.source).get_opt("web").await?, ingresses(two).get_opt("web").await?);
        Ok((left.0.is_none() && left.1.is_none()).then_some(()))
    })
    .await?;
    scene.close().await
}

//! `kubectl multicluster`, as a person runs it: a kubeconfig with a context for each cluster, and nothing else.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use e2e::cluster::Cluster;
use e2e::connect::has_condition;
use e2e::ground::Ground;
use e2e::images::Images;
use e2e::tools::output;
use e2e::wait::until;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::Api;
use kube::api::PostParams;
use kube::config::Kubeconfig;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::guest::{fake_pod, with};
use crate::scene::{GROUP_VERSION, LONG, Scene, create, key, pinned, pinned_by};
use crate::third::third;

/// A person with administrators' contexts.
pub(crate) struct Person {
    program: PathBuf,
    kubeconfig: PathBuf,
    namespace: String,
}

impl Person {
    /// Writes a kubeconfig with a context for each cluster, named after it; the first is the current one.
    pub(crate) fn new(name: &str, clusters: &[&Cluster]) -> Result<Self> {
        let mut all = json!({
            "apiVersion": "v1", "kind": "Config", "clusters": [], "users": [], "contexts": [],
            "current-context": clusters.first().context("no cluster")?.name,
        });
        for cluster in clusters {
            let name = &cluster.name;
            let one = serde_json::to_value(Kubeconfig::read_from(&cluster.kubeconfig)?)?;
            let entries = [
                ("clusters", json!({"name": name, "cluster": one["clusters"][0]["cluster"]})),
                ("contexts", json!({"name": name, "context": {"cluster": name, "user": name}})),
            ];
            for (list, entry) in entries {
                all[list].as_array_mut().context("a list")?.push(entry);
            }
            // kube keeps secrets out of what it serialises.
            let text: Value = serde_yaml::from_str(&std::fs::read_to_string(&cluster.kubeconfig)?)?;
            let user = json!({"name": name, "user": text["users"][0]["user"]});
            all["users"].as_array_mut().context("a list")?.push(user);
        }
        let folder = clusters.first().context("no cluster")?.kubeconfig.parent().unwrap_or(Path::new("."));
        let kubeconfig = folder.join(format!("{name}.person.kubeconfig"));
        std::fs::write(&kubeconfig, all.to_string()).context("cannot write a kubeconfig")?;
        let program = Images::beside_this_program()?.program("kubectl-multicluster")?;
        Ok(Self { program, kubeconfig, namespace: name.to_owned() })
    }

    /// Runs a command and returns what it printed.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.program);
        command
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(["--namespace", &self.namespace])
            .args(arguments);
        output(command).await
    }

    /// Runs a command that must fail, and returns what it said.
    async fn fails(&self, arguments: &[&str]) -> Result<String> {
        match self.run(arguments).await {
            Ok(said) => bail!("{arguments:?} did not fail: {said}"),
            Err(error) => Ok(format!("{error:#}")),
        }
    }

    /// Runs a command and parses its JSON.
    pub(crate) async fn json(&self, arguments: &[&str]) -> Result<Value> {
        let text = self.run(&[arguments, &["-o", "json"]].concat()).await?;
        serde_json::from_str(&text).with_context(|| format!("no JSON: {text}"))
    }
}

/// The row of a target in the JSON of `status`.
pub(crate) fn row<'a>(status: &'a Value, target: &str) -> Result<&'a Value> {
    let rows = status["targets"].as_array().context("no targets")?;
    rows.iter().find(|row| row["name"] == target).with_context(|| format!("no row of {target}: {status}"))
}

pub(crate) async fn a_target_is_added_seen_rotated_drained_and_removed(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "cli-target").await?;
    let third = third(ground).await?;
    third.create_namespace(&scene.namespace, &[]).await?;
    let person = Person::new(&scene.namespace, &[scene.source, third])?;
    let name = format!("{}/far", scene.namespace);
    let add =
        ["target", "add", "far", "--namespaced", "--target-context", "third", "--source-name", "cli-source"];
    let add = [&add[..], &["--server", &third.server, "--duration", "2h"]].concat();
    let said = person.fails(&["target", "add", "far", "--namespaced", "--target-context", "source"]).await?;
    ensure!(said.contains("--target-context source: it leads to this very cluster"), "{said}");
    person.run(&add).await?;
    // Asked again, nothing changes.
    person.run(&add).await?;
    let status = person.json(&["status"]).await?;
    let far = row(&status, &name)?;
    ensure!(far["ready"] == "True" && far["node"]["cordoned"] == false, "{far}");
    ensure!(far["credentialsEnd"].is_string() && far["node"]["allocatable"]["cpu"].is_string(), "{far}");
    ensure!(row(&status, "target-1")?["ready"] == "True", "{status}");
    let components = status["components"].as_array().context("no components")?;
    ensure!(components.iter().any(|component| component["name"] == "proxy-scheduler"), "{status}");

    let secrets: Api<Secret> = scene.source.api(&scene.namespace);
    let before = secrets.get("far").await?.data;
    person.run(&["target", "rotate", &name, "--target-context", "third"]).await?;
    ensure!(secrets.get("far").await?.data != before, "the Secret has the old token");
    let targets = scene.source.dynamic(GROUP_VERSION, "Target", Some(&scene.namespace));
    until(LONG, "the target stays Ready", async || {
        Ok(has_condition(&targets.get("far").await?, "Ready", "True").then_some(()))
    })
    .await?;

    scene.pod(pinned_by(fake_pod("bare"), "target-name", "far")?).await?;
    scene.ready(1).await?;
    let why = person.json(&["explain", "pod/bare"]).await?;
    ensure!(why["state"] == "Elected" && why["targets"][0]["target"] == name.as_str(), "{why}");
    ensure!(why["targets"][0]["reason"] == "the delegate is Running", "{why}");

    let said = person.fails(&["drain", &name]).await?;
    ensure!(said.contains(&format!("nothing makes these pods anew: {}/bare", scene.namespace)), "{said}");
    let status = person.json(&["status"]).await?;
    ensure!(row(&status, &name)?["node"]["cordoned"] == true, "the target is not cordoned: {status}");
    person.run(&["uncordon", &name]).await?;
    ensure!(row(&person.json(&["status"]).await?, &name)?["node"]["cordoned"] == false, "still cordoned");
    person.run(&["drain", &name, "--force"]).await?;
    ensure!(scene.pods().get_opt("bare").await?.is_none(), "the pod is still there");
    let orphans = person.json(&["orphans"]).await?;
    ensure!(orphans["unknown"] == json!([]), "{orphans}");
    let left = orphans["orphans"].as_array().context("no list")?;
    ensure!(left.iter().all(|orphan| orphan["target"] != name.as_str()), "{orphans}");

    let remove = ["target", "remove", &name, "--target-context", "third", "--source-name", "cli-source"];
    person.run(&remove).await?;
    ensure!(secrets.get_opt("far").await?.is_none(), "the Secret is still there");
    let sources = third.dynamic(GROUP_VERSION, "Source", Some(&scene.namespace));
    ensure!(sources.get_opt("cli-source").await?.is_none(), "the Source is still there");
    let said = person.fails(&["drain", &name]).await?;
    ensure!(said.contains(&format!("there is no target {name}; there are: target-1, target-2")), "{said}");
    scene.close().await
}

/// A pod, and what must be said of each target.
type Waiting = (&'static str, Value, &'static str);

fn waiting() -> Result<Vec<Waiting>> {
    let app = |name: &str| json!({"matchLabels": {"app": name}});
    let far = json!({"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": app("nobody"), "topologyKey": "kubernetes.io/hostname"},
    ]});
    let spread = json!([{
        "maxSkew": 1, "topologyKey": "example.com/nowhere", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": app("spread"),
    }]);
    let request =
        |resource: &str, amount: &str| json!({"requests": {resource: amount}, "limits": {resource: amount}});
    let spec = |name, pointer, value| with(fake_pod(name), pointer, value);
    Ok(vec![
        ("cpu", spec("cpu", "/spec/containers/0/resources", request("cpu", "5k"))?, "Insufficient cpu"),
        (
            "memory",
            spec("memory", "/spec/containers/0/resources", request("memory", "1Pi"))?,
            "Insufficient memory",
        ),
        (
            "gpu",
            spec("gpu", "/spec/containers/0/resources", request("example.com/gpu", "1"))?,
            "Insufficient example.com/gpu",
        ),
        (
            "selector",
            spec("selector", "/spec/nodeSelector", json!({"example.com/no": "no"}))?,
            "node affinity/selector",
        ),
        ("near", spec("near", "/spec/affinity", json!({"podAffinity": far}))?, "pod affinity rules"),
        ("spread", spec("spread", "/spec/topologySpreadConstraints", spread)?, "topology spread constraints"),
        ("account", spec("account", "/spec/serviceAccountName", json!("only-at-home"))?, "serviceaccount"),
    ])
}

pub(crate) async fn each_reason_why_a_pod_waits_is_explained(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "cli-explain").await?;
    let person = Person::new(&scene.namespace, &[scene.source])?;
    let accounts: Api<ServiceAccount> = scene.source.api(&scene.namespace);
    let account = serde_json::from_value(json!({"metadata": {"name": "only-at-home"}}))?;
    accounts.create(&PostParams::default(), &account).await?;
    let cases = waiting()?;
    for (_, pod, _) in &cases {
        scene.pod(pod.clone()).await?;
    }
    for (name, _, reason) in &cases {
        explained(&person, name, reason).await?;
    }

    let gates = json!([{"name": "example.com/later"}]);
    scene.pod(with(fake_pod("gated"), "/spec/schedulingGates", gates)?).await?;
    let why = person.json(&["explain", "gated"]).await?;
    ensure!(why["state"] == "Gated" && why.to_string().contains("example.com/later"), "{why}");

    let never = json!({key("elect"): "never"});
    scene.pod(with(fake_pod("home"), "/metadata/annotations", never)?).await?;
    let why = person.json(&["explain", "home"]).await?;
    ensure!(why["state"] == "NotElected" && why.to_string().contains("it opts out"), "{why}");

    let said = person.fails(&["explain", "nobody"]).await?;
    ensure!(said.contains(&format!("cannot read pod {}/nobody", scene.namespace)), "{said}");
    refused_by_one(&scene, &person).await?;
    scene.close().await
}

/// Waits until each target's row gives the reason and a cure.
async fn explained(person: &Person, pod: &str, reason: &str) -> Result<()> {
    until(LONG, &format!("{pod} is explained by {reason:?}"), async || {
        let why = person.json(&["explain", pod]).await?;
        let rows = why["targets"].as_array().context("no rows")?;
        let said = rows.iter().filter(|row| {
            row["reason"].as_str().is_some_and(|text| text.contains(reason)) && row["cure"] != ""
        });
        if said.count() >= 2 { Ok(Some(())) } else { bail!("{why}") }
    })
    .await
}

/// What one target alone refuses is said of this target, and what the person does not let into another of that.
async fn refused_by_one(scene: &Scene<'_>, person: &Person) -> Result<()> {
    let target = scene.ground.cluster("target-1")?;
    let quota = json!({"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}});
    create(target, Some(&scene.namespace), ("v1", "ResourceQuota"), quota).await?;
    until(LONG, "the quota is in force", async || {
        let api = target.dynamic("v1", "ResourceQuota", Some(&scene.namespace));
        Ok(api.get("none").await?.data.pointer("/status/hard/pods").cloned())
    })
    .await?;
    scene.pod(pinned(fake_pod("over"), "target-1")?).await?;
    until(LONG, "the quota is named", async || {
        let why = person.json(&["explain", "over"]).await?;
        let said = |target: &str, text: &str| {
            let mut rows = why["targets"].as_array().into_iter().flatten();
            rows.any(|row| row["target"] == target && row.to_string().contains(text))
        };
        let right =
            said("target-1", "raise the ResourceQuota there") && said("target-2", "node affinity/selector");
        if right { Ok(Some(())) } else { bail!("{why}") }
    })
    .await
}

pub(crate) async fn a_bundle_holds_no_secret(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "cli-bundle").await?;
    let person = Person::new(&scene.namespace, &[scene.source])?;
    let env = json!([{"name": "PASSWORD", "value": "hunter2-cli"}]);
    scene.pod(with(fake_pod("app"), "/spec/containers/0/env", env)?).await?;
    scene.ready(1).await?;
    let file = person.kubeconfig.with_extension("tar.gz");
    let archive = file.to_string_lossy().into_owned();
    person.run(&["bundle", &archive]).await?;
    let said = person.fails(&["bundle", &archive]).await?;
    ensure!(said.contains("cannot create"), "an archive that is there is overwritten: {said}");
    let mut list = Command::new("tar");
    list.args(["-xzOf", &archive]);
    let text = output(list).await?;
    for there in ["kind: ClusterTarget", "name: target-1", "kind: Pod", "admiralty-target-1"] {
        ensure!(text.contains(there), "the bundle lacks {there}");
    }
    ensure!(!text.contains("hunter2-cli"), "the bundle has the value of a variable");
    ensure!(!text.contains("kind: Secret"), "the bundle has a Secret");
    scene.close().await
}

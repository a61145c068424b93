//! The test ground itself is tested first: nothing else can be believed otherwise.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use e2e::controlplane::{API_PORT, Options};
use e2e::ground::Ground;
use e2e::keys;
use e2e::process::Process;
use e2e::wait::{SOON, throughout, until};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::guest::{ask, becomes, create, fake_pod, gone, in_phase, is, pod, with};

pub(crate) async fn a_fake_node_runs_pods(ground: &Ground) -> Result<()> {
    let cluster = ground.cluster("target-1")?;
    cluster.create_namespace("fake-pods", &[]).await?;
    create(cluster, "fake-pods", fake_pod("one")).await?;
    let pod = becomes(cluster, "fake-pods", "one", "Ready").await?;
    let node = pod.spec.and_then(|spec| spec.node_name).unwrap_or_default();
    ensure!(node.starts_with("fake-"), "the pod is on node {node}");
    Ok(())
}

pub(crate) async fn a_job_on_a_fake_node_completes(ground: &Ground) -> Result<()> {
    let cluster = ground.cluster("target-1")?;
    cluster.create_namespace("fake-jobs", &[]).await?;
    let jobs: Api<Job> = cluster.api("fake-jobs");
    for (name, code) in [("good", "0"), ("bad", "7")] {
        let job = json!({
            "metadata": {"name": name},
            "spec": {"backoffLimit": 0, "template": {
                "metadata": {"annotations": {keys::RUNS_FOR: "1s", keys::EXIT_CODE: code}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "any"}]},
            }},
        });
        jobs.create(&PostParams::default(), &serde_json::from_value(job)?).await?;
    }
    for (name, want) in [("good", "Complete"), ("bad", "Failed")] {
        until(SOON, &format!("job {name} is {want}"), async || {
            let status = jobs.get(name).await?.status.unwrap_or_default();
            let mut conditions = status.conditions.into_iter().flatten();
            Ok(conditions.any(|is| is.type_ == want && is.status == "True").then_some(()))
        })
        .await?;
    }
    Ok(())
}

pub(crate) async fn a_fake_kubelet_stops_containers_before_a_pod_goes(ground: &Ground) -> Result<()> {
    let cluster = ground.cluster("target-1")?;
    cluster.create_namespace("fake-deletes", &[]).await?;
    let held = with(fake_pod("held"), "/metadata/finalizers", json!(["example.com/held"]))?;
    let held = with(held, "/spec/terminationGracePeriodSeconds", json!(3))?;
    create(cluster, "fake-deletes", held).await?;
    becomes(cluster, "fake-deletes", "held", "Ready").await?;
    let pods: Api<Pod> = cluster.api("fake-deletes");
    pods.delete("held", &DeleteParams::default()).await?;
    throughout(Duration::from_secs(2), "containers have their grace period", async || {
        Ok(is(&pods.get("held").await?, "Ready"))
    })
    .await?;
    let stopped = in_phase(cluster, "fake-deletes", "held", "Failed").await?;
    let ended = json!(stopped.status).pointer("/containerStatuses/0/state/terminated").is_some();
    ensure!(ended, "the container has not ended: {}", json!(stopped.status));
    throughout(Duration::from_secs(2), "the finalizer holds the pod", async || {
        Ok(pods.get_opt("held").await?.is_some())
    })
    .await?;
    let free =
        Patch::Json::<()>(serde_json::from_value(json!([{"op": "remove", "path": "/metadata/finalizers"}]))?);
    pods.patch("held", &PatchParams::default(), &free).await?;
    gone(cluster, "fake-deletes", "held").await
}

pub(crate) async fn a_fake_node_can_refuse_a_pod(ground: &Ground) -> Result<()> {
    let cluster = ground.cluster("target-1")?;
    cluster.create_namespace("fake-refusals", &[]).await?;
    for (name, by, phase) in [("refused", "*", "Failed"), ("other", "another-node", "Running")] {
        let pod = with(fake_pod(name), "/metadata/annotations", json!({keys::REFUSED_BY: by}))?;
        create(cluster, "fake-refusals", pod).await?;
        let pod = in_phase(cluster, "fake-refusals", name, phase).await?;
        let status = pod.status.unwrap_or_default();
        ensure!((status.reason.as_deref() == Some("OutOfcpu")) == (by == "*"), "reason of {name}");
        ensure!(status.container_statuses.is_none() == (by == "*"), "containers of {name}");
    }
    Ok(())
}

pub(crate) async fn a_pod_runs_under_its_own_account(ground: &Ground) -> Result<()> {
    let cluster = ground.cluster("source")?;
    let namespace = "accounts";
    cluster.create_namespace(namespace, &[]).await?;
    let accounts: Api<ServiceAccount> = cluster.api(namespace);
    let account = json!({"metadata": {"name": "reader"}});
    accounts.create(&PostParams::default(), &serde_json::from_value(account)?).await?;
    let roles: Api<Role> = cluster.api(namespace);
    let role = json!({"metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]});
    roles.create(&PostParams::default(), &serde_json::from_value(role)?).await?;
    let bindings: Api<RoleBinding> = cluster.api(namespace);
    let binding = json!({"metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": namespace}]});
    bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;

    let reader = with(pod("reader", &[]), "/spec/serviceAccountName", json!("reader"))?;
    create(cluster, namespace, reader).await?;
    let reader = becomes(cluster, namespace, "reader", "Ready").await?;
    let maps = format!("/api?path=/api/v1/namespaces/{namespace}/configmaps");
    until(SOON, "the role allows to list ConfigMaps", async || {
        let code = ask(&reader, &maps).await?;
        if code == "200" { Ok(Some(())) } else { bail!("{code}") }
    })
    .await?;
    for path in
        [format!("/api/v1/namespaces/{namespace}/secrets"), "/api/v1/namespaces/default/configmaps".into()]
    {
        let code = ask(&reader, &format!("/api?path={path}")).await?;
        ensure!(code == "403", "{path} was answered with {code}");
    }
    Ok(())
}

pub(crate) async fn a_container_sees_only_what_its_pod_says(ground: &Ground) -> Result<()> {
    let cluster = ground.cluster("source")?;
    let namespace = "containers";
    cluster.create_namespace(namespace, &[]).await?;
    let maps: Api<ConfigMap> = cluster.api(namespace);
    let map = json!({"metadata": {"name": "settings"}, "data": {"greeting": "hello", "file": "first"}});
    maps.create(&PostParams::default(), &serde_json::from_value(map)?).await?;
    let container = json!([{
        "name": "guest",
        "image": "registry.example/multicluster-e2e-guest:test",
        "args": ["--listen=$(ADDRESS):8080"],
        "env": [
            {"name": "ADDRESS", "value": "0.0.0.0"},
            {"name": "GREETING", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "greeting"}}},
            {"name": "OWN_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "OWN_ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
        "securityContext": {"runAsUser": 4321, "readOnlyRootFilesystem": true},
        "volumeMounts": [{"name": "settings", "mountPath": "/etc/settings", "readOnly": true}],
    }]);
    let guest = with(pod("guest", &[]), "/spec/containers", container)?;
    let guest =
        with(guest, "/spec/volumes", json!([{"name": "settings", "configMap": {"name": "settings"}}]))?;
    create(cluster, namespace, guest).await?;
    let guest = becomes(cluster, namespace, "guest", "Ready").await?;
    let describe = async || -> Result<Value> {
        Ok(serde_json::from_str(&ask(&guest, "/describe?file=/etc/settings/file").await?)?)
    };
    let seen = describe().await?;
    let address = guest.status.as_ref().and_then(|status| status.pod_ip.clone());
    for (pointer, want) in [
        ("/env/GREETING", json!("hello")),
        ("/env/OWN_NAME", json!("guest")),
        ("/env/OWN_ADDRESS", json!(address)),
        ("/listen", json!("0.0.0.0:8080")),
        ("/content", json!("first")),
        ("/canWriteRoot", json!(false)),
        ("/hasTools", json!(false)),
    ] {
        ensure!(seen.pointer(pointer) == Some(&want), "{pointer} is not {want}: {seen}");
    }
    for machine in ["/env/PATH", "/env/HOME", "/env/CARGO_MANIFEST_DIR"] {
        ensure!(seen.pointer(machine).is_none(), "{machine} came from the machine");
    }
    if e2e::namespaces::is_root() {
        ensure!(seen.pointer("/user") == Some(&json!("4321")), "the user is another one: {seen}");
    }
    let change = Patch::Merge(json!({"data": {"file": "second"}}));
    maps.patch("settings", &PatchParams::default(), &change).await?;
    until(SOON, "a changed ConfigMap reaches its volume", async || {
        Ok((describe().await?.pointer("/content") == Some(&json!("second"))).then_some(()))
    })
    .await
}

pub(crate) async fn a_service_leads_to_its_pod(ground: &Ground) -> Result<()> {
    let cluster = ground.cluster("source")?;
    let namespace = "services";
    cluster.create_namespace(namespace, &[]).await?;
    let services: Api<Service> = cluster.api(namespace);
    let service = json!({"metadata": {"name": "guest"},
        "spec": {"selector": {"app": "guest"}, "ports": [{"port": 80, "targetPort": 8080}]}});
    services.create(&PostParams::default(), &serde_json::from_value(service)?).await?;
    // Two pods of one cluster listen on one port, each in its own network.
    for name in ["guest", "neighbour"] {
        create(cluster, namespace, pod(name, &[])).await?;
        becomes(cluster, namespace, name, "Ready").await?;
    }
    let path = format!("/api/v1/namespaces/{namespace}/services/http:guest:80/proxy/describe");
    let seen: Value = until(SOON, "the Service has its endpoint", async || {
        Ok(Some(serde_json::from_str(&cluster.raw(&path).await?)?))
    })
    .await?;
    ensure!(seen.pointer("/env/HOSTNAME") == Some(&json!("guest")), "another pod answered: {seen}");
    Ok(())
}

pub(crate) async fn a_wrong_readiness_probe_keeps_a_pod_unready(ground: &Ground) -> Result<()> {
    let cluster = ground.cluster("source")?;
    let namespace = "readiness";
    cluster.create_namespace(namespace, &[]).await?;
    for (name, path) in [("right", "/healthz"), ("wrong", "/no-such-path")] {
        let probe = json!({"httpGet": {"path": path, "port": 8080}, "periodSeconds": 1});
        let probed = with(pod(name, &[]), "/spec/containers/0/readinessProbe", probe)?;
        create(cluster, namespace, probed).await?;
    }
    becomes(cluster, namespace, "right", "Ready").await?;
    in_phase(cluster, namespace, "wrong", "Running").await?;
    let pods: Api<Pod> = cluster.api(namespace);
    throughout(Duration::from_secs(3), "a pod with a wrong probe is not Ready", async || {
        Ok(!is(&pods.get("wrong").await?, "Ready"))
    })
    .await
}

pub(crate) async fn a_failed_liveness_probe_restarts_a_container(ground: &Ground) -> Result<()> {
    let cluster = ground.cluster("source")?;
    let namespace = "liveness";
    cluster.create_namespace(namespace, &[]).await?;
    let probe = json!({"tcpSocket": {"port": 1}, "periodSeconds": 1, "failureThreshold": 2});
    let probed = with(pod("sick", &[]), "/spec/containers/0/livenessProbe", probe)?;
    create(cluster, namespace, probed).await?;
    let pods: Api<Pod> = cluster.api(namespace);
    until(SOON, "the container is restarted", async || {
        let status = json!(pods.get("sick").await?.status);
        let restarts = status.pointer("/containerStatuses/0/restartCount").and_then(Value::as_i64);
        Ok((restarts >= Some(1)).then_some(()))
    })
    .await
}

pub(crate) async fn a_job_on_the_harness_ends_with_its_exit_code(ground: &Ground) -> Result<()> {
    let cluster = ground.cluster("source")?;
    let namespace = "harness-jobs";
    cluster.create_namespace(namespace, &[]).await?;
    for (name, code, phase) in [("good", "0", "Succeeded"), ("bad", "3", "Failed")] {
        let arguments = ["--exit-after-ms=100", &format!("--exit-code={code}")];
        let job = with(pod(name, &arguments), "/spec/restartPolicy", json!("Never"))?;
        let first = json!([{"name": "first", "image": "multicluster-e2e-guest:test", "args": ["--exit-after-ms=50"]}]);
        create(cluster, namespace, with(job, "/spec/initContainers", first)?).await?;
        let ended = in_phase(cluster, namespace, name, phase).await?;
        let status = json!(ended.status);
        let exit = status.pointer("/containerStatuses/0/state/terminated/exitCode");
        ensure!(exit.map(ToString::to_string).as_deref() == Some(code), "exit code of {name}: {status}");
    }
    Ok(())
}

pub(crate) async fn a_deleted_pod_gets_its_grace_period(ground: &Ground) -> Result<()> {
    let cluster = ground.cluster("source")?;
    let namespace = "graces";
    cluster.create_namespace(namespace, &[]).await?;
    let pods: Api<Pod> = cluster.api(namespace);
    create(cluster, namespace, pod("slow", &["--stop-after-ms=2000"])).await?;
    let slow = becomes(cluster, namespace, "slow", "Ready").await?;
    pods.delete("slow", &DeleteParams::default()).await?;
    throughout(Duration::from_secs(1), "the process may finish", async || {
        Ok(pods.get_opt("slow").await?.is_some())
    })
    .await?;
    gone(cluster, namespace, "slow").await?;
    ensure!(ask(&slow, "/healthz").await.is_err(), "the process outlived its pod");
    Ok(())
}

pub(crate) async fn an_unknown_volume_is_a_fault(ground: &Ground) -> Result<()> {
    let cluster = ground.cluster("source")?;
    let namespace = "faults";
    cluster.create_namespace(namespace, &[]).await?;
    let volumes = json!([{"name": "machine", "hostPath": {"path": "/"}}]);
    create(cluster, namespace, with(pod("greedy", &[]), "/spec/volumes", volumes)?).await?;
    until(SOON, "the volume is a fault of the run", async || {
        Ok((!ground.faults.take("the kind of volume machine").is_empty()).then_some(()))
    })
    .await?;
    let foreign = with(pod("foreign", &[]), "/spec/containers/0/image", json!("nginx:1"))?;
    create(cluster, namespace, foreign).await?;
    until(SOON, "the image is a fault of the run", async || {
        Ok((!ground.faults.take("image nginx:1").is_empty()).then_some(()))
    })
    .await
}

pub(crate) async fn a_cut_cluster_is_out_of_reach(ground: &Ground) -> Result<()> {
    let (near, far) = (ground.cluster("target-1")?, ground.cluster("target-2")?);
    near.create_namespace("cuts", &[]).await?;
    create(near, "cuts", pod("guest", &[])).await?;
    let guest = becomes(near, "cuts", "guest", "Ready").await?;
    let address = |cluster: &e2e::cluster::Cluster| -> Result<String> {
        Ok(format!("/connect?address={}:{API_PORT}", cluster.local()?.network.api()))
    };
    let (near_path, far_path) = (address(near)?, address(far)?);
    ensure!(ask(&guest, &far_path).await? == "reached", "the other cluster is not reached before the cut");
    far.cut().await?;
    let cut = async {
        ensure!(ask(&guest, &far_path).await? != "reached", "the other cluster is reached across the cut");
        ensure!(ask(&guest, &near_path).await? == "reached", "the own cluster is not reached");
        far.client.apiserver_version().await.context("the harness does not see into the cut cluster")
    };
    let outcome = cut.await;
    far.heal().await?;
    outcome?;
    until(SOON, "the healed cluster is reached", async || {
        Ok((ask(&guest, &far_path).await? == "reached").then_some(()))
    })
    .await
}

pub(crate) async fn a_frozen_api_server_is_silent(ground: &Ground) -> Result<()> {
    let cluster = ground.cluster("target-2")?;
    cluster.freeze().await?;
    let answer = tokio::time::timeout(Duration::from_secs(2), cluster.client.apiserver_version()).await;
    cluster.thaw().await?;
    ensure!(answer.is_err(), "a frozen API server answered");
    until(SOON, "the API server goes on", async || Ok(Some(cluster.client.apiserver_version().await?)))
        .await
        .map(drop)
}

const REHEARSAL: &str = "MULTICLUSTER_E2E_REHEARSAL";
const DOOMED: &str = "doomed-cluster";

/// Whether this run is the one that [`a_killed_run_leaves_nothing_behind`] kills.
pub(crate) fn is_rehearsal() -> bool {
    std::env::var_os(REHEARSAL).is_some()
}

/// Starts a cluster and waits to be killed.
pub(crate) async fn rehearse() -> Result<()> {
    let _ground = Ground::start(&[DOOMED], Options::default()).await?;
    std::future::pending().await
}

/// It also shows that a second run does not collide with the first, whose addresses are the same.
pub(crate) async fn a_killed_run_leaves_nothing_behind(ground: &Ground) -> Result<()> {
    let mut command = tokio::process::Command::new(std::env::current_exe()?);
    command.env_remove("MULTICLUSTER_E2E_INSIDE").env_remove("MULTICLUSTER_E2E_WORK").env(REHEARSAL, "1");
    let log = ground.cluster("source")?.local()?.folder.join("logs/rehearsal.log");
    let run = Process::spawn("rehearsal", command, &log)?;
    until(Duration::from_secs(120), "the doomed run has its kwok", async || {
        if run.ended().is_some() {
            bail!("it ended: {}", run.tail());
        }
        Ok(processes_of(DOOMED)?.iter().any(|line| line.contains("kwok")).then_some(()))
    })
    .await?;
    // Only the outermost process: everything else must end by itself.
    e2e::tools::run("sh", &["-c", &format!("kill -KILL {}", run.pid)]).await?;
    until(Duration::from_secs(10), "all its processes are gone", async || {
        let left = processes_of(DOOMED)?;
        if left.is_empty() { Ok(Some(())) } else { bail!("{left:?}") }
    })
    .await?;
    for cluster in ground.clusters() {
        cluster.client.apiserver_version().await.context("the run beside it was hit")?;
    }
    Ok(())
}

fn processes_of(name: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let line = std::fs::read(entry?.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(name) {
            found.push(line);
        }
    }
    Ok(found)
}

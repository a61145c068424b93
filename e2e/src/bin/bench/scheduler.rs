//! One scheduler alone in one cluster: pods are there before it starts, and the last binding ends the round.
//!
//! Rounds of ours and of kube-scheduler alternate in the same cluster, with the same rights and without limits on
//! clients. What plays kubelets and controllers is frozen meanwhile, so that nobody else wants the processors but the API
//! server, its store and the scheduler.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::cluster::Cluster;
use e2e::controlplane::Options;
use e2e::ground::Ground;
use e2e::nodes::{Shape, create_many};
use e2e::process::{Process, Signal};
use e2e::wait::until;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

use crate::recorder::{Recorder, percentile};
use crate::report::round;

const CLUSTER: &str = "alone";
const NAMESPACE: &str = "burst";
const PATIENCE: Duration = Duration::from_secs(600);
/// How long after the last binding a scheduler may still be writing events.
const REST: Duration = Duration::from_secs(3);
/// How many pods are created at the same time.
const CREATORS: usize = 32;
/// Requests a second, more than the API server answers.
const UNLIMITED: u32 = 100_000;

/// What is measured.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) nodes: usize,
    pub(crate) pods: usize,
    pub(crate) rounds: usize,
    /// The program of ours; the one beside this program when `None`.
    pub(crate) program: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject {
    Ours,
    Upstream,
}

/// What one round showed.
#[derive(Debug, Clone, Copy)]
struct Round {
    subject: Subject,
    /// From the start of the process to the last binding.
    seconds: f64,
    /// Processor time from the start until nothing is written any more.
    cpu: f64,
    /// From the start of the process to a pod's binding, of 99 in a hundred pods.
    p99: f64,
    resident_bytes: u64,
}

pub(crate) async fn run(plan: &Plan) -> Result<(String, bool)> {
    let options = Options { unlimited: true, stops_after: Some(Duration::ZERO), ..Options::default() };
    let ground = Ground::start(&[CLUSTER], options).await?;
    let cluster = ground.cluster(CLUSTER)?;
    cluster.process("kube-scheduler")?.signal(Signal::Kill).await?;
    cluster.create_namespace(NAMESPACE, &[]).await?;
    eprintln!("creating {} nodes", plan.nodes);
    create_many(&cluster.client, "node", plan.nodes, &Shape::default()).await?;
    let bench = Bench { ground: &ground, cluster, plan, recorder: Recorder::start(cluster, NAMESPACE) };
    let mut rounds = Vec::new();
    for number in 0..plan.rounds {
        let mut order = [Subject::Ours, Subject::Upstream];
        if number % 2 == 1 {
            order.reverse();
        }
        for subject in order {
            let round = bench.round(subject).await.with_context(|| format!("round of {subject:?}"))?;
            eprintln!("  {round:.2?}");
            rounds.push(round);
        }
    }
    ground.check_faults()?;
    Ok((report(plan, &rounds), true))
}

struct Bench<'a> {
    ground: &'a Ground,
    cluster: &'a Cluster,
    plan: &'a Plan,
    recorder: Recorder,
}

impl Bench<'_> {
    async fn round(&self, subject: Subject) -> Result<Round> {
        self.all_ready().await?;
        self.create_pods().await?;
        self.freeze(Signal::Stop).await?;
        let start = Instant::now();
        let process = self.start(subject)?;
        let bound = until(PATIENCE, "all pods are bound", async || {
            ensure!(process.ended().is_none(), "{} ended: {}", process.name, process.tail());
            let records = self.recorder.records();
            let bound = records.iter().filter(|(_, record)| !record.gone && record.scheduled.is_some());
            let mut times: Vec<_> = bound.filter_map(|(_, record)| record.scheduled).collect();
            ensure!(times.len() >= self.plan.pods, "{} of {} pods", times.len(), self.plan.pods);
            times.sort_unstable();
            Ok(Some(times))
        })
        .await?;
        tokio::time::sleep(REST).await;
        let usage = process.usage().context("the process is gone")?;
        process.signal(Signal::Kill).await?;
        process.wait().await;
        self.freeze(Signal::Cont).await?;
        self.clear().await?;
        let since: Vec<Duration> = bound.iter().map(|time| time.duration_since(start)).collect();
        #[expect(clippy::cast_precision_loss, reason = "clock ticks of minutes")]
        let cpu = usage.cpu_ticks as f64 / 100.0;
        Ok(Round {
            subject,
            seconds: percentile(&since, 1.0).as_secs_f64(),
            cpu,
            p99: percentile(&since, 0.99).as_secs_f64(),
            resident_bytes: usage.resident_bytes,
        })
    }

    /// Waits until no node has a taint.
    async fn all_ready(&self) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.cluster.client.clone());
        until(PATIENCE, "all nodes are Ready", async || {
            let list = nodes.list(&ListParams::default()).await?.items;
            let fake = list.iter().filter(|node| {
                node.metadata.name.as_deref().is_some_and(|name| name.starts_with("node-"))
                    && node.spec.as_ref().is_none_or(|spec| spec.taints.as_ref().is_none_or(Vec::is_empty))
            });
            let ready = fake.count();
            ensure!(ready == self.plan.nodes, "{ready} of {} are", self.plan.nodes);
            Ok(Some(()))
        })
        .await
    }

    async fn create_pods(&self) -> Result<()> {
        let pods: Api<Pod> = self.cluster.api(NAMESPACE);
        let calls = futures::stream::iter(0..self.plan.pods).map(|number| {
            let pods = pods.clone();
            async move {
                let pod = serde_json::from_value(pod(number)).context("not a pod")?;
                pods.create(&PostParams::default(), &pod).await.context("cannot create a pod")
            }
        });
        calls.buffer_unordered(CREATORS).try_for_each(|_| async { Ok(()) }).await?;
        until(PATIENCE, "all pods are seen", async || {
            Ok((self.recorder.present() >= self.plan.pods).then_some(()))
        })
        .await
    }

    /// Stops kubelets and controllers, or lets them go on.
    async fn freeze(&self, signal: Signal) -> Result<()> {
        for program in ["kwok", "kube-controller-manager"] {
            self.cluster.process(program)?.signal(signal).await?;
        }
        Ok(())
    }

    fn start(&self, subject: Subject) -> Result<Process> {
        let local = self.cluster.local()?;
        let (name, program, arguments) = match subject {
            Subject::Ours => ("ours", self.ours()?, ours()),
            Subject::Upstream => {
                let program = self.ground.binaries.path("kube-scheduler");
                ("upstream", program, upstream(&local.folder, &self.cluster.kubeconfig)?)
            }
        };
        let mut command = local.network.command(&program)?;
        command.args(arguments).env_clear();
        command.env("HOME", &local.folder).env("KUBECONFIG", &self.cluster.kubeconfig);
        command.current_dir(&local.folder);
        Process::spawn(name, command, &local.folder.join("logs").join(format!("{name}.log")))
    }

    fn ours(&self) -> Result<PathBuf> {
        let beside = std::env::current_exe().context("where is this program?")?;
        let program = self.plan.program.clone();
        let program = program.unwrap_or_else(|| beside.with_file_name("candidate-scheduler"));
        program.canonicalize().with_context(|| format!("no {}", program.display()))
    }

    async fn clear(&self) -> Result<()> {
        let pods: Api<Pod> = self.cluster.api(NAMESPACE);
        let at_once = DeleteParams::default().grace_period(0);
        pods.delete_collection(&at_once, &ListParams::default()).await.context("cannot delete the pods")?;
        until(PATIENCE, "all pods are gone", async || Ok((self.recorder.present() == 0).then_some(()))).await
    }
}

fn pod(number: usize) -> Value {
    json!({
        "metadata": {"name": format!("pod-{number}"), "labels": {"app": "burst"}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [{
            "name": "main", "image": "registry.k8s.io/pause:3.10",
            "resources": {"requests": {"cpu": "100m", "memory": "200Mi"}},
        }]},
    })
}

fn ours() -> Vec<String> {
    let flags = ["--profile=default-scheduler", "--chaperons=off", "--log-filter=warn"];
    let mut flags: Vec<_> = flags.map(str::to_owned).into();
    flags.push("--admin-address=127.0.0.1:18080".to_owned());
    flags
}

fn upstream(folder: &Path, kubeconfig: &Path) -> Result<Vec<String>> {
    let file = folder.join("upstream.json");
    let configuration = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": false},
        "clientConnection": {"kubeconfig": kubeconfig, "qps": UNLIMITED, "burst": UNLIMITED,
            "contentType": "application/vnd.kubernetes.protobuf"},
    });
    std::fs::write(&file, configuration.to_string()).context("cannot write a configuration")?;
    let kubeconfig = kubeconfig.display();
    Ok(vec![
        format!("--config={}", file.display()),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--bind-address=127.0.0.1".to_owned(),
    ])
}

fn report(plan: &Plan, rounds: &[Round]) -> String {
    let mut text = format!(
        "{:<10} {:>10} {:>10} {:>10} {:>10} {:>10}\n",
        "scheduler", "pods/s", "seconds", "CPU s", "p99 s", "MiB"
    );
    #[expect(clippy::cast_precision_loss, reason = "counts of pods are small")]
    let pods = plan.pods as f64;
    for round in rounds {
        let name = if round.subject == Subject::Ours { "ours" } else { "upstream" };
        let (rate, memory) = (pods / round.seconds, round.resident_bytes / 1_048_576);
        let Round { seconds, cpu, p99, .. } = round;
        text.push_str(&format!(
            "{name:<10} {rate:>10.1} {seconds:>10.2} {cpu:>10.2} {p99:>10.2} {memory:>10}\n"
        ));
    }
    let of = |subject: Subject| {
        let own = || rounds.iter().filter(move |round| round.subject == subject);
        [
            median(own().map(|round| pods / round.seconds)),
            median(own().map(|round| round.cpu)),
            median(own().map(|round| round.p99)),
        ]
    };
    let ([rate, cpu, p99], [their_rate, their_cpu, their_p99]) = (of(Subject::Ours), of(Subject::Upstream));
    let line = json!({
        "work": "scheduler", "nodes": plan.nodes, "pods": plan.pods, "rounds": plan.rounds,
        "ours_pods_per_s": round(rate), "upstream_pods_per_s": round(their_rate),
        "throughput_ratio": round(rate / their_rate),
        "ours_cpu_s": round(cpu), "upstream_cpu_s": round(their_cpu), "cpu_ratio": round(cpu / their_cpu),
        "ours_p99_s": round(p99), "upstream_p99_s": round(their_p99), "p99_ratio": round(p99 / their_p99),
    });
    format!("{text}\n{line}\n")
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    if values.len() % 2 == 1 { at(middle) } else { f64::midpoint(at(middle.saturating_sub(1)), at(middle)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle_or_halfway_between_two() {
        assert!((median([3.0, 1.0, 2.0].into_iter()) - 2.0).abs() < 1e-9);
        assert!((median([4.0, 1.0, 2.0, 3.0].into_iter()) - 2.5).abs() < 1e-9);
    }

    #[test]
    fn the_last_line_has_the_ratios_of_the_medians() {
        let round = |subject, seconds, cpu| Round { subject, seconds, cpu, p99: seconds, resident_bytes: 0 };
        let rounds = [
            round(Subject::Ours, 10.0, 1.0),
            round(Subject::Upstream, 20.0, 5.0),
            round(Subject::Upstream, 30.0, 4.0),
            round(Subject::Ours, 5.0, 2.0),
        ];
        let plan = Plan { nodes: 1, pods: 100, rounds: 2, program: None };
        let text = report(&plan, &rounds);
        let line: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!(line["ours_pods_per_s"], 15.0);
        assert_eq!(line["cpu_ratio"], 0.333);
        assert_eq!(line["p99_ratio"], 0.3);
    }
}

//! The demonstration: pods created in one cluster run in others, and move when one of them is drained.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

mod table;
mod workloads;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use e2e::controlplane::Options;
use e2e::ground::Ground;
use e2e::helm::kubectl;
use e2e::nodes::{Shape, create_many};
use e2e::program;
use e2e::relay::{Door, Inside};
use e2e::setup::{self, SOURCE};

use table::Table;

const CLUSTERS: [&str; 3] = [SOURCE, "target-1", "target-2"];
/// The target that is drained, and the one that takes over.
const DRAINED: &str = "target-1";
const LEFT: &str = "target-2";
/// Shows pods of one cluster that run in two others.
#[derive(Debug, Clone, Parser)]
struct Args {
    /// Leaves the clusters running and prints commands to look around.
    #[arg(long)]
    stay: bool,
}

fn main() -> ExitCode {
    program::end(run(&Args::parse()))
}

fn run(args: &Args) -> Result<ExitCode> {
    let door = if args.stay && !e2e::namespaces::are_inside() {
        Some(Door::new(&CLUSTERS.map(str::to_owned))?)
    } else {
        None
    };
    program::inside(door.as_ref(), |runtime| runtime.block_on(show(args)).map(|()| ExitCode::SUCCESS))
}

/// Tells each step with the time since the start.
struct Steps(Instant);

impl Steps {
    fn say(&self, what: &str) {
        eprintln!("[{:3} s] {what}", self.0.elapsed().as_secs());
    }
}

async fn show(args: &Args) -> Result<()> {
    let steps = Steps(Instant::now());
    steps.say("starting three control planes: source, target-1, target-2");
    let options = Options { stops_after: Some(Duration::from_secs(2)), ..Options::default() };
    let ground = Ground::start(&CLUSTERS, options).await?;
    for name in [DRAINED, LEFT] {
        create_many(&ground.cluster(name)?.client, "node", 3, &Shape::default()).await?;
    }
    steps.say("installing the chart in each of them with helm");
    let outcome = play(&ground, &steps, args).await;
    if outcome.is_err() {
        ground.dump_for_people("multicluster-demo").await;
    }
    outcome
}

async fn play(ground: &Ground, steps: &Steps, args: &Args) -> Result<()> {
    setup::install(ground, &[]).await?;
    steps.say("connecting them: a ClusterSource in each target, a Secret and a ClusterTarget in the source");
    setup::connect_all(ground).await?;
    steps.say(
        "applying guestbook, a CronJob, a Job, a Deployment and a StatefulSet in the electing namespace demo",
    );
    workloads::apply(ground).await?;
    let mut table = Table::new(ground).await?;
    table
        .watch("every pod runs in a target, both targets have some, and Jobs are done", async |pods| {
            workloads::all_run(pods)?;
            for target in [DRAINED, LEFT] {
                if !pods.iter().any(|pod| pod.cluster == target) {
                    bail!("no pod in {target}");
                }
            }
            workloads::jobs_are_done(ground).await
        })
        .await?;
    if args.stay {
        return stay(ground).await;
    }
    let node = setup::virtual_node(ground, DRAINED).await?;
    steps.say(&format!("kubectl drain {node} --ignore-daemonsets"));
    let source = ground.cluster(SOURCE)?;
    let drain = ["drain", &node, "--ignore-daemonsets", "--timeout=180s"];
    let moved = table.watch("every pod has moved to the other target", async |pods| {
        workloads::all_run(pods)?;
        match pods.iter().find(|pod| pod.cluster != LEFT) {
            Some(pod) => bail!("{} is not in {LEFT}", pod.name),
            None => Ok(()),
        }
    });
    let (drained, moved) = tokio::join!(kubectl(ground, source, &drain), moved);
    drained?;
    moved?;
    workloads::nothing_left(ground, DRAINED).await?;
    ground.check_faults()?;
    steps.say("done: every pod runs in target-2, and nothing is left in target-1");
    Ok(())
}

/// Prints how to look around, and waits for Ctrl-C.
async fn stay(ground: &Ground) -> Result<()> {
    let inside = Inside::find().context("nobody opened a door to this playground")?;
    println!("\nThe playground is open until Ctrl-C. In another shell:\n");
    let kubectl = ground.binaries.path("kubectl");
    println!("  alias k={}", kubectl.display());
    for cluster in ground.clusters() {
        let kubeconfig = inside.serve(cluster)?;
        let variable = cluster.name.replace('-', "_").to_uppercase();
        println!("  export {variable}={}", kubeconfig.display());
    }
    let node = setup::virtual_node(ground, DRAINED).await?;
    println!("\n  k --kubeconfig $SOURCE get clustertargets,nodes");
    println!("  k --kubeconfig $SOURCE get pods -n demo -o wide");
    println!("  k --kubeconfig $TARGET_1 get podchaperons,pods -n demo -o wide");
    println!("  k --kubeconfig $SOURCE create deployment hello --image=any -n demo --replicas=5");
    println!("  k --kubeconfig $SOURCE drain {node} --ignore-daemonsets");
    println!("  k --kubeconfig $SOURCE uncordon {node}");
    std::future::pending().await
}

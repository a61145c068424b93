//! The burst with more and more targets, and how long each needs to join. All control planes run all the time, so that
//! idle ones count for the plain cluster as well.

use std::fmt::Write as _;
use std::time::Instant;

use anyhow::{Context as _, Result};
use e2e::cluster::Cluster;
use e2e::connect::{self, Kind};
use e2e::ground::Ground;
use e2e::install::RELEASE;
use e2e::setup::{self, SOURCE};
use e2e::wait::until;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use serde_json::{Value, json};

use crate::burst::{Load, PATIENCE, PLAIN, half, start};
use crate::report::{Half, round};
use crate::writes::Class;

/// Bursts run with the first so many targets.
const STEPS: [usize; 4] = [1, 2, 3, 8];
/// Writes a pod may cost, and by what share they may differ between the steps.
const MOST_WRITES: f64 = 11.0;
const WRITES_FLAT: f64 = 1.02;
/// The slowest step has at least this share of the fastest one's throughput.
const THROUGHPUT_FLAT: f64 = 0.75;

struct Row {
    targets: usize,
    /// From its Target to its virtual node's Ready, of each target that came for this step.
    joins: Vec<f64>,
    half: Half,
}

/// Returns the tables with the last line, and whether the bars hold.
pub(crate) async fn run(pods: usize) -> Result<(String, bool)> {
    let most = STEPS.into_iter().max().unwrap_or_default();
    let ground = start(most, pods).await?;
    let load = Load::deployment(pods);
    let plain = half(&ground, &[PLAIN], load).await.context("the plain cluster")?;
    eprintln!("plain: {:.1} pods/s; installing the chart", plain.rate());
    setup::install(&ground, &[]).await?;
    let targets: Vec<&Cluster> = setup::targets(&ground).collect();
    let (mut rows, mut involved) = (Vec::new(), vec![SOURCE]);
    for step in STEPS {
        let (mut joins, joined) = (Vec::new(), involved.len().saturating_sub(1));
        for target in targets.iter().take(step).skip(joined) {
            joins.push(join(&ground, target).await.with_context(|| format!("{} joins", target.name))?);
            involved.push(target.name.as_str());
        }
        let half = half(&ground, &involved, load).await.with_context(|| format!("with {step} targets"))?;
        eprintln!("{step} targets: {:.1} pods/s", half.rate());
        rows.push(Row { targets: step, joins, half });
    }
    ground.check_faults()?;
    report(pods, &plain, &rows)
}

/// Connects a target; returns after how many seconds its virtual node was Ready.
async fn join(ground: &Ground, target: &Cluster) -> Result<f64> {
    let source = ground.cluster(SOURCE)?;
    let kind = Kind::ClusterWide(RELEASE.to_owned());
    connect::invite(source, target, &kind).await?;
    let start = Instant::now();
    connect::accept(source, target, &kind).await?;
    let nodes: Api<Node> = Api::all(source.client.clone());
    until(PATIENCE, "its virtual node is Ready", async || {
        let Ok(name) = setup::virtual_node(ground, &target.name).await else { return Ok(None) };
        let node = nodes.get_opt(&name).await?;
        let conditions = node.and_then(|node| node.status?.conditions).unwrap_or_default();
        let ready = conditions.iter().any(|is| is.type_ == "Ready" && is.status == "True");
        Ok(ready.then(|| start.elapsed().as_secs_f64()))
    })
    .await
}

fn report(pods: usize, plain: &Half, rows: &[Row]) -> Result<(String, bool)> {
    let mut text = String::new();
    writeln!(
        text,
        "{:>7} {:>8} {:>7} {:>13} {:>5} {:>8}  join s",
        "targets", "pods/s", "ratio", "writes a pod", "lost", "doubled"
    )?;
    let mut lines: Vec<Value> = Vec::new();
    for Row { targets, joins, half } in rows {
        let (rate, writes) = (half.rate(), half.writes_per_pod(Class::Counted, pods));
        let joins: Vec<f64> = joins.iter().copied().map(round).collect();
        writeln!(
            text,
            "{targets:>7} {rate:>8.1} {:>7.3} {writes:>13.3} {:>5} {:>8}  {joins:?}",
            rate / plain.rate(),
            half.lost(),
            half.doubled()
        )?;
        lines.push(json!({"targets": targets, "pods_per_s": round(rate), "ratio": round(rate / plain.rate()),
            "writes_per_pod": round(writes), "lost": half.lost(), "doubled": half.doubled(), "join_s": joins}));
    }
    let line =
        json!({"work": "targets", "pods": pods, "plain_pods_per_s": round(plain.rate()), "rows": lines});
    writeln!(text, "\n{line}")?;
    let all = |value: &dyn Fn(&Half) -> f64| -> (f64, f64) {
        rows.iter()
            .map(|row| value(&row.half))
            .fold((f64::MAX, 0.0), |(low, high), value| (low.min(value), high.max(value)))
    };
    let (fewest, most) = all(&|half| half.writes_per_pod(Class::Counted, pods));
    let (slowest, fastest) = all(&Half::rate);
    let whole =
        rows.iter().all(|row| row.half.ready >= pods && row.half.lost() == 0 && row.half.doubled() == 0);
    let flat = most <= fewest * WRITES_FLAT && slowest >= fastest * THROUGHPUT_FLAT;
    Ok((text, whole && flat && most <= MOST_WRITES))
}

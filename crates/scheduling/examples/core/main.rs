//! How fast the core schedules, beside upstream's core on the identical work.
//!
//! The referee (upstream's scheduler as a program) measures itself and writes what it scheduled as documents; the same
//! documents are scheduled here. Both sides begin with objects in memory, read of each pod what they need, choose a
//! node and count the pod there. Upstream looks at a part of the nodes, as it does by default; here all are searched.

mod ours;
mod upstream;

use std::error::Error;
use std::io::Write as _;
use std::path::PathBuf;

use clap::Parser;
use peak_alloc::PeakAlloc;
use serde_json::{Value, json};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

#[derive(Debug, Parser)]
struct Args {
    /// The referee's program. Without it only this side is measured.
    #[arg(long)]
    referee: Option<PathBuf>,
    /// Where the referee writes, or has written, the documents.
    #[arg(long, default_value = "target/core")]
    documents: PathBuf,
    /// Numbers of nodes.
    #[arg(long, value_delimiter = ',', default_value = "5000")]
    nodes: Vec<usize>,
    /// What to schedule.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "plain,service,spread,antiaffinity,prefaffinity,distinct"
    )]
    workloads: Vec<String>,
    /// Pods to schedule in each.
    #[arg(long, default_value_t = 1000)]
    pods: usize,
    /// Both sides take turns so many times; the median of each counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// The middle of several measurements.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Both sides at one work.
fn compare(args: &Args, workload: &str, nodes: usize) -> Result<Value, Box<dyn Error>> {
    let work = upstream::Work { documents: &args.documents, workload, nodes, pods: args.pods };
    let (mut ours, mut theirs, mut one_thread) = (Vec::new(), Vec::new(), Vec::new());
    let (mut ours_cpu, mut theirs_cpu) = (Vec::new(), Vec::new());
    let mut last = None;
    for _ in 0..args.rounds.max(1) {
        if let Some(referee) = &args.referee {
            theirs.push(work.measure(referee, None)?.pods_per_second);
            let alone = work.measure(referee, Some(1))?;
            one_thread.push(alone.pods_per_second);
            theirs_cpu.push(alone.cpu_us);
        }
        let measured = ours::measure(&work.document()?, &MEMORY)?;
        ours.push(measured.pods_per_second);
        ours_cpu.extend(measured.cpu_us);
        last = Some(measured);
    }
    let measured = last.ok_or("no round")?;
    let (ours, theirs, one_thread) = (median(ours), median(theirs), median(one_thread));
    let (ours_cpu, theirs_cpu) = (median(ours_cpu), median(theirs_cpu));
    let ratio = |more: Option<f64>, less: Option<f64>| Some(more? / less?);
    Ok(json!({
        "workload": workload, "nodes": nodes,
        "ours_pods_per_s": ours, "upstream_pods_per_s": theirs, "ratio": ratio(ours, theirs),
        "upstream_one_thread_pods_per_s": one_thread, "ratio_one_thread": ratio(ours, one_thread),
        "ours_cpu_us": ours_cpu, "upstream_cpu_us": theirs_cpu, "ratio_cpu": ratio(theirs_cpu, ours_cpu),
        "scheduled": measured.scheduled, "refused": measured.refused, "p99_us": measured.p99_us,
        "bytes_per_node": measured.bytes_per_node, "bytes_per_pod": measured.bytes_per_pod,
        "cache_bytes_per_node": measured.cache_bytes_per_node,
    }))
}

/// The columns of the table: a heading, the value's name, digits after the point.
const COLUMNS: [(&str, &str, usize); 13] = [
    ("nodes", "nodes", 0),
    ("ours/s", "ours_pods_per_s", 0),
    ("upstream/s", "upstream_pods_per_s", 0),
    ("ratio", "ratio", 1),
    ("1 thread/s", "upstream_one_thread_pods_per_s", 0),
    ("ratio", "ratio_one_thread", 1),
    ("ours us", "ours_cpu_us", 0),
    ("their us", "upstream_cpu_us", 0),
    ("ratio", "ratio_cpu", 1),
    ("p99 us", "p99_us", 0),
    ("B/node", "bytes_per_node", 0),
    ("B/pod", "bytes_per_pod", 0),
    ("cache", "cache_bytes_per_node", 0),
];

fn table(rows: &[Value]) -> String {
    let mut text = format!("{:12}", "workload");
    for (heading, ..) in COLUMNS {
        text += &format!(" {heading:>10}");
    }
    for row in rows {
        text += &format!("\n{:12}", row["workload"].as_str().unwrap_or_default());
        for (_, name, digits) in COLUMNS {
            let value = row[name].as_f64().map_or("-".to_owned(), |value| format!("{value:.digits$}"));
            text += &format!(" {value:>10}");
        }
    }
    text
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    std::fs::create_dir_all(&args.documents)?;
    let mut rows = Vec::new();
    for &nodes in &args.nodes {
        for workload in &args.workloads {
            rows.push(compare(&args, workload, nodes)?);
        }
    }
    let mut out = std::io::stdout();
    writeln!(out, "{}", table(&rows))?;
    writeln!(out, "{}", json!({"work": "core", "rows": rows}))?;
    Ok(())
}

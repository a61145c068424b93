//! Many documents through both schedulers.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use anyhow::{Context as _, Result, anyhow};
use serde_json::Value;

use crate::answer::Answer;
use crate::compare::differences;
use crate::generate::{Parts, document};
use crate::ours;
use crate::referee::{Input, Referee};
use crate::table::Table;

/// Upstream's parts keep about a megabyte of every document for ever: after so many, another process goes on.
const SHIFT: usize = 300;

/// Documents that wait for their answers, per worker.
const IN_FLIGHT: usize = 3;

/// What to compare.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    /// The number of the first document.
    pub first: u64,
    /// Documents are made until they have so many pending pods.
    pub pods: usize,
    pub workers: usize,
    pub referee: PathBuf,
    /// Let the referee check itself against upstream's own `SchedulePod`.
    pub check: bool,
    pub parts: Parts,
    /// Leave our side out.
    pub alone: bool,
    /// End with the first difference.
    pub until_difference: bool,
}

/// A pod about which the answers differ.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The number of its document.
    pub document: u64,
    pub pod: String,
    pub differences: Vec<String>,
}

/// What a comparison found.
#[derive(Debug, Default)]
pub struct Outcome {
    pub pods: usize,
    pub documents: usize,
    /// Pods in documents of at least 200 nodes, and of at least 1000.
    pub pods_at_200: usize,
    pub pods_at_1000: usize,
    pub failures: Vec<Failure>,
    pub table: Table,
}

impl Outcome {
    fn merge(&mut self, other: Self) {
        self.pods += other.pods;
        self.documents += other.documents;
        self.pods_at_200 += other.pods_at_200;
        self.pods_at_1000 += other.pods_at_1000;
        self.failures.extend(other.failures);
        self.table.merge(other.table);
    }

    fn count(&mut self, document: &Value) {
        let pods = ours::list(document, "pending").len();
        let nodes = ours::list(document, "nodes").len();
        self.pods += pods;
        self.documents += 1;
        self.pods_at_200 += if nodes >= 200 { pods } else { 0 };
        self.pods_at_1000 += if nodes >= 1000 { pods } else { 0 };
    }
}

/// What all workers share.
#[derive(Debug)]
pub struct Progress {
    next: AtomicU64,
    claimed: AtomicUsize,
    done: AtomicUsize,
    differing: AtomicUsize,
}

impl Progress {
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        Self {
            next: AtomicU64::new(plan.first),
            claimed: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            differing: AtomicUsize::new(0),
        }
    }

    /// Pods compared so far, and how many of them differ.
    pub fn so_far(&self) -> (usize, usize) {
        (self.done.load(Ordering::Relaxed), self.differing.load(Ordering::Relaxed))
    }
}

/// Compares until the plan is fulfilled.
///
/// # Errors
/// When the referee or our side cannot read a document, or the referee disagrees with itself.
pub fn run(plan: &Plan, progress: &Progress) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..plan.workers).map(|_| scope.spawn(|| work(plan, progress))).collect();
        for worker in workers {
            outcome.merge(worker.join().map_err(|_panic| anyhow!("a worker panicked"))??);
        }
        outcome.failures.sort_by_key(|failure| failure.document);
        Ok(outcome)
    })
}

fn work(plan: &Plan, progress: &Progress) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    while !enough(plan, progress) {
        outcome.merge(shift(plan, progress)?);
    }
    Ok(outcome)
}

fn enough(plan: &Plan, progress: &Progress) -> bool {
    let differing = plan.until_difference && progress.differing.load(Ordering::Relaxed) > 0;
    differing || progress.claimed.load(Ordering::Relaxed) >= plan.pods
}

/// What one process of the referee does.
fn shift(plan: &Plan, progress: &Progress) -> Result<Outcome> {
    let arguments: &[&str] = if plan.check { &["-check"] } else { &[] };
    let mut referee = Referee::start(&plan.referee, arguments)?;
    let mut input = referee.input().context("the referee's input is taken")?;
    let (sender, receiver) = sync_channel(IN_FLIGHT);
    thread::scope(|scope| {
        let feeder = scope.spawn(move || feed(plan, progress, &mut input, &sender));
        let outcome = judge(&mut referee, plan, progress, receiver);
        let fed = feeder.join().map_err(|_panic| anyhow!("a worker panicked"))?;
        // What went wrong with the answers explains why no more documents were taken.
        let outcome = outcome?;
        fed.map(|()| outcome)
    })
}

/// Makes documents and sends them to the referee until there are enough pods or its shift is over.
fn feed(
    plan: &Plan,
    progress: &Progress,
    input: &mut Input,
    sender: &SyncSender<(u64, Value)>,
) -> Result<()> {
    for _ in 0..SHIFT {
        if enough(plan, progress) {
            break;
        }
        let number = progress.next.fetch_add(1, Ordering::Relaxed);
        let document = document(plan.seed, number, plan.parts);
        progress.claimed.fetch_add(ours::list(&document, "pending").len(), Ordering::Relaxed);
        input.send(&document)?;
        if sender.send((number, document)).is_err() {
            break;
        }
    }
    Ok(())
}

fn judge(
    referee: &mut Referee,
    plan: &Plan,
    progress: &Progress,
    receiver: Receiver<(u64, Value)>,
) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for (number, document) in receiver {
        let upstream = referee.answers(&document)?;
        for answer in &upstream {
            outcome.table.count(answer);
        }
        let found = if plan.alone { Vec::new() } else { compare(&document, &upstream)? };
        for (pod, differences) in found {
            progress.differing.fetch_add(1, Ordering::Relaxed);
            outcome.failures.push(Failure { document: number, pod, differences });
        }
        outcome.count(&document);
        progress.done.fetch_add(upstream.len(), Ordering::Relaxed);
    }
    Ok(outcome)
}

/// The pods of a document about which the answers differ. In a sequence the first one is the last one looked at,
/// since those after it are judged in different worlds.
///
/// # Errors
/// When our side cannot read the document.
pub fn compare(document: &Value, upstream: &[Answer]) -> Result<Vec<(String, Vec<String>)>> {
    let ours = first_writes(document, ours::answers(document, upstream)?);
    let upstream = first_writes(document, upstream.to_vec());
    let sequence = document["sequence"].as_bool().unwrap_or_default();
    let mut failures = Vec::new();
    for (ours, upstream) in ours.iter().zip(&upstream) {
        let differences = differences(document, ours, upstream);
        if !differences.is_empty() {
            failures.push((upstream.pod.clone(), differences));
            if sequence {
                break;
            }
        }
    }
    Ok(failures)
}

/// Leaves out writes that say what was written before, or is in the document: upstream makes them all the same.
fn first_writes(document: &Value, mut answers: Vec<Answer>) -> Vec<Answer> {
    let mut written = BTreeSet::new();
    let name = |object: &Value| {
        let text = |key: &str, default| object[key].as_str().unwrap_or(default).to_owned();
        format!("{}/{}", text("namespace", "default"), text("name", ""))
    };
    for claim in ours::list(document, "persistentVolumeClaims") {
        if let Some(node) = claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"].as_str() {
            written.insert(format!("claim {} for {node}", name(&claim["metadata"])));
        }
    }
    for answer in &mut answers {
        answer.writes.retain(|write| written.insert(write.clone()));
    }
    answers
}

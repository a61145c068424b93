//! `parity`: random pods through this project's scheduler and through upstream's.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Parser;
use e2e::binaries::Binaries;
use parity::compare::subject;
use parity::generate::{Parts, document};
use parity::referee::Referee;
use parity::run::{Failure, Outcome, Plan, Progress, compare, run};
use parity::shrink::shrink;
use serde_json::{Value, json};

/// Compares random pods. The last line is one JSON object.
#[derive(Debug, Parser)]
struct Args {
    /// How many pods to compare.
    #[arg(long, default_value_t = 20_000)]
    pods: usize,
    /// Another seed gives other documents.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of the first document.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Pairs of schedulers beside each other; by default one a processor.
    #[arg(long)]
    workers: Option<usize>,
    /// The referee's program; by default it is built.
    #[arg(long)]
    referee: Option<PathBuf>,
    /// Let the referee check itself against upstream's own `SchedulePod`.
    #[arg(long)]
    check: bool,
    /// End with the first difference.
    #[arg(long)]
    until_difference: bool,
    /// Leave our side out: with --check, the referee is tested and nothing else.
    #[arg(long)]
    referee_alone: bool,
    /// Let every document have devices, and claims for them.
    #[arg(long)]
    devices: bool,
    /// Print the document with this number and end.
    #[arg(long)]
    print: Option<u64>,
}

/// What the comparison covers.
const PARTS: Parts = Parts {
    volumes: true,
    nominated: true,
    services: true,
    profiles: true,
    preemption: true,
    devices: 4,
    live: true,
};

/// Differences that are printed in full.
const SHOWN: usize = 10;

/// How often a smaller document is tried.
const SHRINK_TRIES: usize = 4000;

fn main() -> ExitCode {
    match compare_all(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn parts(args: &Args) -> Parts {
    Parts { devices: if args.devices { 1 } else { PARTS.devices }, ..PARTS }
}

fn compare_all(args: &Args) -> Result<bool> {
    if let Some(number) = args.print {
        println!("{}", document(args.seed, number, parts(args)));
        return Ok(true);
    }
    let referee = match &args.referee {
        Some(path) => path.clone(),
        None => Binaries::ensure()?.path("referee"),
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let plan = Plan {
        seed: args.seed,
        first: args.first,
        pods: args.pods,
        workers: args.workers.unwrap_or(processors).max(1),
        referee,
        check: args.check,
        parts: parts(args),
        alone: args.referee_alone,
        until_difference: args.until_difference,
    };
    let progress = Progress::new(&plan);
    let start = Instant::now();
    let outcome = thread::scope(|scope| {
        let work = scope.spawn(|| run(&plan, &progress));
        let mut said = start;
        while !work.is_finished() {
            thread::sleep(Duration::from_millis(50));
            if said.elapsed() >= Duration::from_secs(5) {
                said = Instant::now();
                let (done, differing) = progress.so_far();
                let pace = f64::from(u32::try_from(done).unwrap_or(u32::MAX)) / start.elapsed().as_secs_f64();
                eprintln!("  {done} of {} pods, {pace:.0} a second, {differing} differ", plan.pods);
            }
        }
        work.join().map_err(|_panic| anyhow::anyhow!("the comparison panicked"))?
    })?;
    report(&plan, &outcome)
}

fn report(plan: &Plan, outcome: &Outcome) -> Result<bool> {
    println!("{}", outcome.table);
    println!(
        "{} pods in documents of 200 nodes or more, {} of 1000",
        outcome.pods_at_200, outcome.pods_at_1000
    );
    for failure in outcome.failures.iter().take(SHOWN) {
        println!("document {}/{} pod {}:", plan.seed, failure.document, failure.pod);
        for difference in &failure.differences {
            println!("  {difference}");
        }
    }
    if let Some(failure) = outcome.failures.first().filter(|_| !plan.until_difference) {
        shrunk(plan, failure)?;
    }
    let zeros = outcome.table.zeros();
    for zero in &zeros {
        println!("not covered: {zero}");
    }
    let (pods, documents, differences) = (outcome.pods, outcome.documents, outcome.failures.len());
    println!("{}", json!({"pods": pods, "documents": documents, "differences": differences}));
    Ok(differences == 0 && zeros.is_empty())
}

/// Prints the smallest document that still shows a difference.
fn shrunk(plan: &Plan, failure: &Failure) -> Result<()> {
    let mut referee = Referee::start(&plan.referee, &[])?;
    let mut input = referee.input().context("the referee's input is taken")?;
    let subjects: Vec<_> = failure.differences.iter().map(|difference| subject(difference)).collect();
    let mut last = Vec::new();
    let mut differs = |smaller: &Value| {
        let Ok(()) = input.send(smaller) else { return false };
        let Ok(upstream) = referee.answers(smaller) else { return false };
        let found = compare(smaller, &upstream).unwrap_or_default();
        let mut differences = found.iter().flat_map(|(_, differences)| differences);
        let same = differences.any(|difference| subjects.contains(&subject(difference)));
        if same {
            last = found;
        }
        same
    };
    let document = shrink(document(plan.seed, failure.document, plan.parts), SHRINK_TRIES, &mut differs);
    println!("the smallest document found that differs:\n{document}");
    for (pod, differences) in last {
        println!("  {pod}: {}", differences.join("; "));
    }
    Ok(())
}

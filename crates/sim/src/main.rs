//! Runs worlds, replays one, or makes a failing one smaller.
#![expect(clippy::print_stdout, reason = "a tool that prints what it finds")]

use anyhow::{Context as _, ensure};
use clap::Parser;
use sim::bugs::Bug;
use sim::hunt::{Hunt, hunt};
use sim::plan::{Kind, Plan};
use sim::recorder::Violation;
use sim::shrink::shrink;
use sim::world::{Options, Report, run};
use std::process::{Command, ExitCode};
use std::time::Instant;

/// The whole placement protocol in one process.
#[derive(Debug, Parser)]
struct Args {
    /// Run this world alone.
    #[arg(long)]
    seed: Option<u64>,
    /// Tell its story.
    #[arg(long)]
    verbose: bool,
    /// Tell it as it happens, for a world that does not end.
    #[arg(long)]
    live: bool,
    /// Make the world smaller as long as it breaks the same rule.
    #[arg(long)]
    shrink: bool,
    /// Print what became of it as one line of JSON.
    #[arg(long)]
    report: bool,
    /// How many worlds.
    #[arg(long, default_value_t = 1000)]
    worlds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// How many at a time; all processors by default.
    #[arg(long)]
    threads: Option<usize>,
    /// Worlds in a hurry.
    #[arg(long)]
    short: bool,
    /// Make a service wrong on purpose; `all` for each in turn.
    #[arg(long)]
    bug: Option<String>,
}

/// A quarter of what a world did was allocation.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn threads(args: &Args) -> usize {
    args.threads.or_else(|| std::thread::available_parallelism().ok().map(usize::from)).unwrap_or(1)
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    if args.bug.as_deref() == Some("all") {
        return Ok(bugs(&args));
    }
    let bug = args
        .bug
        .as_deref()
        .map(|name| Bug::named(name).ok_or_else(|| anyhow::anyhow!("no bug is called {name}")));
    let options = Options { bug: bug.transpose()?, trace: args.verbose, live: args.live, once: args.report };
    match args.seed {
        Some(seed) => replay(&args, seed, options),
        None => Ok(many(&args, options.bug)),
    }
}

fn show(violations: &[Violation]) {
    for violation in violations {
        println!("  {:?} at {} ms: {}", violation.rule, violation.at, violation.what);
    }
}

fn replay(args: &Args, seed: u64, options: Options) -> anyhow::Result<ExitCode> {
    let mut plan = if args.short { Plan::short(seed) } else { Plan::of(seed) };
    let mut report = run(&plan, options)?;
    if args.report {
        println!("{}", serde_json::to_string(&report)?);
        return Ok(ExitCode::SUCCESS);
    }
    if let (true, Some(violation)) = (args.shrink, report.violations.first()) {
        plan = shrink(&plan, options, violation.rule, 300)?;
        report = run(&plan, options)?;
    }
    println!("{plan:#?}");
    for line in &report.trace {
        println!("{line}");
    }
    println!(
        "seed {seed}: {} steps, {} writes, {} containers, {} ms, fingerprint {:016x}",
        report.steps, report.writes, report.starts, report.lasted, report.fingerprint
    );
    show(&report.violations);
    Ok(if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs one world in a process of its own.
fn apart(seed: u64, short: bool, bug: Option<Bug>) -> anyhow::Result<Report> {
    let mut command = Command::new(std::env::current_exe().context("this program has no path")?);
    command.args(["--report", "--seed", &seed.to_string()]);
    if short {
        command.arg("--short");
    }
    if let Some(bug) = bug {
        command.args(["--bug", &format!("{bug:?}")]);
    }
    let output = command.output().context("cannot run a world")?;
    ensure!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    serde_json::from_slice(&output.stdout).context("the report of a world is no report")
}

fn many(args: &Args, bug: Option<Bug>) -> ExitCode {
    let begin = Instant::now();
    let every = (args.worlds / 20).max(1);
    let job = Hunt { from: args.from, worlds: args.worlds, threads: threads(args), first: false };
    let catch = hunt(
        job,
        |seed| apart(seed, args.short, bug),
        |done, violations| {
            if done % every == 0 {
                println!("{done} worlds, {violations} with violations, {:?}", begin.elapsed());
            }
        },
    );
    for (seed, violations) in &catch.violations {
        println!("seed {seed}:");
        show(violations.get(..violations.len().min(3)).unwrap_or_default());
    }
    catch.failures.iter().for_each(|failure| println!("{failure}"));
    let missing: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| !catch.faults.contains_key(kind)).collect();
    println!("faults: {:?}", catch.faults);
    if !missing.is_empty() {
        println!("no world had {missing:?}");
    }
    println!(
        "{} steps, {} containers, {} writes, {} evictions, {} nodes added, {:?}",
        catch.steps,
        catch.starts,
        catch.writes,
        catch.evictions,
        catch.scale_ups,
        begin.elapsed()
    );
    let violations = catch.violations.len() + catch.failures.len();
    println!("{{\"worlds\":{},\"violations\":{violations}}}", catch.worlds);
    if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Each bug on purpose: how many worlds it takes to find it.
fn bugs(args: &Args) -> ExitCode {
    let mut missed = 0;
    for bug in Bug::ALL {
        let job = Hunt { from: args.from, worlds: args.worlds, threads: threads(args), first: true };
        // What goes wrong without it as well is not found.
        let world = |seed| {
            let mut report = apart(seed, args.short, Some(bug))?;
            if !report.violations.is_empty() && !apart(seed, args.short, None)?.violations.is_empty() {
                report.violations.clear();
            }
            Ok(report)
        };
        let catch = hunt(job, world, |_, _| {});
        match catch.violations.first_key_value() {
            Some((seed, violations)) => {
                let rule = violations.first().map(|violation| violation.rule);
                println!("{bug:?}: found after {} worlds (seed {seed}, {rule:?})", catch.worlds);
            }
            None => {
                missed += 1;
                println!("{bug:?}: not found in {} worlds", catch.worlds);
            }
        }
    }
    println!("{{\"bugs\":{},\"missed\":{missed}}}", Bug::ALL.len());
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

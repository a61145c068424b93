//! What a burst showed, as tables and as one line of JSON.

use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};
use std::time::Duration;

use e2e::process::Usage;
use serde_json::json;

use crate::recorder::{Record, percentile};
use crate::writes::{Class, Key};

/// Writes by cluster.
pub(crate) type Writes = BTreeMap<String, BTreeMap<Key, f64>>;

/// One of the two bursts of a run.
#[derive(Debug)]
pub(crate) struct Half {
    /// How many pods are Ready.
    pub(crate) ready: usize,
    /// From the creation of the Deployment to the last pod's Ready.
    pub(crate) duration: Duration,
    pub(crate) records: Vec<(String, Record)>,
    pub(crate) delegates: Vec<(String, Record)>,
    pub(crate) writes: Writes,
    pub(crate) usage: BTreeMap<String, Usage>,
}

impl Half {
    #[expect(clippy::cast_precision_loss, reason = "counts of pods are small")]
    pub(crate) fn rate(&self) -> f64 {
        self.ready as f64 / self.duration.as_secs_f64()
    }

    /// From the first event of a pod to its Ready, sorted.
    pub(crate) fn latencies(&self) -> Vec<Duration> {
        sorted(self.records.iter().filter_map(|(_, record)| Some(record.ready?.duration_since(record.seen))))
    }

    /// From binding to Ready on a fake node, sorted: what kwok takes.
    fn starts(&self) -> Vec<Duration> {
        let all = if self.delegates.is_empty() { &self.records } else { &self.delegates };
        sorted(all.iter().filter_map(|(_, record)| Some(record.ready?.duration_since(record.scheduled?))))
    }

    /// Pods for which more than one delegate was ever created.
    pub(crate) fn doubled(&self) -> usize {
        let mut count: BTreeMap<&str, usize> = BTreeMap::new();
        for parent in self.delegates.iter().filter_map(|(_, record)| record.parent.as_deref()) {
            *count.entry(parent).or_default() += 1;
        }
        count.values().filter(|count| **count > 1).count()
    }

    /// Pods that vanished during the burst.
    pub(crate) fn lost(&self) -> usize {
        self.records.iter().chain(&self.delegates).filter(|(_, record)| record.gone).count()
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of pods are small")]
    pub(crate) fn writes_per_pod(&self, class: Class, pods: usize) -> f64 {
        let of_class = self.writes.values().flatten().filter(|(key, _)| key.class == class);
        of_class.map(|(_, count)| count).sum::<f64>() / pods as f64
    }
}

fn sorted(durations: impl Iterator<Item = Duration>) -> Vec<Duration> {
    let mut durations: Vec<Duration> = durations.collect();
    durations.sort();
    durations
}

/// As people and machines read it.
pub(crate) fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Both bursts of a run.
#[derive(Debug)]
pub(crate) struct Report {
    /// The name of the work.
    pub(crate) load: &'static str,
    pub(crate) pods: usize,
    pub(crate) targets: usize,
    pub(crate) plain: Half,
    pub(crate) ours: Half,
}

impl Report {
    /// Whether every pod got Ready, once.
    pub(crate) fn is_complete(&self) -> bool {
        let all = |half: &Half| half.ready >= self.pods && half.lost() == 0 && half.doubled() == 0;
        all(&self.plain) && all(&self.ours)
    }
}

impl Half {
    fn tables(&self, name: &str, all: usize, out: &mut Formatter<'_>) -> std::fmt::Result {
        #[expect(clippy::cast_precision_loss, reason = "counts of pods are small")]
        let pods = all as f64;
        let (latencies, starts) = (self.latencies(), self.starts());
        writeln!(
            out,
            "\n{name}: {} of {all} Ready in {:.2?}, {:.1} pods/s; create to Ready p50 {:.2?} p99 {:.2?}; bound to \
             Ready on kwok p50 {:.2?} p99 {:.2?}; {} lost, {} doubled",
            self.ready,
            self.duration,
            self.rate(),
            percentile(&latencies, 0.5),
            percentile(&latencies, 0.99),
            percentile(&starts, 0.5),
            percentile(&starts, 0.99),
            self.lost(),
            self.doubled(),
        )?;
        writeln!(out, "{:<12} {:<9} {:<34} {:<8} {:>9}", "cluster", "class", "resource", "verb", "per pod")?;
        for (cluster, key, count) in self
            .writes
            .iter()
            .flat_map(|(cluster, writes)| writes.iter().map(move |(key, count)| (cluster, key, count)))
        {
            let class = match key.class {
                Class::Counted => "",
                Class::DryRun => "dry-run",
                Class::Apart => "apart",
            };
            let share = count / pods;
            writeln!(out, "{cluster:<12} {class:<9} {:<34} {:<8} {share:>9.3}", key.resource, key.verb)?;
        }
        writeln!(out, "{:<45} {:>8} {:>10}", "process", "CPU s", "memory MiB")?;
        for (name, usage) in &self.usage {
            let (cpu, memory) = (usage.cpu_ticks, usage.resident_bytes / 1_048_576);
            writeln!(out, "{name:<45} {:>5}.{:02} {memory:>10}", cpu / 100, cpu % 100)?;
        }
        Ok(())
    }
}

impl Display for Report {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        self.plain.tables("plain", self.pods, out)?;
        self.ours.tables("ours", self.pods, out)?;
        let latencies = self.ours.latencies();
        let line = json!({
            "work": self.load,
            "pods": self.pods,
            "targets": self.targets,
            "ready": self.ours.ready,
            "lost": self.ours.lost(),
            "doubled": self.ours.doubled(),
            "pods_per_s": round(self.ours.rate()),
            "plain_pods_per_s": round(self.plain.rate()),
            "ratio": round(self.ours.rate() / self.plain.rate()),
            "writes_per_pod": round(self.ours.writes_per_pod(Class::Counted, self.pods)),
            "plain_writes_per_pod": round(self.plain.writes_per_pod(Class::Counted, self.pods)),
            "dry_runs_per_pod": round(self.ours.writes_per_pod(Class::DryRun, self.pods)),
            "p50_s": round(percentile(&latencies, 0.5).as_secs_f64()),
            "p99_s": round(percentile(&latencies, 0.99).as_secs_f64()),
        });
        writeln!(out, "\n{line}")
    }
}

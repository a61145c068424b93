use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use peak_alloc::PeakAlloc;
use scheduling::{Cache, Classes, Framework, NodeInfo, Owner, OwnerKind, PodInfo, Snapshot};
use serde_json::Value;

/// How this side did.
pub(crate) struct Measured {
    pub(crate) pods_per_second: f64,
    /// Processor time a pod, which other programs do not disturb. None where the system does not say it.
    pub(crate) cpu_us: Option<f64>,
    pub(crate) scheduled: usize,
    pub(crate) refused: usize,
    /// What 99 of 100 pods took at most, in microseconds.
    pub(crate) p99_us: u64,
    pub(crate) bytes_per_node: usize,
    /// Of the pods that were scheduled, with what was kept for their classes.
    pub(crate) bytes_per_pod: usize,
    pub(crate) cache_bytes_per_node: usize,
}

/// Nanoseconds that this thread has run.
fn processor_time() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

fn list<'a>(document: &'a Value, name: &str) -> &'a [Value] {
    document[name].as_array().map_or(&[], Vec::as_slice)
}

/// Schedules the pending pods of a document, one after the other.
pub(crate) fn measure(document: &Value, memory: &PeakAlloc) -> Result<Measured, Box<dyn Error>> {
    let framework = Framework::builder().build();
    let (mut cache, mut snapshot, mut classes) = (Cache::default(), Snapshot::default(), Classes::default());
    let empty = memory.current_usage();
    for raw in list(document, "nodes") {
        snapshot.set_node(NodeInfo::parse(raw)?);
    }
    let with_nodes = memory.current_usage();
    for raw in list(document, "services") {
        snapshot.owners.set(Owner::parse(OwnerKind::Service, raw)?);
    }
    for raw in list(document, "namespaces") {
        let labels = raw["metadata"]["labels"].as_object().into_iter().flatten();
        let labels = labels.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()));
        snapshot.set_namespace(raw["metadata"]["name"].as_str().unwrap_or_default(), labels.collect());
    }
    for raw in list(document, "pods") {
        let pod = classes.share(&Arc::new(PodInfo::parse(raw)?));
        snapshot.add_pod(pod);
    }
    let pending = list(document, "pending");
    let mut latencies = Vec::with_capacity(pending.len());
    let (mut scheduled, mut refused) = (0, 0);
    let (start, ran) = (Instant::now(), processor_time());
    for raw in pending {
        let begin = Instant::now();
        let pod = classes.share(&Arc::new(PodInfo::parse(raw)?));
        match framework.schedule(&mut cache, &pod, &snapshot) {
            Ok(best) => {
                scheduled += 1;
                snapshot.assume(pod, &best.node);
            }
            Err(_) => refused += 1,
        }
        latencies.push(begin.elapsed());
    }
    let seconds = start.elapsed().as_secs_f64();
    let ran = processor_time().zip(ran).map(|(after, before)| after - before);
    let count = f64::from(u32::try_from(pending.len())?);
    latencies.sort_unstable();
    let p99 = latencies.get(latencies.len() * 99 / 100).copied().unwrap_or(Duration::ZERO);
    let latencies_bytes = latencies.capacity() * size_of::<Duration>();
    let with_cache = memory.current_usage() - latencies_bytes;
    drop(cache);
    let with_pods = memory.current_usage() - latencies_bytes;
    let nodes = snapshot.node_count().max(1);
    Ok(Measured {
        pods_per_second: count / seconds,
        cpu_us: ran.map(|nanoseconds| nanoseconds / 1000.0 / count),
        scheduled,
        refused,
        p99_us: u64::try_from(p99.as_micros())?,
        bytes_per_node: (with_nodes - empty) / nodes,
        bytes_per_pod: (with_pods - with_nodes) / snapshot.pods().count().max(1),
        cache_bytes_per_node: (with_cache - with_pods) / nodes,
    })
}

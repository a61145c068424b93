//! What a pod's status says about its containers.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct End {
    pub(super) code: i32,
    pub(super) since: Timestamp,
    pub(super) at: Timestamp,
}

impl End {
    fn value(&self) -> Value {
        json!({"terminated": {
            "exitCode": self.code,
            "reason": if self.code == 0 { "Completed" } else { "Error" },
            "startedAt": second(self.since),
            "finishedAt": second(self.at),
        }})
    }
}

/// What a container does now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Doing {
    Waiting { reason: &'static str, message: String },
    Running { since: Timestamp },
    Ended(End),
}

/// One container's part of the status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ContainerStatus {
    pub(super) name: String,
    pub(super) image: String,
    pub(super) doing: Doing,
    pub(super) last: Option<End>,
    pub(super) restarts: u32,
    pub(super) ready: bool,
    pub(super) started: bool,
}

impl ContainerStatus {
    pub(super) fn new(name: &str, image: Option<&str>, reason: &'static str) -> Self {
        Self {
            name: name.to_owned(),
            image: image.unwrap_or_default().to_owned(),
            doing: Doing::Waiting { reason, message: String::new() },
            last: None,
            restarts: 0,
            ready: false,
            started: false,
        }
    }

    fn value(&self) -> Value {
        let state = match &self.doing {
            Doing::Waiting { reason, message } => json!({"waiting": {"reason": reason, "message": message}}),
            Doing::Running { since } => json!({"running": {"startedAt": second(*since)}}),
            Doing::Ended(end) => end.value(),
        };
        json!({
            "name": self.name,
            "image": self.image,
            "imageID": "",
            "ready": self.ready,
            "started": self.started,
            "restartCount": self.restarts,
            "state": state,
            "lastState": self.last.as_ref().map_or_else(|| json!({}), End::value),
        })
    }
}

/// A pod's status as this kubelet sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodStatus {
    pub(super) host: Ipv4Addr,
    pub(super) address: Option<Ipv4Addr>,
    pub(super) since: Timestamp,
    pub(super) init: Vec<ContainerStatus>,
    pub(super) main: Vec<ContainerStatus>,
    /// No container of the pod will ever run again.
    pub(super) over: bool,
    transitions: BTreeMap<&'static str, (bool, Timestamp)>,
}

impl PodStatus {
    pub(super) fn new(pod: &Pod, host: Ipv4Addr, since: Timestamp) -> Self {
        let spec = pod.spec.clone().unwrap_or_default();
        let status = |container: &k8s_openapi::api::core::v1::Container, reason| {
            ContainerStatus::new(&container.name, container.image.as_deref(), reason)
        };
        let init: Vec<_> =
            spec.init_containers.iter().flatten().map(|is| status(is, "PodInitializing")).collect();
        let reason = if init.is_empty() { "ContainerCreating" } else { "PodInitializing" };
        let main = spec.containers.iter().map(|is| status(is, reason)).collect();
        Self { host, address: None, since, init, main, over: false, transitions: BTreeMap::new() }
    }

    fn initialized(&self) -> bool {
        self.init.iter().all(|is| matches!(&is.doing, Doing::Ended(end) if end.code == 0))
    }

    pub(super) fn phase(&self) -> &'static str {
        let codes = self.init.iter().chain(&self.main).filter_map(|is| match &is.doing {
            Doing::Ended(end) => Some(end.code),
            Doing::Waiting { .. } | Doing::Running { .. } => None,
        });
        let all_ended = codes.clone().count() == self.init.len().saturating_add(self.main.len());
        if self.over {
            return if all_ended && codes.max() == Some(0) { "Succeeded" } else { "Failed" };
        }
        let has_run =
            self.main.iter().any(|is| is.restarts > 0 || !matches!(is.doing, Doing::Waiting { .. }));
        if self.initialized() && has_run { "Running" } else { "Pending" }
    }

    /// A patch of the pod's status.
    pub(super) fn value(&mut self, now: Timestamp) -> Value {
        let ready = !self.over && self.main.iter().all(|is| is.ready);
        let initialized = self.initialized();
        let conditions = [
            ("PodReadyToStartContainers", self.address.is_some()),
            ("Initialized", initialized),
            ("ContainersReady", ready),
            ("Ready", ready),
        ];
        let conditions: Vec<Value> =
            conditions.into_iter().map(|(kind, is)| self.condition(kind, is, now)).collect();
        let statuses = |of: &[ContainerStatus]| of.iter().map(ContainerStatus::value).collect::<Vec<_>>();
        let mut value = json!({
            "phase": self.phase(),
            "startTime": second(self.since),
            "hostIP": self.host,
            "hostIPs": [{"ip": self.host}],
            "conditions": conditions,
            "initContainerStatuses": statuses(&self.init),
            "containerStatuses": statuses(&self.main),
        });
        if let (Some(address), Some(map)) = (self.address, value.as_object_mut()) {
            map.insert("podIP".into(), json!(address));
            map.insert("podIPs".into(), json!([{"ip": address}]));
        }
        value
    }

    fn condition(&mut self, kind: &'static str, is: bool, now: Timestamp) -> Value {
        let entry = self.transitions.entry(kind).or_insert((is, now));
        if entry.0 != is {
            *entry = (is, now);
        }
        json!({"type": kind, "status": if is { "True" } else { "False" }, "lastTransitionTime": second(entry.1)})
    }
}

fn second(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(containers: &[Doing]) -> PodStatus {
        let mut status = PodStatus::new(&Pod::default(), Ipv4Addr::LOCALHOST, Timestamp::UNIX_EPOCH);
        for doing in containers {
            let mut container = ContainerStatus::new("c", None, "ContainerCreating");
            container.doing = doing.clone();
            status.main.push(container);
        }
        status
    }

    fn ended(code: i32) -> Doing {
        Doing::Ended(End { code, since: Timestamp::UNIX_EPOCH, at: Timestamp::UNIX_EPOCH })
    }

    const RUNNING: Doing = Doing::Running { since: Timestamp::UNIX_EPOCH };

    #[test]
    fn a_pod_is_pending_until_a_container_has_run() {
        let waiting = Doing::Waiting { reason: "ContainerCreating", message: String::new() };
        assert_eq!(status(&[waiting.clone(), waiting.clone()]).phase(), "Pending");
        assert_eq!(status(&[waiting, RUNNING]).phase(), "Running");
    }

    #[test]
    fn a_pod_that_is_over_succeeded_only_if_all_containers_did() {
        let over = |containers: &[Doing]| PodStatus { over: true, ..status(containers) };
        assert_eq!(over(&[ended(0), ended(0)]).phase(), "Succeeded");
        assert_eq!(over(&[ended(0), ended(3)]).phase(), "Failed");
        assert_eq!(over(&[ended(0), RUNNING]).phase(), "Failed");
    }

    #[test]
    fn a_condition_keeps_the_time_of_its_last_change() {
        let mut status = status(&[RUNNING]);
        let later = Timestamp::from_second(60).expect("in range");
        let first = status.value(Timestamp::UNIX_EPOCH);
        assert_eq!(first, status.value(later));
        status.main.iter_mut().for_each(|container| container.ready = true);
        let ready = status.value(later);
        assert_eq!(ready.pointer("/conditions/3/lastTransitionTime"), Some(&json!("1970-01-01T00:01:00Z")));
        assert_eq!(ready.pointer("/conditions/3/status"), Some(&json!("True")));
    }
}

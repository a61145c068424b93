//! What concerns the process rather than the decisions.

use std::time::Duration;

use crate::config::read::Problems;
use crate::field::{Field, FieldError};

/// `leaderElection`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderElection {
    pub elect: bool,
    pub lease_duration: Duration,
    pub renew_deadline: Duration,
    pub retry_period: Duration,
    pub namespace: String,
    pub name: String,
}

impl Default for LeaderElection {
    fn default() -> Self {
        Self {
            elect: true,
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            namespace: "kube-system".to_owned(),
            name: "kube-scheduler".to_owned(),
        }
    }
}

/// `clientConnection`.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientConnection {
    /// Requests a second, and how many more at once.
    pub qps: f64,
    pub burst: i64,
}

impl Default for ClientConnection {
    fn default() -> Self {
        Self { qps: 50.0, burst: 100 }
    }
}

pub(super) fn leader_election(
    field: &Field<'_>,
    problems: &mut Problems,
    notes: &mut Vec<String>,
) -> LeaderElection {
    let durations = ["leaseDuration", "renewDeadline", "retryPeriod"];
    let names = ["resourceLock", "resourceName", "resourceNamespace"];
    problems.only(field, &[&["leaderElect"], durations.as_slice(), names.as_slice()].concat());
    let defaults = LeaderElection::default();
    let elect = field.get("leaderElect");
    let elect = !elect.present() || problems.or(elect.flag(), true);
    let [lease, renew, retry] =
        durations.map(|key| problems.or(duration(&field.get(key)), None).filter(|time| !time.is_zero()));
    let text = |key: &str, problems: &mut Problems| {
        let text = problems.or(field.get(key).text(), None).filter(|text| !text.is_empty());
        text.map(str::to_owned)
    };
    let lock = text("resourceLock", problems);
    let election = LeaderElection {
        elect,
        lease_duration: lease.unwrap_or(defaults.lease_duration),
        renew_deadline: renew.unwrap_or(defaults.renew_deadline),
        retry_period: retry.unwrap_or(defaults.retry_period),
        namespace: text("resourceNamespace", problems).unwrap_or(defaults.namespace),
        name: text("resourceName", problems).unwrap_or(defaults.name),
    };
    if elect && lock.is_some_and(|lock| lock != "leases") {
        problems.add(field.error_at("resourceLock", "resourceLock value must be \"leases\""));
    }
    if elect && election.lease_duration <= election.renew_deadline {
        problems.add(field.error_at("leaseDuration", "must be greater than `RenewDeadline`"));
    }
    if field.present() {
        notes.push(
            "leaderElection has no effect: --leader-elect and --lease-duration-seconds say it".to_owned(),
        );
    }
    election
}

pub(super) fn client(
    field: &Field<'_>,
    problems: &mut Problems,
    notes: &mut Vec<String>,
) -> ClientConnection {
    problems.only(field, &["kubeconfig", "acceptContentTypes", "contentType", "qps", "burst"]);
    let kubeconfig = field.get("kubeconfig");
    if problems.or(kubeconfig.text(), None).is_some_and(|path| !path.is_empty()) {
        problems.add(kubeconfig.error("is given by the environment: leave it out and set KUBECONFIG"));
    }
    for key in ["acceptContentTypes", "contentType"] {
        problems.or(field.get(key).text(), None);
    }
    let burst = problems.or(field.get("burst").integer(), None).unwrap_or_default();
    if burst < 0 {
        problems.add(field.error_at("burst", "must be non-negative"));
    }
    let qps = problems.or(field.get("qps").number(), None).unwrap_or_default();
    for key in ["acceptContentTypes", "contentType", "qps", "burst"] {
        if field.get(key).present() {
            notes.push(format!("clientConnection.{key} has no effect: calls are bounded in number at once"));
        }
    }
    let defaults = ClientConnection::default();
    ClientConnection {
        qps: if qps == 0.0 { defaults.qps } else { qps },
        burst: if burst == 0 { defaults.burst } else { burst },
    }
}

/// A duration as Go writes it, such as `1m30s`.
pub(super) fn duration(field: &Field<'_>) -> Result<Option<Duration>, FieldError> {
    let Some(text) = field.text()? else { return Ok(None) };
    let wrong = || field.error("must be a duration such as 15s, 1m30s or 500ms");
    let mut rest = text;
    let mut sum = Duration::ZERO;
    if rest == "0" {
        return Ok(Some(sum));
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let (number, tail) = rest.split_at(digits);
        let unit = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return Err(wrong()),
        };
        let number: f64 = number.parse().ok().ok_or_else(wrong)?;
        sum += Duration::try_from_secs_f64(number * seconds).ok().ok_or_else(wrong)?;
        rest = tail;
    }
    if text.is_empty() { Err(wrong()) } else { Ok(Some(sum)) }
}

//! Who ran where and when, as the containers themselves would tell, and what must never be.
//!
//! It knows nothing of our services: it sees containers start and stop, and which proxy pod each stands for.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What went wrong, as a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Rule {
    /// Two delegates of one proxy pod run at a time.
    OneAtATime,
    /// Two delegates ran for a pod that is to run once.
    OneEver,
    /// Two pods of one identity run at a time.
    OneIdentity,
    /// What had finished ran again.
    FinishedStaysFinished,
    /// Something runs for a proxy pod that is gone.
    NoOrphan,
    /// An object is left being deleted.
    NothingStaysTerminating,
    /// An object stays that nobody needs.
    NothingIsLeft,
    /// A process wrote to what is not its own.
    OnlyOwnObjects,
    /// A pod ended although nothing had happened to it.
    NoEndWithoutCause,
    /// A pod waits and nobody says why.
    EveryWaitHasAReason,
    /// What should have happened did not.
    Progress,
    /// A proxy pod does not show what its delegate does.
    StatusIsTrue,
}

/// One broken rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    pub rule: Rule,
    /// What exactly, for people.
    pub what: String,
    /// When, in milliseconds.
    pub at: u64,
}

#[derive(Debug, Clone)]
struct Run {
    proxy: String,
    pod: String,
    identity: String,
}

/// What a container runs for.
#[derive(Debug, Clone, Default)]
pub struct Subject {
    /// UID of the proxy pod.
    pub proxy: String,
    /// UID of the delegate.
    pub pod: String,
    /// What only one pod at a time may be; empty for others.
    pub identity: String,
    /// Whether it is to run once.
    pub once: bool,
}

/// The recorder.
#[derive(Debug, Default)]
pub struct Recorder {
    running: BTreeMap<String, Run>,
    ran: BTreeMap<String, BTreeSet<String>>,
    finished: BTreeSet<String>,
    excused: BTreeSet<String>,
    all_excused: bool,
    restored: bool,
    /// What was found.
    pub violations: Vec<Violation>,
    /// How many containers were started.
    pub starts: u64,
}

impl Recorder {
    /// Notes a broken rule.
    pub fn report(&mut self, rule: Rule, at: u64, what: impl Into<String>) {
        self.violations.push(Violation { rule, what: what.into(), at });
    }

    /// A container starts.
    pub fn starts(&mut self, subject: &Subject, at: u64) {
        self.starts += 1;
        let Subject { proxy, pod, identity, once } = subject.clone();
        let others = self.running.values().filter(|run| run.pod != pod);
        let twin = others.clone().find(|run| run.proxy == proxy).map(|run| run.pod.clone());
        let same = others.clone().find(|run| !identity.is_empty() && run.identity == identity);
        let same = same.filter(|run| run.proxy != proxy).map(|run| run.pod.clone());
        if let Some(other) = twin {
            self.report(Rule::OneAtATime, at, format!("{pod} starts for proxy {proxy} while {other} runs"));
        }
        if let Some(other) = same {
            self.report(Rule::OneIdentity, at, format!("{pod} starts as {identity} while {other} runs"));
        }
        let ran = self.ran.entry(proxy.clone()).or_default();
        ran.insert(pod.clone());
        let many = ran.len() > 1;
        if once && many {
            self.report(
                Rule::OneEver,
                at,
                format!("{pod} is a second delegate of {proxy}, which is to run once"),
            );
        }
        if self.finished.contains(&proxy) && !self.restored {
            self.report(
                Rule::FinishedStaysFinished,
                at,
                format!("{pod} starts for {proxy}, which had finished"),
            );
        }
        self.running.insert(pod.clone(), Run { proxy, pod, identity });
    }

    /// It stops; `finished`: it has done what it was to do.
    pub fn stops(&mut self, pod: &str, finished: bool) {
        if let Some(run) = self.running.remove(pod)
            && finished
        {
            self.finished.insert(run.proxy);
        }
    }

    /// Something has happened to a proxy pod or its delegate that may end it.
    pub fn excuse(&mut self, proxy: &str) {
        self.excused.insert(proxy.to_owned());
    }

    /// The same for all.
    pub fn excuse_all(&mut self) {
        self.all_excused = true;
    }

    /// An etcd goes back: its kubelets start what it still has, before anybody of ours can look.
    pub fn restored(&mut self) {
        self.restored = true;
    }

    /// Whether it may end.
    #[must_use]
    pub fn is_excused(&self, proxy: &str) -> bool {
        self.all_excused || self.excused.contains(proxy) || self.finished.contains(proxy)
    }

    /// UIDs of the proxy pods for which something runs.
    pub fn running(&self) -> impl Iterator<Item = &str> {
        self.running.values().map(|run| run.proxy.as_str())
    }

    /// Whether something runs for a proxy pod.
    #[must_use]
    pub fn runs(&self, proxy: &str) -> bool {
        self.running.values().any(|run| run.proxy == proxy)
    }
}

#[cfg(test)]
mod tests {
    use super::{Recorder, Rule, Subject};

    fn subject(pod: &str, once: bool) -> Subject {
        Subject { proxy: "p".to_owned(), pod: pod.to_owned(), identity: String::new(), once }
    }

    fn rules(recorder: &Recorder) -> Vec<Rule> {
        recorder.violations.iter().map(|violation| violation.rule).collect()
    }

    #[test]
    fn two_at_a_time_are_seen_and_one_after_the_other_is_not() {
        let mut recorder = Recorder::default();
        recorder.starts(&subject("a", false), 1);
        recorder.stops("a", false);
        recorder.starts(&subject("b", false), 2);
        assert!(rules(&recorder).is_empty());
        recorder.starts(&subject("c", false), 3);
        assert_eq!(rules(&recorder), [Rule::OneAtATime]);
    }

    #[test]
    fn what_is_to_run_once_has_one_delegate_ever() {
        let mut recorder = Recorder::default();
        recorder.starts(&subject("a", true), 1);
        recorder.stops("a", true);
        recorder.starts(&subject("a", true), 2);
        assert_eq!(rules(&recorder), [Rule::FinishedStaysFinished]);
        recorder.stops("a", false);
        recorder.starts(&subject("b", true), 3);
        assert_eq!(rules(&recorder)[1..], [Rule::OneEver, Rule::FinishedStaysFinished]);
    }
}

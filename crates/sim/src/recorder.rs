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
    /// Somebody had to make way, or a node was added, for a pod that had room elsewhere.
    NothingInExcess,
    /// Some of a group were placed, and not enough of it, or not where the others are.
    AllOrNothing,
    /// A recorded end was taken back, or is not that of the container.
    EndsAreTrue,
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
    /// Exit codes.
    finished: BTreeMap<String, i64>,
    excused: BTreeSet<String>,
    /// What was done for them was undone behind everybody's back.
    undone: BTreeSet<String>,
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
        let undone = |run: &Run| self.undone.contains(&run.proxy);
        let again = self.undone.contains(&proxy);
        let twin = others.clone().find(|run| run.proxy == proxy && !again).map(|run| run.pod.clone());
        let same = others.clone().find(|run| !identity.is_empty() && run.identity == identity);
        let same = same.filter(|run| run.proxy != proxy && !again && !undone(run)).map(|run| run.pod.clone());
        if let Some(other) = twin {
            self.report(Rule::OneAtATime, at, format!("{pod} starts for proxy {proxy} while {other} runs"));
        }
        if let Some(other) = same {
            self.report(Rule::OneIdentity, at, format!("{pod} starts as {identity} while {other} runs"));
        }
        let ran = self.ran.entry(proxy.clone()).or_default();
        ran.insert(pod.clone());
        let many = ran.len() > 1;
        if once && many && !again {
            self.report(
                Rule::OneEver,
                at,
                format!("{pod} is a second delegate of {proxy}, which is to run once"),
            );
        }
        if self.finished.contains_key(&proxy) && !again {
            self.report(
                Rule::FinishedStaysFinished,
                at,
                format!("{pod} starts for {proxy}, which had finished"),
            );
        }
        self.running.insert(pod.clone(), Run { proxy, pod, identity });
    }

    /// It stops; `finished`: it has done what it was to do, with this exit code.
    pub fn stops(&mut self, pod: &str, finished: Option<i64>) {
        if let (Some(run), Some(code)) = (self.running.remove(pod), finished) {
            self.finished.insert(run.proxy, code);
        }
    }

    /// A proxy pod is gone; `excused`: whoever took its target away did not mind what runs there.
    pub fn gone(&mut self, proxy: &str, excused: bool, at: u64) {
        if self.runs(proxy) && !excused && !self.undone.contains(proxy) {
            self.report(Rule::NoOrphan, at, format!("proxy {proxy} is gone while its delegate runs"));
        }
    }

    /// A proxy pod or PodChaperon of it has another phase.
    pub fn turns(&mut self, proxy: &str, (before, after): (&str, &str), at: u64) {
        let is_end = |phase: &str| matches!(phase, "Succeeded" | "Failed");
        if before == after || self.undone.contains(proxy) {
            return;
        }
        if is_end(before) {
            self.report(Rule::EndsAreTrue, at, format!("{proxy} had ended as {before} and is {after:?} now"));
        }
        let success = self.finished.get(proxy).map(|code| *code == 0);
        let is_true = match after {
            "Succeeded" => success == Some(true),
            "Failed" => success != Some(true) || self.excused.contains(proxy),
            _ => true,
        };
        if !is_true {
            self.report(
                Rule::EndsAreTrue,
                at,
                format!("{proxy} is {after}, and its container has not ended so"),
            );
        }
    }

    /// Something has happened to a proxy pod or its delegate that may end it.
    pub fn excuse(&mut self, proxy: &str) {
        self.excused.insert(proxy.to_owned());
    }

    /// A restored etcd has another state of what was done for a proxy pod: kubelets and controllers begin with
    /// that before anybody of ours can look.
    pub fn undo(&mut self, proxy: &str) {
        self.undone.insert(proxy.to_owned());
        self.excuse(proxy);
    }

    /// Whether that has happened.
    #[must_use]
    pub fn is_undone(&self, proxy: &str) -> bool {
        self.undone.contains(proxy)
    }

    /// Whether it may end.
    #[must_use]
    pub fn is_excused(&self, proxy: &str) -> bool {
        self.excused.contains(proxy) || self.finished.contains_key(proxy)
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
        recorder.stops("a", None);
        recorder.starts(&subject("b", false), 2);
        assert!(rules(&recorder).is_empty());
        recorder.starts(&subject("c", false), 3);
        assert_eq!(rules(&recorder), [Rule::OneAtATime]);
    }

    #[test]
    fn what_is_to_run_once_has_one_delegate_ever() {
        let mut recorder = Recorder::default();
        recorder.starts(&subject("a", true), 1);
        recorder.stops("a", Some(0));
        recorder.starts(&subject("a", true), 2);
        assert_eq!(rules(&recorder), [Rule::FinishedStaysFinished]);
        recorder.stops("a", None);
        recorder.starts(&subject("b", true), 3);
        assert_eq!(rules(&recorder)[1..], [Rule::OneEver, Rule::FinishedStaysFinished]);
    }

    #[test]
    fn a_proxy_pod_goes_after_its_delegate() {
        let mut recorder = Recorder::default();
        recorder.starts(&subject("a", false), 1);
        recorder.gone("p", true, 2);
        assert!(rules(&recorder).is_empty());
        recorder.gone("p", false, 2);
        assert_eq!(rules(&recorder), [Rule::NoOrphan]);
        recorder.stops("a", None);
        recorder.gone("p", false, 3);
        assert_eq!(rules(&recorder).len(), 1);
    }

    #[test]
    fn an_end_is_the_containers_and_stays() {
        let mut recorder = Recorder::default();
        recorder.starts(&subject("a", true), 1);
        recorder.turns("p", ("Running", "Succeeded"), 2);
        recorder.stops("a", Some(0));
        recorder.turns("p", ("Running", "Failed"), 3);
        recorder.turns("p", ("Succeeded", "Running"), 4);
        assert_eq!(rules(&recorder), [Rule::EndsAreTrue; 3]);
        recorder.turns("p", ("Running", "Succeeded"), 5);
        recorder.turns("p", ("Succeeded", "Succeeded"), 6);
        assert_eq!(rules(&recorder).len(), 3);
    }

    #[test]
    fn what_a_restored_etcd_has_undone_may_be_done_again() {
        let mut recorder = Recorder::default();
        recorder.starts(&subject("a", true), 1);
        recorder.undo("p");
        recorder.starts(&subject("b", true), 2);
        recorder.gone("p", false, 3);
        assert!(rules(&recorder).is_empty());
    }
}

//! What is counted.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use crate::recorder::Life;
use crate::work::{REPLICAS, STAYS, SURGE};

/// The result of a run.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pods: usize,
    kills: usize,
    pub(crate) lost: usize,
    duplicated: usize,
    resurrected: usize,
    pub(crate) stuck: usize,
    /// A run that could not have found anything.
    void: usize,
    pub(crate) findings: Vec<String>,
}

impl Tally {
    pub(crate) fn finding(&mut self, text: String) {
        self.findings.push(text);
    }

    /// How much was found that must not be.
    pub(crate) fn bad(&self) -> usize {
        self.lost + self.duplicated + self.resurrected + self.stuck + self.void
    }

    pub(crate) fn line(&self) -> String {
        json!({
            "pods": self.pods, "kills": self.kills, "lost": self.lost, "duplicated": self.duplicated,
            "resurrected": self.resurrected, "stuck": self.stuck,
        })
        .to_string()
    }

    /// Every component must have been killed once in each minute.
    pub(crate) fn kills(&mut self, kills: &BTreeMap<String, usize>, minutes: u64) {
        self.kills = kills.values().sum();
        for (component, times) in kills {
            if u64::try_from(*times).unwrap_or(u64::MAX) < minutes {
                self.void += 1;
                self.finding(format!("{component} was killed {times} times in {minutes} minutes"));
            }
        }
    }

    /// Counts what ran when it must not have.
    pub(crate) fn lives(&mut self, lives: &BTreeMap<String, Life>, gaps: usize) {
        self.pods = lives.values().filter(|life| life.parent.is_empty()).count();
        if gaps > 0 {
            self.finding(format!(
                "the recorder had to begin anew {gaps} times and may have missed something"
            ));
        }
        let delegates: Vec<&Life> = lives.values().filter(|life| !life.parent.is_empty()).collect();
        for (one, other) in
            pairs(&delegates, |life| &life.parent).chain(pairs(&delegates, |life| &life.place))
        {
            if overlap(one, other) {
                self.duplicated += 1;
                self.finding(format!("ran at once: {} and {}", brief(one), brief(other)));
            }
        }
        self.surplus(&delegates, lives);
        for one in &delegates {
            self.after_the_end(one, &delegates, lives);
        }
    }

    fn after_the_end(&mut self, one: &Life, delegates: &[&Life], lives: &BTreeMap<String, Life>) {
        let Some(started) = one.started else { return };
        let before = delegates.iter().filter(|other| other.parent == one.parent && other.name == one.name);
        let finished = before.filter(|other| other.succeeded || !other.restarts && other.ended.is_some());
        if let Some(done) = finished.filter_map(|other| other.ended).find(|ended| *ended < started) {
            self.resurrected += 1;
            self.finding(format!("ran again after an end at {done}: {}", brief(one)));
        }
        let gone = lives.get(&one.parent).and_then(|proxy| proxy.gone);
        if let Some(gone) = gone.filter(|gone| started.duration_since(*gone).as_secs() > 1) {
            self.resurrected += 1;
            self.finding(format!("started after its proxy pod was gone at {gone}: {}", brief(one)));
        }
    }

    /// More than a Deployment wants, and may have during a change. A pod that stays and was deleted while its target
    /// was cut off runs on beside its successor, as on a node that is cut off.
    fn surplus(&mut self, delegates: &[&Life], lives: &BTreeMap<String, Life>) {
        let mut steps: Vec<(Timestamp, isize, &str)> = Vec::new();
        for life in delegates.iter().filter(|life| !life.app.is_empty()) {
            let deleted =
                lives.get(&life.parent).and_then(|proxy| proxy.deleted).filter(|_| life.app == STAYS);
            let ended = [end(life), deleted].into_iter().flatten().min();
            if let Some(started) = life.started {
                steps.push((started, 1, &life.app));
                steps.extend(ended.map(|ended| (ended, -1, life.app.as_str())));
            }
        }
        // Of one second, ends come first.
        steps.sort_by_key(|(at, change, _)| (*at, *change));
        let mut running: BTreeMap<&str, isize> = BTreeMap::new();
        let mut most: BTreeMap<&str, isize> = BTreeMap::new();
        for (_, change, app) in steps {
            let now = running.entry(app).or_default();
            *now += change;
            let most = most.entry(app).or_default();
            *most = (*most).max(*now);
        }
        for (app, most) in most {
            let allowed = REPLICAS + SURGE;
            if let Some(more) =
                usize::try_from(most).ok().and_then(|most| most.checked_sub(allowed)).filter(|more| *more > 0)
            {
                self.duplicated += more;
                self.finding(format!("{most} pods of {app} ran at once; {allowed} may"));
            }
        }
    }
}

fn brief(life: &Life) -> String {
    let time = |time: Option<Timestamp>| time.map_or_else(|| "?".to_owned(), |time| time.to_string());
    format!(
        "{}/{} (for {}, {} to {}, gone {})",
        life.cluster,
        life.name,
        life.parent,
        time(life.started),
        time(life.ended),
        time(life.gone)
    )
}

fn end(life: &Life) -> Option<Timestamp> {
    match (life.ended, life.gone) {
        (Some(ended), Some(gone)) => Some(ended.min(gone)),
        (ended, gone) => ended.or(gone),
    }
}

/// Whether both ran for more than the second to which times are exact.
fn overlap(one: &Life, other: &Life) -> bool {
    let (Some(first), Some(second)) = (one.started, other.started) else { return false };
    let (early, late) = if first <= second { (one, second) } else { (other, first) };
    end(early).is_none_or(|end| end.duration_since(late).as_secs() >= 1)
}

/// All pairs with an equal name that is not empty.
fn pairs<'a>(
    lives: &'a [&'a Life],
    name: impl Fn(&Life) -> &String,
) -> impl Iterator<Item = (&'a Life, &'a Life)> {
    let mut groups: BTreeMap<String, Vec<&'a Life>> = BTreeMap::new();
    for life in lives.iter().filter(|life| life.started.is_some() && !name(life).is_empty()) {
        groups.entry(name(life).clone()).or_default().push(life);
    }
    let mut found = Vec::new();
    for group in groups.values() {
        for (at, one) in group.iter().enumerate() {
            found.extend(group.iter().skip(at + 1).map(|other| (*one, *other)));
        }
    }
    found.into_iter()
}

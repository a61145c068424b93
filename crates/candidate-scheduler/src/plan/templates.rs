//! What admission makes of pods, asked once for all that are alike.

use std::collections::BTreeSet;
use std::sync::Arc;

use scheduling::{Labels, PodInfo, PodSpec};
use serde_json::Value;

use crate::observe::{ChaperonSeen, Name, TemplateKey};
use crate::plan::{Action, Admission, Model, Outcome, RETRY_MS};

/// How long a "yes" is believed.
const BELIEVED_MS: u64 = 60_000;
/// How long a "no" is believed, if nothing happens that may change it.
const REFUSED_MS: u64 = 15_000;

/// What is known about one template.
#[derive(Debug)]
pub(super) struct Template {
    /// The manifest of one of its pods.
    manifest: Arc<Value>,
    /// What that pod asks for, before admission.
    raw: Arc<PodSpec>,
    state: State,
    /// Chaperons to schedule as soon as there is an answer.
    waiting: BTreeSet<Name>,
}

#[derive(Debug, Clone)]
enum State {
    /// Nobody has asked yet.
    Unasked,
    /// Asked; `stale` if something changed since, so that the answer is worth nothing.
    Asked { stale: bool },
    /// Answered, and believed until a time.
    Known { answer: Answer, until: u64 },
    /// To be asked again at a time.
    Later(u64),
}

/// What the pods of a template look like to the scheduler.
#[derive(Debug, Clone)]
enum Answer {
    /// The spec that admission returned.
    Spec(Arc<PodSpec>),
    /// As the chaperon says: admission cannot tell.
    Raw,
    Refused(String),
}

/// What a chaperon learns about its pod.
pub(super) enum Shape {
    Known(Arc<PodInfo>),
    Refused(String),
    /// The chaperon will be scheduled once there is an answer.
    Asked,
}

/// The sample's answer for one pod: its own identity, and its own labels where they differ from the sample's.
fn fitted(raw: &Arc<PodInfo>, spec: &Arc<PodSpec>, sample: &Labels) -> Arc<PodInfo> {
    let mut spec = Arc::clone(spec);
    if raw.spec.labels != *sample {
        let mut own = (*spec).clone();
        own.labels.retain(|key, value| sample.get(key) != Some(value));
        own.labels.extend(&raw.spec.labels);
        spec = Arc::new(own);
    }
    Arc::new(PodInfo { spec, ..(**raw).clone() })
}

impl Model {
    /// What the pod of a chaperon will look like. If that is not known, it is asked.
    pub(super) fn shape(
        &mut self,
        name: &Name,
        key: &TemplateKey,
        raw: &Arc<PodInfo>,
        manifest: &Arc<Value>,
    ) -> Shape {
        let template = self.templates.entry(key.clone()).or_insert_with(|| Template {
            manifest: Arc::clone(manifest),
            raw: Arc::clone(&raw.spec),
            state: State::Unasked,
            waiting: BTreeSet::new(),
        });
        match &template.state {
            State::Known { answer: Answer::Spec(spec), .. } => {
                return Shape::Known(fitted(raw, spec, &template.raw.labels));
            }
            State::Known { answer: Answer::Raw, .. } => return Shape::Known(Arc::clone(raw)),
            State::Known { answer: Answer::Refused(message), .. } => {
                // It is asked again when something changes or the answer is old.
                let message = message.clone();
                template.waiting.insert(name.clone());
                return Shape::Refused(message);
            }
            State::Unasked => {
                template.state = State::Asked { stale: false };
                let manifest = Arc::clone(&template.manifest);
                self.actions.push(Action::DryRun { template: key.clone(), manifest });
            }
            State::Asked { .. } | State::Later(_) => {}
        }
        template.waiting.insert(name.clone());
        Shape::Asked
    }

    /// Lets a chaperon share what it has in common with others of its template.
    pub(super) fn share(&self, seen: &mut ChaperonSeen) {
        let Some(template) = self.templates.get(&seen.template) else { return };
        seen.manifest = Arc::clone(&template.manifest);
        if let Ok(pod) = &mut seen.pod
            && pod.spec == template.raw
        {
            *pod = Arc::new(PodInfo { spec: Arc::clone(&template.raw), ..(**pod).clone() });
        }
    }

    /// A chaperon no longer cares.
    pub(super) fn stop_waiting(&mut self, name: &Name, key: &TemplateKey) {
        if let Some(template) = self.templates.get_mut(key) {
            template.waiting.remove(name);
        }
    }

    pub(super) fn admission_answered(&mut self, key: &TemplateKey, outcome: Outcome, now: u64) {
        let Some(template) = self.templates.get_mut(key) else { return };
        let answer = match outcome {
            Outcome::Admitted(Admission::Pod(pod)) => Some(Answer::Spec(Arc::clone(&pod.spec))),
            Outcome::Admitted(Admission::Undecided) => Some(Answer::Raw),
            Outcome::Admitted(Admission::Refused(message)) | Outcome::Denied(message) => {
                Some(Answer::Refused(message))
            }
            Outcome::Done { .. } | Outcome::Unknown | Outcome::Conflict | Outcome::NotFound => None,
        };
        let stale = matches!(template.state, State::Asked { stale: true });
        template.state = match answer {
            // If something changed while we asked, whoever waits is told, and the next one asks again.
            Some(answer) => {
                let refused = matches!(answer, Answer::Refused(_));
                let believed = if refused { REFUSED_MS } else { BELIEVED_MS };
                State::Known { answer, until: if stale { now } else { now + believed } }
            }
            None => State::Later(now + RETRY_MS),
        };
        let waiting = std::mem::take(&mut template.waiting);
        self.recalling.remove(key);
        for name in waiting {
            self.shape_changed(&name, now);
        }
    }

    /// Answers about one namespace, or all, may be wrong by now.
    pub(super) fn forget_admission(&mut self, namespace: Option<&str>) {
        let concerned = |key: &TemplateKey| namespace.is_none_or(|namespace| *key.namespace == *namespace);
        for (_, template) in self.templates.iter_mut().filter(|(key, _)| concerned(key)) {
            match &mut template.state {
                State::Asked { stale } => *stale = true,
                State::Known { until, .. } => *until = 0,
                State::Unasked | State::Later(_) => {}
            }
        }
    }

    /// Asks what is due, and forgets what is old and used by nobody.
    pub(super) fn refresh_templates(&mut self, now: u64) {
        let mut asks = Vec::new();
        self.templates.retain(|key, template| {
            match &template.state {
                State::Known { until: end, .. } | State::Later(end) if *end <= now => {
                    template.state = State::Unasked;
                }
                State::Unasked | State::Asked { .. } | State::Known { .. } | State::Later(_) => {}
            }
            let unasked = matches!(template.state, State::Unasked);
            if unasked && !template.waiting.is_empty() {
                template.state = State::Asked { stale: false };
                asks.push(Action::DryRun { template: key.clone(), manifest: Arc::clone(&template.manifest) });
            }
            !matches!(template.state, State::Unasked)
        });
        self.actions.extend(asks);
    }

    pub(super) fn next_template(&self) -> Option<u64> {
        let due = self.templates.values().filter_map(|template| match &template.state {
            State::Known { until: end, .. } | State::Later(end) => Some(*end),
            State::Unasked | State::Asked { .. } => None,
        });
        due.min()
    }
}

//! Requests, answers and watches between processes and API servers.

use super::watches::SILENCE;
use super::{Due, World};
use crate::bugs::{self, Bug};
use crate::cluster::request::{Request, Verb};
use crate::cluster::{Object, Refusal};
use crate::plan::Kind;
use crate::process::Service;
use crate::recorder::Rule;
use crate::wire::{ClusterId, Content, ProcessId, Reply, Sent};
use bytes::Bytes;
use serde_json::{Value, json};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use tokio::sync::oneshot;
use tower::BoxError;

/// How long a connection is tried that nobody takes.
const CONNECT: u64 = 3_000;
/// What does not pass between two clusters.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    pub(super) home: ClusterId,
    pub(super) cluster: ClusterId,
    pub(super) requests: bool,
    pub(super) answers: bool,
}

/// An answer on its way.
pub(super) struct Answer {
    process: ProcessId,
    cluster: ClusterId,
    reply: oneshot::Sender<Reply>,
    content: Reply,
}

/// What waits for a process that stands still.
pub(super) enum Held {
    Out(Box<Sent>),
    In(Answer),
}

impl World {
    pub(super) fn cut(&self, process: ProcessId, cluster: ClusterId) -> (bool, bool) {
        let Some(home) = self.processes.get(process).map(|process| process.home) else { return (true, true) };
        let cuts = self.cuts.iter().map(|(_, cut)| cut);
        let mine = cuts.filter(|cut| cut.home == home && cut.cluster == cluster && home != cluster);
        mine.fold((false, false), |(requests, answers), cut| (requests | cut.requests, answers | cut.answers))
    }

    fn latency(&mut self, process: ProcessId, cluster: ClusterId) -> u64 {
        let home = self.processes.get(process).map_or(cluster, |process| process.home);
        let slow = self.clusters.get(cluster).map_or(0, |cluster| cluster.slow);
        let base = if home == cluster { self.rng.u64(1..=3) } else { self.rng.u64(2..=25) };
        base + if slow > 0 { self.rng.u64(slow / 4..=slow) } else { 0 }
    }

    /// A request leaves its process.
    pub(super) fn leaves(&mut self, mut sent: Box<Sent>) {
        let Some(process) = self.processes.get_mut(sent.process) else { return };
        if process.dead {
            self.limbo.push(*sent);
            return;
        }
        if process.paused {
            self.outbox.push((sent.process, Held::Out(sent)));
            return;
        }
        let service = process.service;
        let writes = sent.request.is_write();
        if let Some((left, applied)) = process.doomed.filter(|_| writes) {
            if left > 0 {
                process.doomed = Some((left - 1, applied));
            } else {
                return self.dies(sent, applied);
            }
        }
        if let Some(bug) = self.options.bug {
            bugs::distort(bug, service, &mut sent.request);
            if bug == Bug::BlindStatus && bug.is_of(service) && sent.request.part == "status" {
                self.repeats(&sent);
            }
        }
        self.departs(sent);
    }

    /// The same request arrives once more a while later, as the retry of one that was taken for lost.
    fn repeats(&mut self, sent: &Sent) {
        let pause = self.rng.u64(1_000..4_000);
        // Nobody waits for its answer.
        let (reply, _nobody) = oneshot::channel();
        let (process, cluster, key) = (sent.process, sent.cluster, sent.key);
        let copy = Sent { process, cluster, key, request: sent.request.clone(), reply };
        self.after(pause, Due::Arrive(Box::new(copy)));
    }

    /// A process dies with a request that it has just made, or was about to make.
    fn dies(&mut self, sent: Box<Sent>, applied: bool) {
        let id = sent.process;
        let cluster = sent.cluster;
        if applied {
            let pause = self.latency(id, cluster);
            // The answer has nobody to go to.
            let (reply, _nobody) = oneshot::channel();
            let copy = Sent { process: id, cluster, key: sent.key, request: sent.request.clone(), reply };
            self.after(pause, Due::Arrive(Box::new(copy)));
        }
        self.limbo.push(*sent);
        self.kills(id);
    }

    /// Ends a process; another starts in its place.
    pub(super) fn kills(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get_mut(id) else { return };
        if process.dead {
            return;
        }
        process.kill();
        let (service, home) = (process.service, process.home);
        let pause = self.rng.u64(200..4_000);
        self.after(pause, Due::Start(service, home));
        self.tell(|| format!("p{id} {} in c{home} dies", service.name()));
    }

    fn departs(&mut self, sent: Box<Sent>) {
        let (requests, _) = self.cut(sent.process, sent.cluster);
        if requests {
            self.tell(|| format!("p{} -> c{} is cut: {}", sent.process, sent.cluster, sent.request.line()));
            let guess = self.guesses(&sent);
            let Sent { process, cluster, reply, .. } = *sent;
            let content = guess.ok_or_else(|| BoxError::from("no connection"));
            return self.after(CONNECT, Due::Answer(Answer { process, cluster, reply, content }));
        }
        let pause = self.latency(sent.process, sent.cluster) + self.replaced(&sent);
        self.after(pause, Due::Arrive(sent));
    }

    /// A user deletes a pod whose binding is under way, and its owner makes another of that name. Says how much
    /// later the binding arrives.
    fn replaced(&mut self, sent: &Sent) -> u64 {
        let elects = sent.request.part == "binding" && self.is_source(sent.cluster);
        if !self.replaces || !elects || self.rng.u64(..3) > 0 {
            return 0;
        }
        let (namespace, name) = &sent.request.key;
        let found = self.store(sent.cluster).get("pods", namespace, name).cloned();
        let named = |pod: &Rc<Object>| pod.annotation("sim/identity").is_some() && !pod.is_terminating();
        let Some(pod) = found.filter(named) else { return 0 };
        self.user_deletes(sent.cluster, &pod, Some(0));
        self.counts(Kind::Replaced);
        self.rng.u64(2_000..5_000)
    }

    /// A request reaches its API server.
    pub(super) fn arrives(&mut self, sent: Box<Sent>) {
        let id = sent.cluster;
        if self.cluster(id).down {
            let guess = self.guesses(&sent);
            return self.replies(*sent, guess.ok_or_else(|| BoxError::from("connection refused")));
        }
        if self.cluster(id).frozen {
            self.cluster(id).waiting.push_back(*sent);
            return;
        }
        if self.cluster(id).errors && self.rng.u64(..3) > 0 {
            let code = *self.rng.choice(&[429, 500, 503]).unwrap_or(&500);
            let body = json!({"kind": "Status", "status": "Failure", "code": code, "reason": "Trouble", "message": "trouble"});
            return self.replies(*sent, Ok((code, Content::Whole(Bytes::from(body.to_string())))));
        }
        if sent.key != 0 && sent.key != self.cluster(id).key {
            let body = json!({"kind": "Status", "status": "Failure", "code": 401, "reason": "Unauthorized", "message": "Unauthorized"});
            return self.replies(*sent, Ok((401, Content::Whole(Bytes::from(body.to_string())))));
        }
        if let Verb::Watch(selector, version) = &sent.request.verb {
            let (selector, version) = (selector.clone(), *version);
            return self.watches(*sent, selector, version);
        }
        self.serves(*sent);
    }

    fn serves(&mut self, sent: Sent) {
        self.judge_write(&sent);
        let ended = self.ends_for_nothing(&sent);
        let victim = self.victim(&sent);
        let service = self.processes.get(sent.process).map(|process| process.service);
        let bug = self.options.bug.filter(|bug| service.is_some_and(|service| bug.is_of(service)));
        let lie = bug.and_then(|bug| self.lies(bug, &sent)).or_else(|| self.says_empty(&sent));
        let answer = match lie {
            Some(lie) => lie,
            None => sent.request.serve(self.store(sent.cluster)),
        };
        let code = answer.as_ref().map_or_else(|refusal| refusal.code, |_| 200);
        if sent.request.is_write() && code == 200 {
            self.report.writes += 1;
            if let Some(victim) = victim {
                self.evicted(sent.cluster, &victim);
            }
            if let Some(what) = ended {
                let at = self.now();
                self.recorder.report(Rule::NoEndWithoutCause, at, what);
            }
        }
        let now = self.now();
        let mut hasher = DefaultHasher::new();
        (self.report.fingerprint, now, sent.process, code).hash(&mut hasher);
        sent.request.key.hash(&mut hasher);
        self.report.fingerprint = hasher.finish();
        if sent.request.is_write() || code != 200 || matches!(sent.request.verb, Verb::List(_)) {
            self.tell(|| {
                let why =
                    answer.as_ref().err().map(|refusal| format!(": {}", refusal.message)).unwrap_or_default();
                format!("p{} -> c{} {code}{why} {}", sent.process, sent.cluster, sent.request.line())
            });
        }
        if code == 200 && sent.request.kind == "clustersummaries" && sent.request.verb == Verb::Get {
            self.said.extend(answer.as_ref().ok().map(|text| (sent.cluster, text.clone())));
        }
        let body = answer.unwrap_or_else(|refusal| Bytes::from(refusal.body().to_string()));
        if self.lose > 0 && sent.request.is_write() {
            self.lose -= 1;
            self.tell(|| "that answer is lost".to_owned());
            self.limbo.push(sent);
            return;
        }
        self.replies(sent, Ok((code, Content::Whole(body))));
    }

    /// A list that is empty although there are objects, as caches of API servers were seen to answer.
    fn says_empty(&mut self, sent: &Sent) -> Option<Result<Bytes, Refusal>> {
        let listed = matches!(sent.request.verb, Verb::List(_)) && sent.request.kind == "pods";
        if !self.empty || !listed || !self.is_source(sent.cluster) {
            return None;
        }
        let version = self.store(sent.cluster).version().to_string();
        let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": []});
        Some(Ok(Bytes::from(list.to_string())))
    }

    /// What one who takes silence for absence makes of a request that gets no answer.
    fn guesses(&mut self, sent: &Sent) -> Option<(u16, Content)> {
        let service = self.processes.get(sent.process).map(|process| process.service);
        let remote = self.processes.get(sent.process).is_some_and(|process| process.home != sent.cluster);
        if self.options.bug != Some(Bug::UnknownIsAbsent)
            || service != Some(Service::FeedbackController)
            || !remote
        {
            return None;
        }
        let (code, body) = match (&sent.request.verb, sent.request.kind.as_str()) {
            (Verb::List(_), "podchaperons") => {
                let version = self.store(sent.cluster).version().to_string();
                (200, json!({"metadata": {"resourceVersion": version}, "items": []}).to_string())
            }
            (Verb::Get, "podchaperons") => (404, Refusal::not_found("podchaperons", "").body().to_string()),
            (Verb::Get, "clustersummaries") => {
                let said = self.said.get(&sent.cluster)?;
                return Some((200, Content::Whole(said.clone())));
            }
            _ => return None,
        };
        Some((code, Content::Whole(Bytes::from(body))))
    }

    pub(super) fn replies(&mut self, sent: Sent, content: Reply) {
        let Sent { process, cluster, reply, .. } = sent;
        let pause = self.latency(process, cluster);
        self.after(pause, Due::Answer(Answer { process, cluster, reply, content }));
    }

    /// An answer reaches its process, if it does.
    pub(super) fn answers(&mut self, answer: Answer) {
        let Some(process) = self.processes.get(answer.process) else { return };
        if process.paused {
            self.outbox.push((answer.process, Held::In(answer)));
            return;
        }
        let (_, lost) = self.cut(answer.process, answer.cluster);
        if process_is_dead(self, answer.process) || lost && answer.content.is_ok() {
            let Answer { process, cluster, reply, content } = answer;
            if let (Ok((_, Content::Pieces(_))), false) = (&content, process_is_dead(self, process)) {
                // A watch has no deadline, but its connection must not be silent for long.
                let content = Err(BoxError::from("silence"));
                return self.after(SILENCE, Due::Answer(Answer { process, cluster, reply, content }));
            }
            // The caller waits until its deadline.
            self.limbo.push(Sent { process, cluster, key: 0, request: nothing(), reply });
            return;
        }
        // A caller that has given up does not mind.
        let _given_up = answer.reply.send(answer.content);
    }

    /// A process that stood still goes on.
    pub(super) fn wakes(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get_mut(id).filter(|process| process.paused) else { return };
        process.paused = false;
        self.tell(|| format!("p{id} wakes up"));
        let (mine, others) = std::mem::take(&mut self.outbox).into_iter().partition(|(of, _)| *of == id);
        self.outbox = others;
        let mine: Vec<(ProcessId, Held)> = mine;
        for (_, held) in mine {
            match held {
                Held::Out(sent) => self.leaves(sent),
                Held::In(answer) => self.answers(answer),
            }
        }
        for cluster in 0..self.clusters.len() {
            self.flush(cluster);
        }
    }
}

fn process_is_dead(world: &World, id: ProcessId) -> bool {
    world.processes.get(id).is_none_or(|process| process.dead)
}

fn nothing() -> Request {
    Request {
        verb: Verb::Get,
        kind: String::new(),
        group_version: String::new(),
        key: Default::default(),
        part: String::new(),
        body: Value::Null,
    }
}

//! Requests, answers and watches between processes and API servers.

use super::{Cluster, Due, World};
use crate::bugs::{self, Bug};
use crate::cluster::request::{Request, Verb};
use crate::cluster::select::Selector;
use crate::cluster::{Change, Refusal};
use crate::process::Service;
use crate::recorder::Rule;
use crate::wire::{ClusterId, Content, ProcessId, Reply, Sent};
use api::keys;
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use tokio::sync::{mpsc, oneshot};
use tower::BoxError;

/// How long a connection is tried that nobody takes.
const CONNECT: u64 = 3_000;
/// How long a connection may be silent before its client gives it up.
const SILENCE: u64 = 75_000;

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

/// A watch as an API server serves it.
pub(super) struct Watch {
    pub(super) process: ProcessId,
    kind: String,
    selector: Selector,
    pieces: mpsc::UnboundedSender<Result<Bytes, BoxError>>,
    pending: VecDeque<(u64, Bytes)>,
    due: u64,
    /// Since when nothing passes.
    silent: Option<u64>,
    /// What is wrong with the eyes of whoever watches.
    bug: Option<Bug>,
}

impl World {
    fn cut(&self, process: ProcessId, cluster: ClusterId) -> (bool, bool) {
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
            self.limbo.push(sent);
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
        }
        self.departs(sent);
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
        self.limbo.push(sent);
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
        let pause = self.latency(sent.process, sent.cluster);
        self.after(pause, Due::Arrive(sent));
    }

    /// A request reaches its API server.
    pub(super) fn arrives(&mut self, sent: Box<Sent>) {
        let id = sent.cluster;
        if self.cluster(id).down {
            let guess = self.guesses(&sent);
            return self.replies(*sent, guess.ok_or_else(|| BoxError::from("connection refused")));
        }
        if self.cluster(id).frozen {
            self.cluster(id).waiting.push_back(sent);
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
        let service = self.processes.get(sent.process).map(|process| process.service);
        let bug = self.options.bug.filter(|bug| service == Some(bug.service()));
        let lie = bug.and_then(|bug| self.lies(bug, &sent)).or_else(|| self.says_empty(&sent));
        let answer = match lie {
            Some(lie) => lie,
            None => sent.request.serve(self.store(sent.cluster)),
        };
        let code = answer.as_ref().map_or_else(|refusal| refusal.code, |_| 200);
        if sent.request.is_write() && code == 200 {
            self.report.writes += 1;
        }
        let now = self.now();
        let mut hasher = DefaultHasher::new();
        (self.report.fingerprint, now, sent.process, code).hash(&mut hasher);
        sent.request.key.hash(&mut hasher);
        self.report.fingerprint = hasher.finish();
        if sent.request.is_write() || code != 200 {
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
            self.limbo.push(Box::new(sent));
            return;
        }
        self.replies(sent, Ok((code, Content::Whole(body))));
    }

    /// A list that is empty although there are objects, as caches of API servers were seen to answer.
    fn says_empty(&mut self, sent: &Sent) -> Option<Result<Bytes, Refusal>> {
        let listed = matches!(sent.request.verb, Verb::List(_)) && sent.request.kind == "pods";
        if self.empty == 0 || !listed || !self.is_source(sent.cluster) {
            return None;
        }
        self.empty -= 1;
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

    /// Looks at who writes what.
    fn judge_write(&mut self, sent: &Sent) {
        if !sent.request.is_write() {
            return;
        }
        let Some(process) = self.processes.get(sent.process) else { return };
        let (service, home) = (process.service, process.home);
        let request = &sent.request;
        let home_uid = self.store(home).uid.clone();
        let Some(object) =
            self.store(sent.cluster).get(&request.kind, &request.key.0, &request.key.1).cloned()
        else {
            return;
        };
        let own = match (service, request.kind.as_str()) {
            (Service::ProxyScheduler | Service::FeedbackController, "podchaperons") => {
                object.label(keys::PARENT_CLUSTER_UID) == home_uid
            }
            (Service::ProxyScheduler | Service::FeedbackController | Service::VirtualKubelet, "pods") => {
                object.annotation(keys::SOURCE_POD_MANIFEST).is_some()
            }
            (Service::ChaperonController | Service::CandidateScheduler, "pods") => {
                !object.label(keys::PARENT_UID).is_empty()
            }
            _ => true,
        };
        let at = self.now();
        if !own {
            self.recorder.report(
                Rule::OnlyOwnObjects,
                at,
                format!("{} wrote: {}", service.name(), request.line()),
            );
        }
        // A proxy pod is ended by us only for a reason.
        let ends = service == Service::FeedbackController
            && request.kind == "pods"
            && (request.verb == Verb::Delete
                || request.body["status"]["reason"].as_str().is_some_and(|reason| reason == "DelegateLost"));
        let matches = request.body["preconditions"]["uid"].as_str().is_none_or(|uid| uid == object.uid());
        if ends && matches && !object.is_terminating() && !self.recorder.is_excused(object.uid()) {
            let what = format!("{} {} was ended: {}", object.name(), object.uid(), request.line());
            self.recorder.report(Rule::NoEndWithoutCause, at, what);
        }
    }

    fn replies(&mut self, sent: Sent, content: Reply) {
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
            // The caller waits until its deadline.
            let Answer { process, cluster, reply, .. } = answer;
            self.limbo.push(Box::new(Sent { process, cluster, key: 0, request: nothing(), reply }));
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

    fn watches(&mut self, sent: Sent, selector: Selector, version: u64) {
        let now = self.now();
        let id = sent.cluster;
        let service = self.processes.get(sent.process).map(|process| process.service);
        let bug =
            self.options.bug.filter(|bug| service == Some(bug.service()) && bug.distorts(&sent.request.kind));
        let (pieces, receiver) = mpsc::unbounded_channel();
        self.serial += 1;
        let number = self.serial;
        let store = &self.cluster(id).store;
        let Some(position) = store.since(version) else {
            let body = json!({"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "metadata": {},
                "status": "Failure", "message": "too old resource version", "reason": "Expired", "code": 410}});
            // The receiver is in hand.
            let _sent = pieces.send(Ok(Bytes::from(format!("{body}\n"))));
            return self.replies(sent, Ok((200, Content::Pieces(receiver))));
        };
        let missed: Vec<Change> = store.history().get(position..).unwrap_or_default().to_vec();
        let mut watch = Watch {
            process: sent.process,
            kind: sent.request.kind.clone(),
            selector,
            pieces,
            pending: VecDeque::new(),
            due: now,
            silent: None,
            bug,
        };
        for change in &missed {
            if let Some(piece) = watch.sees(change) {
                watch.pending.push_back((now, piece));
            }
        }
        let waits = !watch.pending.is_empty();
        self.cluster(id).watches.insert(number, watch);
        if waits {
            self.after(30, Due::Deliver(id, number));
        }
        self.replies(sent, Ok((200, Content::Pieces(receiver))));
    }

    /// Shows what has changed to watches and kubelets.
    pub(super) fn pump(&mut self) {
        let now = self.now();
        for id in 0..self.clusters.len() {
            let cluster = self.cluster(id);
            let from = cluster.pumped;
            if from >= cluster.store.history().len() {
                continue;
            }
            let changes: Vec<Change> = cluster.store.history().get(from..).unwrap_or_default().to_vec();
            cluster.pumped += changes.len();
            let (lag, slow) = (cluster.lag, cluster.slow);
            let mut rng = self.rng.fork();
            let mut dues = Vec::new();
            for change in &changes {
                for (number, watch) in &mut self.cluster(id).watches {
                    let Some(piece) = watch.sees(change) else { continue };
                    let delay = rng.u64(1..=20) + if slow > 0 { rng.u64(..=slow) } else { 0 };
                    let delay = delay + if lag > 0 { rng.u64(..=lag) } else { 0 };
                    watch.due = watch.due.max(now + delay);
                    watch.pending.push_back((watch.due, piece));
                    dues.push((watch.due, *number));
                }
                self.notices(id, change);
            }
            for (at, number) in dues {
                self.at(at, Due::Deliver(id, number));
            }
        }
    }

    /// Brings what is due of a watch.
    pub(super) fn delivers(&mut self, id: ClusterId, number: u64) {
        let now = self.now();
        let Some(process) =
            self.clusters.get(id).and_then(|cluster| cluster.watches.get(&number)).map(|w| w.process)
        else {
            return;
        };
        let (_, lost) = self.cut(process, id);
        let (dead, paused) =
            self.processes.get(process).map_or((true, false), |process| (process.dead, process.paused));
        let stuck = self.cluster(id).frozen || lost || paused;
        let watches = &mut self.cluster(id).watches;
        if dead {
            watches.remove(&number);
            return;
        }
        let Some(watch) = watches.get_mut(&number) else { return };
        if stuck {
            let since = *watch.silent.get_or_insert(now);
            if now >= since + SILENCE {
                let _closed = watch.pieces.send(Err(BoxError::from("silence")));
                watches.remove(&number);
            }
            return;
        }
        watch.silent = None;
        let mut open = true;
        while watch.pending.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, piece)) = watch.pending.pop_front() else { break };
            open = watch.pieces.send(Ok(piece)).is_ok();
        }
        if !open {
            watches.remove(&number);
        }
    }

    /// Tries all watches of a cluster again.
    pub(super) fn flush(&mut self, id: ClusterId) {
        let numbers: Vec<u64> = self.cluster(id).watches.keys().copied().collect();
        for number in numbers {
            self.delivers(id, number);
        }
    }

    /// Ends watches of a cluster: cleanly, or as a broken connection.
    pub(super) fn cuts_watches(&mut self, id: ClusterId, broken: bool, half: bool) {
        let mut rng = self.rng.fork();
        self.cluster(id).watches.retain(|_, watch| {
            if half && rng.bool() {
                return true;
            }
            if broken {
                let _closed = watch.pieces.send(Err(BoxError::from("connection reset")));
            }
            false
        });
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

impl Watch {
    fn sees(&self, change: &Change) -> Option<Bytes> {
        if change.kind != self.kind {
            return None;
        }
        let before = change.old.as_ref().is_some_and(|old| self.selector.matches(&old.value));
        let after = !change.deleted && self.selector.matches(&change.new.value);
        let word = match (before, after) {
            (false, false) => return None,
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
        };
        let (word, text) = match self.bug.map(|bug| bug.view(&change.kind, &change.new)) {
            None => (word, change.new.text()),
            Some(Some(view)) => (word, Bytes::from(view.to_string())),
            Some(None) => ("DELETED", change.new.text()),
        };
        let mut piece = Vec::with_capacity(text.len() + 40);
        piece.extend_from_slice(b"{\"type\":\"");
        piece.extend_from_slice(word.as_bytes());
        piece.extend_from_slice(b"\",\"object\":");
        piece.extend_from_slice(&text);
        piece.extend_from_slice(b"}\n");
        Some(Bytes::from(piece))
    }
}

impl Cluster {
    /// Whether anything waits to be applied.
    pub(super) fn thaw(&mut self) -> VecDeque<Box<Sent>> {
        self.frozen = false;
        std::mem::take(&mut self.waiting)
    }
}

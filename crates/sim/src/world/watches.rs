//! Watches: what has changed reaches whoever watches, late, in order, or after a new list.

use super::{Due, World};
use crate::bugs::Bug;
use crate::cluster::select::Selector;
use crate::cluster::{Change, Store};
use crate::wire::{ClusterId, Content, ProcessId, Sent};
use bytes::Bytes;
use serde_json::json;
use std::collections::VecDeque;
use tokio::sync::mpsc;
use tower::BoxError;

/// How long a connection may be silent before its client gives it up.
pub(super) const SILENCE: u64 = 75_000;

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

/// What a watch shows first: what has happened since a version, or, from version 0, all that there is, as if it had
/// just been made. `None` when what happened since then is forgotten.
fn missed(store: &Store, kind: &str, selector: &Selector, version: u64) -> Option<Vec<Change>> {
    if version == 0 {
        let there = store.list(kind, selector).into_iter();
        return Some(
            there
                .map(|new| Change { version, kind: kind.to_owned(), old: None, new, deleted: false })
                .collect(),
        );
    }
    let position = store.since(version)?;
    Some(store.history().get(position..).unwrap_or_default().to_vec())
}

impl World {
    /// A watch begins.
    pub(super) fn watches(&mut self, sent: Sent, selector: Selector, version: u64) {
        let now = self.now();
        let id = sent.cluster;
        let service = self.processes.get(sent.process).map(|process| process.service);
        let bug = self.options.bug.filter(|bug| {
            service.is_some_and(|service| bug.is_of(service)) && bug.distorts(&sent.request.kind)
        });
        let (pieces, receiver) = mpsc::unbounded_channel();
        self.serial += 1;
        let number = self.serial;
        let Some(missed) = missed(&self.cluster(id).store, &sent.request.kind, &selector, version) else {
            let body = json!({"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "metadata": {},
                "status": "Failure", "message": "too old resource version", "reason": "Expired", "code": 410}});
            // The receiver is in hand.
            let _sent = pieces.send(Ok(Bytes::from(format!("{body}\n"))));
            return self.replies(sent, Ok((200, Content::Pieces(receiver))));
        };
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
        for id in 0..self.clusters.len() {
            let cluster = self.cluster(id);
            let from = cluster.pumped;
            let changes: Vec<Change> = cluster.store.history().get(from..).unwrap_or_default().to_vec();
            cluster.pumped += changes.len();
            for change in &changes {
                self.spreads(id, change);
                self.judges(id, change);
                self.weighs(id, change);
                self.judges_gang(id, change);
                self.notices(id, change);
            }
        }
    }

    /// Puts a change on its way to all who watch it.
    fn spreads(&mut self, id: ClusterId, change: &Change) {
        let now = self.now();
        let mut rng = self.rng.fork();
        let cluster = self.cluster(id);
        let (lag, slow) = (cluster.lag, cluster.slow);
        let mut dues = Vec::new();
        for (number, watch) in &mut cluster.watches {
            let Some(piece) = watch.sees(change) else { continue };
            let delay = rng.u64(1..=20) + rng.u64(..=slow) + rng.u64(..=lag);
            watch.due = watch.due.max(now + delay);
            watch.pending.push_back((watch.due, piece));
            dues.push((watch.due, *number));
        }
        for (at, number) in dues {
            self.at(at, Due::Deliver(id, number));
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

//! Who is there, who works on what, and when it is safe to begin. Pure: times are instants of a clock that never jumps.

use api::names::short_hash;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// A replica that was silent for so long is gone.
pub(super) const GONE: Duration = Duration::from_secs(11);
/// A replica that could not say for so long that it is there has stopped by itself. Until the others take over, what
/// it sent last has arrived or timed out.
pub(super) const FENCE: Duration = Duration::from_secs(6);
/// What a replica that is gone leaves behind is removed after so long.
pub(super) const FORGOTTEN: Duration = Duration::from_secs(60);

/// A replica's Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sign {
    pub(super) member: String,
    /// Grows with each renewal.
    pub(super) version: u64,
    /// The name of the view that the replica obeys.
    pub(super) view: String,
}

#[derive(Debug, Clone)]
struct Peer {
    sign: Sign,
    /// When its last renewal was seen here.
    seen: Instant,
}

/// All that one replica knows of the others and of itself.
#[derive(Debug, Clone)]
pub(super) struct State {
    me: String,
    peers: BTreeMap<String, Peer>,
    /// When the last renewal that succeeded was sent.
    renewed: Option<Instant>,
    /// The first renewal since this replica was none of the members: what is seen before it may be stale.
    since: u64,
    /// When our own renewal was seen last: what others renewed until then was seen, too.
    echo: Option<Instant>,
}

impl State {
    pub(super) fn new(me: &str) -> Self {
        Self { me: me.to_owned(), peers: BTreeMap::new(), renewed: None, since: 0, echo: None }
    }

    /// A Lease is there, new or as before.
    pub(super) fn see(&mut self, sign: Sign, now: Instant) {
        let known = self.peers.get(&sign.member).is_some_and(|peer| peer.sign.version == sign.version);
        if known {
            return;
        }
        if sign.member == self.me {
            self.echo = Some(now);
        }
        self.peers.insert(sign.member.clone(), Peer { sign, seen: now });
    }

    /// A Lease is gone: its replica took leave.
    pub(super) fn miss(&mut self, member: &str) {
        self.peers.remove(member);
    }

    /// These are all Leases that there are.
    pub(super) fn list(&mut self, signs: Vec<Sign>, now: Instant) {
        let there: BTreeSet<String> = signs.iter().map(|sign| sign.member.clone()).collect();
        self.peers.retain(|member, _| there.contains(member));
        for sign in signs {
            self.see(sign, now);
        }
    }

    /// A renewal that was sent then has succeeded and made this version.
    pub(super) fn renewed(&mut self, sent: Instant, version: u64) {
        if self.renewed.is_none_or(|before| sent >= before + FENCE) {
            self.since = version;
        }
        self.renewed = self.renewed.max(Some(sent));
    }

    fn is_in(&self, now: Instant) -> bool {
        let recent = self.renewed.is_some_and(|sent| now < sent + FENCE);
        recent && self.peers.get(&self.me).is_some_and(|own| own.sign.version >= self.since)
    }

    /// Silence counts only while renewals are seen at all: our own show it.
    fn silence(&self, peer: &Peer) -> Duration {
        self.echo.map_or(Duration::ZERO, |echo| echo.saturating_duration_since(peer.seen))
    }

    /// How things stand.
    pub(super) fn view(&self, now: Instant) -> View {
        if !self.is_in(now) {
            return View::default();
        }
        let there: BTreeMap<&String, &Peer> =
            self.peers.iter().filter(|(_, peer)| self.silence(peer) < GONE).collect();
        let members: BTreeSet<String> = there.keys().map(|member| (*member).clone()).collect();
        let name = name(&members);
        let open = there.values().all(|peer| peer.sign.view == name);
        View { me: self.me.clone(), members, open }
    }

    /// When the view may change although nothing is seen: this replica's own fence.
    pub(super) fn fence(&self) -> Option<Instant> {
        self.renewed.map(|sent| sent + FENCE)
    }

    /// Those that are gone for so long that their Leases can go.
    pub(super) fn forgotten(&self) -> Vec<String> {
        let gone = self.peers.iter().filter(|(_, peer)| self.silence(peer) >= FORGOTTEN);
        gone.map(|(member, _)| member.clone()).collect()
    }
}

/// Who is there, as one replica sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct View {
    pub(super) me: String,
    /// Empty when this replica is none of them.
    pub(super) members: BTreeSet<String>,
    /// Each of them sees the same, and has stopped what is not its own by it.
    pub(super) open: bool,
}

impl View {
    /// The word by which replicas find out that they see the same.
    pub(super) fn name(&self) -> String {
        name(&self.members)
    }

    /// Whether this replica is the one that works on a key: the highest of the members' numbers for the key wins, so
    /// that one that comes or goes moves only what it gets or had.
    fn gives(&self, key: &str) -> bool {
        let winner = self.members.iter().max_by_key(|member| short_hash(&format!("{member}/{key}")));
        winner.is_some_and(|member| *member == self.me)
    }
}

fn name(members: &BTreeSet<String>) -> String {
    let all: Vec<&str> = members.iter().map(String::as_str).collect();
    if all.is_empty() { String::new() } else { short_hash(&all.join("\n")) }
}

/// What this replica works on.
///
/// While replicas come and go it only ever gives work up; it begins with more when all members agree.
#[derive(Debug, Clone, Default)]
pub(super) struct Share {
    /// The last open view and those that followed it.
    views: Vec<View>,
}

impl Share {
    /// Obeys a view.
    pub(super) fn obey(&mut self, view: View) {
        if view.open {
            self.views.clear();
        } else if self.views.is_empty() {
            // Nothing was open before: nothing is ours.
            self.views.push(View::default());
        }
        if self.views.last() != Some(&view) {
            self.views.push(view);
        }
    }

    /// Whether a key is ours now.
    pub(super) fn owns(&self, key: &str) -> bool {
        !self.views.is_empty() && self.views.iter().all(|view| view.gives(key))
    }

    /// The name of the newest view.
    pub(super) fn name(&self) -> String {
        self.views.last().map(View::name).unwrap_or_default()
    }

    /// How many members there are in the newest view.
    pub(super) fn members(&self) -> usize {
        self.views.last().map_or(0, |view| view.members.len())
    }
}

#[cfg(test)]
mod tests;

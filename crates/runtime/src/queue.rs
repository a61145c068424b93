//! A queue of keys: each key waits in it at most once and is worked on by at most one task at a time, many
//! keys at once. What fails comes back later and later; nothing is ever given up.

use crate::errors::Class;
use crate::metrics::Metrics;
use prometheus::IntCounterVec;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::Future;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What follows after a key was worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing until the key is added again.
    Done,
    /// The key is worked on again then, or earlier when it is added.
    After(Duration),
    /// The work failed: again after a pause that grows with each failure in a row, by class.
    Retry(Class),
}

/// The queue; clones share it.
pub struct Queue<K>(Arc<Inner<K>>);

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K> std::fmt::Debug for Queue<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("controller", &self.0.controller).finish_non_exhaustive()
    }
}

struct Inner<K> {
    controller: &'static str,
    concurrency: usize,
    failures: IntCounterVec,
    state: Mutex<State<K>>,
    changed: Notify,
}

/// Where a key is. A key without entry is neither waiting nor worked on.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    ready: bool,
    busy: bool,
    again: bool,
    timer: Option<(Instant, u64)>,
    failures: u32,
}

struct State<K> {
    ready: VecDeque<K>,
    timers: BTreeMap<(Instant, u64), K>,
    places: HashMap<K, Place>,
    serial: u64,
}

impl<K: Clone + Eq + Hash> State<K> {
    fn add(&mut self, key: &K) {
        let place = self.places.entry(key.clone()).or_default();
        if let Some(timer) = place.timer.take() {
            self.timers.remove(&timer);
        }
        if place.busy {
            place.again = true;
        } else if !place.ready {
            place.ready = true;
            self.ready.push_back(key.clone());
        }
    }

    fn add_at(&mut self, key: &K, at: Instant) {
        let place = self.places.entry(key.clone()).or_default();
        let sooner = place.timer.is_some_and(|(set, _)| set <= at);
        if place.ready || place.again || sooner {
            return;
        }
        if let Some(timer) = place.timer.take() {
            self.timers.remove(&timer);
        }
        self.serial += 1;
        place.timer = Some((at, self.serial));
        self.timers.insert((at, self.serial), key.clone());
    }

    /// Moves what is due to the ready keys; says when the next one is due.
    fn promote(&mut self, now: Instant) -> Option<Instant> {
        while let Some((&timer, _)) = self.timers.first_key_value() {
            if timer.0 > now {
                return Some(timer.0);
            }
            let Some(key) = self.timers.remove(&timer) else { continue };
            if let Some(place) = self.places.get_mut(&key) {
                place.timer = None;
            }
            self.add(&key);
        }
        None
    }

    fn take(&mut self) -> Option<K> {
        let key = self.ready.pop_front()?;
        if let Some(place) = self.places.get_mut(&key) {
            place.ready = false;
            place.busy = true;
        }
        Some(key)
    }

    fn finish(&mut self, key: &K, next: Next, now: Instant) {
        let Some(place) = self.places.get_mut(key) else { return };
        place.busy = false;
        let again = std::mem::take(&mut place.again);
        place.failures = if let Next::Retry(_) = next { place.failures.saturating_add(1) } else { 0 };
        let failures = place.failures;
        if again {
            return self.add(key);
        }
        match next {
            Next::Done => {}
            Next::After(pause) => self.add_at(key, now + pause),
            Next::Retry(class) => self.add_at(key, now + jitter(backoff(class, failures), &(key, failures))),
        }
        let idle = |place: &Place| !place.ready && place.timer.is_none() && place.failures == 0;
        if self.places.get(key).is_some_and(idle) {
            self.places.remove(key);
        }
    }
}

impl<K> Queue<K>
where
    K: Clone + Eq + Hash + Send + 'static,
{
    /// An empty queue whose `run` works on at most `concurrency` keys at once. Failures are counted under
    /// the controller's name.
    #[must_use]
    pub fn new(controller: &'static str, metrics: &Metrics, concurrency: usize) -> Self {
        Self::with_counter(controller, metrics.failures.clone(), concurrency)
    }

    fn with_counter(controller: &'static str, failures: IntCounterVec, concurrency: usize) -> Self {
        let state =
            State { ready: VecDeque::new(), timers: BTreeMap::new(), places: HashMap::new(), serial: 0 };
        let changed = Notify::new();
        Self(Arc::new(Inner { controller, concurrency, failures, state: Mutex::new(state), changed }))
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a key worked on as soon as possible. While it waits already, nothing changes; while it is worked
    /// on, it is worked on once more afterwards.
    pub fn add(&self, key: &K) {
        self.state().add(key);
        self.0.changed.notify_one();
    }

    /// Has a key worked on no later than after the pause.
    pub fn add_after(&self, key: &K, pause: Duration) {
        self.state().add_at(key, Instant::now() + pause);
        self.0.changed.notify_one();
    }

    /// How often in a row the work on a key failed.
    #[must_use]
    pub fn failures(&self, key: &K) -> u32 {
        self.state().places.get(key).map_or(0, |place| place.failures)
    }

    /// Works until the token is cancelled; what is being worked on then is dropped at its next await.
    ///
    /// Only one `run` may be active. A panic in `work` ends `run` with the same panic.
    pub async fn run<F, Fut>(&self, stop: CancellationToken, work: F)
    where
        F: Fn(K) -> Fut,
        Fut: Future<Output = Next> + Send + 'static,
    {
        let mut running: JoinSet<(K, Next)> = JoinSet::new();
        loop {
            let due = self.start(&mut running, &work);
            // Without a timer the branch is disabled; the instant is then of no meaning.
            let at = due.unwrap_or_else(Instant::now);
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(ended) = running.join_next() => match ended {
                    Ok((key, next)) => self.finish(&key, next),
                    Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                    Err(_cancelled) => {}
                },
                () = self.0.changed.notified() => {}
                () = tokio::time::sleep_until(at), if due.is_some() => {}
            }
        }
        running.shutdown().await;
        // Keys that were dropped half-way are free for the next `run`.
        let mut state = self.state();
        let busy: Vec<K> =
            state.places.iter().filter(|(_, place)| place.busy).map(|(key, _)| key.clone()).collect();
        for key in busy {
            if let Some(place) = state.places.get_mut(&key) {
                place.busy = false;
            }
            state.add(&key);
        }
    }

    fn start<F, Fut>(&self, running: &mut JoinSet<(K, Next)>, work: &F) -> Option<Instant>
    where
        F: Fn(K) -> Fut,
        Fut: Future<Output = Next> + Send + 'static,
    {
        let mut state = self.state();
        let due = state.promote(Instant::now());
        while running.len() < self.0.concurrency {
            let Some(key) = state.take() else { break };
            let task = work(key.clone());
            running.spawn(async move { (key, task.await) });
        }
        due
    }

    fn finish(&self, key: &K, next: Next) {
        if let Next::Retry(class) = next {
            self.0.failures.with_label_values(&[self.0.controller, class.as_str()]).inc();
        }
        self.state().finish(key, next, Instant::now());
    }
}

/// The pause after the n-th failure in a row.
fn backoff(class: Class, failures: u32) -> Duration {
    let (first, longest) = match class {
        Class::Conflict | Class::NotFound => (Duration::from_millis(20), Duration::from_secs(5)),
        Class::Unreachable | Class::Overloaded => (Duration::from_millis(200), Duration::from_secs(30)),
        Class::Forbidden | Class::Invalid => (Duration::from_secs(1), Duration::from_mins(1)),
        Class::Bug => (Duration::from_secs(1), Duration::from_mins(5)),
    };
    let doubled = 2u32.saturating_pow(failures.saturating_sub(1).min(20));
    first.saturating_mul(doubled).min(longest)
}

/// Between three and five quarters of a duration, another for each `salt`, so that what failed together does not
/// return together.
#[must_use]
pub fn jitter(duration: Duration, salt: &impl Hash) -> Duration {
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(salt);
    let random = u32::try_from(hash % 512).unwrap_or_default();
    duration * 3 / 4 + duration * random / 1024
}

#[cfg(test)]
mod tests {
    use super::{Next, Queue, backoff, jitter};
    use crate::errors::Class;
    use prometheus::{IntCounterVec, Opts};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;
    use tokio_util::sync::CancellationToken;

    fn queue(concurrency: usize) -> Queue<u32> {
        let counter = IntCounterVec::new(Opts::new("f", "f"), &["controller", "class"]).unwrap();
        Queue::with_counter("test", counter, concurrency)
    }

    /// Runs until the queue's work has been called `calls` times or a second passed; how often it was
    /// called, and the most calls at once.
    fn drive(queue: &Queue<u32>, calls: usize, answer: fn(usize) -> Next) -> (usize, usize) {
        let (count, now, most) =
            (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let stop = CancellationToken::new();
        let work = |_key: u32| {
            let (count, now, most, stop) =
                (Arc::clone(&count), Arc::clone(&now), Arc::clone(&most), stop.clone());
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(10)).await;
                now.fetch_sub(1, Ordering::SeqCst);
                let nth = count.fetch_add(1, Ordering::SeqCst) + 1;
                if nth >= calls {
                    stop.cancel();
                }
                answer(nth)
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let ended = tokio::time::timeout(Duration::from_secs(1), queue.run(stop.clone(), work)).await;
            assert!(ended.is_ok() || count.load(Ordering::SeqCst) < calls);
        });
        (count.load(Ordering::SeqCst), most.load(Ordering::SeqCst))
    }

    #[test]
    fn a_key_that_waits_is_worked_on_once() {
        let queue = queue(8);
        for _ in 0..5 {
            queue.add(&1);
        }
        assert_eq!(drive(&queue, 2, |_| Next::Done), (1, 1));
    }

    #[test]
    fn different_keys_run_at_once_up_to_the_limit() {
        let queue = queue(3);
        for key in 0..9 {
            queue.add(&key);
        }
        assert_eq!(drive(&queue, 9, |_| Next::Done), (9, 3));
    }

    #[test]
    fn a_key_that_fails_comes_back_by_itself() {
        let queue = queue(8);
        queue.add(&1);
        assert_eq!(drive(&queue, 3, |_| Next::Retry(Class::Conflict)), (3, 1));
    }

    #[test]
    fn a_key_that_asks_to_be_looked_at_again_is() {
        let queue = queue(8);
        queue.add(&1);
        assert_eq!(drive(&queue, 3, |_| Next::After(Duration::from_millis(1))), (3, 1));
    }

    #[test]
    fn an_add_overtakes_a_timer() {
        let queue = queue(8);
        queue.add_after(&1, Duration::from_secs(3600));
        queue.add(&1);
        assert_eq!(drive(&queue, 1, |_| Next::Done), (1, 1));
    }

    #[test]
    fn a_timer_never_delays_an_earlier_one() {
        let queue = queue(8);
        queue.add_after(&1, Duration::from_millis(5));
        queue.add_after(&1, Duration::from_secs(3600));
        assert_eq!(drive(&queue, 1, |_| Next::Done), (1, 1));
    }

    #[test]
    fn failures_in_a_row_are_counted_until_one_success() {
        let mut state = queue(1);
        state.add(&1);
        let inner = &mut state;
        assert_eq!(inner.state().take(), Some(1));
        inner.finish(&1, Next::Retry(Class::Bug));
        assert_eq!(inner.failures(&1), 1);
        inner.add(&1);
        assert_eq!(inner.state().take(), Some(1));
        inner.finish(&1, Next::Done);
        assert_eq!(inner.failures(&1), 0);
        assert!(inner.state().places.is_empty());
    }

    #[test]
    fn a_key_added_while_busy_runs_once_more() {
        let queue = queue(1);
        queue.add(&1);
        assert_eq!(queue.state().take(), Some(1));
        queue.add(&1);
        assert_eq!(queue.state().take(), None, "never two at once");
        queue.finish(&1, Next::Done);
        assert_eq!(queue.state().take(), Some(1));
    }

    #[test]
    fn pauses_grow_to_a_limit_and_spread() {
        assert_eq!(backoff(Class::Conflict, 1), Duration::from_millis(20));
        assert_eq!(backoff(Class::Conflict, 3), Duration::from_millis(80));
        assert_eq!(backoff(Class::Overloaded, 40), Duration::from_secs(30));
        let hour = Duration::from_secs(3600);
        assert!((hour * 3 / 4..=hour * 5 / 4).contains(&jitter(hour, &7)));
        assert_ne!(jitter(hour, &1), jitter(hour, &2));
    }
}

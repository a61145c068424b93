//! Random operations on the queue and on a plain list that follows the same rules one by one.

use proptest::prelude::*;

use super::*;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

#[derive(Debug, Clone, Copy)]
enum Step {
    Add(usize, i32),
    Remove(usize),
    /// Tries the next pod, which is then refused by a plugin that an event helps or does not help, fails, or is placed.
    Try(Ending),
    Event,
    Retry(usize),
    Wait(u64),
}

#[derive(Debug, Clone, Copy)]
enum Ending {
    Refused { helped: bool, meanwhile: bool },
    Failed,
    Placed,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Part {
    Active,
    Backoff { end: u64, error: bool },
    Unschedulable { since: u64 },
}

#[derive(Debug, Clone)]
struct Entry {
    name: &'static str,
    priority: i32,
    timestamp: u64,
    refusals: u32,
    errors: u32,
    helped: bool,
    part: Part,
    /// Order of entry into its part.
    order: u64,
}

#[derive(Debug, Default)]
struct Model {
    entries: Vec<Entry>,
    order: u64,
}

impl Model {
    fn find(&mut self, name: &str) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.name == name)
    }

    fn next_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    fn end(entry: &Entry) -> u64 {
        let count = if entry.errors > 0 { entry.errors } else { entry.refusals };
        if count == 0 {
            return 0;
        }
        let pause = (1000 * 2u64.pow(count.min(10) - 1)).min(10_000);
        (entry.timestamp + pause) / 1000 * 1000 + 1000
    }

    fn requeue(&mut self, name: &str, now: u64) {
        let order = self.next_order();
        let Some(entry) = self.find(name) else { return };
        let (end, error) = (Self::end(entry), entry.errors > 0);
        entry.part = if end <= now { Part::Active } else { Part::Backoff { end, error } };
        entry.order = order;
    }

    fn tick(&mut self, now: u64) {
        let mut due: Vec<_> = self
            .entries
            .iter()
            .filter_map(|entry| match entry.part {
                Part::Backoff { end, error } if end <= now => {
                    Some((error, end, -i64::from(entry.priority), entry.timestamp, entry.order, entry.name))
                }
                _ => None,
            })
            .collect();
        due.sort_unstable();
        for (.., name) in due {
            let order = self.next_order();
            if let Some(entry) = self.find(name) {
                (entry.part, entry.order) = (Part::Active, order);
            }
        }
        let leftover: Vec<_> = self
            .entries
            .iter()
            .filter_map(|entry| match entry.part {
                Part::Unschedulable { since } if since + LEFTOVER_MS <= now => Some((since, entry.name)),
                _ => None,
            })
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        for (_, name) in leftover {
            self.requeue(name, now);
        }
    }

    fn pop(&mut self, now: u64) -> Option<Entry> {
        self.tick(now);
        let place = |entry: &Entry| (-i64::from(entry.priority), entry.timestamp, entry.order);
        let active = self.entries.iter().filter(|entry| entry.part == Part::Active).min_by_key(|e| place(e));
        let next = active.or_else(|| {
            let pausing = self.entries.iter().filter_map(|entry| match entry.part {
                Part::Backoff { end, error: false } => Some((end, entry)),
                _ => None,
            });
            pausing.min_by_key(|(end, entry)| (*end, place(entry))).map(|(_, entry)| entry)
        })?;
        let name = next.name;
        let index = self.entries.iter().position(|entry| entry.name == name)?;
        Some(self.entries.remove(index))
    }

    fn lengths(&self) -> Lengths {
        let count = |test: fn(&Part) -> bool| self.entries.iter().filter(|entry| test(&entry.part)).count();
        Lengths {
            active: count(|part| *part == Part::Active),
            backoff: count(|part| matches!(part, Part::Backoff { .. })),
            refused: count(|part| matches!(part, Part::Unschedulable { .. })),
            gated: 0,
        }
    }
}

struct Twins {
    bench: Bench,
    model: Model,
    now: u64,
}

impl Twins {
    fn step(&mut self, step: Step) {
        match step {
            Step::Add(index, priority) => self.add(NAMES[index], priority),
            Step::Remove(index) => {
                let known = self.model.find(NAMES[index]).is_some();
                self.model.entries.retain(|entry| entry.name != NAMES[index]);
                assert_eq!(self.bench.queue.remove(&NAMES[index]), known);
            }
            Step::Try(ending) => self.attempt(ending),
            Step::Event => {
                let mut helped: Vec<_> = self.waiting();
                helped.sort_unstable();
                assert_eq!(self.bench.gone(self.now), helped.len());
                for (_, name) in helped {
                    self.model.requeue(name, self.now);
                }
            }
            Step::Retry(index) => {
                let judge = Judge::new(&self.bench.profiles, &self.bench.snapshot);
                self.bench.queue.retry(&NAMES[index], self.now, judge);
                let order = self.model.next_order();
                if let Some(entry) = self.model.find(NAMES[index])
                    && entry.part != Part::Active
                {
                    (entry.part, entry.order) = (Part::Active, order);
                }
            }
            Step::Wait(time) => self.now += time,
        }
        assert_eq!(self.bench.queue.lengths(), self.model.lengths(), "after {step:?}");
    }

    fn waiting(&self) -> Vec<(u64, &'static str)> {
        let entries = self.model.entries.iter().filter(|entry| entry.helped);
        entries
            .filter_map(|entry| match entry.part {
                Part::Unschedulable { since } => Some((since, entry.name)),
                Part::Active | Part::Backoff { .. } => None,
            })
            .collect()
    }

    fn add(&mut self, name: &'static str, priority: i32) {
        self.bench.add(name, priority, self.now);
        let (now, order) = (self.now, self.model.next_order());
        match self.model.find(name) {
            // Another priority is more than a pod can change itself, so that one which waits is tried.
            Some(entry) if entry.priority != priority => {
                entry.priority = priority;
                match entry.part {
                    Part::Unschedulable { .. } => self.model.requeue(name, now),
                    Part::Active | Part::Backoff { .. } => entry.order = order,
                }
            }
            Some(_) => {}
            None => self.model.entries.push(Entry {
                name,
                priority,
                timestamp: now,
                refusals: 0,
                errors: 0,
                helped: false,
                part: Part::Active,
                order,
            }),
        }
    }

    fn attempt(&mut self, ending: Ending) {
        let want = self.model.pop(self.now);
        let got = self.bench.take(self.now);
        assert_eq!(got.as_ref().map(|queued| queued.key), want.as_ref().map(|entry| entry.name));
        let (Some(mut entry), Some(mut queued)) = (want, got) else { return };
        let judge = Judge::new(&self.bench.profiles, &self.bench.snapshot);
        entry.timestamp = self.now;
        match ending {
            Ending::Placed => self.bench.queue.placed(&mut queued),
            Ending::Failed => {
                self.bench.queue.failed(queued, self.now, judge);
                entry.errors += 1;
                let name = entry.name;
                self.model.entries.push(entry);
                self.model.requeue(name, self.now);
            }
            Ending::Refused { helped, meanwhile } => {
                if meanwhile {
                    self.step(Step::Event);
                }
                let plugin = if helped { "NodeResourcesFit" } else { "NodeName" };
                self.bench.hand_back(queued, plugin, self.now);
                let (name, since) = (entry.name, self.now);
                (entry.refusals, entry.errors, entry.helped) = (entry.refusals + 1, 0, helped);
                entry.part = Part::Unschedulable { since };
                self.model.entries.push(entry);
                if helped && meanwhile {
                    self.model.requeue(name, self.now);
                }
            }
        }
    }
}

fn steps() -> impl Strategy<Value = Step> {
    let ending = prop_oneof![
        4 => (any::<bool>(), any::<bool>())
            .prop_map(|(helped, meanwhile)| Ending::Refused { helped, meanwhile }),
        1 => Just(Ending::Failed),
        1 => Just(Ending::Placed),
    ];
    let name = 0..NAMES.len();
    prop_oneof![
        4 => (name.clone(), 0..3).prop_map(|(name, priority)| Step::Add(name, priority)),
        1 => name.clone().prop_map(Step::Remove),
        4 => ending.prop_map(Step::Try),
        2 => Just(Step::Event),
        1 => name.prop_map(Step::Retry),
        3 => prop_oneof![0..3000u64, Just(LEFTOVER_MS)].prop_map(Step::Wait),
    ]
}

proptest! {
    #[test]
    fn the_queue_does_what_a_plain_list_does(steps in proptest::collection::vec(steps(), 1..60)) {
        let mut twins = Twins { bench: Bench::new(), model: Model::default(), now: 0 };
        for step in steps {
            twins.step(step);
        }
    }
}

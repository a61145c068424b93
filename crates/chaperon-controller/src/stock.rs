//! Which of the ConfigMaps, Secrets and claims that delegates name are there.
//!
//! Copies that sources make are watched; what a target has by itself is read when a delegate names it.

use crate::cache::Key;
use crate::plan::Staging;
use api::references::{Need, Reference, References};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;
use tokio::time::Instant;

/// For how long an object that was read is taken to be there still.
const PRESENT: Duration = Duration::from_secs(30);
/// For how long one that was not there is not read again, whoever asks.
const ABSENT: Duration = Duration::from_millis(900);
/// From so many answers on, old ones are forgotten.
const MANY: usize = 4096;

/// Namespace and object.
type Place = (String, Reference);

/// What is known.
#[derive(Debug, Default)]
pub(crate) struct Stock {
    copies: HashSet<Place>,
    read: HashMap<Place, (bool, Instant)>,
    waiting: BTreeMap<Place, BTreeSet<Key>>,
}

impl Stock {
    /// A watch saw a copy; returns who has waited for it.
    pub(crate) fn put(&mut self, namespace: &str, reference: &Reference) -> Vec<Key> {
        let place = (namespace.to_owned(), reference.clone());
        let waiting = self.waiting.get(&place).into_iter().flatten().cloned().collect();
        self.read.remove(&place);
        self.copies.insert(place);
        waiting
    }

    /// A watch saw that a copy goes or is gone.
    pub(crate) fn remove(&mut self, namespace: &str, reference: &Reference) {
        let place = (namespace.to_owned(), reference.clone());
        self.read.remove(&place);
        self.copies.remove(&place);
    }

    /// A list of all copies of one kind.
    pub(crate) fn replace(
        &mut self,
        kind: api::references::Kind,
        all: &[(String, Reference)],
    ) -> BTreeSet<Key> {
        self.copies.retain(|(_, reference)| reference.kind != kind);
        all.iter().flat_map(|(namespace, reference)| self.put(namespace, reference)).collect()
    }

    /// The API server said whether an object is there.
    pub(crate) fn learn(&mut self, (namespace, reference): (&str, &Reference), is_there: bool, now: Instant) {
        if self.read.len() >= MANY {
            self.read.retain(|_, (there, at)| now < *at + if *there { PRESENT } else { ABSENT });
        }
        self.read.insert((namespace.to_owned(), reference.clone()), (is_there, now));
    }

    fn is_there(&self, place: &Place, now: Instant) -> Option<bool> {
        if self.copies.contains(place) {
            return Some(true);
        }
        let (is_there, at) = self.read.get(place)?;
        let young = now < *at + if *is_there { PRESENT } else { ABSENT };
        young.then_some(*is_there)
    }

    /// What a delegate still lacks, and notes that it waits for that.
    pub(crate) fn look(
        &mut self,
        key: &Key,
        needs: &References,
        (since, now): (&mut Option<Instant>, Instant),
    ) -> Staging {
        let mut unread = Vec::new();
        let mut lacking = References::new();
        for (reference, need) in needs {
            let place = (key.namespace.clone(), reference.clone());
            match self.is_there(&place, now) {
                Some(true) => self.no_longer_waits(&place, key),
                Some(false) => {
                    lacking.insert(reference.clone(), *need);
                    self.waiting.entry(place).or_default().insert(key.clone());
                }
                None => unread.push(reference.clone()),
            }
        }
        if !unread.is_empty() {
            return Staging::Unread(unread);
        }
        if lacking.is_empty() {
            return Staging::Complete;
        }
        let waited = now.duration_since(*since.get_or_insert(now));
        Staging::Lacking(lacking, waited)
    }

    fn no_longer_waits(&mut self, place: &Place, key: &Key) {
        let Some(waiting) = self.waiting.get_mut(place) else { return };
        waiting.remove(key);
        if waiting.is_empty() {
            self.waiting.remove(place);
        }
    }

    /// A delegate waits for nothing any more.
    pub(crate) fn forget(&mut self, key: &Key, needs: &References) {
        for reference in needs.keys() {
            self.no_longer_waits(&(key.namespace.clone(), reference.clone()), key);
        }
    }
}

/// Those without which no container starts.
pub(crate) fn required(lacking: &References) -> impl Iterator<Item = &Reference> {
    lacking.iter().filter(|(_, need)| **need == Need::Required).map(|(reference, _)| reference)
}

#[cfg(test)]
mod tests {
    use super::{ABSENT, Stock};
    use crate::cache::Key;
    use crate::plan::Staging;
    use api::references::{Kind, Need, Reference, References};
    use std::time::Duration;
    use tokio::time::Instant;

    fn key() -> Key {
        Key { namespace: "ns".to_owned(), name: "a".to_owned() }
    }

    fn secret() -> Reference {
        Reference::new(Kind::Secret, "s")
    }

    fn needs() -> References {
        [(secret(), Need::Required)].into()
    }

    #[test]
    fn who_waits_for_a_copy_is_told_when_it_comes() {
        let (mut stock, mut since, now) = (Stock::default(), None, Instant::now());
        assert_eq!(stock.look(&key(), &needs(), (&mut since, now)), Staging::Unread(vec![secret()]));
        stock.learn(("ns", &secret()), false, now);
        assert_eq!(
            stock.look(&key(), &needs(), (&mut since, now)),
            Staging::Lacking(needs(), Duration::ZERO)
        );
        assert!(stock.put("other", &secret()).is_empty());
        assert_eq!(stock.put("ns", &secret()), [key()]);
        assert_eq!(stock.look(&key(), &needs(), (&mut since, now)), Staging::Complete);
        assert!(stock.put("ns", &secret()).is_empty(), "it waits no longer");
    }

    #[test]
    fn what_a_target_has_by_itself_is_found_by_a_read_and_looked_for_again_later() {
        let (mut stock, mut since, now) = (Stock::default(), None, Instant::now());
        stock.learn(("ns", &secret()), false, now);
        let later = now + ABSENT;
        assert_eq!(stock.look(&key(), &needs(), (&mut since, later)), Staging::Unread(vec![secret()]));
        stock.learn(("ns", &secret()), true, later);
        assert_eq!(stock.look(&key(), &needs(), (&mut since, later)), Staging::Complete);
        let long_after = later + Duration::from_mins(1);
        assert_eq!(stock.look(&key(), &needs(), (&mut since, long_after)), Staging::Unread(vec![secret()]));
    }

    #[test]
    fn w30_a_claim_that_follows_is_there_only_as_the_copy_of_its_original() {
        let (mut stock, mut since, now) = (Stock::default(), None, Instant::now());
        let copy = |original: &str| Reference {
            original: original.to_owned(),
            ..Reference::new(Kind::Claim, "data")
        };
        let needs: References = [(copy("u"), Need::Required)].into();
        stock.put("ns", &copy("of-another-source"));
        assert_eq!(stock.look(&key(), &needs, (&mut since, now)), Staging::Unread(vec![copy("u")]));
        stock.learn(("ns", &copy("u")), false, now);
        assert!(matches!(stock.look(&key(), &needs, (&mut since, now)), Staging::Lacking(..)));
        assert_eq!(stock.put("ns", &copy("u")), [key()]);
        assert_eq!(stock.look(&key(), &needs, (&mut since, now)), Staging::Complete);
    }

    #[test]
    fn a_copy_that_goes_is_not_there() {
        let (mut stock, mut since, now) = (Stock::default(), None, Instant::now());
        stock.replace(Kind::Secret, &[("ns".to_owned(), secret())]);
        stock.replace(Kind::ConfigMap, &[]);
        assert_eq!(stock.look(&key(), &needs(), (&mut since, now)), Staging::Complete);
        stock.remove("ns", &secret());
        assert_eq!(stock.look(&key(), &needs(), (&mut since, now)), Staging::Unread(vec![secret()]));
    }
}

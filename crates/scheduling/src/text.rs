//! Texts, kept once however many objects say the same.

use std::cell::RefCell;
use std::sync::Arc;

use arcstr::ArcStr;
use hashbrown::HashSet;
use thin_vec::ThinVec;

/// A text that takes eight bytes where it is used, and is copied at no cost.
pub type Text = ArcStr;

/// So many texts are remembered; then the memory begins anew.
const REMEMBERED: usize = 1024;
/// So many names of nodes and namespaces.
const NAMED: usize = 1 << 16;

thread_local! {
    static TEXTS: RefCell<HashSet<Text>> = RefCell::default();
    static NAMES: RefCell<HashSet<Arc<str>>> = RefCell::default();
}

/// The text, shared with those who lately said the same.
pub(crate) fn shared(text: &str) -> Text {
    if text.is_empty() {
        return Text::new();
    }
    TEXTS.with_borrow_mut(|known| {
        if known.len() >= REMEMBERED {
            *known = HashSet::new();
        }
        known.get_or_insert_with(text, |text| Text::from(text)).clone()
    })
}

/// As [`shared`], for names of what there are few of.
pub(crate) fn shared_name(name: &str) -> Arc<str> {
    NAMES.with_borrow_mut(|known| {
        if known.len() >= NAMED {
            *known = HashSet::new();
        }
        Arc::clone(known.get_or_insert_with(name, |name| Arc::from(name)))
    })
}

/// The items in a list that takes eight bytes where it is used, and no more than they need elsewhere.
pub(crate) fn exact<T>(items: Vec<T>) -> ThinVec<T> {
    let mut list = ThinVec::with_capacity(items.len());
    list.extend(items);
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_one() {
        let (one, two) = (shared("topology.kubernetes.io/zone"), shared("topology.kubernetes.io/zone"));
        assert!(Text::ptr_eq(&one, &two));
        assert_eq!(shared(""), "");
        assert!(Arc::ptr_eq(&shared_name("default"), &shared_name("default")));
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        for number in 0..=REMEMBERED {
            shared(&number.to_string());
        }
        assert!(TEXTS.with_borrow(HashSet::len) <= REMEMBERED);
    }

    #[test]
    fn an_exact_list_has_no_room_to_spare() {
        let list = exact(Vec::from([1, 2, 3]));
        assert_eq!((list.len(), list.capacity()), (3, 3));
        assert_eq!(size_of_val(&list), 8);
    }
}

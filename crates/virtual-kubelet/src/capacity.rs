//! What a virtual node shows of its cluster's capacity, as its user wants it. Pure.

use crate::quantity::{billionths, text};
use api::v1alpha1::{Capacity, CapacityOf};
use std::collections::BTreeMap;

/// Resource to quantity.
type List = BTreeMap<String, String>;

/// Amounts as they are shown, out of all that there is and what is free of it. A resource that is written in a way
/// that we do not know stays as it is.
pub(crate) fn shown(total: &List, free: &List, wanted: &Capacity) -> List {
    let of_free = wanted.of == Some(CapacityOf::Free) && !free.is_empty();
    let mut shown = if of_free { free.clone() } else { total.clone() };
    if let Some(share) = wanted.share.filter(|share| *share < 100) {
        for (resource, amount) in &mut shown {
            let part = billionths(amount).map(|all| all * u128::from(share) / 100);
            // Only CPUs come in parts.
            let part = part.map(|part| if resource == "cpu" { part } else { part - part % 1_000_000_000 });
            *amount = part.map_or_else(|| amount.clone(), text);
        }
    }
    for (resource, most) in &wanted.at_most {
        if let Some(amount) = shown.get_mut(resource).filter(|amount| billionths(amount) > billionths(most)) {
            amount.clone_from(most);
        }
    }
    for (resource, least) in &wanted.up_to {
        let has = shown.get(resource).and_then(|amount| billionths(amount)).unwrap_or_default();
        if billionths(least).is_some_and(|least| least > has) {
            shown.insert(resource.clone(), least.clone());
        }
    }
    shown
}

/// What is wrong with a wish.
pub(crate) fn fault(wanted: &Capacity) -> Option<String> {
    let all = [("atMost", &wanted.at_most), ("upTo", &wanted.up_to)];
    let mut quantities = all.into_iter().flat_map(|(field, list)| list.iter().map(move |pair| (field, pair)));
    let (field, (resource, amount)) = quantities.find(|(_, (_, amount))| billionths(amount).is_none())?;
    Some(format!("capacity.{field}: {resource} is {amount:?}, which is no quantity"))
}

#[cfg(test)]
mod tests {
    use super::{List, fault, shown};
    use api::v1alpha1::{Capacity, CapacityOf};

    fn list(pairs: &[(&str, &str)]) -> List {
        pairs.iter().map(|(resource, amount)| ((*resource).to_owned(), (*amount).to_owned())).collect()
    }

    #[track_caller]
    fn check(wanted: &Capacity, want: &[(&str, &str)]) {
        let total = list(&[("cpu", "7900m"), ("memory", "60Gi"), ("pods", "111")]);
        let free = list(&[("cpu", "1500m"), ("memory", "10Gi"), ("pods", "90")]);
        assert_eq!(shown(&total, &free, wanted), list(want));
    }

    #[test]
    fn all_is_shown_unless_somebody_wants_less() {
        check(&Capacity::default(), &[("cpu", "7900m"), ("memory", "60Gi"), ("pods", "111")]);
    }

    #[test]
    fn case_058_what_is_free_can_be_shown_instead() {
        let free = Capacity { of: Some(CapacityOf::Free), ..Capacity::default() };
        check(&free, &[("cpu", "1500m"), ("memory", "10Gi"), ("pods", "90")]);
        let unknown = shown(&list(&[("cpu", "1")]), &List::new(), &free);
        assert_eq!(unknown, list(&[("cpu", "1")]), "an older target does not say what is free");
    }

    #[test]
    fn a_share_is_rounded_down() {
        let half = Capacity { share: Some(50), ..Capacity::default() };
        check(&half, &[("cpu", "3950m"), ("memory", "32212254720"), ("pods", "55")]);
    }

    #[test]
    fn a_limit_only_takes_away() {
        let most = list(&[("cpu", "2"), ("memory", "1Ti"), ("nvidia.com/gpu", "4")]);
        let limited = Capacity { at_most: most, ..Capacity::default() };
        check(&limited, &[("cpu", "2"), ("memory", "60Gi"), ("pods", "111")]);
    }

    #[test]
    fn case_058_a_pool_that_is_empty_shows_what_it_can_grow_to() {
        let elastic =
            Capacity { up_to: list(&[("cpu", "4"), ("nvidia.com/gpu", "8")]), ..Capacity::default() };
        check(&elastic, &[("cpu", "7900m"), ("memory", "60Gi"), ("nvidia.com/gpu", "8"), ("pods", "111")]);
    }

    #[test]
    fn what_is_no_quantity_is_told() {
        assert_eq!(fault(&Capacity::default()), None);
        let wrong = Capacity { up_to: list(&[("cpu", "four")]), ..Capacity::default() };
        assert!(fault(&wrong).unwrap().contains("capacity.upTo: cpu is \"four\""));
    }
}

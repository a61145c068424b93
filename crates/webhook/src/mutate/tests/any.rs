//! Properties that hold for any pod.

use super::{P, constrained, judge, manifest, proxy, review};
use crate::mutate::OURS;
use crate::review::{Request, Review, Verdict};
use api::keys;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z~/\"\\\\é]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-zA-Z/.~]{1,8}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn strings() -> impl Strategy<Value = Value> {
    prop::collection::btree_map("[a-z/.~]{1,12}", "[a-z\n\"{}:é]{0,12}", 0..4).prop_map(|map| json!(map))
}

fn any_pod() -> impl Strategy<Value = Value> {
    let fields = prop::collection::btree_map("[a-zA-Z]{1,10}", anything(), 0..6);
    let finalizers =
        prop::collection::vec(prop_oneof![Just(format!("{P}old")), "[a-z]{1,5}/[a-z]{1,5}"], 0..3);
    (fields, any::<bool>(), strings(), strings(), finalizers).prop_map(|(fields, own, annotations, labels, finalizers)| {
        let mut pod = json!({"metadata": {"annotations": annotations, "labels": labels, "finalizers": finalizers,
            "future": fields.clone()}, "spec": fields, "future": 1});
        json_patch::merge(&mut pod["spec"], &constrained());
        if own {
            pod["metadata"]["annotations"][keys::USE_CONSTRAINTS_FROM_SPEC] = "".into();
        }
        pod
    })
}

fn request_is_sound(request: &Request<'_>) -> bool {
    request.is_create() && !request.is_update()
}

proptest! {
    #[test]
    fn any_pod_becomes_a_proxy_pod_once_and_keeps_what_nobody_knows(pod in any_pod()) {
        let text = review("CREATE", &pod, "jane");
        let review: Review<'_> = serde_json::from_str(&text).unwrap();
        prop_assert!(request_is_sound(&review.request));
        let proxy = proxy(&pod);
        // Labels that collapse into one are told about each time.
        let again = judge(&proxy);
        let unchanged = matches!(&again, Verdict::Allowed { patch, .. } if patch.is_empty());
        prop_assert!(unchanged, "{:?}", again);
        prop_assert_eq!(&manifest(&proxy), &pod);
        prop_assert_eq!(&proxy["future"], &pod["future"]);
        for part in ["metadata", "spec"] {
            for (field, value) in pod[part].as_object().unwrap() {
                let ours = OURS.contains(&field.as_str());
                if !ours && !["annotations", "labels", "finalizers"].contains(&field.as_str()) {
                    prop_assert_eq!(&proxy[part][field], value);
                }
            }
        }
        for map in ["annotations", "labels"] {
            for (key, value) in pod["metadata"][map].as_object().unwrap() {
                prop_assert_eq!(&proxy["metadata"][map][key], value);
            }
        }
    }
}

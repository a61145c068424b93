use super::{Memory, NORMAL, OF_POD, OLD, Parent, Step, WARNINGS, is_of_delegate, plan};
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

const NOW: i64 = 1_000_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn event(number: usize, change: &Value) -> Event {
    let mut event = json!({
        "metadata": {"name": "e", "uid": format!("uid-{number}")},
        "involvedObject": {"kind": "Pod", "namespace": "ns", "name": "web-0-0123456789", "uid": "d",
            "fieldPath": "spec.containers{main}"},
        "type": "Normal", "reason": "Pulled", "message": "it is here", "count": 1,
        "source": {"component": "kubelet", "host": "n1"},
        "firstTimestamp": at(NOW - 5), "lastTimestamp": at(NOW - 1),
    });
    for (key, value) in change.as_object().unwrap() {
        event[key] = value.clone();
    }
    serde_json::from_value(event).unwrap()
}

fn parent(number: usize) -> Parent {
    Parent { namespace: "ns".to_owned(), name: "web-0".to_owned(), uid: format!("p-{number}") }
}

fn show(memory: &mut Memory, event: &Event, of: &Parent) -> Option<Event> {
    match plan(memory, event, of, ("target-1", at(NOW))) {
        Step::Show(shown) => Some(*shown),
        Step::LeaveOut => None,
    }
}

#[test]
fn case_038_an_event_of_the_delegate_becomes_one_of_the_proxy_pod() {
    let shown = show(&mut Memory::default(), &event(1, &json!({})), &parent(1)).unwrap();
    let object = &shown.involved_object;
    assert_eq!((object.name.as_deref(), object.uid.as_deref()), (Some("web-0"), Some("p-1")));
    assert_eq!(object.field_path.as_deref(), Some("spec.containers{main}"));
    let source = shown.source.unwrap();
    assert_eq!((source.component.as_deref(), source.host.as_deref()), (Some("kubelet"), Some("target-1/n1")));
    assert_eq!(
        (shown.reason.as_deref(), shown.message.as_deref()),
        (Some("Pulled"), Some("it is here (in target-1)"))
    );
    assert_eq!((shown.count, shown.last_timestamp.map(|time| time.0)), (Some(1), Some(at(NOW - 1))));
}

#[test]
fn an_event_of_the_newer_kind_keeps_its_times_and_its_count() {
    let newer = json!({
        "source": {}, "reportingComponent": "default-scheduler", "firstTimestamp": null, "lastTimestamp": null,
        "count": null, "eventTime": "1970-01-12T13:46:30.000000Z",
        "series": {"count": 4, "lastObservedTime": "1970-01-12T13:46:35.000000Z"},
    });
    let shown = show(&mut Memory::default(), &event(1, &newer), &parent(1)).unwrap();
    assert_eq!(shown.count, Some(4));
    assert_eq!(shown.first_timestamp.unwrap().0, at(NOW - 10));
    assert_eq!(shown.last_timestamp.unwrap().0, at(NOW - 5));
    assert_eq!(shown.source.unwrap().component.as_deref(), Some("default-scheduler"));
    assert!(shown.event_time.is_none());
}

#[test]
fn case_038_the_same_event_has_the_same_name_and_is_shown_again_only_when_it_happens_again() {
    let mut memory = Memory::default();
    let once = event(1, &json!({}));
    assert!(memory.is_news(&once, at(NOW)));
    let first = show(&mut memory, &once, &parent(1)).unwrap();
    assert!(!memory.is_news(&once, at(NOW)));
    let twice = event(1, &json!({"count": 2}));
    assert!(memory.is_news(&twice, at(NOW)));
    let second = show(&mut memory, &twice, &parent(1)).unwrap();
    assert_eq!(first.metadata.name, second.metadata.name);
    assert_ne!(
        first.metadata.name,
        show(&mut memory, &event(2, &json!({})), &parent(1)).unwrap().metadata.name
    );
}

#[test]
fn what_an_earlier_process_has_shown_is_no_news() {
    let memory = Memory::default();
    assert!(!memory.is_news(&event(1, &json!({"lastTimestamp": at(NOW - OLD)})), at(NOW)));
    assert!(memory.is_news(&event(1, &json!({"lastTimestamp": at(NOW - OLD + 1)})), at(NOW)));
}

#[test]
fn case_038_a_pod_that_never_stops_to_fail_fills_only_its_own_bucket() {
    let mut memory = Memory::default();
    let warning = json!({"type": "Warning"});
    let count = |memory: &mut Memory, pod: usize, from: usize| {
        (0..100)
            .filter(|number| show(memory, &event(from + number, &warning), &parent(pod)).is_some())
            .count()
    };
    assert_eq!(count(&mut memory, 1, 0), OF_POD.0 as usize);
    assert_eq!(count(&mut memory, 2, 1_000), OF_POD.0 as usize);
    let later = at(NOW + OF_POD.1);
    let more = plan(&mut memory, &event(5_000, &warning), &parent(1), ("target-1", later));
    assert!(matches!(more, Step::Show(_)));
    let more = plan(&mut memory, &event(5_001, &warning), &parent(1), ("target-1", later));
    assert_eq!(more, Step::LeaveOut);
}

#[test]
fn a_burst_of_pods_leaves_room_for_warnings() {
    let mut memory = Memory::default();
    let shown = (0..1_000)
        .filter(|number| show(&mut memory, &event(*number, &json!({})), &parent(*number)).is_some());
    assert_eq!(shown.count(), NORMAL.0 as usize);
    let warning = json!({"type": "Warning"});
    let shown = (1_000..2_000)
        .filter(|number| show(&mut memory, &event(*number, &warning), &parent(*number)).is_some());
    assert_eq!(shown.count(), WARNINGS.0 as usize);
}

#[test]
fn only_names_as_delegates_have_them_are_looked_up() {
    for (name, is) in [
        ("web-0-0123456789", true),
        ("0123456789", false),
        ("web-7d4b9-x2x4z", false),
        ("web-0-012345678g", false),
    ] {
        assert_eq!(is_of_delegate(&event(1, &json!({"involvedObject": {"name": name}}))), is, "{name}");
    }
}

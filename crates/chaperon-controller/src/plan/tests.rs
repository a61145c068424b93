use super::{Action, Creation, Delegate, Observed, Staging, plan};
use crate::delegate::build;
use crate::fence::Fence;
use crate::status::{DELEGATE_CREATED, DELEGATE_STOPPED, is_false, is_true};
use api::references::{Kind, Need, Reference};
use api::{Pod, PodChaperon, keys};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use runtime::Class;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];

fn now() -> Timestamp {
    "2026-01-01T00:10:00Z".parse().unwrap()
}

/// An allowed PodChaperon without delegate or status.
fn chaperon(policy: &str) -> PodChaperon {
    serde_json::from_value(json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "c", "resourceVersion": "1",
            "finalizers": [keys::CHAPERON_FINALIZER],
            "labels": {keys::PARENT_UID: "p"}, "annotations": {keys::IS_ALLOWED: "true", "mine": "1"}},
        "spec": {"restartPolicy": policy, "containers": [{"name": "c"}]}}))
    .unwrap()
}

fn elected(policy: &str) -> Observed {
    Observed {
        chaperon: Some(Arc::new(chaperon(policy))),
        delegate: Delegate::Unseen,
        creation: Creation::Free,
        staging: Staging::Complete,
        promised: None,
        fence: Fence::Open,
        live: false,
        unchanged: None,
        held: None,
        now: now(),
    }
}

/// Its delegate runs, and that is recorded.
fn running(policy: &str) -> Observed {
    let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "c", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]});
    elected(policy).recorded(&status).with_pod(|pod| pod.status = status.clone())
}

/// An end of the containers at a time of the same day.
fn exited(phase: &str, at: &str) -> Value {
    json!({"phase": phase, "containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": 0,
        "startedAt": "2026-01-01T00:00:00Z", "finishedAt": format!("2026-01-01T{at}Z")}}}]})
}

impl Observed {
    fn with_chaperon(mut self, change: impl FnOnce(&mut PodChaperon)) -> Self {
        change(Arc::make_mut(self.chaperon.as_mut().unwrap()));
        self
    }

    fn recorded(self, status: &Value) -> Self {
        self.with_chaperon(|chaperon| chaperon.status = status.clone())
    }

    fn chaperon_deleted(self) -> Self {
        self.with_chaperon(|chaperon| chaperon.metadata.deletion_timestamp = Some(Time(now())))
    }

    /// The delegate, as made of the PodChaperon and bound, then changed.
    fn with_pod(mut self, change: impl FnOnce(&mut Pod)) -> Self {
        let mut pod = match &self.delegate {
            Delegate::Present(pod) => pod.as_ref().clone(),
            Delegate::Unseen | Delegate::Gone(_) => {
                let mut pod = build(self.chaperon.as_ref().unwrap(), None);
                pod.metadata.uid = Some("pod".to_owned());
                pod.spec = json!({"nodeName": "n"});
                pod
            }
        };
        change(&mut pod);
        self.delegate = Delegate::Present(Arc::new(pod));
        self
    }

    /// Deletion asked at 00:09:00 with a grace period of 30 s.
    fn pod_deleted(self) -> Self {
        self.with_pod(|pod| {
            pod.metadata.deletion_timestamp = Some(Time("2026-01-01T00:09:30Z".parse().unwrap()));
            pod.metadata.deletion_grace_period_seconds = Some(30);
        })
    }

    fn pod_gone(mut self) -> Self {
        self.delegate = match self.delegate {
            Delegate::Present(pod) => Delegate::Gone(Some(pod)),
            Delegate::Unseen | Delegate::Gone(_) => Delegate::Gone(None),
        };
        self
    }

    fn restarted(mut self) -> Self {
        if let Delegate::Gone(_) = self.delegate {
            self.delegate = Delegate::Unseen;
        }
        // What was held back before is held back anew, for as long.
        Self { live: false, creation: Creation::Free, promised: None, ..self }
    }

    fn status(&self) -> &Value {
        &self.chaperon.as_ref().unwrap().status
    }
}

/// Longer than any change of status is held back.
const COALESCED: Duration = Duration::from_secs(60);

/// The cluster after an action: what the API server, and nobody else, does.
fn obey(mut seen: Observed, action: &Action) -> Observed {
    match action {
        Action::ReadDelegate => match seen.delegate {
            Delegate::Unseen => Observed { delegate: Delegate::Gone(None), ..seen },
            Delegate::Gone(_) | Delegate::Present(_) => seen,
        },
        Action::ReadChaperon => Observed { live: true, ..seen },
        Action::ReadReferences(_) => Observed { staging: Staging::Complete, ..seen },
        Action::HoldChaperon => seen.with_chaperon(|chaperon| {
            chaperon.metadata.finalizers.get_or_insert_default().push(keys::CHAPERON_FINALIZER.to_owned());
        }),
        Action::HoldDelegate => seen.with_pod(|pod| {
            pod.metadata.finalizers.get_or_insert_default().push(keys::CHAPERON_FINALIZER.to_owned());
        }),
        Action::CreateDelegate(_) => {
            assert!(!matches!(seen.delegate, Delegate::Present(_)), "created twice");
            seen.delegate = Delegate::Unseen;
            seen.with_pod(|pod| pod.status = json!({"phase": "Pending"}))
        }
        Action::CopyStatus(status) | Action::RecordProblem(status) | Action::RecordLost(status) => {
            seen.recorded(status)
        }
        Action::CopyAnnotations(changes) => seen.with_chaperon(|chaperon| {
            let annotations = chaperon.metadata.annotations.get_or_insert_default();
            for (key, value) in changes {
                match value {
                    Some(value) => annotations.insert(key.clone(), value.clone()),
                    None => annotations.remove(key),
                };
            }
        }),
        Action::AddEphemeral(containers) => {
            let names = json!(containers);
            seen.with_pod(|pod| pod.spec["ephemeralContainers"] = names)
        }
        Action::Resize(_) => seen,
        Action::Update(patch) => seen.with_pod(|pod| {
            for (list, have) in
                [("annotations", &mut pod.metadata.annotations), ("labels", &mut pod.metadata.labels)]
            {
                let have = have.get_or_insert_default();
                for (key, value) in patch["metadata"][list].as_object().into_iter().flatten() {
                    match value.as_str() {
                        Some(value) => have.insert(key.clone(), value.to_owned()),
                        None => have.remove(key),
                    };
                }
            }
        }),
        Action::DeleteDelegate(grace) => settle(seen.pod_deleted().with_pod(|pod| {
            pod.metadata.deletion_grace_period_seconds = Some(grace.map_or(30, i64::from));
        })),
        Action::DiscardDelegate | Action::RevokeDelegate => settle(seen.pod_deleted().with_pod(|pod| {
            pod.metadata.deletion_grace_period_seconds = Some(0);
        })),
        Action::ReleaseDelegate => settle(seen.with_pod(|pod| pod.metadata.finalizers = None)),
        Action::ReleaseChaperon => Observed { chaperon: None, ..seen },
    }
}

/// A terminating pod without finalizers goes.
fn settle(seen: Observed) -> Observed {
    let Delegate::Present(pod) = &seen.delegate else { return seen };
    if pod.is_terminating() && pod.metadata.finalizers.is_none() { seen.pod_gone() } else { seen }
}

/// Plans and obeys until nothing is left to do; the actions on the way.
fn converge(mut seen: Observed) -> (Vec<Action>, Observed) {
    let mut done = Vec::new();
    for _ in 0..20 {
        let actions = plan(&seen).actions;
        if actions.is_empty() {
            return (done, seen);
        }
        for action in actions {
            seen = obey(seen, &action);
            done.push(action);
        }
    }
    panic!("no end: {done:?}");
}

fn writes(actions: &[Action]) -> Vec<&'static str> {
    actions.iter().map(Action::name).filter(|name| !name.starts_with("read")).collect()
}

/// All writes until nothing is left to do, and the same end after a crash between any two of them.
#[track_caller]
fn check(seen: &Observed, want: &[&str]) -> Observed {
    let (actions, end) = converge(seen.clone());
    assert_eq!(writes(&actions), want);
    for crash in 0..actions.len() {
        let halfway = actions.iter().take(crash).fold(seen.clone(), obey).restarted();
        let (_, again) = converge(halfway);
        let outcome = |end: &Observed| (end.chaperon.clone(), matches!(end.delegate, Delegate::Present(_)));
        assert_eq!(outcome(&again), outcome(&end), "after a crash behind {crash} actions of {actions:?}");
    }
    end
}

#[test]
fn an_elected_chaperon_gets_a_delegate() {
    check(&elected("Always"), &["create_delegate"]);
}

/// The node on which a delegate would be created.
fn chosen(seen: &Observed) -> Option<String> {
    plan(seen).actions.iter().find_map(|action| match action {
        Action::CreateDelegate(node) => node.as_ref().map(ToString::to_string),
        _ => None,
    })
}

#[test]
fn the_first_delegate_is_created_on_the_node_that_is_promised_to_it() {
    let promised = |seen: Observed| Observed { promised: Some("n".into()), ..seen };
    let ours = elected("Always").with_chaperon(|chaperon| {
        chaperon.spec["schedulerName"] = json!(keys::CANDIDATE_SCHEDULER);
    });
    assert_eq!(chosen(&ours), None, "nothing is promised");
    assert_eq!(chosen(&promised(ours.clone())).as_deref(), Some("n"));
    let claims =
        ours.clone().with_chaperon(|chaperon| chaperon.spec["resourceClaims"] = json!([{"name": "c"}]));
    assert_eq!(chosen(&promised(claims)), None, "a scheduler must allocate first");
    let refused = json!({"phase": "Pending", "conditions": [{"type": DELEGATE_CREATED, "status": "False"}]});
    assert_eq!(chosen(&promised(ours.recorded(&refused))), None, "a kubelet refused the one before");
}

#[test]
fn a_chaperon_that_was_not_elected_has_no_delegate() {
    let seen = elected("Always").with_chaperon(|chaperon| {
        chaperon.metadata.finalizers = None;
        chaperon.metadata.annotations = None;
    });
    check(&seen, &[]);
    check(&seen.clone().chaperon_deleted(), &[]);
}

#[test]
fn an_adopted_chaperon_and_its_delegate_are_held() {
    let seen = running("Always").with_chaperon(|chaperon| chaperon.metadata.finalizers = None);
    check(&seen.with_pod(|pod| pod.metadata.finalizers = None), &["hold_chaperon", "hold_delegate"]);
    let unheld = elected("Always").with_chaperon(|chaperon| chaperon.metadata.finalizers = None);
    check(&unheld, &["hold_chaperon", "create_delegate"]);
}

#[test]
fn case_035_a_settled_world_is_left_alone() {
    for policy in POLICIES {
        check(&running(policy), &[]);
    }
    let reordered = running("Always").with_pod(|pod| pod.status["initContainerStatuses"] = json!([]));
    check(&reordered, &[]);
}

#[test]
fn a_change_of_status_waits_for_others_to_follow() {
    let changed = running("Always").with_pod(|pod| pod.status["conditions"][0]["status"] = json!("False"));
    let waiting = plan(&changed);
    assert!(waiting.actions.is_empty() && waiting.holds);
    assert_eq!(waiting.recheck, Some(Duration::from_millis(200)));
    check(&Observed { held: Some(Duration::from_millis(200)), ..changed }, &["copy_status"]);
}

#[test]
fn w03_an_old_refusal_does_not_outlive_the_delegate_that_was_created() {
    let refused = json!({"conditions": [{"type": "PodScheduled", "status": "False"}]});
    let seen = elected("Always").recorded(&refused).with_pod(|pod| pod.status = json!({"phase": "Pending"}));
    assert_eq!(plan(&seen).recheck, Some(Duration::from_millis(200)));
    let end = check(&Observed { held: Some(Duration::from_millis(200)), ..seen }, &["copy_status"]);
    assert!(!is_false(end.status(), "PodScheduled"));
}

#[test]
fn the_first_running_passes_at_once() {
    let pending = running("Always").recorded(&json!({"phase": "Pending"}));
    check(&pending, &["copy_status"]);
}

#[test]
fn an_end_passes_at_once() {
    for policy in POLICIES {
        check(
            &running(policy).with_pod(|pod| pod.status = exited("Succeeded", "00:09:00")),
            &["copy_status"],
        );
    }
}

#[test]
fn annotations_of_others_follow_the_delegate_and_ours_stay() {
    let seen = running("Always").with_pod(|pod| {
        pod.metadata.annotations = Some([("theirs".to_owned(), "2".to_owned())].into());
    });
    let end = check(&seen, &["copy_annotations"]);
    let annotations = end.chaperon.unwrap().metadata.annotations.clone().unwrap();
    assert_eq!(annotations.keys().map(String::as_str).collect::<Vec<_>>(), [keys::IS_ALLOWED, "theirs"]);
}

#[test]
fn a_recorded_end_is_never_left() {
    let seen = running("Always").recorded(&json!({"phase": "Failed"})).with_pod(|pod| {
        pod.status = exited("Succeeded", "00:09:00");
    });
    check(&seen, &[]);
}

#[test]
fn case_019_finished_work_never_runs_again() {
    for policy in POLICIES {
        for phase in ["Succeeded", "Failed"] {
            let recorded = elected(policy).recorded(&json!({"phase": phase}));
            check(&recorded, &[]);
            check(&recorded.clone().with_pod(|pod| pod.status = json!({"phase": phase})).pod_gone(), &[]);
            check(&recorded.pod_gone().restarted(), &[]);
        }
    }
}

#[test]
fn case_019_an_end_that_was_collected_while_nobody_watched_is_recorded_first() {
    for policy in POLICIES {
        let seen = running(policy).with_pod(|pod| pod.status = exited("Succeeded", "00:08:59")).pod_deleted();
        let end = check(&seen, &["copy_status", "release_delegate"]);
        assert_eq!(end.status()["phase"], "Succeeded");
    }
}

#[test]
fn the_end_of_a_node_is_no_end_of_what_is_to_run_for_ever() {
    let collected = |policy| {
        running(policy).with_pod(|pod| {
            pod.status["phase"] = json!("Failed");
            pod.status["conditions"] =
                json!([{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}]);
        })
    };
    let again = ["delete_delegate", "release_delegate", "record_problem", "create_delegate"];
    check(&collected("Always"), &again);
    check(&collected("Always").pod_deleted(), &again[1..]);
    check(&collected("Always").pod_gone(), &again[2..]);
    for policy in ["OnFailure", "Never"] {
        let end = check(&collected(policy), &["copy_status"]);
        assert_eq!(end.status()["conditions"][0]["reason"], "DeletionByPodGC");
    }
    // Node pressure: the kubelet ended it and keeps it.
    let evicted = collected("Always").with_pod(|pod| {
        pod.status["conditions"][0]["reason"] = json!("TerminationByKubelet");
    });
    check(&evicted, &["copy_status"]);
}

#[test]
fn case_019_an_end_that_only_the_last_event_shows_is_recorded() {
    let seen = running("Never").with_pod(|pod| pod.status = exited("Succeeded", "00:08:59"));
    let (actions, end) = converge(seen.pod_gone());
    assert_eq!(writes(&actions), ["copy_status"]);
    assert_eq!(end.status()["phase"], "Succeeded");
}

#[test]
fn what_runs_behind_a_recorded_end_is_stopped() {
    let seen = running("Never").recorded(&json!({"phase": "Succeeded"}));
    check(&seen, &["delete_delegate"]);
}

#[test]
fn a_deleted_running_delegate_that_runs_for_ever_is_replaced() {
    let stopping = running("Always").pod_deleted();
    assert_eq!(plan(&stopping).actions, [], "it still runs");
    let stopped = stopping.with_pod(|pod| pod.status = exited("Failed", "00:09:20"));
    let end = check(&stopped, &["release_delegate", "record_problem", "create_delegate"]);
    assert_ne!(end.status()["phase"], "Failed");
}

#[test]
fn w48_a_job_s_deleted_delegate_ends_it() {
    for policy in ["Never", "OnFailure"] {
        let stopped = running(policy).pod_deleted().with_pod(|pod| pod.status = exited("Failed", "00:09:20"));
        let end = check(&stopped, &["copy_status", "release_delegate"]);
        assert_eq!(end.status()["phase"], "Failed");
    }
}

#[test]
fn w48_a_delegate_that_vanished_is_replaced_at_once_or_ends() {
    let end = check(&running("Always").pod_gone(), &["record_problem", "create_delegate"]);
    assert!(is_false(end.status(), DELEGATE_CREATED));
    let end = check(&running("OnFailure").pod_gone(), &["record_lost"]);
    assert_eq!(end.status()["reason"], "Lost");
    check(&running("Always").pod_gone().restarted(), &["record_problem", "create_delegate"]);
    check(&running("Never").pod_gone().restarted(), &["record_lost"]);
}

#[test]
fn case_020_a_disruption_is_told_and_an_unbound_job_pod_is_lost() {
    let seen = running("Never").pod_deleted().with_pod(|pod| {
        pod.spec = json!({});
        pod.status = json!({"phase": "Pending"});
    });
    let end = check(&seen, &["record_lost", "release_delegate"]);
    assert!(is_true(end.status(), "DisruptionTarget"));
    let told = running("Always").pod_deleted().with_pod(|pod| {
        pod.status["conditions"] =
            json!([{"type": "Ready", "status": "True"}, {"type": "DisruptionTarget", "status": "True"}]);
    });
    let end = check(&told, &["copy_status"]);
    assert!(is_true(end.status(), "DisruptionTarget") && !is_false(end.status(), DELEGATE_STOPPED));
}

#[test]
fn case_026_the_parent_is_read_before_a_child_is_created_again() {
    let seen = running("Always").pod_gone();
    assert_eq!(plan(&seen).actions, [Action::ReadDelegate, Action::ReadChaperon]);
    let deleted_meanwhile = Observed { live: true, ..seen.chaperon_deleted() };
    assert_eq!(plan(&deleted_meanwhile).actions, [Action::ReleaseChaperon]);
}

#[test]
fn case_026_without_parent_there_is_no_child() {
    let seen = Observed { chaperon: None, ..running("Always").pod_gone() };
    assert_eq!(plan(&seen).actions, []);
}

#[test]
fn an_orphan_is_let_go_once_it_has_stopped() {
    let running = Observed { chaperon: None, ..running("Always").pod_deleted() };
    assert_eq!(plan(&running).actions, []);
    let stopped = running.with_pod(|pod| pod.status = json!({"phase": "Failed"}));
    assert_eq!(plan(&stopped).actions, [Action::ReleaseDelegate]);
    let foreign = stopped.with_pod(|pod| pod.metadata.owner_references = None);
    assert_eq!(plan(&foreign).actions, []);
}

#[test]
fn case_032_a_create_that_is_refused_is_said_and_is_no_end() {
    let refused = Creation::Refused(Class::Forbidden, "exceeded quota: q".to_owned());
    let end = check_refused(&Observed { creation: refused, ..elected("Never") });
    assert!(end.status().get("phase").is_none());
    let condition = api::raw::pod_condition(end.status(), DELEGATE_CREATED).unwrap();
    assert_eq!(
        (&condition["reason"], &condition["message"]),
        (&json!("Forbidden"), &json!("exceeded quota: q"))
    );
    check(&end.restarted(), &["create_delegate"]);
}

/// A refusal is over after a restart, so that only the writes are compared.
#[track_caller]
fn check_refused(seen: &Observed) -> Observed {
    let (actions, end) = converge(seen.clone());
    assert_eq!(writes(&actions), ["record_problem"]);
    assert_eq!(plan(&end).actions, [], "said once");
    end
}

#[test]
fn every_class_of_refusal_has_its_word() {
    for (class, word) in [
        (Class::Conflict, "NameTaken"),
        (Class::NotFound, "NamespaceNotFound"),
        (Class::Invalid, "Invalid"),
        (Class::Overloaded, "Unavailable"),
        (Class::Bug, "Unexpected"),
    ] {
        let end = check_refused(&Observed {
            creation: Creation::Refused(class, String::new()),
            ..elected("Never")
        });
        assert_eq!(end.status()["conditions"][0]["reason"], word);
    }
}

#[test]
fn a_delegate_that_its_kubelet_refused_is_scheduled_again() {
    for policy in POLICIES {
        let seen = elected(policy).recorded(&json!({"phase": "Pending"})).with_pod(|pod| {
            pod.status = json!({"phase": "Failed", "reason": "OutOfcpu", "message": "no room"});
        });
        let end =
            check(&seen, &["record_problem", "discard_delegate", "release_delegate", "create_delegate"]);
        assert_eq!(end.status()["phase"], "Pending");
    }
}

#[test]
fn after_a_refusal_by_a_kubelet_there_is_a_pause() {
    let pause = Duration::from_secs(3);
    let seen =
        elected("Never").recorded(&json!({"conditions": [{"type": DELEGATE_CREATED, "status": "False"}]}));
    let plan = plan(&Observed { creation: Creation::After(pause), ..seen.pod_gone() });
    assert_eq!((plan.actions, plan.recheck), (Vec::new(), Some(pause)));
}

#[test]
fn a_running_delegate_that_a_restarted_kubelet_refuses_has_ended() {
    let seen = running("Never").with_pod(|pod| pod.status = json!({"phase": "Failed", "reason": "OutOfcpu"}));
    check(&seen, &["copy_status"]);
}

#[test]
fn a_foreign_pod_of_the_name_is_said_and_left_alone() {
    let seen = elected("Always").with_pod(|pod| pod.metadata.owner_references = None);
    let end = check(&seen, &["record_problem"]);
    assert_eq!(end.status()["conditions"][0]["reason"], "NameTaken");
    check(&seen.chaperon_deleted(), &["release_chaperon"]);
}

#[test]
fn case_047_the_delegate_of_a_predecessor_is_not_adopted() {
    let mut seen = elected("Always").with_pod(|pod| pod.status = json!({"phase": "Running"}));
    seen = seen.pod_deleted().with_chaperon(|chaperon| chaperon.metadata.uid = Some("successor".to_owned()));
    let (actions, end) = converge(seen);
    assert_eq!(writes(&actions), ["record_problem"], "never two at once");
    assert_eq!(end.status()["conditions"][0]["reason"], "PredecessorStopping");
    let stopped = end.with_pod(|pod| pod.status = json!({"phase": "Failed"}));
    let (actions, _) = converge(stopped);
    assert_eq!(writes(&actions), ["release_delegate", "create_delegate"]);
}

#[test]
fn w11_a_chaperon_outlives_its_containers() {
    let deleted = running("Always").chaperon_deleted();
    let stopping = check(&deleted, &["delete_delegate"]);
    assert!(stopping.chaperon.is_some());
    for policy in POLICIES {
        let stopped = running(policy).chaperon_deleted().pod_deleted().with_pod(|pod| {
            pod.status = exited("Failed", "00:09:20");
        });
        check(&stopped, &["copy_status", "release_delegate", "release_chaperon"]);
    }
}

#[test]
fn w11_a_delegate_that_was_let_go_still_holds_its_chaperon() {
    let seen =
        running("Always").chaperon_deleted().pod_deleted().with_pod(|pod| pod.metadata.finalizers = None);
    assert_eq!(plan(&seen).actions, []);
}

#[test]
fn the_grace_period_of_the_source_is_passed_on_and_only_shortened() {
    let asked = |seconds: &str| {
        running("Always").chaperon_deleted().with_chaperon(|chaperon| {
            let annotations = chaperon.metadata.annotations.get_or_insert_default();
            annotations.insert(keys::DELETION_GRACE_SECONDS.to_owned(), seconds.to_owned());
        })
    };
    assert_eq!(plan(&asked("7")).actions, [Action::DeleteDelegate(Some(7))]);
    assert_eq!(plan(&asked("soon")).actions, [Action::DeleteDelegate(None)]);
    assert_eq!(plan(&asked("7").pod_deleted()).actions, [Action::DeleteDelegate(Some(7))]);
    assert!(!plan(&asked("60").pod_deleted()).actions.contains(&Action::DeleteDelegate(Some(60))));
}

#[test]
fn a_silent_node_is_waited_for_and_named() {
    let seen = running("Always").chaperon_deleted().pod_deleted();
    let just_after = Observed { now: "2026-01-01T00:09:31Z".parse().unwrap(), ..seen.clone() };
    let waiting = plan(&just_after);
    assert_eq!((waiting.actions, waiting.recheck), (Vec::new(), Some(Duration::from_secs(30))));
    let told =
        Observed { now: "2026-01-01T00:10:05Z".parse().unwrap(), held: Some(Duration::from_secs(1)), ..seen };
    let (actions, end) = converge(told);
    assert_eq!(writes(&actions), ["copy_status"], "it is not let go");
    let condition = api::raw::pod_condition(end.status(), DELEGATE_STOPPED).unwrap();
    assert!(condition["message"].as_str().unwrap().contains("node n "));
}

#[test]
fn a_deleted_chaperon_whose_delegate_is_not_seen_is_looked_for() {
    let seen = elected("Always").chaperon_deleted();
    assert_eq!(plan(&seen).actions, [Action::ReadDelegate]);
    check(&seen, &["release_chaperon"]);
}

#[test]
fn a_spec_that_was_dropped_is_read_again() {
    let seen = elected("Always").with_chaperon(|chaperon| chaperon.spec = json!({"restartPolicy": "Always"}));
    assert_eq!(plan(&seen).actions, [Action::ReadChaperon]);
}

fn revoked(policy: &str) -> Observed {
    elected(policy).with_chaperon(|chaperon| {
        let annotations = chaperon.metadata.annotations.get_or_insert_default();
        annotations.insert(keys::GRANT.to_owned(), keys::GRANT_SCALE_UP.to_owned());
        annotations.insert(keys::REVOKED.to_owned(), "1".to_owned());
    })
}

fn unbound(pod: &mut Pod) {
    pod.spec = json!({});
    pod.status = json!({"phase": "Pending"});
}

#[test]
fn a_granted_delegate_is_created_without_a_node() {
    let mut seen = elected("Always").with_chaperon(|chaperon| {
        let annotations = chaperon.metadata.annotations.get_or_insert_default();
        annotations.insert(keys::GRANT.to_owned(), keys::GRANT_PREEMPT.to_owned());
        chaperon.spec["schedulerName"] = json!(keys::CANDIDATE_SCHEDULER);
    });
    seen.promised = Some(Arc::from("n"));
    assert_eq!(plan(&seen).actions, [Action::CreateDelegate(None)]);
}

#[test]
fn a_revoked_delegate_without_a_node_goes_and_that_is_confirmed_once_its_end_is_certain() {
    for policy in POLICIES {
        let seen = revoked(policy).with_pod(unbound);
        assert_eq!(plan(&seen).actions, [Action::RevokeDelegate], "{policy}");
        let dying = seen.with_pod(|pod| pod.metadata.deletion_timestamp = Some(Time(now())));
        let actions = plan(&dying).actions;
        let [Action::RecordProblem(status), Action::ReleaseDelegate] = actions.as_slice() else {
            panic!("{actions:?}")
        };
        assert!(api::raw::confirms_revocation(status), "{status}");
    }
}

#[test]
fn a_delegate_that_has_a_node_is_not_revoked() {
    let seen = revoked("Always").with_pod(|pod| {
        pod.spec = json!({"nodeName": "n"});
        pod.status = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]});
    });
    let actions = plan(&seen).actions;
    let [Action::CopyStatus(status)] = actions.as_slice() else { panic!("{actions:?}") };
    assert!(is_true(status, "PodScheduled"), "the source learns of it at once");
}

#[test]
fn no_delegate_is_created_once_it_is_revoked() {
    let mut seen = revoked("Always");
    assert_eq!(plan(&seen).actions, [Action::ReadDelegate, Action::ReadChaperon]);
    seen.live = true;
    seen.delegate = Delegate::Gone(None);
    let actions = plan(&seen).actions;
    let [Action::RecordProblem(status)] = actions.as_slice() else { panic!("{actions:?}") };
    assert!(api::raw::confirms_revocation(status));
    let settled = seen.recorded(status);
    assert_eq!(plan(&settled).actions, []);
}

/// An elected one that names something, and how long it has waited for it.
fn lacking(need: Need, waited: Duration) -> Observed {
    let secret = Reference::new(Kind::Secret, "s");
    Observed { staging: Staging::Lacking([(secret, need)].into(), waited), ..elected("Always") }
}

#[test]
fn w35_a_delegate_is_held_until_what_it_names_is_there() {
    let early = plan(&lacking(Need::Required, Duration::ZERO));
    assert_eq!((early.actions, early.recheck), (vec![], Some(Duration::from_secs(1))));
    let late = plan(&lacking(Need::Required, Duration::from_secs(10)));
    let [Action::RecordProblem(status)] = &late.actions[..] else { panic!("{late:?}") };
    assert!(is_false(status, DELEGATE_CREATED));
    let said = &status["conditions"][0];
    assert_eq!(said["reason"], keys::WAITS_FOR_REFERENCES);
    assert_eq!(said["message"], "the delegate waits for Secret s in this cluster");
    let told = plan(&lacking(Need::Required, Duration::from_secs(10)).recorded(status));
    assert_eq!((told.actions, told.recheck), (vec![], Some(Duration::from_secs(10))), "said once");
}

#[test]
fn w35_what_has_come_lets_the_delegate_go() {
    let waited = lacking(Need::Required, Duration::from_secs(10));
    let [Action::RecordProblem(status)] = &plan(&waited).actions[..] else { panic!("no problem") };
    let arrived = Observed { staging: Staging::Complete, ..waited.clone() }.recorded(status);
    assert_eq!(plan(&arrived).actions, [Action::CreateDelegate(None)]);
}

#[test]
fn case_074_what_is_optional_holds_a_delegate_for_a_moment_only() {
    let early = plan(&lacking(Need::Optional, Duration::from_millis(400)));
    assert_eq!((early.actions, early.recheck), (vec![], Some(Duration::from_millis(600))));
    assert_eq!(
        plan(&lacking(Need::Optional, Duration::from_secs(1))).actions,
        [Action::CreateDelegate(None)]
    );
}

#[test]
fn what_nobody_has_asked_for_is_read_before_a_delegate_is_created() {
    let secret = Reference::new(Kind::Secret, "s");
    let unread = Observed { staging: Staging::Unread(vec![secret.clone()]), ..elected("Always") };
    assert_eq!(plan(&unread).actions, [Action::ReadReferences(vec![secret])]);
}

#[test]
fn w37_a_debug_container_is_added_to_a_delegate_that_runs_and_to_no_other() {
    let debugged = |seen: Observed| {
        seen.with_chaperon(|chaperon| chaperon.spec["ephemeralContainers"] = json!([{"name": "debugger"}]))
    };
    let add = Action::AddEphemeral(vec![json!({"name": "debugger"})]);
    let in_phase = |phase: &str| {
        let phase = phase.to_owned();
        debugged(running("Always")).with_pod(|pod| pod.status = json!({"phase": phase}))
    };
    assert!(plan(&in_phase("Running")).actions.contains(&add));
    let settled = obey(in_phase("Running"), &add);
    assert!(!plan(&settled).actions.contains(&add));
    assert!(!plan(&in_phase("Succeeded")).actions.contains(&add));
    let made = build(debugged(elected("Always")).chaperon.as_ref().unwrap(), Some("n"));
    assert_eq!(made.spec.get("ephemeralContainers"), None);
}

/// Of a source that counts on its stop, 5 s after its Lease has run out.
fn leased(seen: Observed, fence: Fence) -> Observed {
    let seen = seen.with_chaperon(|chaperon| {
        let annotations = chaperon.metadata.annotations.get_or_insert_default();
        annotations.insert(keys::FENCE_EPOCH.to_owned(), "1".to_owned());
        annotations.insert(keys::FENCE_GRACE_SECONDS.to_owned(), "5".to_owned());
    });
    Observed { fence, ..seen }
}

/// Deletes its delegate, which the kubelet then kills, and all that follows.
fn killed(seen: Observed) -> (Vec<Action>, Observed) {
    let (_, dying) = converge(seen);
    converge(settle(dying.with_pod(|pod| pod.status = exited("Failed", "00:09:28"))))
}

#[test]
fn a_delegate_whose_lease_has_run_out_is_stopped_with_the_agreed_grace_period_and_never_runs_again() {
    for (policy, fence) in
        POLICIES.into_iter().flat_map(|policy| [Fence::Expired, Fence::Past].map(|fence| (policy, fence)))
    {
        let seen = leased(running(policy), fence);
        assert_eq!(plan(&seen).actions, [Action::DeleteDelegate(Some(5))], "{policy} {fence:?}");
        let (_, end) = killed(seen);
        assert_eq!(end.status()["phase"], "Failed", "{policy} {fence:?}");
        assert!(!matches!(end.delegate, Delegate::Present(_)), "{policy} {fence:?}");
        assert_eq!(plan(&leased(end, Fence::Open)).actions, [], "not even in another epoch");
    }
}

#[test]
fn a_pod_that_runs_for_ever_says_that_it_was_stopped_by_its_lease() {
    let (actions, end) = killed(leased(running("Always"), Fence::Expired));
    assert_eq!(end.status()["reason"], keys::LEASE_EXPIRED);
    assert_eq!(writes(&actions), ["release_delegate", "record_lost"]);
}

#[test]
fn a_deletion_that_takes_longer_than_agreed_is_shortened() {
    let slow = leased(running("Always").pod_deleted(), Fence::Expired).with_pod(|pod| {
        pod.metadata.deletion_grace_period_seconds = Some(600);
        pod.metadata.deletion_timestamp = Some(Time("2026-01-01T00:19:00Z".parse().unwrap()));
    });
    assert_eq!(plan(&slow).actions, [Action::DeleteDelegate(Some(5))]);
    let deleted = slow.clone().chaperon_deleted();
    assert!(plan(&deleted).actions.contains(&Action::DeleteDelegate(Some(5))));
    let open = Observed { fence: Fence::Open, ..slow };
    assert!(!plan(&open).actions.contains(&Action::DeleteDelegate(Some(5))));
}

#[test]
fn a_delegate_begins_only_when_its_lease_is_known_to_hold() {
    check(&leased(elected("Always"), Fence::Open), &["create_delegate"]);
    for fence in [Fence::Unsure, Fence::Expired] {
        let end = check(&leased(elected("Always"), fence), &["record_problem"]);
        assert!(is_false(end.status(), DELEGATE_CREATED), "{fence:?}");
        check(&Observed { fence: Fence::Open, ..end }, &["create_delegate"]);
    }
    let end = check(&leased(elected("Always"), Fence::Past), &["record_lost"]);
    assert_eq!(end.status()["reason"], keys::LEASE_EXPIRED);
}

#[test]
fn a_delegate_that_runs_goes_on_as_long_as_nobody_knows_that_its_lease_has_run_out() {
    check(&leased(running("Always"), Fence::Unsure), &[]);
    check(&leased(running("Always"), Fence::Open), &[]);
}

#[test]
fn work_that_ended_before_its_lease_ran_out_has_ended_as_it_did() {
    let status = exited("Succeeded", "00:09:00");
    let seen = leased(running("Never"), Fence::Expired).with_pod(|pod| pod.status = status.clone());
    let (_, end) = converge(seen);
    assert_eq!(end.status()["phase"], "Succeeded");
}

/// What was changed on the proxy pod since it was submitted.
fn changed(seen: Observed, record: &Value) -> Observed {
    seen.with_chaperon(|chaperon| {
        let annotations = chaperon.metadata.annotations.get_or_insert_default();
        annotations.insert(keys::UPDATES.to_owned(), record.to_string());
    })
}

#[test]
fn w37_case_030_what_was_changed_on_a_pod_is_changed_on_its_delegate_once() {
    let record = json!({"annotations": {"stop": "now", "mine": null}, "labels": {"tier": "back"},
        "spec": {"activeDeadlineSeconds": 60}});
    let end = check(&changed(running("Never"), &record), &["update_delegate"]);
    let Delegate::Present(pod) = &end.delegate else { panic!("no delegate") };
    assert_eq!((pod.annotation("stop"), pod.annotation("mine")), (Some("now"), None));
    assert_eq!(pod.label("tier"), Some("back"));
    let resized = json!({"resources": {"containers": [{"name": "c", "resources": {}}]}});
    check(&changed(running("Always"), &resized), &["resize_delegate", "update_delegate"]);
}

#[test]
fn case_030_keys_of_both_sides_stay_with_no_to_and_fro() {
    let seen = changed(running("Always"), &json!({"annotations": {"of-source": "1"}})).with_pod(|pod| {
        drop(pod.metadata.annotations.get_or_insert_default().insert("of-delegate".into(), "2".into()));
    });
    let end = check(&seen, &["copy_annotations", "update_delegate"]);
    let Delegate::Present(pod) = &end.delegate else { panic!("no delegate") };
    assert_eq!((pod.annotation("of-source"), pod.annotation("of-delegate")), (Some("1"), Some("2")));
    let chaperon = end.chaperon.clone().unwrap();
    assert_eq!((chaperon.annotation("of-source"), chaperon.annotation("of-delegate")), (None, Some("2")));
    // Somebody else there wants the key of the source.
    let contended = end.with_pod(|pod| {
        drop(pod.metadata.annotations.get_or_insert_default().insert("of-source".into(), "9".into()));
    });
    check(&contended, &["update_delegate"]);
}

#[test]
fn w37_a_change_that_is_refused_stands_in_a_condition() {
    let seen = changed(running("Always"), &json!({"spec": {"activeDeadlineSeconds": 60}}));
    let refused = Observed { unchanged: Some("must be less".to_owned()), held: Some(COALESCED), ..seen };
    let plan = plan(&refused);
    let [Action::CopyStatus(status)] = plan.actions.as_slice() else { panic!("{plan:?}") };
    let condition = api::raw::pod_condition(status, keys::DELEGATE_UPDATED).unwrap();
    assert_eq!((&condition["status"], &condition["message"]), (&json!("False"), &json!("must be less")));
    assert!(plan.recheck.is_some());
}

#[test]
fn w37_a_delegate_that_is_made_again_begins_changed() {
    let seen = changed(elected("Always"), &json!({"spec": {"containers": [{"name": "c", "image": "x:2"}]}}));
    let made = build(seen.chaperon.as_ref().unwrap(), None);
    assert_eq!(made.spec["containers"][0]["image"], "x:2");
    assert!(made.annotation(keys::UPDATES).is_some());
}

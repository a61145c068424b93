//! The list of all tests.

use anyhow::Result;
use e2e::ground::Ground;
use futures::future::LocalBoxFuture;

use crate::the_ground;

/// One test.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// It disturbs a whole cluster.
    pub(crate) alone: bool,
    /// It needs clusters that the run itself started.
    pub(crate) needs_local: bool,
    pub(crate) run: for<'a> fn(&'a Ground) -> LocalBoxFuture<'a, Result<()>>,
}

macro_rules! case {
    ($module:ident :: $name:ident $(, $flag:ident)*) => {
        Case {
            $($flag: true,)*
            ..Case {
                name: concat!(stringify!($module), "::", stringify!($name)),
                alone: false,
                needs_local: false,
                run: |ground| Box::pin($module::$name(ground)),
            }
        }
    };
}

/// All tests, in the order in which they are started.
pub(crate) fn all() -> Vec<Case> {
    vec![
        case!(the_ground::a_fake_node_runs_pods, needs_local),
        case!(the_ground::a_job_on_a_fake_node_completes, needs_local),
        case!(the_ground::a_fake_kubelet_stops_containers_before_a_pod_goes, needs_local),
        case!(the_ground::a_fake_node_can_refuse_a_pod, needs_local),
        case!(the_ground::a_pod_runs_under_its_own_account, needs_local),
        case!(the_ground::a_container_sees_only_what_its_pod_says, needs_local),
        case!(the_ground::a_service_leads_to_its_pod, needs_local),
        case!(the_ground::a_wrong_readiness_probe_keeps_a_pod_unready, needs_local),
        case!(the_ground::a_failed_liveness_probe_restarts_a_container, needs_local),
        case!(the_ground::a_job_on_the_harness_ends_with_its_exit_code, needs_local),
        case!(the_ground::a_deleted_pod_gets_its_grace_period, needs_local),
        case!(the_ground::an_unknown_volume_is_a_fault, needs_local),
        case!(the_ground::a_cut_cluster_is_out_of_reach, needs_local, alone),
        case!(the_ground::a_frozen_api_server_is_silent, needs_local, alone),
        case!(the_ground::a_killed_run_leaves_nothing_behind, needs_local, alone),
    ]
}

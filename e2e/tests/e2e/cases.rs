//! The list of all tests.

use anyhow::Result;
use e2e::ground::Ground;
use futures::future::LocalBoxFuture;

use crate::ordinary::{devices, preemption, resource_claims, storage};
use crate::{
    admission, api, autoscaling, budget, bystanders, chart, cli, daemons, data, declared, drains, ends,
    failover, follow, grants, groups, identity, leases, ordinary, outages, owners, placement, refusals,
    restarts, scores, services, sessions, shares, silence, sources, streams, targets, the_ground,
    the_recorder, told, twins, updates, workloads,
};

/// What a test does.
pub(crate) type Run = Box<dyn for<'a> Fn(&'a Ground) -> LocalBoxFuture<'a, Result<()>> + Send>;

/// One test.
pub(crate) struct Case {
    pub(crate) name: String,
    /// It disturbs a whole cluster.
    pub(crate) alone: bool,
    /// It needs clusters that the run itself started.
    pub(crate) needs_local: bool,
    pub(crate) run: Run,
}

macro_rules! case {
    ($module:ident :: $name:ident $(, $flag:ident)*) => {
        Case {
            $($flag: true,)*
            ..Case {
                name: concat!(stringify!($module), "::", stringify!($name)).to_owned(),
                alone: false,
                needs_local: false,
                run: Box::new(|ground| Box::pin($module::$name(ground))),
            }
        }
    };
}

/// All tests, in the order in which they are started.
pub(crate) fn all() -> Vec<Case> {
    let groups = [
        basis(),
        contract(),
        life(),
        needs(),
        kubelet(),
        ordinary(),
        owners::cases(),
        workloads::cases(),
        alone(),
        streams_alone(),
    ];
    groups.into_iter().flatten().collect()
}

/// The test ground itself, and the chart on it.
fn basis() -> Vec<Case> {
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
        case!(the_recorder::the_recorder_sees_two_at_once_and_work_that_runs_again),
        case!(chart::components_become_available_and_targets_ready),
        case!(chart::an_elected_pod_runs_in_a_target),
        case!(chart::a_broken_port_probe_or_rule_of_the_chart_is_noticed, needs_local),
    ]
}

/// Kinds, admission, targets and sources.
fn contract() -> Vec<Case> {
    vec![
        case!(api::invalid_objects_are_refused_with_their_reason),
        case!(api::case_011_a_service_leads_to_the_pods_of_its_component_only),
        case!(api::kubectl_knows_short_names_and_columns),
        case!(declared::declared_clusters_are_accepted_or_refused_with_their_reason),
        case!(declared::images_accounts_and_catalogues_are_refused_with_their_reason),
        case!(admission::an_elected_pod_becomes_a_proxy_pod),
        case!(admission::w34_a_delegate_has_the_whole_spec_of_the_users_pod),
        case!(admission::w29_what_only_components_may_write_is_refused_from_users),
        case!(admission::pods_elect_themselves_or_opt_out, needs_local),
        case!(admission::case_040_pods_of_the_release_are_never_elected),
        case!(admission::case_009_priorities_are_those_of_the_target),
        case!(admission::case_008_updates_of_a_proxy_pod_are_not_mutated),
        case!(sources::w24_a_cluster_source_gets_its_account_and_its_bindings),
        case!(sources::w25_a_sources_bindings_are_written_once_and_go_with_it),
        case!(targets::w17_w14_targets_are_added_broken_and_repaired_without_a_restart, needs_local),
        case!(targets::w18_w19_with_its_target_go_the_virtual_node_and_the_pods_on_it, needs_local),
        case!(targets::w15_two_targets_for_one_cluster_are_told_and_the_older_one_goes_on),
        case!(targets::w28_a_kubeconfig_that_reaches_for_files_or_commands_is_refused),
        case!(targets::w06_w11_a_proxy_pod_stays_until_its_delegate_has_stopped),
        case!(targets::case_016_a_target_serves_its_own_namespace_only, needs_local),
        case!(targets::a_cordoned_virtual_node_takes_no_pods_and_keeps_those_it_has, needs_local),
    ]
}

/// Where pods run, and what they cost.
fn life() -> Vec<Case> {
    vec![
        case!(ends::case_137_pods_of_a_node_that_vanished_are_made_again_elsewhere, needs_local),
        case!(ends::status_and_annotations_flow_back),
        case!(ends::case_014_pods_deleted_right_after_their_creation_leave_nothing),
        case!(ends::case_047_a_pod_made_again_under_its_name_is_another_pod),
        case!(ends::a_chaperon_deleted_by_hand_ends_its_pod),
        case!(ends::pods_over_a_quota_wait_with_the_words_of_the_target),
        case!(refusals::w33_a_delegate_that_one_kubelet_refuses_runs_on_another_node, needs_local),
        case!(identity::a_target_that_leads_to_another_cluster_is_not_used, needs_local),
        case!(drains::a_drained_virtual_node_gives_its_pods_to_others, needs_local),
        case!(drains::pods_of_a_drained_node_of_a_target_run_on_its_other_nodes, needs_local),
        case!(drains::an_evicted_pod_counts_in_its_budget_and_waits_for_its_delegate),
        case!(twins::a_cluster_may_be_its_own_target, needs_local),
        case!(cli::a_target_is_added_seen_rotated_drained_and_removed, needs_local),
        case!(cli::each_reason_why_a_pod_waits_is_explained, needs_local),
        case!(cli::a_bundle_holds_no_secret),
        case!(grants::case_103_the_first_target_of_a_pod_is_filled_before_the_next),
        case!(scores::w47_case_103_what_is_published_about_targets_decides_where_pods_go),
        case!(scores::a_score_that_nobody_could_weigh_is_refused_with_its_reason),
        case!(grants::case_133_a_pod_that_fits_nowhere_waits_in_one_target_and_then_in_the_next, needs_local),
        case!(grants::w32_case_021_a_pod_preempts_in_one_cluster_only, needs_local),
        case!(grants::a_pod_without_reservation_is_placed_by_its_own_scheduler),
        case!(
            groups::groups_that_fit_alone_are_placed_whole_and_one_that_does_not_takes_nothing,
            needs_local
        ),
        case!(groups::w47_a_group_is_placed_as_its_pod_group_says),
        case!(placement::case_100_pods_that_keep_apart_run_in_different_clusters),
        case!(placement::node_selectors_and_taints_of_the_target_are_honoured, needs_local),
        case!(
            placement::w03_pods_with_one_host_port_run_one_on_a_node_and_the_next_when_one_goes,
            needs_local
        ),
        case!(placement::w04_a_pod_that_found_no_room_runs_as_soon_as_a_node_is_added, needs_local),
        case!(placement::w01_pods_that_fit_nowhere_do_not_delay_others),
        case!(placement::w10_a_chaperon_has_a_name_that_follows_from_pod_and_target),
        case!(placement::a_pod_with_a_claim_that_nobody_has_waits_and_says_so),
        case!(placement::case_010_a_gated_pod_is_placed_once_its_gates_lift),
        case!(placement::case_017_a_namespace_that_one_target_lacks_keeps_no_pod_from_the_other),
        case!(budget::w02_chaperons_are_watched_and_not_read_for_each_pod, needs_local),
        case!(daemons::case_053_a_pod_that_tolerates_everything_is_marked_and_goes_when_it_is_deleted),
        case!(daemons::pods_of_a_daemon_set_stay_and_are_replaced_in_the_source, needs_local),
    ]
}

/// What pods need goes where they run.
fn needs() -> Vec<Case> {
    vec![
        case!(bystanders::case_005_only_what_a_pod_names_is_written_and_once),
        case!(follow::w35_what_pods_name_is_there_before_their_delegates),
        case!(follow::w35_a_delegate_waits_for_what_is_missing_and_says_so),
        case!(follow::case_074_what_is_optional_holds_nobody_and_follows_late),
        case!(follow::case_073_type_and_immutability_of_a_secret_follow),
        case!(follow::w07_an_object_of_the_target_itself_is_used_and_never_touched),
        case!(follow::an_original_can_refuse_to_follow),
        case!(follow::a_burst_of_objects_is_written_once_each),
        case!(follow::a_copy_is_mended_and_an_orphan_collected),
        case!(data::w30_a_stateful_set_keeps_its_data_where_it_is),
        case!(data::case_072_another_claim_of_the_same_name_is_never_used),
        case!(data::case_072_data_of_the_source_is_not_left_behind_unasked),
        case!(updates::w37_case_030_what_either_side_writes_reaches_the_other),
        case!(updates::w37_images_deadlines_tolerations_and_resources_reach_the_delegate),
        case!(workloads::w40_w41_case_035_a_settled_world_costs_no_write, needs_local),
        case!(workloads::a_cron_job_runs_in_targets_unchanged, needs_local),
        case!(workloads::case_106_case_107_a_workflow_of_ten_steps_is_stopped_and_ends, needs_local),
        case!(services::w36_case_082_a_service_follows_only_where_its_pods_run),
        case!(services::case_079_a_manifest_that_is_applied_again_costs_one_write_each),
        case!(services::case_110_a_headless_service_leads_to_the_peers),
        case!(services::w16_case_131_an_ingress_follows_its_services),
        case!(services::w36_a_service_that_its_user_shares_is_in_every_target),
    ]
}

/// Virtual nodes as kubelets.
fn kubelet() -> Vec<Case> {
    vec![
        case!(streams::w22_w38_logs_with_all_their_options_are_the_delegates, needs_local),
        case!(streams::case_070_exec_keeps_every_byte_and_word, needs_local),
        case!(streams::case_130_files_are_copied_and_attach_shows_the_main_process, needs_local),
        case!(streams::w38_a_forwarded_port_carries_every_byte, needs_local),
        case!(streams::w38_a_virtual_node_shows_what_its_delegates_use, needs_local),
        case!(streams::w37_a_debug_container_runs_in_the_delegate_and_shows_on_the_pod, needs_local),
        case!(streams::w27_nobody_reaches_a_kubelet_path_without_a_right_to_the_node, needs_local),
        case!(told::case_038_an_event_of_a_delegate_is_shown_once_on_its_pod, needs_local),
        case!(told::what_a_kubelet_says_of_a_delegate_stands_on_its_pod, needs_local),
        case!(autoscaling::w38_an_autoscaler_follows_what_proxy_pods_use, needs_local),
        case!(sessions::case_070_exit_codes_and_ends_of_inputs_pass_as_they_are, needs_local),
        case!(sessions::w38_files_are_copied_into_a_container_and_out_of_it, needs_local),
        case!(sessions::case_130_attach_is_the_main_process_until_its_input_ends, needs_local),
        case!(sessions::w22_case_070_a_terminal_has_the_size_of_its_user_at_once_and_later, needs_local),
        case!(
            streams::case_065_each_virtual_node_has_its_port_and_no_request_for_a_certificate_stays,
            needs_local
        ),
    ]
}

/// The candidate scheduler alone.
fn ordinary() -> Vec<Case> {
    vec![
        case!(ordinary::pods_of_a_cluster_that_is_no_target_are_placed_as_kube_scheduler_would, needs_local),
        case!(preemption::a_pod_makes_room_as_kube_scheduler_makes_it, needs_local),
        case!(storage::storage_is_bound_before_its_pod_as_kube_scheduler_does_it, needs_local),
        case!(resource_claims::claims_get_their_devices_as_kube_scheduler_gives_them, needs_local),
        case!(devices::pods_that_need_dynamic_resources_are_refused_in_words, needs_local),
    ]
}

/// Those that disturb a whole cluster, or that others would disturb.
fn alone() -> Vec<Case> {
    vec![
        case!(placement::pods_spread_over_both_targets, alone),
        case!(restarts::a_component_killed_amid_a_burst_loses_and_doubles_nothing, needs_local, alone),
        case!(
            restarts::case_095_a_frozen_leader_is_replaced_and_does_no_harm_when_it_wakes,
            needs_local,
            alone
        ),
        case!(twins::w07_two_sources_of_one_name_leave_each_others_delegates_alone, needs_local),
        case!(budget::a_pod_costs_at_most_twelve_writes, alone),
        case!(admission::w44_case_007_an_outage_of_the_webhook_stops_elected_pods_only, alone),
        case!(
            outages::work_that_ended_while_the_chaperon_controller_was_down_never_runs_again,
            needs_local,
            alone
        ),
        case!(silence::a_frozen_target_delays_only_pods_that_are_bound_to_it, needs_local, alone),
        case!(
            silence::a_frozen_candidate_scheduler_delays_only_pods_that_are_bound_to_its_target,
            needs_local,
            alone
        ),
        case!(silence::w13_a_cut_target_is_shown_and_nothing_of_it_is_deleted, needs_local, alone),
        case!(silence::a_delegate_lost_while_the_source_is_away_is_made_again, needs_local, alone),
        case!(
            silence::case_013_a_pod_deleted_while_its_target_is_away_goes_when_it_is_back,
            needs_local,
            alone
        ),
        case!(failover::pods_that_move_are_replaced_when_their_target_is_cut_off, needs_local, alone),
        case!(
            failover::w05_pods_that_move_once_wait_for_the_fence_when_an_api_server_is_frozen,
            needs_local,
            alone
        ),
        case!(leases::w05_pods_with_a_lease_move_by_themselves_and_never_run_twice, needs_local, alone),
        case!(
            leases::pods_that_a_cut_target_stopped_are_replaced_when_it_is_back_before_they_moved,
            needs_local,
            alone
        ),
        case!(failover::w12_an_outage_of_ours_moves_and_restarts_nothing, needs_local, alone),
        case!(
            failover::w19_case_043_a_target_deleted_while_the_feedback_controller_is_down_goes_in_order,
            needs_local,
            alone
        ),
        case!(
            failover::case_043_a_dead_target_goes_by_force_and_is_swept_when_it_is_back,
            needs_local,
            alone
        ),
        case!(failover::w13_pods_are_ready_within_five_seconds_of_their_targets_return, needs_local, alone),
        case!(the_ground::a_cut_cluster_is_out_of_reach, needs_local, alone),
        case!(the_ground::a_frozen_api_server_is_silent, needs_local, alone),
        case!(the_ground::a_killed_run_leaves_nothing_behind, needs_local, alone),
    ]
}

/// Streams that need the machine for themselves.
fn streams_alone() -> Vec<Case> {
    vec![
        case!(
            shares::what_a_lost_replica_had_is_served_within_fifteen_seconds_and_never_by_two,
            needs_local,
            alone
        ),
        case!(sessions::w38_a_hundred_sessions_and_logs_at_once_lose_no_byte, needs_local, alone),
        case!(sessions::w22_a_cut_session_ends_promptly_on_both_sides, needs_local, alone),
        case!(sessions::w22_sessions_of_a_target_that_is_cut_off_end, needs_local, alone),
        case!(sessions::w38_memory_stays_flat_whatever_streams_carry, needs_local, alone),
    ]
}

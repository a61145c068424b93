use serde_json::json;

use super::*;

fn config(mut rest: Value) -> Value {
    let mut config =
        json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"});
    if let (Some(config), Some(rest)) = (config.as_object_mut(), rest.as_object_mut()) {
        config.append(rest);
    }
    config
}

/// The problems that a configuration has, one a line.
#[track_caller]
fn check(rest: Value, want: &[&str]) {
    let got = match Config::parse(&config(rest)) {
        Ok(_) => Vec::new(),
        Err(error) => error.0.iter().map(ToString::to_string).collect(),
    };
    assert_eq!(got, want);
}

fn profile(mut rest: Value) -> Value {
    json!({"profiles": [rest.take()]})
}

fn args(plugin: &str, mut args: Value) -> Value {
    profile(json!({"pluginConfig": [{"name": plugin, "args": args.take()}]}))
}

/// The plugins that a profile asks, in order.
#[track_caller]
fn plugins(plugins: &Value) -> Vec<&'static str> {
    let config = Config::parse(&config(profile(json!({"plugins": plugins})))).expect("a configuration");
    config.profiles[0].framework().plugins().collect()
}

#[test]
fn an_empty_configuration_is_the_default_profile_with_every_plugin() {
    let read = Config::parse(&config(json!({}))).expect("a configuration");
    assert_eq!(read, Config::default());
    let mut ours: Vec<_> = read.profiles[0].framework().plugins().collect();
    let mut every: Vec<_> = Framework::builder().build().plugins().collect();
    ours.sort_unstable();
    every.sort_unstable();
    assert_eq!(ours, every);
}

#[test]
fn a_file_as_operators_have_it_is_read() {
    let read = Config::parse_text(
        "
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: false
clientConnection:
  qps: 200
parallelism: 32
percentageOfNodesToScore: 70
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 60
profiles:
- schedulerName: packing
  percentageOfNodesToScore: 0
  plugins:
    score:
      disabled:
      - name: NodeResourcesBalancedAllocation
      enabled:
      - name: NodeResourcesFit
        weight: 5
  pluginConfig:
  - name: NodeResourcesFit
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeResourcesFitArgs
      scoringStrategy:
        type: MostAllocated
        resources:
        - name: cpu
          weight: 3
        - name: nvidia.com/gpu
- schedulerName: default-scheduler
",
    )
    .expect("a configuration");
    let [packing, default] = read.profiles.as_slice() else { panic!("{read:?}") };
    assert_eq!((packing.percentage_of_nodes, default.percentage_of_nodes), (None, Some(70)));
    assert_eq!(packing.args.fit.strategy, ScoringStrategy::MostAllocated);
    assert_eq!(
        packing.args.fit.resources[1],
        ResourceWeight { name: "nvidia.com/gpu".to_owned(), weight: 1 }
    );
    assert_eq!(read.backoff, Backoff { initial_ms: 2000, max_ms: 60_000 });
    assert!(!read.leader_election.elect);
    assert_eq!(read.notes.len(), 3, "{:?}", read.notes);
    let plugins: Vec<_> = packing.framework().plugins().collect();
    assert!(!plugins.contains(&"NodeResourcesBalancedAllocation"));
    assert!(read.frameworks().has("packing") && !read.frameworks().has("other"));
}

#[test]
fn what_is_not_there_is_refused_by_path_with_a_way_out() {
    check(
        json!({"extenders": [{"urlPrefix": "http://x"}], "algorithm": 1}),
        &[
            "algorithm: is no field of a configuration; known here are apiVersion, kind, parallelism, \
             leaderElection, clientConnection, enableProfiling, enableContentionProfiling, \
             percentageOfNodesToScore, podInitialBackoffSeconds, podMaxBackoffSeconds, profiles, extenders, \
             delayCacheUntilActive",
            "extenders[0]: HTTP extenders are not supported: remove it and leave the pods that need it to \
             kube-scheduler",
        ],
    );
    check(
        profile(json!({"plugins": {"filter": {"enabled": [{"name": "Coscheduling"}]}}})),
        &[
            "profiles[0].plugins.filter.enabled[0].name: \"Coscheduling\" is no plugin of this scheduler: remove \
           it, or leave the pods that need it to kube-scheduler",
        ],
    );
    check(
        args("Coscheduling", json!({})),
        &[
            "profiles[0].pluginConfig[0].name: \"Coscheduling\" is no plugin of this scheduler: remove this entry",
        ],
    );
    check(
        args("NodeName", json!({})),
        &["profiles[0].pluginConfig[0]: NodeName takes no arguments: remove this entry"],
    );
    check(
        json!({"clientConnection": {"kubeconfig": "/etc/kubernetes/scheduler.conf"}}),
        &["clientConnection.kubeconfig: is given by the environment: leave it out and set KUBECONFIG"],
    );
}

#[test]
fn another_version_or_kind_is_refused() {
    let error =
        Config::parse(&json!({"apiVersion": "kubescheduler.config.k8s.io/v1beta3"})).expect_err("old");
    assert_eq!(
        error.to_string(),
        "apiVersion: must be kubescheduler.config.k8s.io/v1\nkind: must be KubeSchedulerConfiguration"
    );
    assert!(Config::parse_text("a: [").is_err());
}

#[test]
fn numbers_have_their_bounds() {
    check(json!({"parallelism": 0}), &["parallelism: should be an integer value greater than zero"]);
    check(
        json!({"percentageOfNodesToScore": 101}),
        &["percentageOfNodesToScore: not in valid range [0-100]"],
    );
    check(json!({"podInitialBackoffSeconds": 0}), &["podInitialBackoffSeconds: must be greater than 0"]);
    check(
        json!({"podInitialBackoffSeconds": 5, "podMaxBackoffSeconds": 4}),
        &["podMaxBackoffSeconds: must be greater than or equal to PodInitialBackoffSeconds"],
    );
    check(json!({"clientConnection": {"burst": -1}}), &["clientConnection.burst: must be non-negative"]);
}

#[test]
fn leader_election_is_checked_while_it_is_on() {
    let lease = |elect: bool| {
        json!({"leaderElection": {"leaderElect": elect, "leaseDuration": "5s", "renewDeadline": "1m0s",
            "resourceLock": "endpoints"}})
    };
    check(
        lease(true),
        &[
            "leaderElection.resourceLock: resourceLock value must be \"leases\"",
            "leaderElection.leaseDuration: must be greater than `RenewDeadline`",
        ],
    );
    check(lease(false), &[]);
    check(
        json!({"leaderElection": {"leaseDuration": "soon"}}),
        &["leaderElection.leaseDuration: must be a duration such as 15s, 1m30s or 500ms"],
    );
}

#[test]
fn several_profiles_need_names_and_different_ones() {
    check(json!({"profiles": [{}]}), &[]);
    check(
        json!({"profiles": [{"schedulerName": "a"}, {}, {"schedulerName": "a"}]}),
        &[
            "profiles[1].schedulerName: is required",
            "profiles[2].schedulerName: is the name of profiles[0] already; names must differ",
        ],
    );
}

#[test]
fn a_plugin_is_left_out_at_every_point_or_at_one() {
    let everywhere = plugins(&json!({"multiPoint": {"disabled": [{"name": "TaintToleration"}]}}));
    assert!(!everywhere.contains(&"TaintToleration"));
    let scores = plugins(&json!({"score": {"disabled": [{"name": "TaintToleration"}]}}));
    assert_eq!(scores.iter().filter(|name| **name == "TaintToleration").count(), 1, "its filter is left");
    let only = plugins(&json!({"multiPoint": {
        "disabled": [{"name": "*"}],
        "enabled": [{"name": "PrioritySort"}, {"name": "DefaultBinder"}, {"name": "NodePorts"}],
    }}));
    assert_eq!(only, ["Supported", "NodePorts"]);
}

#[test]
fn what_is_enabled_at_a_point_stands_before_what_is_enabled_at_all_points() {
    let order = plugins(&json!({"filter": {"enabled": [{"name": "NodePorts"}, {"name": "NodeName"}]}}));
    let place = |name| order.iter().position(|plugin| *plugin == name);
    assert!(place("NodePorts") < place("NodeName") && place("NodeName") < place("NodeUnschedulable"));
    let last = plugins(&json!({"multiPoint": {"disabled": [{"name": "NodePorts"}]},
        "preFilter": {"enabled": [{"name": "NodePorts"}]}, "filter": {"enabled": [{"name": "NodePorts"}]}}));
    let place = |name| last.iter().position(|plugin| *plugin == name);
    assert!(place("NodePorts") > place("NodeDeclaredFeatures"));
}

#[test]
fn what_is_enabled_twice_or_where_it_has_nothing_to_do_is_refused() {
    let enabled = |point: &str, names: &[&str]| {
        let names: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
        profile(json!({"plugins": {point: {"enabled": names}}}))
    };
    check(
        enabled("score", &["ImageLocality", "ImageLocality"]),
        &["profiles[0].plugins.score.enabled[1].name: ImageLocality is enabled here twice"],
    );
    check(
        enabled("multiPoint", &["ImageLocality", "ImageLocality"]),
        &["profiles[0].plugins.multiPoint.enabled[0].name: ImageLocality is enabled at score twice"],
    );
    check(
        enabled("filter", &["ImageLocality"]),
        &[
            "profiles[0].plugins.filter.enabled[0].name: ImageLocality has nothing to do at filter: remove it here",
        ],
    );
}

#[test]
fn the_queue_has_one_order_pods_are_bound_and_filters_are_prepared() {
    let without =
        |point: &str, name: &str| profile(json!({"plugins": {point: {"disabled": [{"name": name}]}}}));
    check(
        without("queueSort", "*"),
        &["profiles[0].plugins.queueSort: one queue sort plugin is required, but there are 0"],
    );
    check(
        without("multiPoint", "DefaultBinder"),
        &["profiles[0].plugins.bind: a bind plugin is required: enable DefaultBinder"],
    );
    check(
        without("preFilter", "NodePorts"),
        &[
            "profiles[0].plugins.filter: NodePorts needs itself at preFilter: disable it at filter too, or not there",
        ],
    );
    check(
        without("preScore", "TaintToleration"),
        &["profiles[0].plugins.score: TaintToleration needs itself at \
        preScore: disable it at score too, or not there"],
    );
}

const AT: &str = "profiles[0].pluginConfig[0].args";

/// The one problem that arguments have.
#[track_caller]
fn one(plugin: &str, value: Value, path: &str, problem: &str) {
    check(args(plugin, value), &[&format!("{AT}.{path}: {problem}")]);
}

#[test]
fn resources_are_checked_as_upstream_checks_them() {
    let fit = |value, path, problem| one("NodeResourcesFit", value, path, problem);
    let group = "resource group name can't contain '/'";
    fit(json!({"ignoredResourceGroups": ["a/b"]}), "ignoredResourceGroups[0]", group);
    fit(json!({"ignoredResources": ["-"]}), "ignoredResources[0]", "\"-\" is no valid name of a resource");
    fit(
        json!({"scoringStrategy": {"type": "Best"}}),
        "scoringStrategy.type",
        "must be LeastAllocated, MostAllocated or RequestedToCapacityRatio",
    );
    fit(
        json!({"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 101}]}}),
        "scoringStrategy.resources[0].weight",
        "resource weight of cpu not in valid range (0, 100]",
    );
    fit(json!({"kind": "NodeAffinityArgs"}), "kind", "must be NodeResourcesFitArgs");
    let balance = |value, path, problem| one("NodeResourcesBalancedAllocation", value, path, problem);
    balance(json!({"resources": [{"name": "cpu", "weight": 2}]}), "resources[0].weight", "must be 1");
    let twice = json!({"resources": [{"name": "cpu"}, {"name": "cpu"}]});
    balance(twice, "resources[1].name", "cpu is named twice");
}

#[test]
fn a_shape_rises_and_belongs_to_its_strategy() {
    let fit = |value, path: &str, problem| one("NodeResourcesFit", value, path, problem);
    let ratio = "scoringStrategy.requestedToCapacityRatio";
    fit(
        json!({"scoringStrategy": {"type": "RequestedToCapacityRatio"}}),
        ratio,
        "must be specified when type is RequestedToCapacityRatio",
    );
    fit(
        json!({"scoringStrategy": {"type": "LeastAllocated", "requestedToCapacityRatio": {}}}),
        ratio,
        "must be nil when type is not RequestedToCapacityRatio",
    );
    let shape = |points: &[(i64, i64)]| {
        let points: Vec<_> = points.iter().map(|(u, s)| json!({"utilization": u, "score": s})).collect();
        json!({"scoringStrategy":
            {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": points}}})
    };
    fit(shape(&[]), &format!("{ratio}.shape"), "at least one point must be specified");
    let rising = "values must be sorted in increasing order";
    fit(shape(&[(5, 1), (5, 2)]), &format!("{ratio}.shape[1].utilization"), rising);
    fit(shape(&[(0, 11)]), &format!("{ratio}.shape[0].score"), "not in valid range [0, 10]");
}

#[test]
fn other_arguments_are_checked_as_upstream_checks_them() {
    one(
        "InterPodAffinity",
        json!({"hardPodAffinityWeight": 101}),
        "hardPodAffinityWeight",
        "not in valid range [0, 100]",
    );
    let negative = "should not be a negative value";
    one("VolumeBinding", json!({"bindTimeoutSeconds": -1}), "bindTimeoutSeconds", negative);
    one(
        "DefaultPreemption",
        json!({"minCandidateNodesAbsolute": -1}),
        "minCandidateNodesAbsolute",
        "not in valid range [0, inf)",
    );
    let near = json!([{"matchExpressions": [{"key": "a", "operator": "Near"}]}]);
    one(
        "NodeAffinity",
        json!({"addedAffinity":
            {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": near}}}),
        "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]",
        "is no valid term of a node selector",
    );
}

#[test]
fn default_constraints_have_no_selector_and_do_not_repeat() {
    let at = AT;
    let list = |constraints: Value| {
        args("PodTopologySpread", json!({"defaultingType": "List", "defaultConstraints": constraints}))
    };
    let zone = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"});
    check(list(json!([])), &[]);
    check(
        args("PodTopologySpread", json!({"defaultConstraints": [zone]})),
        &[&format!("{at}.defaultingType: must be List when .defaultConstraints are not empty")],
    );
    check(
        list(json!([zone, zone])),
        &[&format!("{at}.defaultConstraints[1]: repeats the topologyKey and whenUnsatisfiable of another")],
    );
    check(
        list(
            json!([{"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}]),
        ),
        &[
            &format!("{at}.defaultConstraints[0].maxSkew: not in valid range (0, inf)"),
            &format!(
                "{at}.defaultConstraints[0].labelSelector: constraint must not define a selector, as they deduced for each pod"
            ),
        ],
    );
}

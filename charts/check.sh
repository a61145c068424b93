#!/bin/sh
# Checks the charts: lint, schemas, permissions, selectors, values of older releases, and the output per preset
# against charts/testdata.
#
#   HELM=path/to/helm charts/check.sh      compare
#   UPDATE=1 charts/check.sh               accept the output as it is now
set -eu

HELM=${HELM:-helm}
HERE=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
trap 'exit 130' INT TERM
# No repository, plugin or setting of this machine has a say.
export HELM_CACHE_HOME="$WORK/helm/cache" HELM_CONFIG_HOME="$WORK/helm/config" HELM_DATA_HOME="$WORK/helm/data"

UMBRELLA=multicluster-scheduler
COMPONENTS="webhook proxy-scheduler candidate-scheduler chaperon-controller feedback-controller follow-controller virtual-kubelet source-controller cluster-provisioner"
PRESETS="all source target ha"

faults=0
fault() {
  faults=$((faults + 1))
  echo "error: $*" >&2
}

# render OUT CHART [ARGUMENTS…]: what helm would install, in OUT.
render() {
  rendered=$1
  subject=$2
  shift 2
  "$HELM" template multicluster-scheduler "$WORK/charts/$subject" --namespace multicluster-scheduler "$@" >"$rendered" 2>"$WORK/errors"
}

# accepts NAME CHART [ARGUMENTS…]: helm renders it; the output is in $WORK/out.
accepts() {
  name=$1
  shift
  if ! render "$WORK/out" "$@"; then
    fault "$name: refused: $(cat "$WORK/errors")"
    return 1
  fi
}

# refuses NAME PATTERN CHART [ARGUMENTS…]: helm does not render it and says why.
refuses() {
  name=$1
  pattern=$2
  shift 2
  if render "$WORK/out" "$@"; then
    fault "$name: accepted"
  elif ! grep -q -e "$pattern" "$WORK/errors"; then
    fault "$name: refused without the words '$pattern': $(cat "$WORK/errors")"
  fi
}

# has NAME TEXT: the line is in the last accepted output.
has() {
  grep -q -F -x -e "$2" "$WORK/out" || fault "$1: no line '$2'"
}

# cluster_scoped FILE: kind and name of each object without a namespace.
cluster_scoped() {
  awk '
    function flush() { if (kind != "" && namespace == "") print kind, name; kind = name = namespace = ""; meta = 0 }
    /^---/ { flush() }
    /^kind:/ { kind = $2 }
    /^[a-z]/ { meta = ($1 == "metadata:") }
    meta && /^  name:/ { name = $2 }
    meta && /^  namespace:/ { namespace = $2 }
    END { flush() }' "$1" | sort
}

build() {
  mkdir "$WORK/charts"
  for chart in common crds $COMPONENTS $UMBRELLA; do
    cp -R "$HERE/$chart" "$WORK/charts/$chart"
    rm -rf "$WORK/charts/$chart/charts" "$WORK/charts/$chart/Chart.lock"
  done
  for chart in $COMPONENTS $UMBRELLA; do
    "$HELM" dependency build "$WORK/charts/$chart" >"$WORK/errors" 2>&1 || fault "$chart: dependencies: $(cat "$WORK/errors")"
  done
}

lint() {
  for chart in crds $COMPONENTS $UMBRELLA; do
    "$HELM" lint --strict --quiet "$WORK/charts/$chart" >"$WORK/errors" 2>&1 || fault "$chart: lint: $(cat "$WORK/errors")"
  done
}

# A component needs no umbrella, and two releases have no name in common.
alone() {
  for chart in $COMPONENTS; do
    accepts "$chart alone" "$chart" || continue
    has "$chart alone" "  name: multicluster-$chart"
    for release in one two; do
      "$HELM" template "$release" "$WORK/charts/$chart" --namespace "$release" >"$WORK/$release"
      cluster_scoped "$WORK/$release" >"$WORK/$release.names"
    done
    [ -s "$WORK/one.names" ] || fault "$chart alone: has no object without namespace; the comparison says nothing"
    shared=$(comm -12 "$WORK/one.names" "$WORK/two.names")
    [ -z "$shared" ] || fault "$chart: two releases both have $shared"
  done
}

# Each Service, budget and policy selects the pods of exactly one Deployment, its own, and the Service's ports
# exist there (case 11).
selectors() {
  awk -v title="$1" '
    function flush(   i) {
      if (kind == "Deployment") { deployments[name] = labels; ports[name] = names }
      else if (kind ~ /^(Service|PodDisruptionBudget|NetworkPolicy|ServiceMonitor)$/) {
        kinds[++count] = kind; owners[count] = name; selects[count] = selector; targets[count] = wanted
      }
      kind = name = labels = names = selector = wanted = path = ""
    }
    # The path of keys to this line, by indentation; items of a list keep the path of the list.
    {
      if ($0 ~ /^---/) { flush(); next }
      if ($0 ~ /^ *#/ || $0 ~ /^ *$/) next
      match($0, /^ */); depth = RLENGTH
      text = substr($0, depth + 1)
      while (level > 0 && indents[level] >= depth) level--
      key = text; sub(/:.*/, "", key)
      value = text; sub(/^[^:]*: */, "", value)
      level++; indents[level] = depth; keys[level] = key
      path = ""
      for (i = 1; i <= level; i++) path = path "|" keys[i]
    }
    path == "|kind" { kind = value }
    path == "|metadata|name" { name = value }
    kind == "Deployment" && path ~ /^[|]spec[|]template[|]metadata[|]labels[|][^|]*$/ { labels = labels "\n" key "=" value "\n" }
    kind == "Deployment" && path ~ /[|]ports[|]- name$/ { names = names "\n" value "\n" }
    kind == "Service" && path ~ /^[|]spec[|]selector[|][^|]*$/ { selector = selector "\n" key "=" value }
    kind == "Service" && key == "targetPort" { wanted = wanted " " value }
    kind != "Service" && path ~ /^[|]spec[|](podSelector|selector)[|]matchLabels[|][^|]*$/ { selector = selector "\n" key "=" value }
    END {
      flush()
      for (i = 1; i <= count; i++) {
        what = title ": " kinds[i] " " owners[i]
        parts = split(selects[i], pairs, "\n"); matched = 0
        if (parts < 2) { print what " selects by no label"; continue }
        for (deployment in deployments) {
          all = 1
          for (p = 2; p <= parts; p++) if (!index(deployments[deployment], "\n" pairs[p] "\n")) all = 0
          if (all) { matched++; if (deployment != owners[i]) print what " selects the pods of " deployment }
        }
        if (kinds[i] != "ServiceMonitor" && matched != 1) print what " selects the pods of " matched " Deployments"
        n = split(targets[i], list, " ")
        for (p = 1; p <= n; p++) if (!index(ports[owners[i]], "\n" list[p] "\n")) print what " leads to no port " list[p]
        if (kinds[i] == "Service") services++
      }
      if (services == 0) print title ": no Service at all"
    }' "$2" >"$WORK/selectors"
  while read -r line; do fault "$line"; done <"$WORK/selectors"
}

# Every rule has its reason in the line before it and names what it allows.
permissions() {
  for file in "$HERE"/*/templates/*.yaml "$HERE"/common/templates/*.tpl; do
    awk -v file="${file#"$HERE"/}" '
      /^ *- apiGroups:/ && before !~ /^ *# .*[.]$/ && !webhook { print file ":" NR ": a rule without a reason" }
      /^kind: .*WebhookConfiguration/ || /define "webhook.pods"/ { webhook = 1 }
      /(apiGroups|resources|verbs|nonResourceURLs):.*\*/ { print file ":" NR ": a rule for everything" }
      { before = $0 }' "$file"
  done >"$WORK/rules"
  while read -r line; do fault "$line"; done <"$WORK/rules"
}

# Every value has its sentence, or its parent has.
described() {
  for file in "$HERE"/*/values.yaml; do
    awk -v file="${file#"$HERE"/}" '
      /^ *#/ || /^ *$/ || /^ *- / { before = $0; next }
      {
        match($0, /^ */); depth = RLENGTH
        if (depth <= covered) covered = -1
        if (before ~ /^ *#/ && covered < 0) covered = depth
        else if (covered < 0 && $0 !~ /^[ A-Za-z-]*:$/) print file ":" NR ": a value without a sentence"
        before = $0
      }
      BEGIN { covered = -1 }' "$file"
  done >"$WORK/values"
  while read -r line; do fault "$line"; done <"$WORK/values"
}

# Schemas of components differ in what is the component's own, and in nothing else.
schemas() {
  first=
  for chart in $COMPONENTS; do
    awk '/"config": \{/ { exit } !/older release|"certDir"/' "$HERE/$chart/values.schema.json" >"$WORK/$chart.schema"
    first=${first:-$chart}
    cmp -s "$WORK/$first.schema" "$WORK/$chart.schema" || fault "values.schema.json of $first and $chart differ before config"
  done
  refuses "an unknown key" "additional properties 'unknown' not allowed" $UMBRELLA --set unknown=1
  refuses "an unknown global key" "additional properties 'unknown' not allowed" $UMBRELLA --set global.unknown=1
  refuses "an unknown role key" "additional properties 'unknown' not allowed" $UMBRELLA --set sourceRoles.unknown=1
  for chart in $COMPONENTS; do
    for key in unknown image.unknown log.unknown metrics.unknown pdb.unknown networkPolicy.unknown config.unknown; do
      refuses "$chart: $key" "additional properties 'unknown' not allowed" "$chart" --set "$key=1"
      refuses "$chart.$key" "additional properties 'unknown' not allowed" $UMBRELLA --set "$chart.enabled=true,$chart.$key=1"
    done
    refuses "$chart: replicas in words" "replicas" "$chart" --set-string replicas=two
    refuses "$chart: a log format that does not exist" "format" "$chart" --set log.format=xml
  done
}

# Values of older releases are accepted, or refused in words that say what to set.
older() {
  accepts "defaults of older releases" $UMBRELLA --set-json 'debug={"controllerManager":false},targets=[],targetSelf=false,nameOverride="",fullnameOverride=""' || :
  accepts "clusterName" $UMBRELLA --set clusterName=east && has "clusterName" '  clusterName: "east"'
  accepts "global.clusterName" $UMBRELLA --set clusterName=east,global.clusterName=west && has "global.clusterName" '              value: "west"'
  accepts "sourceController.enabled" $UMBRELLA --set sourceController.enabled=false
  ! grep -q 'name: multicluster-source-controller' "$WORK/out" || fault "sourceController.enabled=false: the source-controller is still there"
  accepts "webhook.reinvocationPolicy" $UMBRELLA --set webhook.reinvocationPolicy=Never && has "webhook.reinvocationPolicy" '    reinvocationPolicy: Never'
  while IFS='|' read -r setting pattern; do
    refuses "$setting" "$pattern" $UMBRELLA --set "$setting"
  done <<'END'
nameOverride=a|nameOverride: remove it
fullnameOverride=a|fullnameOverride: set global.fullnameOverride to a
imagePullSecretName=a|imagePullSecretName: set global.imagePullSecrets to
controllerManager.replicas=3|controllerManager.replicas: set webhook.replicas, feedback-controller.replicas
controllerManager.image.tag=a|controllerManager.image: set .* or for all components global.registry and global.image.tag
controllerManager.resources.limits.cpu=1|controllerManager.resources: set webhook.resources
controllerManager.nodeSelector.a=b|or for all components global.nodeSelector
controllerManager.affinity.a=b|controllerManager.affinity: set webhook.affinity
controllerManager.tolerations[0].key=a|or for all components global.tolerations
controllerManager.securityContext.runAsUser=1|controllerManager.securityContext: remove it
controllerManager.certificateSignerName=a|controllerManager.certificateSignerName: set virtual-kubelet.config.kubelet.signerName to a
scheduler.replicas=3|scheduler.replicas: set proxy-scheduler.replicas, candidate-scheduler.replicas
scheduler.image.repository=a|scheduler.image: set proxy-scheduler.image
postDeleteJob.image.tag=a|postDeleteJob: remove it
restarter.replicas=1|restarter: remove it
debug.controllerManager=true|debug.controllerManager: set enabled to false
debug.proxyScheduler=true|debug.proxyScheduler: set proxy-scheduler.enabled to false
debug.candidateScheduler=true|debug.candidateScheduler: set candidate-scheduler.enabled to false
debug.restarter=true|debug.restarter: remove it
targetSelf=true|targetSelf: apply a ClusterTarget with spec.self: true
targets[0].name=c2,targets[0].secretName=c2|targets: c2: apply a ClusterTarget
targets[0].name=c2,targets[0].namespaced=true|targets: c2: apply a Target
webhook.port=9443|webhook.port: remove it
webhook.certDir=/tmp|webhook.certDir: remove it
END
}

# Definitions survive an uninstall (case 52).
definitions() {
  accepts "definitions" crds || return
  kinds=$(grep -c '^kind: CustomResourceDefinition' "$WORK/out")
  kept=$(grep -c '^    helm.sh/resource-policy: keep' "$WORK/out")
  if [ "$kinds" -ne 12 ] || [ "$kept" -ne 12 ]; then fault "$kinds definitions, of which $kept are kept; twelve of each are wanted"; fi
  accepts "crds.enabled=false" $UMBRELLA --set crds.enabled=false
  ! grep -q '^kind: CustomResourceDefinition' "$WORK/out" || fault "crds.enabled=false: the definitions are still there"
}

images() {
  digest=sha256:0000000000000000000000000000000000000000000000000000000000000000
  accepts "image names alone" webhook --set global.image.tag=dev && has "image" '          image: multicluster-webhook:dev'
  accepts "image of a registry" webhook --set global.registry=r.example/team/ && has "image" '          image: r.example/team/multicluster-webhook:0.1.0'
  accepts "image by digest" webhook --set image.digest=$digest,image.tag=a,image.repository=b && has "image" "          image: b:a@$digest"
  refuses "a digest that is none" digest webhook --set image.digest=sha256:0
}

# Settings for all components reach all, and those that would break the selection of pods reach none.
placement() {
  accepts "placement" $UMBRELLA --set-json 'global={"nodeSelector":{"a":"b"},"tolerations":[{"key":"k","operator":"Exists"}],"imagePullSecrets":[{"name":"s"}]}'
  for line in '        a: b' '        - key: k' '        - name: s'; do
    count=$(grep -c -F -x -e "$line" "$WORK/out")
    [ "$count" -eq 8 ] || fault "placement: '$line' is there $count times, not 8"
  done
  accepts "labels of pods" $UMBRELLA --set 'webhook.podLabels.app\.kubernetes\.io/component=proxy-scheduler,webhook.networkPolicy.enabled=true'
  selectors "labels of pods" "$WORK/out"
  accepts "everything optional" $UMBRELLA --set webhook.networkPolicy.enabled=true,webhook.metrics.serviceMonitor.enabled=true,webhook.config.certManager.enabled=true,priorityClassQuota.enabled=true
  selectors "everything optional" "$WORK/out"
}

# An ordinary cluster's second scheduler has profiles, and no rights for a target.
profiles() {
  accepts "profiles" candidate-scheduler --set 'config.profiles={a,b},config.chaperons=off,config.scheduler.kind=KubeSchedulerConfiguration'
  for line in '            - "--profile=a"' '            - "--profile=b"' '            - "--chaperons=off"' \
    '            - "--config=/etc/scheduler/config.yaml"' '    kind: KubeSchedulerConfiguration'; do
    has "profiles" "$line"
  done
  ! grep -q 'podchaperons' "$WORK/out" || fault "profiles: rights for PodChaperons although they are off"
  selectors "profiles" "$WORK/out"
  has "profiles" '    resources: [persistentvolumeclaims, persistentvolumes]'
  accepts "no profiles" candidate-scheduler
  has "no profiles" '    resources: [persistentvolumeclaims, persistentvolumes]'
}

# preset_arguments PRESET: which values files a preset is.
preset_arguments() {
  case $1 in
    ha) echo "--values $WORK/charts/$UMBRELLA/values-all.yaml --values $WORK/charts/$UMBRELLA/values-ha.yaml" ;;
    *) echo "--values $WORK/charts/$UMBRELLA/values-$1.yaml" ;;
  esac
}

# The output per preset, one file per chart; definitions are reviewed where they are generated.
goldens() {
  mkdir "$WORK/testdata"
  for preset in $PRESETS; do
    # shellcheck disable=SC2046 # The arguments are words.
    accepts "preset $preset" $UMBRELLA --set crds.enabled=false $(preset_arguments "$preset") || continue
    selectors "preset $preset" "$WORK/out"
    mkdir "$WORK/testdata/$preset"
    awk -v folder="$WORK/testdata/$preset" '
      /^---/ { next }
      /^# Source: / { n = split($3, path, "/"); file = folder "/" (n > 3 ? path[3] : path[1]) ".yaml"; print "---" > file; next }
      file != "" { print > file }' "$WORK/out"
  done
  render "$WORK/defaults" $UMBRELLA --set crds.enabled=false || fault "defaults: refused"
  # shellcheck disable=SC2046 # The arguments are words.
  render "$WORK/all" $UMBRELLA --set crds.enabled=false $(preset_arguments all) || fault "preset all: refused"
  cmp -s "$WORK/defaults" "$WORK/all" || fault "values-all.yaml and the defaults give different output"
  if [ -n "${UPDATE:-}" ]; then
    rm -rf "$HERE/testdata"
    cp -R "$WORK/testdata" "$HERE/testdata"
    echo "accepted: charts/testdata"
  elif ! diff -r -u "$HERE/testdata" "$WORK/testdata" >"$WORK/difference"; then
    cat "$WORK/difference" >&2
    fault "the output differs from charts/testdata; review it and run UPDATE=1 charts/check.sh"
  fi
}

build
for check in lint alone permissions described schemas older definitions images placement profiles goldens; do
  $check
done
if [ "$faults" -gt 0 ]; then
  echo "charts: $faults faults" >&2
  exit 1
fi
echo "charts: good"

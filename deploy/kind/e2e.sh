#!/bin/sh
# Runs the end-to-end tests on kind: makes a source and two targets, loads the images, and hands the tests the
# three kubeconfigs. The clusters are deleted at the end, also after a failure, unless KEEP=1.
set -eu

TAG=${TAG:-0.1.0}
CLUSTERS="source target-1 target-2"
SERVICES="webhook proxy-scheduler candidate-scheduler chaperon-controller feedback-controller follow-controller virtual-kubelet source-controller"

for tool in docker kind; do
  command -v "$tool" > /dev/null || { echo "error: $tool is missing; it is needed only for make e2e-kind" >&2; exit 1; }
done

cd "$(dirname "$0")/../.."
work=$(mktemp -d)

clean() {
  if [ "${KEEP:-0}" != 1 ]; then
    for cluster in $CLUSTERS; do
      kind delete cluster --name "$cluster" || true
    done
    rm -rf "$work"
  fi
}
trap clean EXIT
trap 'exit 130' INT TERM

for service in $SERVICES; do
  docker buildx build --load -f deploy/images/Dockerfile --build-arg "BIN=$service" -t "multicluster-$service:$TAG" .
done

kubeconfigs=""
for cluster in $CLUSTERS; do
  case "$cluster" in
    source) config=deploy/kind/source.yaml ;;
    *) config=deploy/kind/target.yaml ;;
  esac
  kind create cluster --name "$cluster" --config "$config" --kubeconfig "$work/$cluster"
  for service in $SERVICES; do
    kind load docker-image --name "$cluster" "multicluster-$service:$TAG"
  done
  kubeconfigs="$kubeconfigs,$cluster=$work/$cluster"
done

MULTICLUSTER_E2E_KUBECONFIGS=${kubeconfigs#,} cargo test --profile e2e --workspace --test e2e

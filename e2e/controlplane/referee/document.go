package referee

import (
	"encoding/json"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	strictjson "sigs.k8s.io/json"
)

// document is a cluster at one moment, and the pods to be judged in it.
type document struct {
	Name string `json:"name,omitempty"`
	// Config is a KubeSchedulerConfiguration; absent means upstream's defaults.
	Config json.RawMessage `json:"config,omitempty"`
	// Sequence and Preempt are as the flags of these names, for this document.
	Sequence bool `json:"sequence,omitempty"`
	Preempt  bool `json:"preempt,omitempty"`
	// Live lets controllers answer and evicted pods go in a sequence.
	Live bool `json:"live,omitempty"`

	// Nodes are added to the scheduler's cache in this order.
	Nodes []*corev1.Node `json:"nodes,omitempty"`
	// Pods with a node are placed there, pods with status.nominatedNodeName alone are nominated.
	Pods                   []*corev1.Pod                   `json:"pods,omitempty"`
	Namespaces             []*corev1.Namespace             `json:"namespaces,omitempty"`
	Services               []*corev1.Service               `json:"services,omitempty"`
	ReplicationControllers []*corev1.ReplicationController `json:"replicationControllers,omitempty"`
	ReplicaSets            []*appsv1.ReplicaSet            `json:"replicaSets,omitempty"`
	StatefulSets           []*appsv1.StatefulSet           `json:"statefulSets,omitempty"`
	PodDisruptionBudgets   []*policyv1.PodDisruptionBudget `json:"podDisruptionBudgets,omitempty"`

	PersistentVolumeClaims []*corev1.PersistentVolumeClaim `json:"persistentVolumeClaims,omitempty"`
	PersistentVolumes      []*corev1.PersistentVolume      `json:"persistentVolumes,omitempty"`
	StorageClasses         []*storagev1.StorageClass       `json:"storageClasses,omitempty"`
	CSINodes               []*storagev1.CSINode            `json:"csiNodes,omitempty"`
	CSIDrivers             []*storagev1.CSIDriver          `json:"csiDrivers,omitempty"`
	CSIStorageCapacities   []*storagev1.CSIStorageCapacity `json:"csiStorageCapacities,omitempty"`
	VolumeAttachments      []*storagev1.VolumeAttachment   `json:"volumeAttachments,omitempty"`

	ResourceClaims   []*resourcev1.ResourceClaim   `json:"resourceClaims,omitempty"`
	ResourceSlices   []*resourcev1.ResourceSlice   `json:"resourceSlices,omitempty"`
	DeviceClasses    []*resourcev1.DeviceClass     `json:"deviceClasses,omitempty"`
	DeviceTaintRules []*resourcev1.DeviceTaintRule `json:"deviceTaintRules,omitempty"`

	Pending []*corev1.Pod `json:"pending,omitempty"`
}

// parse reads one document. A field that the API does not know is an error, because nobody would look at it.
func parse(line []byte) (*document, error) {
	doc := &document{}
	faults, err := strictjson.UnmarshalStrict(line, doc)
	if err != nil {
		return nil, err
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return doc, doc.complete()
}

// nameOf finds the name of a document that cannot be read as a whole.
func nameOf(line []byte) string {
	var named struct {
		Name string `json:"name"`
	}
	if json.Unmarshal(line, &named) != nil {
		return ""
	}
	return named.Name
}

// complete gives objects the identity that every object from an API server has.
func (d *document) complete() error {
	seen := map[types.UID]bool{}
	for _, node := range d.Nodes {
		identify(node, "")
		if seen[node.UID] {
			return fmt.Errorf("two nodes have the UID %q", node.UID)
		}
		seen[node.UID] = true
	}
	for _, list := range [][]*corev1.Pod{d.Pods, d.Pending} {
		for _, pod := range list {
			identify(pod, metav1.NamespaceDefault)
			if seen[pod.UID] {
				return fmt.Errorf("two objects have the UID %q", pod.UID)
			}
			seen[pod.UID] = true
			if pod.Spec.SchedulerName == "" {
				pod.Spec.SchedulerName = corev1.DefaultSchedulerName
			}
		}
	}
	identifyAll(d.Services, metav1.NamespaceDefault)
	identifyAll(d.ReplicationControllers, metav1.NamespaceDefault)
	identifyAll(d.ReplicaSets, metav1.NamespaceDefault)
	identifyAll(d.StatefulSets, metav1.NamespaceDefault)
	identifyAll(d.PodDisruptionBudgets, metav1.NamespaceDefault)
	identifyAll(d.PersistentVolumeClaims, metav1.NamespaceDefault)
	identifyAll(d.CSIStorageCapacities, metav1.NamespaceDefault)
	identifyAll(d.PersistentVolumes, "")
	for _, claim := range d.ResourceClaims {
		defaultClaim(claim)
	}
	return nil
}

func identifyAll[T metav1.Object](objects []T, namespace string) {
	for _, object := range objects {
		identify(object, namespace)
	}
}

func identify(object metav1.Object, namespace string) {
	if object.GetNamespace() == "" {
		object.SetNamespace(namespace)
	}
	if object.GetUID() == "" {
		object.SetUID(types.UID(object.GetNamespace() + "/" + object.GetName()))
	}
}

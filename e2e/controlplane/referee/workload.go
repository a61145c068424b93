package referee

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const benchNamespace = "bench"

// workload shapes the pods of a measurement: those that are there already, and those to be scheduled.
type workload struct {
	// change is applied to each pod; number counts up over both kinds.
	change func(pod *corev1.Pod, number int)
	// service adds a Service that selects the pods, and with it the system's default spread constraints.
	service bool
	// placedPerNode is how many pods each node has at the start.
	placedPerNode float64
}

var workloads = map[string]workload{
	"plain":        {placedPerNode: 1},
	"service":      {placedPerNode: 1, service: true},
	"spread":       {placedPerNode: 1, change: zoneSpread},
	"antiaffinity": {placedPerNode: 0.2, change: hostAntiAffinity},
	"prefaffinity": {placedPerNode: 1, change: preferredAffinity},
	"distinct":     {placedPerNode: 1, change: distinct},
}

func workloadNames() []string {
	var names []string
	for name := range workloads {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func selects(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

// zoneSpread asks for a hard spread over zones.
func zoneSpread(pod *corev1.Pod, _ int) {
	pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 5, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selects("app", "bench"),
	}}
}

// hostAntiAffinity asks for a node without another such pod.
func hostAntiAffinity(pod *corev1.Pod, _ int) {
	pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{LabelSelector: selects("app", "bench"), TopologyKey: corev1.LabelHostname}},
	}}
}

// preferredAffinity likes nodes that have such pods.
func preferredAffinity(pod *corev1.Pod, _ int) {
	pod.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 1,
			PodAffinityTerm: corev1.PodAffinityTerm{LabelSelector: selects("app", "bench"), TopologyKey: corev1.LabelHostname}}},
	}}
}

// distinct gives each pod requests, labels and selectors that no other pod has.
func distinct(pod *corev1.Pod, number int) {
	app := fmt.Sprintf("app-%d", number)
	pod.Labels = map[string]string{"app": app}
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(int64(50+number%150), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(int64(100<<20+number*4096), resource.BinarySI),
	}
	pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selects("app", app),
	}}
	pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 10,
			PodAffinityTerm: corev1.PodAffinityTerm{LabelSelector: selects("app", app), TopologyKey: corev1.LabelHostname}}},
	}}
}

// cluster makes a workload's document. Nothing in it is random.
func (w workload) cluster(name string, nodes, pending int) *document {
	doc := &document{Name: fmt.Sprintf("%s-%d", name, nodes)}
	doc.Namespaces = []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: benchNamespace}}}
	for i := range nodes {
		doc.Nodes = append(doc.Nodes, benchNode(i))
	}
	placed := int(float64(nodes) * w.placedPerNode)
	for i := range placed + pending {
		pod := benchPod(i)
		if w.change != nil {
			w.change(pod, i)
		}
		if i < placed {
			pod.Spec.NodeName = doc.Nodes[i%nodes].Name
			pod.Status.Phase = corev1.PodRunning
			doc.Pods = append(doc.Pods, pod)
		} else {
			doc.Pending = append(doc.Pending, pod)
		}
	}
	if w.service {
		doc.Services = []*corev1.Service{{
			ObjectMeta: metav1.ObjectMeta{Namespace: benchNamespace, Name: "bench"},
			Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "bench"}},
		}}
	}
	return doc
}

func benchNode(number int) *corev1.Node {
	name := fmt.Sprintf("node-%05d", number)
	room := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("8"),
		corev1.ResourceMemory: resource.MustParse("32Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname:           name,
			corev1.LabelTopologyZone:       fmt.Sprintf("zone-%d", number%3),
			corev1.LabelTopologyRegion:     "region",
			corev1.LabelArchStable:         "amd64",
			corev1.LabelOSStable:           "linux",
			corev1.LabelInstanceTypeStable: fmt.Sprintf("type-%d", number%5),
		}},
		Status: corev1.NodeStatus{Capacity: room, Allocatable: room},
	}
}

func benchPod(number int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: benchNamespace, Name: fmt.Sprintf("pod-%06d", number), Labels: map[string]string{"app": "bench"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: "registry.k8s.io/pause:3.10.2",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse("100m"),
				corev1.ResourceMemory: resource.MustParse("500Mi"),
			}},
		}}},
	}
}

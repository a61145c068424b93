package referee

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	schedulercache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
)

const defaultConfig = `{"apiVersion":"kubescheduler.config.k8s.io/v1","kind":"KubeSchedulerConfiguration"}`

// world is a whole upstream scheduler, made by its own constructor. Nothing runs in it: its informers are filled
// by hand, and its steps are called one by one.
type world struct {
	ctx       context.Context
	cancel    context.CancelFunc
	log       klog.Logger
	options   options
	client    *fake.Clientset
	informers informers.SharedInformerFactory
	snapshot  *schedulercache.Snapshot
	scheduler *scheduler.Scheduler
	// preemptors are the profiles' DefaultPreemption plugins.
	preemptors map[string]*defaultpreemption.DefaultPreemption

	preempt bool
	// writes are the updates of the pod whose PreBind runs.
	writes    []string
	nodes     []*corev1.Node
	placed    []*corev1.Pod
	nominated []*corev1.Pod
}

// silent swallows events.
type silent struct{}

func (silent) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}
func (s silent) WithLogger(klog.Logger) events.EventRecorderLogger                           { return s }

func decodeConfig(raw []byte) (*config.KubeSchedulerConfiguration, error) {
	if len(raw) == 0 {
		raw = []byte(defaultConfig)
	}
	object, kind, err := scheme.Codecs.UniversalDecoder().Decode(raw, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot read the configuration: %w", err)
	}
	cfg, right := object.(*config.KubeSchedulerConfiguration)
	if !right {
		return nil, fmt.Errorf("the configuration is a %s", kind)
	}
	return cfg, nil
}

func newWorld(parent context.Context, rawConfig []byte, opts options) (*world, error) {
	cfg, err := decodeConfig(rawConfig)
	if err != nil {
		return nil, err
	}
	w := &world{options: opts, snapshot: schedulercache.NewEmptySnapshot(), preemptors: map[string]*defaultpreemption.DefaultPreemption{}}
	w.ctx, w.cancel = context.WithCancel(parent)
	w.log = klog.FromContext(w.ctx)
	w.client = fake.NewClientset()
	w.informers = scheduler.NewInformerFactory(w.client, 0, nil)
	percentage := int32(100)
	if opts.adaptive {
		percentage = 0
	}
	w.scheduler, err = scheduler.New(w.ctx, w.client, w.informers, nil,
		func(string) events.EventRecorderLogger { return silent{} },
		scheduler.WithProfiles(cfg.Profiles...),
		scheduler.WithParallelism(cfg.Parallelism),
		scheduler.WithPercentageOfNodesToScore(&percentage),
		scheduler.WithNodeInfoSnapshot(w.snapshot))
	if err != nil {
		w.cancel()
		return nil, fmt.Errorf("cannot make a scheduler: %w", err)
	}
	for name, profile := range w.scheduler.Profiles {
		for _, plugin := range profile.PreEnqueuePlugins() {
			if preemptor, is := plugin.(*defaultpreemption.DefaultPreemption); is {
				w.preemptors[name] = preemptor
			}
		}
	}
	return w, nil
}

func (w *world) close() {
	w.cancel()
}

func put[T any](into cache.SharedIndexInformer, objects []T) error {
	list := make([]any, 0, len(objects))
	for _, object := range objects {
		list = append(list, object)
	}
	return into.GetIndexer().Replace(list, "1")
}

// fill shows the objects of a document to the scheduler's listers.
func (w *world) fill(d *document, pods []*corev1.Pod) error {
	core, apps, storage := w.informers.Core().V1(), w.informers.Apps().V1(), w.informers.Storage().V1()
	for _, err := range []error{
		put(core.Nodes().Informer(), d.Nodes),
		put(core.Pods().Informer(), pods),
		put(core.Namespaces().Informer(), d.Namespaces),
		put(core.Services().Informer(), d.Services),
		put(core.ReplicationControllers().Informer(), d.ReplicationControllers),
		put(apps.ReplicaSets().Informer(), d.ReplicaSets),
		put(apps.StatefulSets().Informer(), d.StatefulSets),
		put(w.informers.Policy().V1().PodDisruptionBudgets().Informer(), d.PodDisruptionBudgets),
		put(core.PersistentVolumeClaims().Informer(), d.PersistentVolumeClaims),
		put(core.PersistentVolumes().Informer(), d.PersistentVolumes),
		put(storage.StorageClasses().Informer(), d.StorageClasses),
		put(storage.CSINodes().Informer(), d.CSINodes),
		put(storage.CSIDrivers().Informer(), d.CSIDrivers),
		put(storage.CSIStorageCapacities().Informer(), d.CSIStorageCapacities),
		put(storage.VolumeAttachments().Informer(), d.VolumeAttachments),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// load makes the document's cluster the scheduler's world.
func (w *world) load(d *document) error {
	w.preempt = d.Preempt || w.options.preempt
	var known []*corev1.Pod
	for _, pod := range d.Pods {
		if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			known = append(known, pod)
		}
	}
	if err := w.fill(d, append(append([]*corev1.Pod{}, known...), d.Pending...)); err != nil {
		return err
	}
	for _, node := range d.Nodes {
		w.scheduler.Cache.AddNode(w.log, node)
		w.nodes = append(w.nodes, node)
	}
	for _, pod := range known {
		switch {
		case pod.Spec.NodeName != "":
			if err := w.scheduler.Cache.AddPod(w.log, pod); err != nil {
				return err
			}
			w.placed = append(w.placed, pod)
		case pod.Status.NominatedNodeName != "":
			w.scheduler.SchedulingQueue.Add(w.ctx, pod)
			w.nominated = append(w.nominated, pod)
		}
	}
	return w.scheduler.Cache.UpdateSnapshot(w.log, w.snapshot)
}

// unload empties the world again.
func (w *world) unload() {
	for _, pod := range w.nominated {
		w.scheduler.SchedulingQueue.Delete(w.log, pod)
	}
	var faults []error
	for _, pod := range w.placed {
		faults = append(faults, w.scheduler.Cache.RemovePod(w.log, pod))
	}
	for _, node := range w.nodes {
		faults = append(faults, w.scheduler.Cache.RemoveNode(w.log, node))
	}
	w.nodes, w.placed, w.nominated = nil, nil, nil
	faults = append(faults, w.scheduler.Cache.UpdateSnapshot(w.log, w.snapshot))
	for _, fault := range faults {
		if fault != nil {
			panic(fmt.Sprintf("cannot empty the scheduler's cache: %v", fault))
		}
	}
}

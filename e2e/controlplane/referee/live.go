package referee

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/storage/volume"
	fwk "k8s.io/kube-scheduler/framework"
)

// Seen are objects that others have written since the answer before.
type Seen struct {
	PersistentVolumes      []*corev1.PersistentVolume      `json:"persistentVolumes,omitempty"`
	PersistentVolumeClaims []*corev1.PersistentVolumeClaim `json:"persistentVolumeClaims,omitempty"`
}

// patience is how long PreBind may wait for the controllers: it looks once, after a second.
const patience = 1200 * time.Millisecond

// live is the rest of a cluster in which a sequence is played: a volume controller with provisioners, which answers
// or does not, and pods that go, or take their time, when they are evicted.
//
// What it does with an object follows from the object's name alone.
type live struct {
	*world
	mu sync.Mutex
	// version is the last resource version that was given out.
	version int
	// written are the objects that PreBind has written and that the controller has not looked at.
	written []runtime.Object
	// again is set when PreBind runs for the second time, to look at what came of its writes.
	again    bool
	bindings []*binding
	// pods are those that have a node, by namespace and name, as the scheduler's cache knows them.
	pods map[string]*corev1.Pod
	// waits is the node for which a pod waits, by namespace and name.
	waits map[string]string
	gone  map[string]bool
}

// binding is a pod whose claims are being bound.
type binding struct {
	*cycle
	placed *corev1.Pod
}

func key(object metav1.Object) string {
	return object.GetNamespace() + "/" + object.GetName()
}

// fate is a number below bound that follows from a name.
func fate(name string, bound uint32) uint32 {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(name))
	return sum.Sum32() % bound
}

// playLive schedules the pending pods one after another, then once more those that are not placed.
func (w *world) playLive(doc *document) []*Answer {
	l := &live{world: w, pods: map[string]*corev1.Pod{}, waits: map[string]string{}, gone: map[string]bool{}}
	for _, pod := range w.placed {
		l.pods[key(pod)] = pod
	}
	for _, pod := range doc.Pending {
		if node := pod.Status.NominatedNodeName; node != "" {
			l.waits[key(pod)] = node
		}
	}
	w.client.PrependReactor("update", "*", l.write)
	var answers []*Answer
	order := byPriority(doc.Pending)
	for range 2 {
		for _, pod := range order {
			if l.gone[key(pod)] {
				continue
			}
			answer := l.try(l.current(pod))
			answer.Document = doc.Name
			answers = append(answers, answer)
		}
		if err := l.settle(); err != nil && len(answers) > 0 {
			answers[len(answers)-1].fail(broken, err)
		}
		order = slices.DeleteFunc(order, func(pod *corev1.Pod) bool { return l.pods[key(pod)] != nil })
	}
	if len(answers) > 0 {
		answers[len(answers)-1].Last = true
	}
	return answers
}

// current is a pending pod as the API has it by now.
func (l *live) current(pod *corev1.Pod) *corev1.Pod {
	if node := l.waits[key(pod)]; node != pod.Status.NominatedNodeName {
		pod = pod.DeepCopy()
		pod.Status.NominatedNodeName = node
	}
	return pod
}

// try is one scheduling cycle, and what others do about it.
func (l *live) try(pod *corev1.Pod) *Answer {
	answer, cycle := l.judge(pod)
	var err error
	switch {
	case answer.Verdict == schedulable:
		err = l.assume(cycle)
	case answer.Preemption == nil:
	case len(answer.Preemption.Best) > 0:
		err = l.makeRoom(answer.Preemption, pod)
	case answer.Preemption.gives:
		err = l.waitFor(pod, "")
	}
	if err == nil {
		err = l.scheduler.Cache.UpdateSnapshot(l.log, l.snapshot)
	}
	if err != nil {
		answer.fail(broken, err)
	}
	return answer
}

// assume places the pod, writes what its claims need, and lets the controller answer.
func (l *live) assume(c *cycle) error {
	if err := c.assume(c.answer.Best[0]); err != nil {
		return err
	}
	placed := c.pod.DeepCopy()
	placed.Spec.NodeName = c.answer.Node
	l.pods[key(placed)] = placed
	if err := l.waitFor(c.pod, ""); err != nil {
		return err
	}
	if !c.binds {
		return l.scheduler.Cache.AddPod(l.log, placed)
	}
	l.bindings = append(l.bindings, &binding{cycle: c, placed: placed})
	seen := &Seen{}
	for _, object := range l.written {
		if err := l.control(object, c.answer.Node, seen); err != nil {
			return err
		}
	}
	l.written = nil
	c.answer.Seen = seen
	return nil
}

// next gives an object a version of its own.
func (l *live) next(object metav1.Object) {
	l.version++
	object.SetResourceVersion(strconv.Itoa(l.version))
}

// write is the API server's part in an update.
func (l *live) write(action clienttesting.Action) (bool, runtime.Object, error) {
	update, is := action.(clienttesting.UpdateAction)
	if !is {
		return false, nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.again {
		// It was written already: what is there now is the answer.
		object, err := l.stored(update.GetObject())
		return true, object, err
	}
	object := update.GetObject().DeepCopyObject()
	l.writes = append(l.writes, describe(object))
	accessor, err := meta.Accessor(object)
	if err != nil {
		return true, nil, err
	}
	l.next(accessor)
	l.written = append(l.written, object)
	return true, object.DeepCopyObject(), nil
}

func (l *live) stored(object runtime.Object) (runtime.Object, error) {
	core := l.informers.Core().V1()
	switch known := object.(type) {
	case *corev1.PersistentVolume:
		return core.PersistentVolumes().Lister().Get(known.Name)
	case *corev1.PersistentVolumeClaim:
		return core.PersistentVolumeClaims().Lister().PersistentVolumeClaims(known.Namespace).Get(known.Name)
	default:
		return nil, fmt.Errorf("a %T is not known", object)
	}
}

// control is the volume controller's answer to a write.
func (l *live) control(object runtime.Object, node string, seen *Seen) error {
	switch written := object.(type) {
	case *corev1.PersistentVolume:
		claim := written.Spec.ClaimRef
		return l.bindTo(written, claim.Namespace, claim.Name, seen)
	case *corev1.PersistentVolumeClaim:
		return l.provision(written, node, seen)
	default:
		return fmt.Errorf("a %T was written", object)
	}
}

// bindTo binds the claim to a volume that was written for it: or not yet, or it takes the volume away again.
func (l *live) bindTo(written *corev1.PersistentVolume, namespace, name string, seen *Seen) error {
	stored, err := l.informers.Core().V1().PersistentVolumeClaims().Lister().PersistentVolumeClaims(namespace).Get(name)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	switch outcome := fate(written.Name, 6); {
	case outcome == 4 || stored == nil:
	case outcome == 5:
		written.Spec.ClaimRef = nil
		l.next(written)
	default:
		written.Status.Phase = corev1.VolumeBound
		l.next(written)
		claim := stored.DeepCopy()
		l.complete(claim, written.Name)
		seen.PersistentVolumeClaims = append(seen.PersistentVolumeClaims, claim)
	}
	seen.PersistentVolumes = append(seen.PersistentVolumes, written)
	return l.show(seen)
}

// complete binds a claim to a volume.
func (l *live) complete(claim *corev1.PersistentVolumeClaim, name string) {
	claim.Spec.VolumeName = name
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, volume.AnnBindCompleted, "yes")
	claim.Status.Phase = corev1.ClaimBound
	l.next(claim)
}

// provision makes a volume for a claim for which a node was selected: or not yet, or it refuses, or it makes it where
// the node cannot reach it.
func (l *live) provision(claim *corev1.PersistentVolumeClaim, node string, seen *Seen) error {
	outcome := fate(claim.Name, 6)
	switch outcome {
	case 3:
		delete(claim.Annotations, volume.AnnSelectedNode)
		// What upstream sees of a claim without any annotation is another sentence.
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, "refused", "yes")
		l.next(claim)
	case 4:
	default:
		made, err := l.volumeFor(claim, node, outcome == 5)
		if err != nil {
			return err
		}
		l.complete(claim, made.Name)
		seen.PersistentVolumes = append(seen.PersistentVolumes, made)
	}
	seen.PersistentVolumeClaims = append(seen.PersistentVolumeClaims, claim)
	return l.show(seen)
}

func (l *live) volumeFor(claim *corev1.PersistentVolumeClaim, node string, elsewhere bool) (*corev1.PersistentVolume, error) {
	class, err := l.informers.Storage().V1().StorageClasses().Lister().Get(*claim.Spec.StorageClassName)
	if err != nil {
		return nil, err
	}
	operator := corev1.NodeSelectorOpIn
	if elsewhere {
		operator = corev1.NodeSelectorOpNotIn
	}
	known, err := l.informers.Core().V1().Nodes().Lister().Get(node)
	if err != nil {
		return nil, err
	}
	requirement := corev1.NodeSelectorRequirement{Key: corev1.LabelHostname, Operator: operator, Values: []string{known.Labels[corev1.LabelHostname]}}
	if known.Labels[corev1.LabelHostname] == "" {
		requirement = corev1.NodeSelectorRequirement{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpDoesNotExist}
		if elsewhere {
			requirement.Operator = corev1.NodeSelectorOpExists
		}
	}
	name := "made-for-" + claim.Namespace + "-" + claim.Name
	made := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("/" + name)},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:         claim.Spec.Resources.Requests,
			AccessModes:      claim.Spec.AccessModes,
			VolumeMode:       claim.Spec.VolumeMode,
			StorageClassName: class.Name,
			ClaimRef:         &corev1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: class.Provisioner, VolumeHandle: name},
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{requirement}}},
			}},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
	l.next(made)
	return made, nil
}

// show lets the scheduler see objects.
func (l *live) show(seen *Seen) error {
	core := l.informers.Core().V1()
	for _, one := range seen.PersistentVolumes {
		if err := core.PersistentVolumes().Informer().GetIndexer().Update(one); err != nil {
			return err
		}
	}
	for _, claim := range seen.PersistentVolumeClaims {
		if err := core.PersistentVolumeClaims().Informer().GetIndexer().Update(claim); err != nil {
			return err
		}
	}
	return nil
}

// settle lets PreBind see what came of its writes, for all pods at once. Pods for which it fails are taken back.
func (l *live) settle() error {
	l.again = true
	defer func() { l.again = false }()
	ctx, cancel := context.WithTimeout(l.ctx, patience)
	defer cancel()
	statuses := make([]*fwk.Status, len(l.bindings))
	var ended sync.WaitGroup
	for i, b := range l.bindings {
		ended.Go(func() { statuses[i] = b.profile.RunPreBindPlugins(ctx, b.state, b.placed, b.answer.Node) })
	}
	ended.Wait()
	var waiting []*binding
	for i, b := range l.bindings {
		err := statuses[i].AsError()
		switch {
		case err == nil:
			b.answer.Binding = "bound"
			if err := l.scheduler.Cache.AddPod(l.log, b.placed); err != nil {
				return err
			}
		case errors.Is(err, context.DeadlineExceeded):
			b.answer.Binding = "waiting"
			waiting = append(waiting, b)
		default:
			b.answer.Binding = err.Error()
			if err := l.takeBack(b); err != nil {
				return err
			}
		}
	}
	l.bindings = waiting
	return l.scheduler.Cache.UpdateSnapshot(l.log, l.snapshot)
}

// takeBack undoes what was assumed of a pod.
func (l *live) takeBack(b *binding) error {
	b.profile.RunReservePluginsUnreserve(l.ctx, b.state, b.placed, b.answer.Node)
	delete(l.pods, key(b.placed))
	return l.scheduler.Cache.ForgetPod(l.log, b.placed)
}

// waitFor lets a pod wait for a node, or for none. It does so in the queue, where filters look for what it asks for.
func (l *live) waitFor(pod *corev1.Pod, node string) error {
	l.scheduler.SchedulingQueue.Delete(l.log, pod)
	delete(l.waits, key(pod))
	if node != "" {
		l.waits[key(pod)] = node
	}
	pod = l.current(pod)
	if node != "" {
		l.scheduler.SchedulingQueue.Add(l.ctx, pod)
	}
	return l.informers.Core().V1().Pods().Informer().GetIndexer().Update(pod)
}

// makeRoom carries out what PostFilter has decided, on the first of the nodes that are equally good.
func (l *live) makeRoom(room *Preemption, pod *corev1.Pod) error {
	node := room.Best[0]
	for _, candidate := range room.Candidates {
		if candidate.Node != node {
			continue
		}
		for _, victim := range candidate.Victims {
			if err := l.evict(victim); err != nil {
				return err
			}
		}
	}
	for _, other := range l.scheduler.SchedulingQueue.NominatedPodsForNode(node) {
		if corev1helpers.PodPriority(other.GetPod()) < corev1helpers.PodPriority(pod) {
			if err := l.waitFor(other.GetPod(), ""); err != nil {
				return err
			}
		}
	}
	return l.waitFor(pod, node)
}

// evict deletes a pod. Some pods take their time; those that wait for storage have not begun to run.
func (l *live) evict(name string) error {
	pod := l.pods[name]
	if pod == nil || pod.DeletionTimestamp != nil {
		return nil
	}
	for i, b := range l.bindings {
		if key(b.placed) == name {
			l.bindings = slices.Delete(l.bindings, i, i+1)
			l.gone[name] = true
			return l.takeBack(b)
		}
	}
	if fate(name, 2) == 0 {
		l.gone[name] = true
		delete(l.pods, name)
		return l.scheduler.Cache.RemovePod(l.log, pod)
	}
	ending := pod.DeepCopy()
	now := metav1.Now()
	ending.DeletionTimestamp = &now
	ending.Status.Conditions = append([]corev1.PodCondition{{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler,
	}}, ending.Status.Conditions...)
	l.pods[name] = ending
	return l.scheduler.Cache.UpdatePod(l.log, pod, ending)
}

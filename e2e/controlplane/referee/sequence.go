package referee

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/storage/volume"
)

// play schedules the pending pods one after another, and assumes each where it fits best.
func (w *world) play(doc *document) []*Answer {
	order := byPriority(doc.Pending)
	answers := make([]*Answer, 0, len(order))
	for _, pod := range order {
		answer, cycle := w.judge(pod)
		answer.Document = doc.Name
		if answer.Verdict == schedulable {
			if err := cycle.assume(answer.Best[0]); err != nil {
				answer.fail(broken, err)
			}
		}
		if doc.usesDevices() {
			if err := w.settleDevices(doc); err != nil {
				answer.fail(broken, err)
			}
		}
		answers = append(answers, answer)
	}
	return answers
}

// byPriority is the order of the queue.
func byPriority(pods []*corev1.Pod) []*corev1.Pod {
	order := slices.Clone(pods)
	slices.SortStableFunc(order, func(a, b *corev1.Pod) int {
		return int(corev1helpers.PodPriority(b)) - int(corev1helpers.PodPriority(a))
	})
	return order
}

// assume takes the node's room in the cache and lets plugins reserve what they look after.
func (c *cycle) assume(node string) error {
	placed := c.pod.DeepCopy()
	placed.Spec.NodeName = node
	if err := c.scheduler.Cache.AssumePod(c.log, placed); err != nil {
		return err
	}
	if status := c.profile.RunReservePluginsReserve(c.ctx, c.state, placed, node); !status.IsSuccess() {
		return status.AsError()
	}
	c.answer.Node = node
	if err := c.bindVolumes(placed, node); err != nil {
		return err
	}
	return c.scheduler.Cache.UpdateSnapshot(c.log, c.snapshot)
}

// bindVolumes runs PreBind for what the pod's claims need, and notes what it writes. No volume controller answers, so
// it is told not to wait for one: pods that follow see what is assumed, as in a cluster that is slow.
func (c *cycle) bindVolumes(pod *corev1.Pod, node string) error {
	if status := c.profile.RunPreBindPreFlights(c.ctx, c.state, pod, node); status.IsSkip() {
		return nil
	} else if !status.IsSuccess() {
		return status.AsError()
	}
	impatient, cancel := context.WithCancel(c.ctx)
	cancel()
	c.binds = true
	c.writes = nil
	status := c.profile.RunPreBindPlugins(impatient, c.state, pod, node)
	c.answer.Writes = c.writes
	slices.Sort(c.answer.Writes)
	if !status.IsSuccess() && !errors.Is(status.AsError(), context.Canceled) {
		return status.AsError()
	}
	return nil
}

// keepStorage gives the API what PreBind updates, and notes the updates.
func (w *world) keepStorage(doc *document) error {
	for _, claim := range doc.PersistentVolumeClaims {
		if err := w.client.Tracker().Add(claim.DeepCopy()); err != nil {
			return err
		}
	}
	for _, one := range doc.PersistentVolumes {
		if err := w.client.Tracker().Add(one.DeepCopy()); err != nil {
			return err
		}
	}
	w.client.PrependReactor("update", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		update, is := action.(clienttesting.UpdateAction)
		// A claim is protected before it says anything.
		if is && (action.GetResource().Resource != "resourceclaims" || action.GetSubresource() == "status") {
			if text := describe(update.GetObject()); text != "" {
				w.writes = append(w.writes, text)
			}
		}
		return false, nil, nil
	})
	return nil
}

func describe(object runtime.Object) string {
	switch written := object.(type) {
	case *corev1.PersistentVolume:
		claim := written.Spec.ClaimRef
		return fmt.Sprintf("volume %s to %s/%s", written.Name, claim.Namespace, claim.Name)
	case *corev1.PersistentVolumeClaim:
		return fmt.Sprintf("claim %s/%s for %s", written.Namespace, written.Name, written.Annotations[volume.AnnSelectedNode])
	case *resourcev1.ResourceClaim:
		return describeClaim(written)
	default:
		return fmt.Sprintf("%T", object)
	}
}

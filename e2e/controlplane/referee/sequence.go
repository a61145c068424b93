package referee

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
)

// play schedules the pending pods one after another, and assumes each where it fits best.
func (w *world) play(doc *document) []*Answer {
	order := slices.Clone(doc.Pending)
	slices.SortStableFunc(order, func(a, b *corev1.Pod) int {
		return int(corev1helpers.PodPriority(b)) - int(corev1helpers.PodPriority(a))
	})
	answers := make([]*Answer, 0, len(order))
	for _, pod := range order {
		answer, cycle := w.judge(pod)
		answer.Document = doc.Name
		if answer.Verdict == schedulable {
			if err := cycle.assume(answer.Best[0]); err != nil {
				answer.fail(broken, err)
			}
		}
		answers = append(answers, answer)
	}
	return answers
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
	return c.scheduler.Cache.UpdateSnapshot(c.log, c.snapshot)
}

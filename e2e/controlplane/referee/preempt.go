package referee

import (
	"context"
	"runtime"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
)

// Candidate is a node that removing pods would make fit.
type Candidate struct {
	Node string `json:"node"`
	// Victims are sorted by name.
	Victims    []string `json:"victims"`
	Violations int64    `json:"violations"`
	// living counts the victims that nobody deletes yet.
	living int
}

// Preemption is what PostFilter says and does.
type Preemption struct {
	// Candidates are all nodes that could be made to fit, sorted by name.
	Candidates []Candidate `json:"candidates,omitempty"`
	// Best are the candidates that upstream may choose: equal by all its criteria.
	Best []string `json:"best,omitempty"`
	// Nominated is the node that this run of PostFilter chose.
	Nominated string `json:"nominated,omitempty"`
	// Victims are the pods that this run of PostFilter evicted, sorted by name; those that end anyway are left alone.
	Victims []string `json:"victims,omitempty"`
	Message string   `json:"message,omitempty"`
	// gives is set if the pod is to wait for no node any more.
	gives bool
}

// postFilter runs the real PostFilter and, so that every right answer is known, a dry run over all nodes.
func (c *cycle) postFilter() error {
	answer := &Preemption{}
	c.answer.Preemption = answer
	if plugin := c.preemptors[c.pod.Spec.SchedulerName]; plugin != nil {
		if err := c.candidates(plugin, answer); err != nil {
			return err
		}
		evicted := c.watchEvictions(plugin)
		defer func() { answer.Victims = evicted(answer) }()
	}
	result, status := c.profile.RunPostFilterPlugins(c.ctx, c.state, c.pod, c.diagnosis.NodeToStatus)
	answer.Message = status.Message()
	c.diagnosis.PostFilterMsg = answer.Message
	if result != nil && result.Mode() == fwk.ModeOverride {
		answer.gives = result.NominatingInfo.NominatedNodeName == ""
	}
	if result != nil && result.NominatingInfo != nil {
		answer.Nominated = result.NominatingInfo.NominatedNodeName
	}
	return nil
}

// dryState is what plugins know of the pod, apart from the cycle: DynamicResources remembers there which nodes it was
// asked about, whatever for.
func (c *cycle) dryState() fwk.CycleState {
	if len(c.pod.Spec.ResourceClaims) == 0 || c.answer.PreFilter != nil {
		return c.state
	}
	state := framework.NewCycleState()
	c.profile.RunPreFilterPlugins(c.ctx, state, c.pod)
	return state
}

// watchEvictions takes the place of the calls that evict pods. The returned function waits until the plugin is done
// with all victims of the nominated node, and names them.
func (c *cycle) watchEvictions(plugin *defaultpreemption.DefaultPreemption) func(*Preemption) []string {
	called := make(chan string, len(c.placed)+1)
	plugin.Executor.PreemptPod = func(_ context.Context, _ preemption.Candidate, _ preemption.ExecutorPreemptor, victim *corev1.Pod, _ string) (bool, error) {
		called <- victim.Namespace + "/" + victim.Name
		return false, nil
	}
	return func(answer *Preemption) []string {
		var names []string
		for _, candidate := range answer.Candidates {
			if candidate.Node != answer.Nominated {
				continue
			}
			for range candidate.living {
				names = append(names, <-called)
			}
		}
		// The plugin holds the pod back as long as it believes that victims are left.
		for plugin.Executor.IsPodRunningPreemption(c.pod.UID) {
			runtime.Gosched()
		}
		slices.Sort(names)
		return names
	}
}

func (c *cycle) candidates(plugin *defaultpreemption.DefaultPreemption, answer *Preemption) error {
	eligible, _ := plugin.PodEligibleToPreemptOthers(c.ctx, c.pod, c.diagnosis.NodeToStatus.Get(c.pod.Status.NominatedNodeName))
	if !eligible {
		return nil
	}
	nodes, err := c.diagnosis.NodeToStatus.NodesForStatusCode(c.snapshot.NodeInfos(), fwk.Unschedulable)
	if err != nil || len(nodes) == 0 {
		return err
	}
	budgets, err := c.informers.Policy().V1().PodDisruptionBudgets().Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	slices.SortFunc(budgets, func(a, b *policyv1.PodDisruptionBudget) int {
		if a.Namespace+"/"+a.Name < b.Namespace+"/"+b.Name {
			return -1
		}
		return 1
	})
	// One more than there can be, so that the search does not stop early.
	found, _, err := plugin.Evaluator.DryRunPreemption(c.ctx, c.dryState(), c.pod, nodes, budgets, 0, int32(len(nodes))+1)
	if err != nil {
		return err
	}
	for _, candidate := range found {
		entry := Candidate{Node: candidate.Name(), Violations: candidate.Victims().NumPDBViolations}
		for _, victim := range candidate.Victims().Pods {
			entry.Victims = append(entry.Victims, victim.Namespace+"/"+victim.Name)
			if victim.DeletionTimestamp == nil {
				entry.living++
			}
		}
		slices.Sort(entry.Victims)
		answer.Candidates = append(answer.Candidates, entry)
	}
	slices.SortFunc(answer.Candidates, func(a, b Candidate) int {
		if a.Node < b.Node {
			return -1
		}
		return 1
	})
	answer.Best = c.best(plugin, found)
	return nil
}

// best returns the candidates among which upstream's choice is left to chance: it walks a map. A candidate ties with
// the winner if it wins against it once; the one that comes first in a map of two is seven times as likely to win.
func (c *cycle) best(plugin *defaultpreemption.DefaultPreemption, found []preemption.Candidate) []string {
	if len(found) == 0 {
		return nil
	}
	winner := plugin.Evaluator.SelectCandidate(c.ctx, found)
	best := []string{winner.Name()}
	for _, candidate := range found {
		if candidate.Name() == winner.Name() {
			continue
		}
		for range 12 {
			if plugin.Evaluator.SelectCandidate(c.ctx, []preemption.Candidate{candidate, winner}).Name() == candidate.Name() {
				best = append(best, candidate.Name())
				break
			}
		}
	}
	slices.Sort(best)
	return best
}

package referee

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// What an answer's verdict can be.
const (
	schedulable   = "schedulable"
	unschedulable = "unschedulable"
	gated         = "gated"
	failed        = "error"
	// broken is no verdict of the scheduler: the document, the referee or a plugin is wrong.
	broken = "broken"
)

// Refusal is a plugin's no.
type Refusal struct {
	Plugin  string   `json:"plugin"`
	Code    string   `json:"code"`
	Reasons []string `json:"reasons"`
}

// Refused is a plugin's no to several nodes, which are sorted.
type Refused struct {
	Refusal
	Nodes []string `json:"nodes"`
}

// Answer is everything that upstream says about one pod.
type Answer struct {
	Document string `json:"document"`
	Pod      string `json:"pod"`
	// Verdict is schedulable, unschedulable, gated, error (a plugin cannot judge) or broken.
	Verdict string `json:"verdict"`
	// Message is the text of the FailedScheduling event, or the error.
	Message string `json:"message,omitempty"`
	// Gate is set if the pod may not enter the queue.
	Gate *Refusal `json:"gate,omitempty"`
	// PreFilter is set if a plugin refused the pod before nodes were looked at.
	PreFilter *Refusal `json:"preFilter,omitempty"`
	// Restricting are the plugins that named the only nodes to look at, sorted.
	Restricting []string  `json:"restricting,omitempty"`
	Refused     []Refused `json:"refused,omitempty"`
	// Feasible are the nodes that passed, sorted.
	Feasible []string `json:"feasible,omitempty"`
	// Totals are the weighted sums; absent if there is one feasible node, since nothing is scored then.
	Totals map[string]int64 `json:"totals,omitempty"`
	// Scores are the addends of the totals, by plugin and node.
	Scores map[string]map[string]int64 `json:"scores,omitempty"`
	// Best are the nodes that upstream may choose, sorted.
	Best []string `json:"best,omitempty"`
	// Decisive are the plugins whose scores differ between nodes, sorted.
	Decisive []string `json:"decisive,omitempty"`
	// Skipped are the plugins that had no opinion: those that filter and those that score.
	Skipped []string `json:"skipped,omitempty"`
	// Node is where the pod was assumed, in a sequence.
	Node string `json:"node,omitempty"`
	// Preemption is what PostFilter did.
	Preemption *Preemption `json:"preemption,omitempty"`
	// Writes are the API calls of Reserve and PreBind, in a sequence.
	Writes []string `json:"writes,omitempty"`
	// Seen is what controllers did about the writes, in a live sequence.
	Seen *Seen `json:"seen,omitempty"`
	// Binding is what came of the pod's claims, in a live sequence: bound, waiting, or the error of PreBind.
	Binding string `json:"binding,omitempty"`
	// Last is set on the last answer about a live sequence.
	Last bool `json:"last,omitempty"`
}

func refusal(plugin string, status *fwk.Status) Refusal {
	return Refusal{Plugin: plugin, Code: status.Code().String(), Reasons: status.Reasons()}
}

// cycle is one pod's way through the framework.
type cycle struct {
	*world
	profile   framework.Framework
	state     fwk.CycleState
	pod       *corev1.Pod
	diagnosis framework.Diagnosis
	// refused says why a node was refused. The pod's nominated node stays in it when the others are asked.
	refused map[string]Refusal
	answer  *Answer
	// binds is set if the pod's claims are not all bound yet.
	binds bool
}

// judge asks the plugins of the pod's profile, in the scheduler's order, about every node. The cycle is returned
// because Reserve needs its state.
func (w *world) judge(pod *corev1.Pod) (answer *Answer, c *cycle) {
	answer = &Answer{Pod: pod.Namespace + "/" + pod.Name}
	defer func() {
		if reason := recover(); reason != nil {
			answer.fail(broken, fmt.Errorf("panic: %v", reason))
		}
	}()
	profile, known := w.scheduler.Profiles[pod.Spec.SchedulerName]
	if !known {
		answer.fail(broken, fmt.Errorf("no profile has the name %q", pod.Spec.SchedulerName))
		return answer, nil
	}
	for _, plugin := range profile.PreEnqueuePlugins() {
		status := plugin.PreEnqueue(w.ctx, pod)
		if status.IsSuccess() {
			continue
		}
		no := refusal(plugin.Name(), status)
		answer.Verdict, answer.Gate, answer.Message = gated, &no, status.Message()
		return answer, nil
	}
	c = &cycle{world: w, profile: profile, state: framework.NewCycleState(), pod: pod, refused: map[string]Refusal{}, answer: answer}
	c.diagnosis.NodeToStatus = framework.NewDefaultNodeToStatus()
	if err := c.run(); err != nil {
		answer.fail(failed, err)
	} else if w.options.check {
		if err := c.check(); err != nil {
			answer.fail(broken, err)
		}
	}
	return answer, c
}

func (a *Answer) fail(verdict string, err error) {
	*a = Answer{Document: a.Document, Pod: a.Pod, Verdict: verdict, Message: err.Error()}
}

func (c *cycle) run() error {
	nodes, err := c.snapshot.NodeInfos().List()
	if err != nil {
		return err
	}
	if len(nodes) == 0 {
		c.answer.Verdict, c.answer.Message = unschedulable, scheduler.ErrNoNodesAvailable.Error()
		return nil
	}
	result, status, restricting := c.profile.RunPreFilterPlugins(c.ctx, c.state, c.pod)
	c.diagnosis.UnschedulablePlugins = restricting
	c.answer.Restricting = sets.List(restricting)
	c.answer.Skipped = sets.List(c.state.GetSkipFilterPlugins())
	if !status.IsSuccess() {
		if !status.IsRejected() {
			return status.AsError()
		}
		no := refusal(status.Plugin(), status)
		c.answer.PreFilter = &no
		c.diagnosis.NodeToStatus.SetAbsentNodesStatus(status)
		c.diagnosis.PreFilterMsg = status.Message()
		c.diagnosis.AddPluginStatus(status)
		return c.refuse(len(nodes))
	}
	feasible, err := c.feasible(nodes, result, restricting)
	c.group()
	if err != nil {
		return err
	}
	if len(feasible) == 0 {
		return c.refuse(len(nodes))
	}
	c.answer.Verdict = schedulable
	for _, node := range feasible {
		c.answer.Feasible = append(c.answer.Feasible, node.Node().Name)
	}
	slices.Sort(c.answer.Feasible)
	return c.score(feasible)
}

// feasible filters nodes as the scheduler does: the pod's nominated node alone if it still fits, else all nodes
// that PreFilter left.
func (c *cycle) feasible(nodes []fwk.NodeInfo, result *fwk.PreFilterResult, restricting sets.Set[string]) ([]fwk.NodeInfo, error) {
	if nominated := c.pod.Status.NominatedNodeName; nominated != "" {
		if node, err := c.snapshot.NodeInfos().Get(nominated); err == nil {
			fitting, _ := c.filter([]fwk.NodeInfo{node})
			if len(fitting) > 0 {
				return fitting, nil
			}
		}
	}
	if !result.AllNodes() {
		left := nodes
		nodes = nil
		for _, node := range left {
			if result.NodeNames.Has(node.Node().Name) {
				nodes = append(nodes, node)
			}
		}
		reason := fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", sets.List(restricting))
		c.diagnosis.NodeToStatus.SetAbsentNodesStatus(fwk.NewStatus(fwk.UnschedulableAndUnresolvable, reason))
	}
	return c.filter(nodes)
}

// filter asks about each node, and writes the refusals into the diagnosis and the answer.
func (c *cycle) filter(nodes []fwk.NodeInfo) ([]fwk.NodeInfo, error) {
	statuses := make([]*fwk.Status, len(nodes))
	one := func(i int) {
		statuses[i] = c.profile.RunFilterPluginsWithNominatedPods(c.ctx, c.state, c.pod, nodes[i])
	}
	if len(nodes) < 100 {
		for i := range nodes {
			one(i)
		}
	} else {
		c.profile.Parallelizer().Until(c.ctx, len(nodes), one, "Filter")
	}
	var feasible []fwk.NodeInfo
	for i, node := range nodes {
		status := statuses[i]
		switch {
		case status.IsSuccess():
			feasible = append(feasible, node)
			continue
		case !status.IsRejected():
			return nil, status.AsError()
		}
		name := node.Node().Name
		c.diagnosis.NodeToStatus.Set(name, status)
		c.diagnosis.AddPluginStatus(status)
		c.refused[name] = refusal(status.Plugin(), status)
	}
	return feasible, nil
}

// group puts nodes together of which the same was said.
func (c *cycle) group() {
	groups := map[string]*Refused{}
	for _, node := range sets.List(sets.KeySet(c.refused)) {
		no := c.refused[node]
		key := no.Plugin + "\n" + no.Code + "\n" + strings.Join(no.Reasons, "\n")
		if groups[key] == nil {
			groups[key] = &Refused{Refusal: no}
		}
		groups[key].Nodes = append(groups[key].Nodes, node)
	}
	for _, key := range sets.List(sets.KeySet(groups)) {
		c.answer.Refused = append(c.answer.Refused, *groups[key])
	}
}

func (c *cycle) refuse(nodes int) error {
	c.answer.Verdict = unschedulable
	if c.preempt {
		if err := c.postFilter(); err != nil {
			return err
		}
	}
	fit := &framework.FitError{Pod: c.pod, NumAllNodes: nodes, Diagnosis: c.diagnosis}
	c.answer.Message = fit.Error()
	return nil
}

func (c *cycle) score(feasible []fwk.NodeInfo) error {
	if len(feasible) == 1 {
		c.answer.Best = []string{feasible[0].Node().Name}
		return nil
	}
	if status := c.profile.RunPreScorePlugins(c.ctx, c.state, c.pod, feasible); !status.IsSuccess() {
		return status.AsError()
	}
	c.answer.Skipped = append(c.answer.Skipped, sets.List(c.state.GetSkipScorePlugins())...)
	nodes, status := c.profile.RunScorePlugins(c.ctx, c.state, c.pod, feasible)
	if !status.IsSuccess() {
		return status.AsError()
	}
	best := nodes[0].TotalScore
	c.answer.Totals = make(map[string]int64, len(nodes))
	decisive := sets.New[string]()
	for _, node := range nodes {
		c.answer.Totals[node.Name] = node.TotalScore
		best = max(best, node.TotalScore)
		for i, score := range node.Scores {
			if score.Score != nodes[0].Scores[i].Score {
				decisive.Insert(score.Name)
			}
		}
		if c.options.scores {
			c.addends(node)
		}
	}
	c.answer.Decisive = sets.List(decisive)
	for _, node := range nodes {
		if node.TotalScore == best {
			c.answer.Best = append(c.answer.Best, node.Name)
		}
	}
	slices.Sort(c.answer.Best)
	return nil
}

func (c *cycle) addends(node fwk.NodePluginScores) {
	if c.answer.Scores == nil {
		c.answer.Scores = map[string]map[string]int64{}
	}
	for _, score := range node.Scores {
		if c.answer.Scores[score.Name] == nil {
			c.answer.Scores[score.Name] = map[string]int64{}
		}
		c.answer.Scores[score.Name][node.Name] = score.Score
	}
}

// check asks the scheduler itself, which does all of the above in one call and by its own code.
func (c *cycle) check() error {
	info, err := framework.NewPodInfo(c.pod)
	if err != nil {
		return err
	}
	result, err := c.scheduler.SchedulePod(c.ctx, c.profile, framework.NewCycleState(), &framework.QueuedPodInfo{PodInfo: info})
	a := c.answer
	switch {
	case err != nil && a.Verdict != unschedulable:
		return fmt.Errorf("self-check: SchedulePod says %q, the referee %s", err, a.Verdict)
	case err != nil && a.Preemption == nil && a.Message != err.Error():
		return fmt.Errorf("self-check: SchedulePod says %q, the referee %q", err, a.Message)
	case err != nil:
		return nil
	case a.Verdict != schedulable:
		return fmt.Errorf("self-check: SchedulePod takes %s, the referee says %s: %s", result.SuggestedHost, a.Verdict, a.Message)
	case !slices.Contains(a.Best, result.SuggestedHost):
		return fmt.Errorf("self-check: SchedulePod takes %s, the referee one of %v", result.SuggestedHost, a.Best)
	case result.FeasibleNodes != len(a.Feasible):
		return fmt.Errorf("self-check: SchedulePod finds %d feasible nodes, the referee %d", result.FeasibleNodes, len(a.Feasible))
	}
	return nil
}

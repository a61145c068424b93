package referee

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// benchOptions are the flags of a measurement.
type benchOptions struct {
	on        bool
	dump      string
	workloads string
	nodes     string
	pods      int
	longest   time.Duration
}

// Measurement is how fast upstream's core is: snapshot, SchedulePod and the assumption of its choice.
type Measurement struct {
	Workload string `json:"workload"`
	Nodes    int    `json:"nodes"`
	// Pods is how many were tried; fewer than asked for if the time was up.
	Pods      int `json:"pods"`
	Scheduled int `json:"scheduled"`
	// Threads is GOMAXPROCS.
	Threads       int     `json:"threads"`
	Seconds       float64 `json:"seconds"`
	CPUSeconds    float64 `json:"cpu_seconds"`
	PodsPerSecond float64 `json:"pods_per_s"`
}

func (b *benchOptions) register(flags *flag.FlagSet) {
	flags.BoolVar(&b.on, "bench", false, "measure instead of reading documents: one JSON line a workload and number of nodes")
	flags.StringVar(&b.dump, "bench-dump", "", "write the documents that -bench schedules into this folder")
	flags.StringVar(&b.workloads, "bench-workloads", strings.Join(workloadNames(), ","), "which workloads")
	flags.StringVar(&b.nodes, "bench-nodes", "5000", "numbers of nodes")
	flags.IntVar(&b.pods, "bench-pods", 1000, "pods to schedule")
	flags.DurationVar(&b.longest, "bench-longest", time.Minute, "end a measurement after this time")
}

func (b *benchOptions) wanted() bool {
	return b.on || b.dump != ""
}

func (b *benchOptions) run(ctx context.Context, out io.Writer) int {
	for _, name := range strings.Split(b.workloads, ",") {
		load, known := workloads[name]
		if !known {
			fmt.Fprintf(os.Stderr, "workload %q is none of %s\n", name, strings.Join(workloadNames(), ", "))
			return 2
		}
		for _, text := range strings.Split(b.nodes, ",") {
			nodes, err := strconv.Atoi(text)
			if err != nil || nodes < 1 {
				fmt.Fprintf(os.Stderr, "%q is no number of nodes\n", text)
				return 2
			}
			pods := b.pods
			if name == "antiaffinity" {
				// No more than there are free nodes.
				pods = min(pods, nodes-int(float64(nodes)*load.placedPerNode))
			}
			if err := b.one(ctx, out, load.cluster(name, nodes, pods), name); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		}
	}
	return 0
}

func (b *benchOptions) one(ctx context.Context, out io.Writer, doc *document, name string) error {
	if b.dump != "" {
		text, err := json.Marshal(doc)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(b.dump, doc.Name+".json"), append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	if !b.on {
		return nil
	}
	if err := doc.complete(); err != nil {
		return err
	}
	measured, err := measure(ctx, doc, b.longest)
	if err != nil {
		return err
	}
	measured.Workload = name
	return json.NewEncoder(out).Encode(measured)
}

// measure schedules the pending pods of a document as the scheduler does, which looks at a part of the nodes only.
func measure(ctx context.Context, doc *document, longest time.Duration) (*Measurement, error) {
	w, err := newWorld(ctx, doc.Config, options{adaptive: true})
	if err != nil {
		return nil, err
	}
	defer w.close()
	if err := w.load(doc); err != nil {
		return nil, err
	}
	result := &Measurement{Nodes: len(doc.Nodes), Threads: runtime.GOMAXPROCS(0)}
	runtime.GC()
	cpu, start := cpuTime(), time.Now()
	for _, pod := range doc.Pending {
		if time.Since(start) > longest {
			break
		}
		info, err := framework.NewPodInfo(pod)
		if err != nil {
			return nil, err
		}
		profile := w.scheduler.Profiles[pod.Spec.SchedulerName]
		if err := w.scheduler.Cache.UpdateSnapshot(w.log, w.snapshot); err != nil {
			return nil, err
		}
		queued := &framework.QueuedPodInfo{PodInfo: info, PodSignature: profile.SignPod(ctx, pod)}
		chosen, err := w.scheduler.SchedulePod(ctx, profile, framework.NewCycleState(), queued)
		result.Pods++
		if err != nil {
			if _, refused := err.(*framework.FitError); refused {
				continue
			}
			return nil, err
		}
		assumed := pod.DeepCopy()
		assumed.Spec.NodeName = chosen.SuggestedHost
		if err := w.scheduler.Cache.AssumePod(w.log, assumed); err != nil {
			return nil, err
		}
		result.Scheduled++
	}
	result.Seconds = time.Since(start).Seconds()
	result.CPUSeconds = (cpuTime() - cpu).Seconds()
	result.PodsPerSecond = float64(result.Pods) / result.Seconds
	return result, nil
}

// cpuTime is what this process has used so far; unlike time on the clock it does not count other programs.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

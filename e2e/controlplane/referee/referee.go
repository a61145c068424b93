// Package referee tells what upstream's kube-scheduler decides about pods, one JSON document at a time.
//
// It links the scheduler unmodified and lets it work on clusters that exist only in documents, so that another
// implementation can be compared with it: not only the node that it takes, but what each plugin says about each
// node, all scores, and the words for users.
package referee

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// options is what the flags say.
type options struct {
	sequence bool
	preempt  bool
	check    bool
	scores   bool
	// adaptive searches a part of the nodes, as a scheduler does by itself.
	adaptive bool
	bench    benchOptions
}

// Main runs the program and returns its exit code: 1 if an answer is broken, 2 for wrong use.
func Main() int {
	var opts options
	flags := flag.NewFlagSet("referee", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "referee reads one JSON document a line (nodes, pods, ..., pending) and answers one JSON line a pending pod.")
		flags.PrintDefaults()
	}
	flags.BoolVar(&opts.sequence, "sequence", false, "schedule the pending pods one after another (priority, then order), each on the first best node by name, with Reserve and PreBind")
	flags.BoolVar(&opts.preempt, "preempt", false, "run PostFilter for pods that fit nowhere")
	flags.BoolVar(&opts.check, "check", false, "compare each answer with what the scheduler's own SchedulePod returns")
	flags.BoolVar(&opts.scores, "scores", false, "also print each plugin's weighted scores")
	opts.bench.register(flags)
	if err := flags.Parse(os.Args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	silence()
	metrics.Register()
	ctx := context.Background()
	if opts.bench.wanted() {
		return opts.bench.run(ctx, os.Stdout)
	}
	r := &referee{ctx: ctx, options: opts, worlds: map[string]*world{}}
	return r.serve(os.Stdin, os.Stdout)
}

// silence keeps the scheduler from logging what is wrong in documents that are meant to be wrong.
func silence() {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL"} {
		if err := flags.Set(name, value); err != nil {
			panic(err)
		}
	}
	klog.SetOutput(io.Discard)
}

// referee answers documents, and keeps one scheduler for each configuration that it has seen.
type referee struct {
	ctx     context.Context
	options options
	worlds  map[string]*world
}

func (r *referee) serve(in io.Reader, out io.Writer) int {
	lines := bufio.NewReaderSize(in, 1<<20)
	buffer := bufio.NewWriterSize(out, 1<<16)
	encoder := json.NewEncoder(buffer)
	encoder.SetEscapeHTML(false)
	code := 0
	for {
		line, readErr := lines.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			for _, answer := range r.answer(line) {
				if answer.Verdict == broken {
					code = 1
				}
				if err := encoder.Encode(answer); err != nil {
					fmt.Fprintln(os.Stderr, "cannot write an answer:", err)
					return 1
				}
			}
			// The other side may wait for these lines before it sends more.
			if err := buffer.Flush(); err != nil {
				fmt.Fprintln(os.Stderr, "cannot write an answer:", err)
				return 1
			}
		}
		if errors.Is(readErr, io.EOF) {
			return code
		}
		if readErr != nil {
			fmt.Fprintln(os.Stderr, "cannot read documents:", readErr)
			return 1
		}
	}
}

// answer returns one answer a pending pod, in the order in which they were tried; one alone if the document is bad.
func (r *referee) answer(line []byte) []*Answer {
	doc, err := parse(line)
	if err != nil {
		return []*Answer{{Document: nameOf(line), Verdict: broken, Message: err.Error()}}
	}
	doc.Sequence = doc.Sequence || r.options.sequence
	w, err := r.world(doc)
	if err != nil {
		return []*Answer{{Document: doc.Name, Verdict: broken, Message: err.Error()}}
	}
	if doc.Sequence || doc.usesDevices() {
		defer w.close()
	} else {
		defer w.unload()
	}
	if err := w.load(doc); err != nil {
		return []*Answer{{Document: doc.Name, Verdict: broken, Message: err.Error()}}
	}
	if doc.usesDevices() {
		if err := w.watchDevices(doc); err != nil {
			return []*Answer{{Document: doc.Name, Verdict: broken, Message: err.Error()}}
		}
	}
	if doc.Sequence {
		if err := w.keepStorage(doc); err != nil {
			return []*Answer{{Document: doc.Name, Verdict: broken, Message: err.Error()}}
		}
		if doc.Live {
			return w.playLive(doc)
		}
		return w.play(doc)
	}
	answers := make([]*Answer, 0, len(doc.Pending))
	for _, pod := range doc.Pending {
		answer, _ := w.judge(pod)
		answer.Document = doc.Name
		answers = append(answers, answer)
	}
	return answers
}

// world returns the scheduler for a document's configuration. A run in sequence changes what plugins remember, so
// it gets a scheduler of its own; and so does a document with devices, of which the scheduler learns by events.
func (r *referee) world(doc *document) (*world, error) {
	if doc.Sequence || doc.usesDevices() {
		return newWorld(r.ctx, doc.Config, r.options)
	}
	key := string(doc.Config)
	if w, known := r.worlds[key]; known {
		return w, nil
	}
	w, err := newWorld(r.ctx, doc.Config, r.options)
	if err == nil {
		r.worlds[key] = w
	}
	return w, err
}

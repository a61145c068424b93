// Command controlplane is every upstream program that the test ground runs, in one file.
//
// It acts as the program whose name it is called by, so that one link step serves all of them.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/etcdmain"
	helmcmd "helm.sh/helm/v4/pkg/cmd"
	helmkube "helm.sh/helm/v4/pkg/kube"
	genericapiserver "k8s.io/apiserver/pkg/server"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectlcmd "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwokcmd "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
	kwoksignals "sigs.k8s.io/kwok/pkg/utils/signals"
	metricsserver "sigs.k8s.io/metrics-server/cmd/metrics-server/app"

	"multicluster-scheduler.io/controlplane/referee"
	"multicluster-scheduler.io/controlplane/streams"
)

var programs = map[string]func() int{
	"etcd":                    etcd,
	"helm":                    helm,
	"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
	"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
	"kubectl":                 kubectl,
	"kwok":                    kwok,
	"metrics-server":          metricsServer,
	"referee":                 referee.Main,
	"streams":                 streams.Main,
}

func main() {
	name := filepath.Base(os.Args[0])
	run, known := programs[name]
	if !known {
		fmt.Fprintf(os.Stderr, "call this file by one of the names %s\n", strings.Join(names(), ", "))
		os.Exit(2)
	}
	os.Exit(run())
}

func names() []string {
	var known []string
	for name := range programs {
		known = append(known, name)
	}
	slices.Sort(known)
	return known
}

func etcd() int {
	etcdmain.Main(os.Args)
	return 0
}

func kubectl() int {
	if err := cli.RunNoErrOutput(kubectlcmd.NewDefaultKubectlCommand()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// Kubernetes registers flags for all programs that import it, one of them a --version that is not the bool
// that cobra expects of other commands.
func forgetFlags() {
	pflag.CommandLine = pflag.NewFlagSet(os.Args[0], pflag.ExitOnError)
}

func helm() int {
	forgetFlags()
	helmkube.ManagedFieldsManager = "helm"
	command, err := helmcmd.NewRootCmd(os.Stdout, os.Args[1:], helmcmd.SetupLogging)
	if err != nil {
		slog.Error("cannot set up helm", slog.Any("error", err))
		return 1
	}
	if err := command.Execute(); err != nil {
		if exit, ok := errors.AsType[helmcmd.CommandError](err); ok {
			return exit.ExitCode
		}
		return 1
	}
	return 0
}

// kwok's command reads its configuration and logger from the context that its own main sets up.
func kwok() int {
	forgetFlags()
	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}

	var ctx context.Context = kwoksignals.SetupSignalContext()
	ctx, logger := kwoklog.InitFlags(ctx, flags)
	ctx, err := kwokconfig.InitFlags(ctx, flags)
	if err != nil {
		logger.Error("cannot read kwok's configuration", "error", err)
		return 1
	}
	command := kwokcmd.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(flags)
	if err := command.ExecuteContext(ctx); err != nil {
		logger.Error("kwok ended", "error", err)
		return 1
	}
	return 0
}

func metricsServer() int {
	if err := metricsserver.NewMetricsServerCommand(genericapiserver.SetupSignalHandler()).Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

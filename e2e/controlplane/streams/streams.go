// Package streams is the part of a kubelet that people talk to: exec, attach and port-forward, with the kubelet's
// own library on the wire, so exit codes, terminals, half-closed inputs and resets are as they are on a real node.
//
// Commands run on the machine, in one folder. A container's main process is the script <container>.sh of that
// folder; it starts when somebody attaches. All other paths are passed on to kwok.
package streams

import (
	"crypto/tls"
	"flag"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// As a kubelet has them.
const (
	idle     = 4 * time.Hour
	creation = remotecommand.DefaultStreamCreationTimeout
)

// Main serves until it is killed, and returns the exit code of the process.
func Main() int {
	address := flag.String("address", "", "host and port to serve on")
	certificate := flag.String("tls-cert-file", "", "serving certificate")
	key := flag.String("tls-private-key-file", "", "its key")
	folder := flag.String("folder", "", "where commands run and the scripts of main processes are")
	others := flag.String("others", "", "URL of the kubelet that serves all other paths")
	flag.Parse()
	rest, err := url.Parse(*others)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	server := &http.Server{
		Addr:    *address,
		Handler: handler(&runtime{folder: *folder, mains: map[string]*process{}}, rest),
		// A connection is hijacked for its streams, which HTTP/2 cannot.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	fmt.Fprintln(os.Stderr, server.ListenAndServeTLS(*certificate, *key))
	return 1
}

func handler(containers *runtime, rest *url.URL) http.Handler {
	proxy := httputil.NewSingleHostReverseProxy(rest)
	// The test ground's own kwok, on the same address.
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	// Lines of a log that is followed pass at once.
	proxy.FlushInterval = -1
	mux := http.NewServeMux()
	mux.Handle("/", proxy)
	mux.HandleFunc("/containerLogs/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		// kwok needs one of few inotify instances of the machine for each log that is followed.
		if r.URL.Query().Get("follow") != "true" {
			proxy.ServeHTTP(w, r)
			return
		}
		containers.follow(w, r)
	})
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		options, err := remotecommand.NewOptions(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		command := r.URL.Query()["command"]
		remotecommand.ServeExec(w, r, containers, pod(r), "", r.PathValue("container"), command, options, idle, creation,
			remotecommand.SupportedStreamingProtocols)
	})
	mux.HandleFunc("/attach/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		options, err := remotecommand.NewOptions(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		remotecommand.ServeAttach(w, r, containers, pod(r), "", r.PathValue("container"), options, idle, creation,
			remotecommand.SupportedStreamingProtocols)
	})
	mux.HandleFunc("/portForward/{namespace}/{pod}", func(w http.ResponseWriter, r *http.Request) {
		options, err := portforward.NewV4Options(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		portforward.ServePortForward(w, r, containers, pod(r), "", options, idle, creation, portforward.SupportedProtocols)
	})
	return mux
}

func pod(r *http.Request) string {
	return strings.Join([]string{r.PathValue("namespace"), r.PathValue("pod")}, "/")
}

package streams

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/creack/pty"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// Ports of every pod, by the numbers that such services have.
const (
	echo    = 7
	discard = 9
	chargen = 19
)

// runtime runs commands for containers.
type runtime struct {
	folder string
	lock   sync.Mutex
	// Main processes by pod and container.
	mains map[string]*process
}

// process is a main process that nobody has attached to yet, or somebody has.
type process struct {
	command *exec.Cmd
	stdin   io.WriteCloser
	stdout  io.Reader
	stderr  io.Reader
}

func (r *runtime) command(ctx context.Context, words []string) *exec.Cmd {
	command := exec.CommandContext(ctx, words[0], words[1:]...)
	command.Dir = r.folder
	// What a command left behind may keep its pipes open; a container runtime waits for those a while, too.
	command.WaitDelay = 10 * time.Second
	return command
}

// ended makes of a process's end what the library makes an exit code of: a shell's code for one that was killed.
func ended(err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	code := exit.ExitCode()
	if code < 0 {
		code = 137
	}
	return utilexec.CodeExitError{Err: err, Code: code}
}

func (r *runtime) ExecInContainer(ctx context.Context, _, _, _ string, words []string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	if len(words) == 0 {
		return errors.New("no command")
	}
	command := r.command(ctx, words)
	if tty {
		return onTerminal(command, in, out, resize)
	}
	if in != nil {
		// Not Stdin: its end would wait for input that nobody sends any more.
		stdin, err := command.StdinPipe()
		if err != nil {
			return err
		}
		go func() {
			// A command that does not read is no error.
			_, _ = io.Copy(stdin, in)
			_ = stdin.Close()
		}()
	}
	if out != nil {
		command.Stdout = out
	}
	if errOut != nil {
		command.Stderr = errOut
	}
	return ended(command.Run())
}

func onTerminal(command *exec.Cmd, in io.Reader, out io.Writer, resize <-chan remotecommand.TerminalSize) error {
	terminal, err := pty.Start(command)
	if err != nil {
		return err
	}
	defer terminal.Close()
	go func() {
		for size := range resize {
			_ = pty.Setsize(terminal, &pty.Winsize{Rows: size.Height, Cols: size.Width})
		}
	}()
	if in != nil {
		go func() { _, _ = io.Copy(terminal, in) }()
	}
	if out != nil {
		// A terminal whose last process is gone ends with an error.
		_, _ = io.Copy(out, terminal)
	}
	return ended(command.Wait())
}

// main is the main process of a container, started unless it runs.
func (r *runtime) main(key, container string) (*process, error) {
	r.lock.Lock()
	defer r.lock.Unlock()
	if known := r.mains[key]; known != nil {
		return known, nil
	}
	command := r.command(context.Background(), []string{"sh", filepath.Join(r.folder, container+".sh")})
	stdin, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	stderr, err := command.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	started := &process{command: command, stdin: stdin, stdout: stdout, stderr: stderr}
	r.mains[key] = started
	return started, nil
}

func (r *runtime) AttachContainer(_ context.Context, pod, _, container string, in io.Reader, out, errOut io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize) error {
	key := pod + "/" + container
	main, err := r.main(key, container)
	if err != nil {
		return err
	}
	if in != nil {
		go func() {
			_, _ = io.Copy(main.stdin, in)
			// As with stdinOnce: the first input that ends is the input's end.
			_ = main.stdin.Close()
		}()
	}
	var outputs sync.WaitGroup
	for _, output := range []struct {
		from io.Reader
		to   io.Writer
	}{{main.stdout, writer(out)}, {main.stderr, writer(errOut)}} {
		outputs.Go(func() { _, _ = io.Copy(output.to, output.from) })
	}
	outputs.Wait()
	r.lock.Lock()
	delete(r.mains, key)
	r.lock.Unlock()
	return main.command.Wait()
}

// writer takes what nobody wants to see.
func writer(to io.WriteCloser) io.Writer {
	if to == nil {
		return io.Discard
	}
	return to
}

func (r *runtime) PortForward(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	var err error
	switch port {
	case echo:
		_, err = io.Copy(stream, stream)
	case discard:
		_, err = io.Copy(io.Discard, stream)
	case chargen:
		_, err = io.Copy(stream, pattern{})
	default:
		err = fmt.Errorf("nothing listens on port %d", port)
	}
	return err
}

// pattern is an endless input.
type pattern struct{}

func (pattern) Read(into []byte) (int, error) {
	for at := range into {
		into[at] = byte(at)
	}
	return len(into), nil
}

// follow sends a container's log, and what is added to it until the caller goes.
func (r *runtime) follow(w http.ResponseWriter, request *http.Request) {
	log, err := os.Open(filepath.Join(r.folder, request.PathValue("container")+".log"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	defer log.Close()
	lines := bufio.NewReader(log)
	flusher := http.NewResponseController(w)
	for {
		line, err := lines.ReadString('\n')
		if err == nil {
			// As a container runtime writes them: time, stream, tag, text.
			if parts := strings.SplitN(line, " ", 4); len(parts) == 4 {
				_, err = io.WriteString(w, parts[3])
			}
			if err != nil || flusher.Flush() != nil {
				return
			}
			continue
		}
		// Lines are added whole.
		select {
		case <-request.Context().Done():
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

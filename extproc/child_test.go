package extproc_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/extproc"
	"github.com/grapevine-epp/grapevine/internal/listen"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// If these are set, the test binary serves as a separate picker process, which can be killed and
// whose CPU time is separate from the load's.
const (
	childEndpoints = "GRAPEVINE_TEST_ENDPOINTS"      // comma list, for every request
	childWaits     = "GRAPEVINE_TEST_WAITS"          // not empty: no request is ever decided
	childProfile   = "GRAPEVINE_TEST_PICKER_PROFILE" // file for a CPU profile
)

func TestMain(m *testing.M) {
	if list := os.Getenv(childEndpoints); list != "" {
		if err := serveChild(strings.Split(list, ",")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// fixedChooser makes the same decision for every request and requests every other response body.
type fixedChooser struct {
	endpoints []string
	n         atomic.Int64
}

func (f *fixedChooser) Choose(ctx context.Context, _ *request.Request) (*request.Decision, error) {
	if os.Getenv(childWaits) != "" {
		<-ctx.Done()
		return nil, request.Errorf(request.ReasonCancelled, "gone")
	}
	return &request.Decision{Endpoints: f.endpoints, WantBody: f.n.Add(1)%2 == 0}, nil
}

// serveChild serves until its input ends.
func serveChild(endpoints []string) error {
	p, err := extproc.New(extproc.Options{
		Chooser:           &fixedChooser{endpoints: endpoints},
		Parse:             func(r *request.Request) error { r.Model = "m"; return nil },
		AllowModeOverride: true,
	})
	if err != nil {
		return err
	}
	ready := listen.NewReadiness()
	s, err := extproc.Open(p, extproc.Listen{Address: "127.0.0.1:0", TLS: listen.TLS{Plaintext: true}, Readiness: ready})
	if err != nil {
		return err
	}
	ready.Set(true)
	if name := os.Getenv(childProfile); name != "" {
		f, err := os.Create(name)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	fmt.Println(s.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

// child is a picker in a separate process.
type child struct {
	cmd  *exec.Cmd
	in   io.Closer
	addr string
}

func startChild(tb testing.TB, endpoints string, env ...string) *child {
	tb.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), childEndpoints+"="+endpoints), env...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	c := &child{cmd: cmd, in: in}
	tb.Cleanup(func() { c.stop() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		tb.Fatalf("the picker's process did not say where it listens: %v", err)
	}
	c.addr = strings.TrimSpace(line)
	return c
}

// kill ends the process as kill -9 does.
func (c *child) kill() { _ = c.cmd.Process.Kill() }

// stop ends the process and returns the processor time that it used.
func (c *child) stop() time.Duration {
	c.in.Close()
	if c.cmd.ProcessState == nil {
		_ = c.cmd.Wait() // a killed process counts like a stopped one
	}
	return c.cmd.ProcessState.UserTime() + c.cmd.ProcessState.SystemTime()
}

// cpu returns the processor time used so far.
func (c *child) cpu(tb testing.TB) time.Duration {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
	if err != nil {
		tb.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	fields := strings.Fields(rest) // from the third field on
	var ticks int
	for _, f := range fields[11:13] { // user and system time
		n, err := strconv.Atoi(f)
		if err != nil {
			tb.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

package testkit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/parts"
)

const (
	startTimeout = time.Minute
	// NetworkTimeout is the envoyconf.Params.NetworkTimeout of tests, so that a busy machine is not
	// mistaken for a failure. Refused connections are detected at once all the same.
	NetworkTimeout = 30 * time.Second
	stopTimeout    = 5 * time.Second
	pollEvery      = 20 * time.Millisecond
)

// Envoy is a running Envoy.
type Envoy struct {
	cmd    *exec.Cmd
	admin  string
	log    parts.Output
	exited chan struct{}
	stop   sync.Once
	addrs  map[string]string
	client http.Client
}

// StartEnvoy runs Envoy with a bootstrap configuration in YAML and returns when it
// serves. It logs warnings and worse, unless args, which join the command
// line, set another level. The test fails when Envoy does not start, and Envoy
// ends with the test.
func StartEnvoy(tb testing.TB, config []byte, args ...string) *Envoy {
	tb.Helper()
	dir := tb.TempDir()
	file, adminFile := filepath.Join(dir, "envoy.yaml"), filepath.Join(dir, "admin")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		tb.Fatal(err)
	}
	if !slices.Contains(args, "--log-level") {
		args = append(args, "--log-level", "warning")
	}
	args = append([]string{"-c", file, "--admin-address-path", adminFile,
		"--disable-hot-restart", "--concurrency", "2"}, args...)
	e := &Envoy{exited: make(chan struct{}), client: http.Client{Timeout: 30 * time.Second}}
	e.cmd = exec.Command(parts.Envoy(tb), args...)
	e.cmd.Stdout, e.cmd.Stderr = &e.log, &e.log
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := e.cmd.Start(); err != nil {
		tb.Fatalf("envoy: %v", err)
	}
	go func() {
		_ = e.cmd.Wait() // how it ended is in its log
		close(e.exited)
	}()
	tb.Cleanup(e.Stop)
	if err := e.waitLive(adminFile); err != nil {
		tb.Fatalf("envoy: %v; log:\n%s", err, e.Log())
	}
	return e
}

// waitLive reads the admin address and waits for the listeners.
func (e *Envoy) waitLive(adminFile string) error {
	deadline := time.Now().Add(startTimeout)
	for time.Now().Before(deadline) {
		select {
		case <-e.exited:
			return errors.New("exited at start")
		case <-time.After(pollEvery):
		}
		if e.admin == "" {
			raw, err := os.ReadFile(adminFile)
			if err != nil || len(raw) == 0 {
				continue
			}
			e.admin = "http://" + strings.TrimSpace(string(raw))
		}
		if body, err := e.get("/ready"); err == nil && strings.HasPrefix(body, "LIVE") {
			return e.readListeners()
		}
	}
	return fmt.Errorf("not live after %v", startTimeout)
}

// readListeners reads the bound addresses of the listeners.
func (e *Envoy) readListeners() error {
	body, err := e.get("/listeners?format=json")
	if err != nil {
		return err
	}
	var page struct {
		Statuses []struct {
			Name    string `json:"name"`
			Address struct {
				Socket struct {
					Address string `json:"address"`
					Port    int    `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal([]byte(body), &page); err != nil {
		return fmt.Errorf("listeners: %w", err)
	}
	e.addrs = map[string]string{}
	for _, s := range page.Statuses {
		e.addrs[s.Name] = s.Address.Socket.Address + ":" + strconv.Itoa(s.Address.Socket.Port)
	}
	return nil
}

// Addr returns ip:port of a listener by its name, "" for an unknown one.
func (e *Envoy) Addr(listener string) string { return e.addrs[listener] }

// Admin returns the base URL of the admin interface.
func (e *Envoy) Admin() string { return e.admin }

// Log returns everything that Envoy has logged.
func (e *Envoy) Log() string { return e.log.String() }

// Stats returns the counters and gauges whose names contain part.
func (e *Envoy) Stats(tb testing.TB, part string) map[string]int {
	tb.Helper()
	body, err := e.get("/stats")
	if err != nil {
		tb.Fatalf("envoy: stats: %v", err)
	}
	stats := map[string]int{}
	for line := range strings.Lines(body) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok || !strings.Contains(name, part) {
			continue
		}
		if n, err := strconv.Atoi(value); err == nil {
			stats[name] = n
		}
	}
	return stats
}

// Stop stops Envoy and waits until it has exited. Further calls have no effect.
func (e *Envoy) Stop() {
	e.stop.Do(func() {
		_ = e.cmd.Process.Signal(syscall.SIGTERM) // it may be gone already
		select {
		case <-e.exited:
		case <-time.After(stopTimeout):
			_ = e.cmd.Process.Kill()
			<-e.exited
		}
		e.client.CloseIdleConnections()
	})
}

func (e *Envoy) get(path string) (string, error) {
	resp, err := e.client.Get(e.admin + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

package commands

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit/hub"
)

// lines is a writer whose content can be read concurrently.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestUp starts with two bare engines and ends with an answered request.
func TestUp(t *testing.T) {
	h := hub.Start(t)
	h.Add(t, "org/model", modelFolder(t))
	t.Setenv("HF_ENDPOINT", h.URL)
	t.Setenv("HF_HUB_OFFLINE", "")
	t.Setenv("HF_HOME", t.TempDir())
	cache := t.TempDir()
	engines, err := fleet.Open(fleet.Options{Engines: 2, Engine: sim.Options{Root: "org/model", Speed: 100, Events: &sim.EventOptions{}, Sources: "ranks"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engines.Close() })
	silent, err := fleet.Open(fleet.Options{Engines: 1, Engine: sim.Options{Root: "org/model", Speed: 100}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	ports, release, err := parts.ReservePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	args := []string{"--listen", "127.0.0.1:" + fmt.Sprint(ports[0]), "--admin", "127.0.0.1:0", "--envoy", parts.Envoy(t), "--model-cache", cache}
	for _, e := range append(engines.Endpoints(), silent.Endpoints()...) {
		args = append(args, "--engine", fmt.Sprintf("http://%s:%v", e.Address, e.Port))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := newUp(standard)
	var out, errOut lines
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&errOut)
	done := make(chan error, 1)
	start := time.Now()
	go func() { done <- cmd.ExecuteContext(ctx) }()
	ready := regexp.MustCompile(`(?m)^ready after [0-9.]+s: (http://\S+/v1) `)
	for ready.FindString(out.String()) == "" {
		select {
		case err := <-done:
			t.Fatalf("ended with %v\n%s%s", err, &out, &errOut)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Since(start) > time.Minute {
			t.Fatalf("not ready\n%s%s", &out, &errOut)
		}
	}
	t.Logf("ready %.1f s after the start\n%s", time.Since(start).Seconds(), &out)
	if n := len(regexp.MustCompile(`(?m)^engine \S+: KV-cache events at tcp://127\.0\.0\.1:[0-9]+$`).FindAllString(out.String(), -1)); n != 2 {
		t.Errorf("events of %d engines are listed, want 2:\n%s", n, &out)
	}
	if n := strings.Count(out.String(), ": no KV-cache events"); n != 1 {
		t.Errorf("%d engines are listed without events, want 1:\n%s", n, &out)
	}
	// up waits for the download no longer than for readiness, 15 s.
	if n := strings.Count(out.String(), ", tokenizer "+cache) + strings.Count(out.String(), ", tokenizer is being downloaded"); n != 3 {
		t.Errorf("%d engines are listed with a tokenizer, want 3:\n%s", n, &out)
	}
	model := regexp.MustCompile(`model (\S+),`).FindStringSubmatch(out.String())
	if model == nil {
		t.Fatalf("no model is listed:\n%s", &out)
	}
	resp, err := http.Post(ready.FindStringSubmatch(out.String())[1]+"/completions", "application/json",
		strings.NewReader(fmt.Sprintf(`{"model":%q,"prompt":"Hello","max_tokens":4}`, model[1])))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("status %s", resp.Status)
	}
	cancel()
	if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v\n%s", err, &errOut)
	}
}

func TestUpFaults(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", "at least one --engine URL is required"},
		{"--engine ftp://x", "want http://HOST:PORT"},
		{"--engine 127.0.0.1:1", "does not answer"},
		{"--engine 127.0.0.1:1 --envoy /nonexistent", "/nonexistent"},
	} {
		cmd := newUp(standard)
		cmd.SetArgs(append(strings.Fields(c.args), "--log-level=error"))
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		if !strings.Contains(c.args, "--envoy") {
			t.Setenv("ENVOY", parts.Envoy(t))
		}
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
	}
}

//go:build proxies

package proxies

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit/kinds"
)

func each(t *testing.T, f func(t *testing.T, r *rig)) {
	t.Helper()
	for i := range proxies {
		p := &proxies[i]
		t.Run(p.name, func(t *testing.T) { f(t, open(t, p)) })
	}
}

// TestKinds: every kind of request gets the engine's own answer, is sent to the picked endpoint,
// and is reported as ended by the proxy.
func TestKinds(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		n := kinds.Compare(t, r.addr, r.addrs[0])
		if n < 20 {
			t.Errorf("%d kinds", n)
		}
		ends, whole := r.settled(), 0
		for _, o := range ends {
			if o.Complete {
				whole++
			}
			if o.Served != "" && o.Served != r.addrs[0] {
				t.Errorf("a request went to %s, not to the picker's choice", o.Served)
			}
		}
		// Caddy's log gives an upgraded connection no status.
		if len(ends) != n || whole != n && (r.p.tells || whole != n-1) {
			t.Errorf("%d requests, %d picks ended, %d as whole", n, len(ends), whole)
		}
		seen := false
		for _, q := range r.asked() {
			seen = seen || q.Model == "m" && q.Path == "/v1/chat/completions"
		}
		if seen != r.p.body {
			t.Errorf("the picker saw bodies: %v, want %v", seen, r.p.body)
		}
	})
}

// TestStream: each part of a stream reaches the client before the engine sends the next one.
func TestStream(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		resp := r.ask(t.Context(), "/v1/paced")
		defer resp.Body.Close()
		in := bufio.NewReader(resp.Body)
		if line, err := in.ReadString('\n'); line != "data: first\n" {
			t.Fatalf("%q %v", line, err)
		}
		r.next <- struct{}{}
		rest, err := io.ReadAll(in)
		if err != nil || string(rest) != "\ndata: second\n\n" {
			t.Errorf("%q %v", rest, err)
		}
		if ends := r.settled(); len(ends) != 1 || !ends[0].Complete || ends[0].Status != 200 {
			t.Errorf("ends %+v", ends)
		}
	})
}

// TestClientLeaves: the engine's work ends, and so does the pick.
func TestClientLeaves(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		resp := r.ask(ctx, "/v1/paced")
		defer resp.Body.Close()
		if line, err := bufio.NewReader(resp.Body).ReadString('\n'); line != "data: first\n" {
			t.Fatalf("%q %v", line, err)
		}
		leave()
		<-r.left
		if ends := r.settled(); len(ends) != 1 || ends[0].Complete == r.p.tells {
			t.Errorf("ends %+v", ends)
		}
	})
}

// TestSpoofed: destination headers from clients are ignored, and the picker's headers for engines
// reach the engine.
func TestSpoofed(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		heard := make(chan http.Header, 1)
		r.engines[0].Config.Handler.(*http.ServeMux).HandleFunc("/v1/heard", func(w http.ResponseWriter, req *http.Request) { heard <- req.Header })
		resp := r.ask(t.Context(), "/v1/heard", "X-Gateway-Destination-Endpoint", r.addrs[1], "X-Prefiller-Host-Port", "6.6.6.6:80", "X-Data-Parallel-Host-Port", "6.6.6.6:80")
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Fatal(resp.Status)
		}
		got := <-heard
		for name, want := range map[string]string{"X-Gateway-Destination-Endpoint": "", "X-Prefiller-Host-Port": "10.0.0.3:80", "X-Data-Parallel-Host-Port": ""} {
			if got.Get(name) != want {
				t.Errorf("%s: the engine got %q, want %q", name, got.Get(name), want)
			}
		}
	})
}

// TestEngineDead: a request whose engine is gone is served by the picker's second choice or by
// another engine, if the proxy supports this.
func TestEngineDead(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.engines[0].Close()
		resp := r.ask(t.Context(), "/v1/completions")
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		switch {
		case err != nil:
			t.Fatal(err)
		case !r.p.second && resp.StatusCode != http.StatusBadGateway:
			t.Errorf("%s %s", resp.Status, body)
		case r.p.second && (resp.StatusCode != 200 || resp.Header.Get("X-Engine") != "second"):
			t.Errorf("%s from %q: %s", resp.Status, resp.Header.Get("X-Engine"), body)
		}
		ends := r.settled()
		if len(ends) != 1 || r.p.second && ends[0].Served != r.addrs[1] {
			t.Errorf("ends %+v", ends)
		}
	})
}

// TestRefused: the client receives the refusal, and no engine sees the request.
func TestRefused(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.mu.Lock()
		r.refuse = true
		r.mu.Unlock()
		resp := r.ask(t.Context(), "/v1/completions")
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "1" || resp.Header.Get("X-Llm-D-Request-Dropped-Reason") == "" || !strings.Contains(string(body), "the pool is full") || resp.Header.Get("X-Engine") != "" {
			t.Errorf("%s %v %s", resp.Status, resp.Header, body)
		}
	})
}

// TestPickerDead: without a picker the proxy chooses engines itself and ignores destination headers
// from clients; Caddy refuses.
func TestPickerDead(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		if err := r.pick.Close(); err != nil {
			t.Fatal(err)
		}
		served := map[string]int{}
		for range 10 {
			resp := r.ask(t.Context(), "/v1/completions", "X-Gateway-Destination-Endpoint", r.addrs[1])
			resp.Body.Close()
			served[resp.Header.Get("X-Engine")]++
			if want := map[bool]int{true: 200, false: 502}[r.p.alone]; resp.StatusCode != want {
				t.Fatalf("%s, want %d", resp.Status, want)
			}
		}
		if r.p.alone && (served["first"] == 0 || served["second"] == 0) {
			t.Errorf("served by %v, want both engines", served)
		}
	})
}

//go:build hostile

package hostile

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// flood is one way to keep a sidecar busy. speak handles one connection until it ends.
type flood struct {
	name        string
	connections int
	speak       func(c net.Conn)
	counted     string // part of a counter that must grow; "" for none
}

const floodLasts = 5 * time.Second

var largeBody = strings.Repeat("a", 12<<20)

var floods = []flood{
	{"1,500 connections that say nothing", 1500, func(net.Conn) {}, `reason="many"`},
	{"headers, a byte at a time", 600, func(c net.Conn) {
		_, err := io.WriteString(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-A: ")
		for err == nil {
			time.Sleep(100 * time.Millisecond)
			_, err = c.Write([]byte{'a'})
		}
	}, ""},
	{"headers without an end", 100, func(c net.Conn) {
		_, err := io.WriteString(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\n")
		for err == nil {
			_, err = io.WriteString(c, "X-A: "+strings.Repeat("b", 4000)+"\r\n")
		}
	}, ""},
	{"12 MB bodies whose last byte does not come", 40, func(c net.Conn) {
		fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{\"prompt\":\"", len(largeBody)+12)
		_, _ = io.WriteString(c, largeBody)
	}, ""},
	{"requests whose answers nobody reads", 200, func(c net.Conn) {
		many := strings.Repeat("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"a\"}", 1000)
		var err error
		for err == nil {
			_, err = io.WriteString(c, many)
		}
	}, ""},
	{"tunnels, upgrades and the beginning of HTTP/2", 900, func(c net.Conn) {
		for _, text := range []string{
			"GET /v1/realtime HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
			"CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: x\r\n\r\n",
			"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
		} {
			_, _ = io.WriteString(c, text)
		}
	}, ""},
	{"requests that are left at once", 100, nil, ""},
}

// TestSidecar floods the program running as a sidecar, while another address sends honest requests.
// It must stay alive within its memory and serve the honest requests.
func TestSidecar(t *testing.T) {
	people := openPeople(t) // in their own process, so attackers without pauses do not starve them
	at, program := parts.FreeAddress(t), filepath.Join(testkit.Build(t, "grapevine"), "grapevine")
	host, port, err := net.SplitHostPort(at)
	if err != nil {
		t.Fatal(err)
	}
	c := &cage{admin: parts.FreeAddress(t)}
	c.start(t, program, []string{"sidecar", "--host", host, "--port", port, "--engine", people.Plain, "--allow", "127.0.0.1:1", "--secure-proxy=false", "--metrics", c.admin, "--linger", "0s", "--drain", "1s"})
	var table strings.Builder
	var rows []row
	chosen := regexp.MustCompile(*only)
	for i, f := range floods {
		if !chosen.MatchString(f.name) || !inPart(t, i) {
			continue
		}
		before, files := c.counters(), c.files()
		c.calm()
		people.tell(order{Do: "beside", Front: at}, &struct{}{})
		f.run(at)
		var got asked
		people.tell(order{Do: "stop"}, &got)
		times, failures := got.Times, got.Failures
		grown := ""
		for name, n := range c.counters() {
			if n > before[name] && (strings.HasPrefix(name, "grapevine_connections_closed") || strings.HasPrefix(name, "grapevine_sidecar_requests") || strings.HasPrefix(name, "grapevine_memory_budget_refused")) {
				grown += fmt.Sprintf(" %s +%g", strings.TrimPrefix(name, "grapevine_"), n-before[name])
			}
		}
		fmt.Fprintf(&table, "%s: peak %d MiB, sockets %d MiB, %d honest requests, %d not served, p99 %d ms;%s\n", f.name, c.peak.Load()>>20, c.sockets.Load()>>20, len(times), len(failures), slowest(slices.Clone(times)).Milliseconds(), grown)
		rows = append(rows, row{name: "sidecar: " + f.name, peak: c.peak.Load(), sockets: c.sockets.Load(), p99: slowest(slices.Clone(times))})
		if !c.alive() {
			t.Fatalf("%s: the program is dead; its log ends with\n%s", f.name, tail(c.log.String()))
		}
		if len(failures) > 0 || len(times) == 0 {
			t.Errorf("%s: %d of %d honest requests were not served: %v", f.name, len(failures), len(times), failures[:min(len(failures), 3)])
		}
		if amiss := c.uncomfortable(); amiss != "" {
			t.Errorf("%s: %s", f.name, amiss)
		}
		if !strings.Contains(grown, f.counted) {
			t.Errorf("%s: nothing counts it:%s, want %s", f.name, grown, f.counted)
		}
		if !testkit.PollUntil(func() bool { return c.files() < files+50 }) {
			t.Errorf("%s: %d files are open, %d before", f.name, c.files(), files)
		}
	}
	t.Logf("512 MiB, held by: %s\n%s", c.kind, table.String())
	t.Logf("as in docs/security.md:\n%s", inDocs(rows))
}

// answerPlainly is an engine.
func answerPlainly(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"choices":[{"text":"`+strings.Repeat("a", 4<<10)+`"}]}`)
}

// run floods an address for floodLasts.
func (f *flood) run(at string) {
	end := time.Now().Add(floodLasts)
	together(f.connections, func(int) {
		for time.Now().Before(end) {
			c, err := net.DialTimeout("tcp", at, time.Second)
			if err != nil {
				time.Sleep(50 * time.Millisecond)
				continue
			}
			_ = c.SetDeadline(end)
			if f.speak == nil {
				_, _ = io.WriteString(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"a\"}")
				c.Close()
				time.Sleep(5 * time.Millisecond)
				continue
			}
			f.speak(c)
			_, _ = io.Copy(io.Discard, io.LimitReader(c, 1)) // until it is closed or answered
			time.Sleep(20 * time.Millisecond)
			c.Close()
		}
	})
}

// honestly sends a request every 20 ms on a kept connection from another address until stop is
// called.
func honestly(at string) (stop func() asked) {
	transport := &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext}
	client := http.Client{Timeout: 20 * time.Second, Transport: transport}
	var got asked
	var wg sync.WaitGroup
	over := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(20 * time.Millisecond):
			}
			begun := time.Now()
			resp, err := client.Post("http://"+at+"/v1/completions", "application/json", strings.NewReader(`{"model":"m","prompt":"hello"}`))
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if err == nil && resp.StatusCode != http.StatusOK {
					err = fmt.Errorf("status %d", resp.StatusCode)
				}
			}
			if got.Times = append(got.Times, time.Since(begun)); err != nil {
				got.Failures = append(got.Failures, err.Error())
			}
		}
	})
	return func() asked {
		close(over)
		wg.Wait()
		transport.CloseIdleConnections()
		return got
	}
}

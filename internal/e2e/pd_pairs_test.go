package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/problems"
	"github.com/grapevine-epp/grapevine/internal/server"
)

// TestPairBreaker: of two prefill engines, one hands nothing over. After three requests its pair is off,
// status names the problem, and at most 2% of the requests use it. Once it works, it is used again. The documentation
// has the states of grapevine status.
func TestPairBreaker(t *testing.T) {
	var mute atomic.Bool
	mute.Store(true)
	var bad string
	r := openPDBehind(t, 2, 1, patience, func(i int, engine string) string {
		if i > 0 {
			return engine
		}
		forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: engine})
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost || !mute.Load() {
				forward.ServeHTTP(w, r)
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"choices":[{"text":"x"}],"kv_transfer_params":null}`)
		}))
		t.Cleanup(front.Close)
		bad = strings.TrimPrefix(front.URL, "http://")
		return bad
	}, rigOptions{})
	pair := func() (p server.PairStatus) {
		if st := r.servers[0].Status().PD; st != nil {
			for _, one := range st.Pairs {
				if one.Prefill == bad {
					return one
				}
			}
		}
		return p
	}
	sent := 0
	grapevine := func(args ...string) string {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(self, append([]string{"status", "--admin", r.servers[0].AdminAddr().String()}, args...)...)
		cmd.Env = append(os.Environ(), envCommand+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("grapevine status: %v\n%s", err, out)
		}
		return string(out)
	}
	page, err := os.ReadFile("../../docs/pd-failures.md")
	if err != nil {
		t.Fatal(err)
	}
	// look compares the pair in the command's output, as text and as JSON, with the state and with the documentation.
	look := func(state, row string) {
		t.Helper()
		var got string
		for line := range strings.Lines(grapevine()) {
			if cells := columns.Split(strings.TrimSpace(line), -1); cells[0] == bad && len(cells) == 7 {
				got = cells[2] + " | " + cells[4]
			}
		}
		var st server.Status
		if err := json.Unmarshal([]byte(grapevine("-o", "json")), &st); err != nil {
			t.Fatal(err)
		}
		inJSON := ""
		for _, p := range st.PD.Pairs {
			if p.Prefill == bad {
				inJSON = p.State
			}
		}
		cell, _, _ := strings.Cut(row, " | ")
		if got != row || inJSON != state || row != "" && !strings.Contains(string(page), "| "+cell+" |") {
			t.Errorf("after %d requests, status has %q and %q in JSON; want %q, %q, and the state in docs/pd-failures.md", sent, got, inJSON, row, state)
		}
	}
	look("", "")
	send := func(n int) {
		for range n {
			sent++
			if got := r.stream(strings.Repeat(fmt.Sprintf("prompt %d of a pair. ", sent), 20)); got.status != http.StatusOK {
				t.Fatalf("request %d: %+v", sent, got)
			}
		}
		r.settle()
	}
	for pair().Failed < 3 && sent < 100 {
		send(1)
	}
	if p := pair(); p.State != "nothing_handed_over" || p.Failed != 3 {
		t.Fatalf("after %d requests: %+v, want the pair to be off after 3 failures", sent, p)
	}
	named := false
	for _, f := range r.servers[0].Status().Problems {
		named = named || f.Code == problems.PairNothing && strings.Contains(f.Summary(), bad)
	}
	if !named {
		t.Errorf("status names no %s of %s: %+v", problems.PairNothing, bad, r.servers[0].Status().Problems)
	}
	look("nothing_handed_over", "off: nothing handed over | 3")
	send(97)
	if p := pair(); p.Failed > 5 {
		t.Errorf("%d of 97 requests used the pair that is off, want 2%% at most", p.Failed-3)
	}
	failed := pair().Failed
	mute.Store(false)
	for pair().State != "works" && sent < 500 {
		send(8)
	}
	if p := pair(); p.State != "works" {
		t.Fatalf("after %d requests: %+v, want the pair to be on", sent, p)
	}
	look("works", fmt.Sprint("on | ", failed))
}

// columns separates the columns of the command's tables.
var columns = regexp.MustCompile(` {2,}`)

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/pd/sidecar"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// pausedLease is the time that the engines of the test keep unread blocks.
const pausedLease = 300 * time.Millisecond

// TestPausedPair stops the decode engine, then the prefill engine, for one to five leases with requests in flight:
// split and whole, streamed or not. All are answered after the pause, also those on connections that the engine then
// closes as idle, and no answer is computed from freed blocks.
func TestPausedPair(t *testing.T) {
	decode, prefill := &engineProcess{lease: pausedLease}, &engineProcess{lease: pausedLease}
	for _, e := range []*engineProcess{decode, prefill} {
		e.start(t)
		t.Cleanup(e.kill)
	}
	s, err := sidecar.New(sidecar.Options{Engine: "http://" + decode.addr, Lease: pausedLease})
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(s)
	defer front.Close()
	fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // engines close idle connections
	ask := func(url, prompt string, stream, split bool) (status int, text string) {
		body, _ := json.Marshal(map[string]any{"model": vocab.Name, "prompt": prompt, "max_tokens": 12, "ignore_eos": true, "stream": stream}) // always encodes
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/completions", bytes.NewReader(body))
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		if split {
			r.Header.Set(request.HeaderPrefiller, prefill.addr)
		}
		resp, err := fresh.Do(r)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		if err != nil {
			return 0, err.Error()
		}
		for line := range strings.Lines(strings.ReplaceAll(string(raw), "data: ", "")) {
			var c struct{ Choices []struct{ Text string } }
			if json.Unmarshal([]byte(line), &c) == nil {
				for _, one := range c.Choices {
					text += one.Text
				}
			}
		}
		return resp.StatusCode, text
	}
	const inFlight = 16
	for who, party := range []*engineProcess{decode, prefill} {
		for leases := 1; leases <= 5; leases++ {
			prompts := make([]string, inFlight)
			for i := range prompts {
				prompts[i] = strings.Repeat(fmt.Sprintf("prompt %d of pause %d of party %d. ", i, leases, who), 30)
			}
			var open sync.WaitGroup
			begin := func(i int) {
				open.Go(func() {
					status, text := ask(front.URL, prompts[i], i%2 == 1, i%4 < 3)
					if _, want := ask("http://"+prefill.addr, prompts[i], false, false); status != http.StatusOK || text != want {
						t.Errorf("party %d stopped for %d leases, prompt %d: status %d %q, want 200 %q", who, leases, i, status, text, want)
					}
				})
			}
			for i := range inFlight / 2 {
				begin(i)
			}
			_ = party.cmd.Process.Signal(syscall.SIGSTOP)
			for i := range inFlight / 2 {
				begin(inFlight/2 + i)
			}
			time.Sleep(time.Duration(leases)*pausedLease + pausedLease/3) // the length of the pause
			_ = party.cmd.Process.Signal(syscall.SIGCONT)
			open.Wait()
		}
	}
}

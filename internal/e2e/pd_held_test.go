package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/faults"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// said is an answer with the engine that gave it.
type said struct {
	status       int
	engine, text string
}

// chat sends a chat with additional headers as name, value pairs.
func (r *pdRig) chat(text string, more ...string) said {
	r.t.Helper()
	body, err := json.Marshal(map[string]any{"model": vocab.Name, "messages": []vocab.Message{{Role: "user", Content: vocab.Content(text)}}, "max_tokens": 5, "ignore_eos": true})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.client.URL+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i+1 < len(more); i += 2 {
		req.Header.Set(more[i], more[i+1])
	}
	resp, err := r.client.HTTP.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	if v := resp.Header.Get(request.HeaderFaults); v != "" {
		r.t.Errorf("the client receives the fault header: %s", v)
	}
	return said{resp.StatusCode, resp.Header.Get(sim.HeaderEngine), string(answer)}
}

// read returns the number of transfers from the prefill engines that were read.
func (r *pdRig) read() (n int64) {
	for _, e := range r.prefill {
		n += e.Transfers().Read
	}
	return n
}

// TestIfAvailable checks conditional requests: 412 without any engine's work while no engine has
// the prompt, and afterwards the endpoint that has it.
func TestIfAvailable(t *testing.T) {
	r := openPD(t, 2, 2, patience)
	prompt := strings.Repeat("only where it is held ", 100)
	got := r.chat(prompt, request.HeaderPrefer, "if-available")
	if got.status != http.StatusPreconditionFailed || !strings.Contains(got.text, `"error"`) {
		t.Errorf("no endpoint holds the prompt: %+v, want 412", got)
	}
	if n := r.read(); n != 0 || len(r.legs()) != 0 {
		t.Errorf("%d KV transfers, prefill legs %v for a request that was refused", n, r.legs())
	}
	first := r.chat(prompt)
	if first.status != http.StatusOK || r.read() != 1 {
		t.Fatalf("without the preference: %+v, %d KV transfers, want one", first, r.read())
	}
	testkit.Await(t, "the prompt is known to be held", func() bool {
		got = r.chat(prompt, request.HeaderPrefer, "if-available")
		return got.status != http.StatusPreconditionFailed
	})
	if got.status != http.StatusOK || got.engine != first.engine || r.read() != 1 {
		t.Errorf("held: %+v, %d KV transfers; the first answer was %+v", got, r.read(), first)
	}
	r.settle()
}

// TestAlternates checks that with one engine of each role down the other ones serve, and that the
// counters match the events.
func TestAlternates(t *testing.T) {
	r := openPD(t, 2, 2, patience)
	sick, dead := r.prefill[0], r.decode[0]
	sick.SetFaults(faults.Faults{ErrorShare: 1, ErrorStatus: 500})
	dead.SetFaults(faults.Faults{ErrorShare: 1, ErrorStatus: 503})
	const requests = 12
	for i := range requests {
		if got := r.chat(strings.Repeat(string(rune('a'+i))+" prompt of its own ", 100)); got.status != http.StatusOK || got.engine != r.decode[1].Name() {
			t.Errorf("request %d: %+v, want an answer of %s", i, got, r.decode[1].Name())
		}
	}
	legs, well, sum := r.legs(), r.prefill[1].Transfers().Read, 0
	if legs["ok"] < requests || well < requests || sick.Transfers().Read != 0 {
		t.Errorf("prefill legs %v, %d KV transfers of the engine that works, %d of the other", legs, well, sick.Transfers().Read)
	}
	for _, by := range []string{"first", "alternate", "decode", "unreported"} {
		sum += r.computed(by)
	}
	// A prefill that failed at the first engine counts for the alternate. A request that was sent
	// again to another decode engine does not count twice.
	if alternate := r.computed("alternate"); sum != requests || alternate == 0 || alternate > legs["status_5xx"] || r.computed("first") != requests-alternate {
		t.Errorf("%d prompts were computed, %d by the endpoint named first, %d by an alternate; prefill legs %v", sum, r.computed("first"), alternate, legs)
	}
	r.prefill[1].SetFaults(faults.Faults{ErrorShare: 1, ErrorStatus: 500})
	if got := r.chat(strings.Repeat("nobody to prefill ", 100)); got.status != http.StatusOK || r.computed("decode")+r.computed("unreported") != 1 {
		t.Errorf("without a prefill engine: %+v, %d prompts computed by decode", got, r.computed("decode"))
	}
	r.settle()
}

// computed returns the picker's count of prompts by the engine that computed them.
func (r *pdRig) computed(by string) int {
	return int(r.metric(0, `grapevine_picker_prompts_computed_total{by="`+by+`"}`))
}

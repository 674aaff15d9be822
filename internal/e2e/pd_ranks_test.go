package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/pd/sidecar"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// numRanks is the number of data-parallel ranks per engine.
const numRanks = 2

// ranked distributes cold prompts over the ranks of both roles in turn. A cached prompt is sent to
// the rank that has it.
const ranked = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: disagg-profile-handler
  parameters: {threshold: 64%s}
- {type: prefix-cache-scorer}
- {type: no-hit-lru-scorer, name: first}
- {type: no-hit-lru-scorer, name: then}
schedulingProfiles:
- name: prefill
  plugins: [{pluginRef: first}]
- name: decode
  plugins: [{pluginRef: prefix-cache-scorer, weight: 10}, {pluginRef: then}]
`

// ranksRig has two decode engines and one prefill engine with two ranks each. Every rank has its
// own engine core, cache and port, as in vLLM. Each decode engine is behind one sidecar; the
// sidecars have the same ports at two addresses, as pods do.
type ranksRig struct {
	*pdRig
	port   int                    // of rank 0 of all sidecars
	decode map[string]*sim.Engine // by address in the picker
}

// openRanks opens the rig. more returns additional parameters of the handler.
func openRanks(t *testing.T, more func(port int) string) *ranksRig {
	t.Helper()
	r := &ranksRig{pdRig: &pdRig{rig: begin(t), leg: patience}, decode: map[string]*sim.Engine{}}
	t.Cleanup(r.closePD)
	hosts := []string{"127.0.0.2", "127.0.0.3"}
	r.openFleet(rigOptions{engines: numRanks * (1 + len(hosts)), engine: sim.Options{PD: &sim.PDOptions{}}, each: func(_ int, o *sim.Options) {
		o.Events.Addr, o.Events.Replay = "0.0.0.0:0", "0.0.0.0:0" // read at the sidecars' addresses
	}})
	all := r.fleet.Engines()
	r.prefill = all[:numRanks]
	listeners := r.listen(hosts)
	list := r.fleet.Endpoints()
	allowed := sidecar.Listed{}
	for i, e := range r.prefill {
		list[i].Labels[endpoint.LabelRole] = "prefill"
		allowed[e.Addr()] = endpoint.RolePrefill
	}
	for h, host := range hosts {
		ranks := sidecar.Ranks{Port: r.port}
		for k := range numRanks {
			n := numRanks*(1+h) + k
			s, err := sidecar.New(sidecar.Options{Engine: "http://" + all[n].Addr(), Targets: allowed, KVTransfer: kvtransfer.Policy{Action: kvtransfer.Strip}, BasePort: r.port, Ranks: numRanks})
			if err != nil {
				t.Fatal(err)
			}
			ranks.Servers = append(ranks.Servers, s)
			list[n].Labels[endpoint.LabelRole] = "decode"
			list[n].Address, list[n].Port = host, r.port+k
			at := net.JoinHostPort(host, strconv.Itoa(r.port+k))
			r.decode[at], r.front = all[n], append(r.front, at)
		}
		for k, l := range listeners[h] {
			r.serve(&http.Server{Handler: ranks.At(k), ReadHeaderTimeout: time.Minute}, l)
		}
	}
	r.write(list)
	r.openReplica(config(t, fmt.Sprintf(ranked, more(r.port))))
	r.openEnvoy(rigOptions{params: tellRanks})
	r.known()
	return r
}

// listen listens at numRanks consecutive ports, the same on each host.
func (r *ranksRig) listen(hosts []string) (all [][]net.Listener) {
	r.t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", net.JoinHostPort(hosts[0], "0"))
		if err != nil {
			r.t.Fatal(err)
		}
		r.port = l.Addr().(*net.TCPAddr).Port
		open := []net.Listener{l}
		for i := 1; i < numRanks*len(hosts) && err == nil; i++ {
			if l, err = net.Listen("tcp", net.JoinHostPort(hosts[i/numRanks], strconv.Itoa(r.port+i%numRanks))); err == nil {
				open = append(open, l)
			}
		}
		if err == nil {
			return slices.Collect(slices.Chunk(open, numRanks))
		}
		for _, l := range open {
			l.Close()
		}
	}
	r.t.Fatal("no ports in a row are free")
	return nil
}

// tellRanks configures Envoy to return the destination and the rank headers to the client.
func tellRanks(p *envoyconf.Params) {
	p.ResponseHeaders = []string{
		"sent-to=%UPSTREAM_REMOTE_ADDRESS%", "sent-rank=%REQ(" + request.HeaderDataParallel + ")%", "sent-prefiller=%REQ(" + request.HeaderPrefiller + ")%",
	}
}

// rankReply is a client's view of an answer.
type rankReply struct {
	status                    int
	engine, to, rank, prefill string
}

// ask sends a chat with additional headers as name, value pairs.
func (r *ranksRig) ask(text string, more ...string) (out rankReply) {
	r.t.Helper()
	body, err := json.Marshal(map[string]any{"model": vocab.Name, "messages": []vocab.Message{{Role: "user", Content: vocab.Content(text)}}, "max_tokens": 4, "ignore_eos": true})
	if err != nil {
		r.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.client.URL+"/v1/chat/completions", strings.NewReader(string(body)))
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
	h := resp.Header
	return rankReply{resp.StatusCode, h.Get(sim.HeaderEngine), h.Get("sent-to"), h.Get("sent-rank"), h.Get("sent-prefiller")}
}

// chosen returns the address of the rank that the picker's headers name.
func (r *ranksRig) chosen(a rankReply) string {
	if a.rank != "" {
		return a.rank
	}
	return a.to
}

// reads returns the number of transfers that were read, by address of the prefill rank.
func (r *ranksRig) reads() map[string]int64 {
	out := map[string]int64{}
	for _, e := range r.prefill {
		out[e.Addr()] = e.Transfers().Read
	}
	return out
}

// known waits until the replica has indexed the cache of each decode rank.
func (r *ranksRig) known() {
	r.t.Helper()
	testkit.Await(r.t, "the replica knows what each decode rank holds", func() bool {
		ok := true
		for _, e := range r.servers[0].Status().Endpoints {
			if rank := r.decode[e.Address]; rank != nil {
				ok = ok && e.Knowledge == "exact" && e.Blocks == rank.Stats()[0].Engine.CachedNames
			}
		}
		return ok
	})
}

// TestRanksOfBothRoles checks that the picker chooses a rank for each role, and that these ranks
// compute prompt and answer, with a port per rank and with one port for all. A client's own rank
// headers have no effect.
func TestRanksOfBothRoles(t *testing.T) {
	for name, onePort := range map[string]bool{"ports of their own": false, "one port": true} {
		t.Run(name, func(t *testing.T) {
			r := openRanks(t, func(port int) string {
				if onePort {
					return fmt.Sprintf(", primaryPort: %d", port)
				}
				return ""
			})
			r.eachRank(t, onePort)
			r.settle()
		})
	}
}

func (r *ranksRig) eachRank(t *testing.T, onePort bool) {
	entered, decoded, prefilled := map[string]bool{}, map[string]int{}, map[string]int{}
	const prompts = 4 * numRanks
	for i := range prompts {
		prompt, before := strings.Repeat(string(rune('a'+i))+" prompt of its own ", 60), r.reads()
		lies := []string{request.HeaderDataParallel, fmt.Sprintf("127.0.0.2:%d", r.port+7), "x-data-parallel-rank", "5"} // engines would answer 400
		first := r.ask(prompt, lies...)
		at, helper := r.chosen(first), strings.Split(first.prefill, ",")[0]
		if first.status != http.StatusOK || r.decode[at] == nil || first.engine != r.decode[at].Name() {
			t.Fatalf("prompt %d: %+v, the picker chose %s", i, first, at)
		}
		testkit.Await(t, "the prefill rank that the picker named first hands over", func() bool { return r.reads()[helper] == before[helper]+1 })
		for addr, n := range r.reads() {
			if addr != helper && n != before[addr] {
				t.Errorf("prompt %d: %s was to compute it, and %s did", i, helper, addr)
			}
		}
		entered[first.to], decoded[at], prefilled[helper] = true, decoded[at]+1, prefilled[helper]+1
		r.known()
		if again := r.ask(prompt); again.status != http.StatusOK || again.prefill != "" || r.chosen(again) != at || again.engine != first.engine {
			t.Errorf("prompt %d again: %+v, the first time %+v", i, again, first)
		}
	}
	if len(decoded) != len(r.decode) || len(prefilled) != numRanks {
		t.Errorf("%d prompts went to decode ranks %v and prefill ranks %v, want all of them", prompts, decoded, prefilled)
	}
	for to := range entered {
		if _, port, _ := net.SplitHostPort(to); onePort && port != strconv.Itoa(r.port) {
			t.Errorf("a request entered at %s, not at the primary port %d", to, r.port)
		}
	}
	if want := 2 * (1 + (numRanks-1)*map[bool]int{false: 1}[onePort]); len(entered) != want {
		t.Errorf("requests entered at %v, want %d addresses", entered, want)
	}
}

// TestUnknownRank checks that no other rank answers for a rank that the sidecar does not have.
func TestUnknownRank(t *testing.T) {
	r := openRanks(t, func(port int) string { return fmt.Sprintf(", primaryPort: %d", port) })
	list := r.fleet.Endpoints()[:numRanks]
	for i := range list {
		list[i].Labels[endpoint.LabelRole] = "prefill"
	}
	wrong := r.fleet.Endpoints()[numRanks]
	wrong.Address, wrong.Port, wrong.Events = "127.0.0.2", r.port+numRanks, nil
	wrong.Labels[endpoint.LabelRole] = "decode"
	r.write(append(list, wrong))
	testkit.Await(t, "the list is read", func() bool { return len(r.servers[0].Status().Endpoints) == len(list)+1 })
	for i := range 6 {
		got := r.ask(strings.Repeat(string(rune('a'+i))+" prompt of its own ", 60))
		if got.status != http.StatusBadRequest && got.status != http.StatusServiceUnavailable || got.engine != "" {
			t.Errorf("request %d: %+v, want 400 or, once the rank is known to be absent, 503", i, got)
		}
	}
	r.settle()
}

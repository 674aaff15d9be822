package demo

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/rig"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/lab/workload"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/pd/signed"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// pdClass is one part of the load of [RunPD].
type pdClass struct {
	name string
	rate float64
	kind workload.Kind
}

// pdLoad is one load of [RunPD].
type pdLoad struct {
	name    string
	classes []pdClass
}

// pdLoads are a load of prompts of all lengths with short answers, and one of long prompts and long answers,
// at which two prefill engines are too few while one of them is down. Prompts of the class with cached
// tokens share three quarters of their tokens, which all engines cache.
var pdLoads = []pdLoad{
	{"short answers", []pdClass{
		{"200 tokens", 5, workload.Kind{Turns: 1, UserTokens: 200, Spread: .2, Answer: 120}},
		{"2,000 tokens", 1.5, workload.Kind{Turns: 1, UserTokens: 2000, Spread: .2, Answer: 120}},
		{"8,000 tokens", 1, workload.Kind{Turns: 1, UserTokens: 8000, Spread: .2, Answer: 120}},
		{"2,000, 75% cached", 1, workload.Kind{Shared: 1, SharedTokens: 1500, Turns: 1, UserTokens: 500, Spread: .2, Answer: 120}},
	}},
	{"long prompts and long answers", []pdClass{
		{"200 tokens", 4, workload.Kind{Turns: 1, UserTokens: 200, Spread: .2, Answer: 400}},
		{"8,000 tokens", 1.8, workload.Kind{Turns: 1, UserTokens: 8000, Spread: .2, Answer: 400}},
	}},
}

// The pair of pools of [RunPD].
const (
	pdPrefill = 2
	pdDecode  = 4
	pdSpeed   = 20e9   // bytes per second between engines
	pdBytes   = 327680 // KV-cache bytes per token: 70B in 16 bits
)

// PDSummary holds the results of [RunPD].
type PDSummary struct {
	Loads     []PDLoad
	Killed    string
	LastError error
}

// PDLoad holds the results of one load on the same engines: once with whole requests at every engine,
// once with prefill and decode on different engines.
type PDLoad struct {
	Name            string
	Together, Apart []PDRow // by class
}

// PDRow holds the results of one class of prompts.
type PDRow struct {
	Name             string
	Requests, Failed uint64
	TTFT, TPOT       [2]time.Duration // p50, p90
	Remote           float64          // share of the prompts that another engine computed
	Tokens           int              // of an answer
}

// whole returns the typical time of a whole answer.
func (r *PDRow) whole() time.Duration {
	return r.TTFT[0] + time.Duration(max(r.Tokens-1, 0))*r.TPOT[0]
}

// OK reports whether all requests were answered and both paths were used.
func (s *PDSummary) OK() bool {
	split := false
	for k := range s.Loads {
		for _, rows := range [][]PDRow{s.Loads[k].Together, s.Loads[k].Apart} {
			for i := range rows {
				if rows[i].Failed > 0 || rows[i].Requests == 0 {
					return false
				}
				split = split || rows[i].Remote > 0
			}
		}
	}
	return split
}

// RunPD compares engines with and without roles. A prefill engine is restarted during the run.
func RunPD(ctx context.Context, o Options) (*PDSummary, error) {
	o.Engines, o.Replicas = pdPrefill+pdDecode, 1
	if o.Phase == 0 {
		o.Phase = 25 * time.Second
	}
	s := &PDSummary{}
	fmt.Fprintf(o.Out, "%d engines (simulated: 70B on four GPUs), a real Envoy, prompts of 200 to 8,000 tokens.\n", o.Engines)
	var err error
	for k := range pdLoads {
		l := PDLoad{Name: pdLoads[k].name}
		if l.Together, err = o.pdPhase(ctx, s, &pdLoads[k], false); err == nil {
			l.Apart, err = o.pdPhase(ctx, s, &pdLoads[k], true)
		}
		if err != nil {
			break
		}
		s.Loads = append(s.Loads, l)
	}
	switch {
	case ctx.Err() != nil:
		return nil, ErrInterrupted
	case err != nil:
		return nil, fmt.Errorf("demo: %w", err)
	}
	return s, nil
}

// pdPhase measures the load with one arrangement of the engines.
func (o Options) pdPhase(ctx context.Context, s *PDSummary, load *pdLoad, apart bool) (rows []PDRow, err error) {
	dir, err := os.MkdirTemp("", "grapevine-pd-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	r, err := newRun(o, dir)
	if err != nil {
		return nil, err
	}
	fleet, err := fleet.Open(fleet.Options{
		Engines: o.Engines, EndpointsFile: filepath.Join(dir, "endpoints.yaml"),
		Engine: sim.Options{
			Core: engine.Config{BlockSize: rig.BlockSize, Blocks: 200_000 / rig.BlockSize, Model: engine.Model70B}, Events: &sim.EventOptions{},
			PD: &sim.PDOptions{BytesPerToken: pdBytes, BytesPerSecond: pdSpeed, Latency: 20 * time.Millisecond},
		},
	})
	if err != nil {
		return nil, err
	}
	defer fleet.Close()
	addrs := rig.Addresses(fleet)
	flags := []string{}
	if apart {
		var sidecars []*rig.Process
		sidecars, addrs, flags, err = r.sidecars(ctx, fleet)
		defer func() {
			for _, p := range sidecars {
				p.Stop(3 * time.Second)
			}
		}()
		if err != nil {
			return nil, err
		}
	}
	replicas, err := r.StartReplicas(ctx, func(int) []string { return flags })
	defer func() { rig.StopReplicas(ctx, replicas) }()
	if err != nil {
		return nil, err
	}
	e, url, err := r.StartEnvoy(ctx, "envoy", envoyconf.Params{Endpoints: addrs, ExtProc: rig.Pickers(replicas)})
	if err != nil {
		return nil, err
	}
	defer e.Stop(3 * time.Second)
	return r.pdMeasure(ctx, s, load, fleet, url, apart)
}

// pdConfig is the configuration of the pickers, which choose the pair by price.
const pdConfig = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: disagg-profile-handler
- {type: predicted-ttft-scorer}
schedulingProfiles:
- name: prefill
  plugins: [{pluginRef: predicted-ttft-scorer}]
- name: decode
  plugins: [{pluginRef: predicted-ttft-scorer}]
`

// sidecars assigns roles to the engines and starts a sidecar for each decode engine. It returns the
// addresses for requests and the pickers' flags.
func (r *run) sidecars(ctx context.Context, fleet *fleet.Fleet) (list []*rig.Process, addrs, flags []string, err error) {
	seed := make([]byte, 32)
	if _, err := rand.Read(seed); err != nil {
		return nil, nil, nil, err
	}
	signer, err := signed.NewSigner(seed, time.Now)
	if err != nil {
		return nil, nil, nil, err
	}
	config, key, public := filepath.Join(r.Dir, "config.yaml"), filepath.Join(r.Dir, "targets.key"), filepath.Join(r.Dir, "targets.pub")
	for path, text := range map[string]string{
		config: pdConfig, key: base64.StdEncoding.EncodeToString(seed), public: base64.StdEncoding.EncodeToString(signer.Public()),
	} {
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			return nil, nil, nil, err
		}
	}
	ports, err := rig.FreePorts(2 * pdDecode)
	if err != nil {
		return nil, nil, nil, err
	}
	eps := fleet.Endpoints()
	for i := range eps {
		if i < pdPrefill {
			eps[i].Labels[endpoint.LabelRole] = "prefill"
			continue
		}
		k := i - pdPrefill
		at, metrics := ports[2*k], fmt.Sprintf("127.0.0.1:%d", ports[2*k+1])
		p, err := rig.Start(r.Dir, fmt.Sprintf("sidecar-%d", k+1), r.o.Self, "sidecar", "--host", "127.0.0.1", "--port", strconv.Itoa(at),
			"--model-server-port", strconv.Itoa(eps[i].Port), "--secure-proxy=false", "--metrics", metrics, "--verify-key-file", public, "--prefill-timeout", "20s", "--linger", "0s")
		if err != nil {
			return list, nil, nil, err
		}
		list = append(list, p)
		if err := p.WaitHTTP(ctx, "http://"+metrics+"/metrics"); err != nil {
			return list, nil, nil, err
		}
		eps[i].Labels[endpoint.LabelRole], eps[i].Port = "decode", at
		addrs = append(addrs, net.JoinHostPort("127.0.0.1", strconv.Itoa(at)))
	}
	raw, err := yaml.Marshal(map[string]any{"endpoints": eps})
	if err != nil {
		return list, nil, nil, err
	}
	return list, addrs, []string{"--config", config, "--targets-key-file", key}, os.WriteFile(filepath.Join(r.Dir, "endpoints.yaml"), raw, 0o600)
}

// remoteCounter counts answers whose prompt was computed by another engine.
type remoteCounter struct {
	http.RoundTripper
	all, remote atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (c *remoteCounter) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.RoundTripper.RoundTrip(r)
	if err == nil {
		c.all.Add(1)
		if report := kvtransfer.ParseReport(resp.Header.Get(request.HeaderKVTransfer)); report.Known && report.Target >= 0 {
			c.remote.Add(1)
		}
	}
	return resp, err
}

// pdMeasure runs all classes of a load at once. The first quarter is a warm-up and does not count.
func (r *run) pdMeasure(ctx context.Context, s *PDSummary, load *pdLoad, fleet *fleet.Fleet, url string, apart bool) ([]PDRow, error) {
	runners, counters := make([]*workload.Runner, len(load.classes)), make([]*remoteCounter, len(load.classes))
	for i, c := range load.classes {
		client := workload.NewClient(url, 64)
		client.Rewritten = apart
		counters[i] = &remoteCounter{RoundTripper: client.HTTP.Transport}
		client.HTTP.Transport = counters[i]
		w, err := workload.Start(workload.Options{
			Source: workload.NewSource(c.kind, uint64(i+1), vocab.Name, 0), Client: client, Rate: c.rate, Seed: uint64(i + 1), Timeout: 60 * time.Second,
		})
		if err != nil {
			return nil, err
		}
		runners[i] = w
		defer StopLoad(ctx, w)
	}
	what := "all engines serve whole requests"
	if apart {
		what = fmt.Sprintf("%d engines prefill, %d decode behind sidecars", pdPrefill, pdDecode)
	}
	fmt.Fprintf(r.o.Out, "%s; %s: %v\n", load.name, what, r.o.Phase)
	if err := pause(r.o.Phase / 4)(ctx); err != nil {
		return nil, err
	}
	before := make([]workload.Totals, len(runners))
	for i, w := range runners {
		before[i] = w.Totals()
		counters[i].all.Store(0)
		counters[i].remote.Store(0)
	}
	if apart {
		victim := fleet.Engines()[0]
		time.AfterFunc(r.o.Phase/4, func() {
			fmt.Fprintf(r.o.Out, "%s, a prefill engine, dies for %v\n", victim.Name(), r.o.Phase/5)
			_ = victim.Restart(sim.RestartOptions{Down: r.o.Phase / 5}) // closed with the other engines
		})
		s.Killed = victim.Name()
	}
	if err := pause(r.o.Phase * 3 / 4)(ctx); err != nil {
		return nil, err
	}
	var rows []PDRow
	for i, w := range runners {
		StopLoad(ctx, w)
		t := w.Totals().Minus(&before[i])
		row := PDRow{Name: load.classes[i].name, Requests: t.Requests, Failed: Failures(&t), Tokens: load.classes[i].kind.Answer}
		row.TTFT = [2]time.Duration{t.TTFT.Quantile(.5), t.TTFT.Quantile(.9)}
		row.TPOT = [2]time.Duration{t.TPOT.Quantile(.5), t.TPOT.Quantile(.9)}
		if all := counters[i].all.Load(); all > 0 {
			row.Remote = float64(counters[i].remote.Load()) / float64(all)
		}
		if row.Failed > 0 {
			s.LastError = w.LastError()
		}
		rows = append(rows, row)
	}
	return rows, nil
}

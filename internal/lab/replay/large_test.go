package replay

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/trace"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// phase is a time with a fixed number of engines.
type phase struct {
	engines int
	length  time.Duration
}

// perEngine is the number of requests per second and engine in large fleets. Engines could serve
// several times as many, so requests wait only where prefixes are badly spread.
const perEngine = .8

// hotTexts generates a load that grows with the fleet. Each prompt begins with one of the given
// number of texts of 32 blocks, followed by some hundred unique tokens.
func hotTexts(texts int, phases []phase) *trace.Trace {
	const blocks, size = 32, 512
	rng := rand.New(rand.NewPCG(7, 200))
	t := &trace.Trace{Name: "hot", BlockSize: size, Blocks: texts * blocks}
	for _, p := range phases {
		for at := t.Length; ; t.Blocks++ {
			at += time.Duration(rng.ExpFloat64() / perEngine / float64(p.engines) * 1e9)
			if at >= t.Length+p.length {
				break
			}
			r := trace.Request{At: at, Input: blocks*size + 50 + rng.IntN(250), Output: 50 + rng.IntN(150), Session: int32(t.Sessions)}
			text := rng.IntN(texts)
			for b := range blocks {
				r.Blocks = append(r.Blocks, trace.Block(text*blocks+b))
			}
			r.Blocks = append(r.Blocks, trace.Block(t.Blocks))
			t.Requests = append(t.Requests, r)
			t.Sessions++
		}
		t.Length += p.length
	}
	return t
}

// show makes the first n engines endpoints of a simulation with one replica.
func (s *simulation) show(n int) {
	r := s.replicas[0]
	specs := make([]endpoint.Spec, n)
	for i := range specs {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 8000)
		specs[i] = endpoint.Spec{Name: fmt.Sprintf("engine-%d", i), Addr: addr}
	}
	r.pool.Set(specs)
	for i, ep := range r.pool.Snapshot().Endpoints {
		r.stationOf = append(r.stationOf, make([]int, max(int(ep.ID)+1-len(r.stationOf), 0))...)
		r.endpoints[i], r.stationOf[ep.ID] = ep, i
	}
}

// playPhases plays a policy with as many engines as the phases say.
func playPhases(t *testing.T, name string, texts int, phases []phase) *Result {
	t.Helper()
	machine, _ := engine.MachineByName("70b")
	c, err := Case{
		Trace: hotTexts(texts, phases), Policy: policy(t, name), Endpoints: phases[len(phases)-1].engines, Seed: 1,
		Engine: engine.Config{Model: machine.Model, Blocks: machine.KVTokens / 512, MaxSeqs: 1024, AdmitWhole: true},
	}.check()
	if err != nil {
		t.Fatal(err)
	}
	s, err := prepare(c)
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	s.Progress = func(float64) { // once before the first request, then every 256
		n, from := 0, time.Duration(0)
		for _, p := range phases {
			if from <= s.now {
				n = p.engines
			}
			from += p.length
		}
		if n != shown {
			s.show(n)
			shown = n
		}
	}
	if err := s.play(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s.result()
}

// TestLargeFleets limits the loss against the better of load_only and unified, from the first
// request on. Fleets have up to 200 engines with empty caches; one grows from 8 to 64 engines. Many
// requests arrive while a text is prefilled for the first time. If the policy copies the text to
// few engines, these decode for the whole fleet until more copies are complete.
//
// p90 has no limit here. A fleet of 200 makes one copy of a text for every thirteen requests, so
// p90 depends on which requests count as the first ones.
func TestLargeFleets(t *testing.T) {
	for what, phases := range map[string][]phase{
		"32 cold engines":     {{32, 16 * time.Second}},
		"200 cold engines":    {{200, 16 * time.Second}},
		"8 engines that grow": {{8, 20 * time.Second}, {16, 20 * time.Second}, {32, 20 * time.Second}, {64, 20 * time.Second}},
	} {
		for _, texts := range []int{1, 8} {
			ours, a, b := playPhases(t, Default, texts, phases), playPhases(t, "load_only", texts, phases), playPhases(t, "unified", texts, phases)
			r := ratios(ours, [2]float64{min(a.TTFT.P90, b.TTFT.P90), min(a.TTFT.P99, b.TTFT.P99)})
			mean, token := ours.TTFT.Mean/min(a.TTFT.Mean, b.TTFT.Mean), ours.TPOT.Mean/min(a.TPOT.Mean, b.TPOT.Mean)
			line := fmt.Sprintf("%s, %d texts: mean %.2f, p90 %.2f (%.3f s), p99 %.2f, time per token %.2f times that of the better baseline", what, texts, mean, r[0], ours.TTFT.P90, r[1], token)
			if t.Log(line); mean > 1.15 || r[1] > 1.15 || token > 1.15 {
				t.Error("more than 1.15 times (mean, p99, time per token):", line)
			}
		}
	}
}

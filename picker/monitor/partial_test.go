package monitor

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// partOfRequests is the kind of an engine that fails some requests and serves the others.
const partOfRequests = "a part"

// partialFault is a fault of one engine that affects some requests.
type partialFault struct {
	name    string
	affects func(*request.Request) bool
	status  int // 0: the request hangs

	probesPass bool // although all requests are affected: the endpoint is a suspect at most
}

// probeRequest returns the request that a probe sends.
func probeRequest(ep *endpoint.Endpoint) *request.Request {
	q := ep.Tracker().Failing()
	r := &request.Request{Kind: request.KindCompletions, Stream: true, Model: "m", Target: "m", InputTokens: 8}
	if q == health.AskChat || q == health.AskChatStream {
		r.Kind = request.KindChat
	}
	if q == health.AskChat || q == health.AskCompletion {
		r.Stream = false
	}
	return r
}

func (p *partialFault) answer(ctx context.Context) answer {
	if p.status == 0 {
		<-ctx.Done()
		return answer{}
	}
	time.Sleep(2 * time.Millisecond)
	return answer{status: p.status}
}

// vary gives a request an API, a size, features and a model.
func (w *faultWorld) vary(r *request.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rng.IntN(2) == 0 {
		r.Kind, r.Path = request.KindChat, "/v1/chat/completions"
	}
	r.Stream = r.Stream && w.rng.IntN(4) > 0
	switch w.rng.IntN(4) {
	case 0:
		r.InputTokens = 20_000
	case 1:
		r.InputTokens = 1_000
	}
	r.Constrained = w.rng.IntN(4) == 0
	if w.rng.IntN(4) == 0 {
		r.Model, r.Target = "other", "other"
	}
}

// partialFaults are the faults of TestPartialFaults.
var partialFaults = []partialFault{
	{name: "404 to one tenant", affects: func(r *request.Request) bool { return r.User == "big tenant" }, status: 404},
	{name: "403 to one tenant", affects: func(r *request.Request) bool { return r.User == "big tenant" }, status: 403},
	{name: "500 to one tenant", affects: func(r *request.Request) bool { return r.User == "big tenant" }, status: 500},
	{name: "one tenant hangs", affects: func(r *request.Request) bool { return r.User == "big tenant" }, status: 0},
	{name: "500 to one API", affects: func(r *request.Request) bool { return r.Kind == request.KindChat }, status: 500},
	{name: "404 to one API", affects: func(r *request.Request) bool { return r.Kind == request.KindChat }, status: 404},
	{name: "500 to streams", affects: func(r *request.Request) bool { return r.Stream }, status: 500},
	{name: "400 to streams", affects: func(r *request.Request) bool { return r.Stream }, status: 400},
	{name: "500 to whole answers", affects: func(r *request.Request) bool { return !r.Stream }, status: 500},
	{name: "500 to long prompts", affects: func(r *request.Request) bool { return r.InputTokens > 10_000 }, status: 500},
	{name: "413 to long prompts", affects: func(r *request.Request) bool { return r.InputTokens > 10_000 }, status: 413},
	{name: "500 to requests with a schema", affects: func(r *request.Request) bool { return r.Constrained }, status: 500},
	{name: "400 to requests with a schema", affects: func(r *request.Request) bool { return r.Constrained }, status: 400},
	{name: "500 to one model of two", affects: func(r *request.Request) bool { return r.Target == "other" }, status: 500},
	{name: "404 to one model of two", affects: func(r *request.Request) bool { return r.Target == "other" }, status: 404},
	{name: "one model of two hangs", affects: func(r *request.Request) bool { return r.Target == "other" }, status: 0},
	{name: "429 to all", affects: func(r *request.Request) bool { return true }, status: 429},
	{name: "409 to all", affects: func(r *request.Request) bool { return true }, status: 409},
	{name: "403 to all", affects: func(r *request.Request) bool { return true }, status: 403},
	{name: "403 to all but probes", affects: func(r *request.Request) bool { return true }, status: 403, probesPass: true},
}

// loads are the pools and loads of TestPartialFaults.
var loads = []struct {
	name           string
	engines, slots int
	every, lasts   time.Duration
	most           float64 // failures of a run that are allowed even if they are more than one in a hundred
	sample         bool    // of the faults and ways, for the time that they take
}{
	{name: "24 per second, six engines", engines: 6, slots: 3, every: time.Second / 24, lasts: 12 * time.Second},
	{name: "200 per second, six engines", engines: 6, slots: 25, every: time.Second / 200, lasts: 12 * time.Second, sample: true},
	{name: "2 per second, six engines", engines: 6, slots: 3, every: time.Second / 2, lasts: 2 * time.Minute, most: 6, sample: true},
	{name: "5 per second, two engines", engines: 2, slots: 3, every: time.Second / 5, lasts: 30 * time.Second, most: 5, sample: true},
}

// TestPartialFaults: an engine that fails some requests and serves others costs few requests from the
// third second on, whatever these have in common, at several loads. At a few
// requests per second, and where replicas do not share, several must fail before it is certain.
func TestPartialFaults(t *testing.T) {
	notRaced(t)
	for _, load := range loads {
		for _, way := range ways {
			all := !load.sample || *faultRuns > defaultFaultRuns
			if !all && (way.replicas == 1 || way.cut) {
				continue
			}
			t.Run(load.name+"/"+way.name, func(t *testing.T) {
				for i := range partialFaults {
					if !all && i%3 != 0 {
						continue
					}
					p, row, runs := &partialFaults[i], &faultRow{}, uint64(max(*faultRuns/defaultFaultRuns, 1))
					for seed := range runs {
						synctest.Test(t, func(t *testing.T) {
							w := openFaultWorldOf(t, way.replicas, way.cut, seed, load.engines, load.slots)
							w.every, w.lasts, w.part, w.varied = load.every, load.lasts, p, true
							w.run(partOfRequests, row)
						})
					}
					failed, each := float64(row.restFailed)/float64(row.rest), float64(row.restFailed)/float64(runs)
					t.Logf("%-30s failed %d/%d, then %d/%d (%.1f%%), answers %v, trusted %v", p.name,
						row.firstFailed, row.first, row.restFailed, row.rest, 100*failed, mean(row.answered), mean(row.trusted))
					most := max(load.most, 4)
					if runs == 1 {
						most *= 2
					}
					if way.cut { // each replica finds it alone
						most = float64(way.replicas) * most
					}
					limit := .02 // of a few runs, see TestFaults
					if p.probesPass {
						limit = .15
					}
					if failed > limit && each > most {
						t.Errorf("%s: more is lost than may be", p.name)
					}
					if row.others > 0 {
						t.Errorf("%s: an endpoint is out that is well", p.name)
					}
				}
			})
		}
	}
}

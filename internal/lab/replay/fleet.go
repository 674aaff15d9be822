package replay

import (
	"math"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

const never = time.Duration(math.MaxInt64)

// station is one engine in virtual time.
type station struct {
	core  *engine.Engine
	step  *engine.Result // current step; nil while idle
	end   time.Duration  // end of the current step; never while idle
	steps int            // ended, and those skipped over
	busy  time.Duration
	slow  float64
	link  time.Duration // until which its blocks are being sent

	config engine.Config
	model  engine.Model  // as it was at first
	hung   time.Duration // time until which it computes nothing
	away   bool          // not in the replicas' lists
	failed bool          // and not back yet

	decoding []*journey // with a first token and not ended
	latency  latency
}

// adapters returns the engine's report, like vLLM's: adapters of requests that run or wait.
func (s *station) adapters() *endpoint.LoRA {
	l := &endpoint.LoRA{Max: s.config.AdapterSlots}
	s.core.ForEachAdapter(func(adapter uint32, running bool) {
		list := &l.Waiting
		if running {
			list = &l.Running
		}
		if name := adapterName(adapter); !slices.Contains(*list, name) {
			*list = append(*list, name)
		}
	})
	return l
}

// latency counts the times that an engine reports.
type latency struct{ endpoint.Latency }

// answered adds the times between the tokens of an answer.
func (l *latency) answered(o *Outcome, tokens int) {
	l.Gap.Count += float64(max(tokens-1, 0))
	l.Gap.Seconds += (o.End - o.First).Seconds()
}

func newStations(c *Case) ([]station, error) {
	out := make([]station, c.Endpoints)
	for i := range out {
		config, slow := c.Engine, 1.0
		if i < len(c.Slow) && c.Slow[i] > 0 {
			slow = c.Slow[i]
		}
		if i < len(c.Models) && c.Models[i] != (engine.Model{}) {
			config.Model = c.Models[i]
		}
		config.Model = config.Model.SlowedBy(slow)
		config.Noise.Seed = c.Seed<<10 + uint64(i)
		core, err := engine.New(config)
		if err != nil {
			return nil, err
		}
		out[i] = station{core: core, end: never, slow: slow, config: config, model: config.Model}
	}
	return out, nil
}

// Capacity returns how many engines of speed 1 the fleet counts as.
func (c *Case) Capacity() float64 {
	sum := float64(c.Endpoints)
	for _, slow := range c.Slow[:min(len(c.Slow), c.Endpoints)] {
		if slow > 0 {
			sum += 1/slow - 1
		}
	}
	return sum
}

// inFlight returns how many requests the engine has.
func (s *station) inFlight() int {
	st := s.core.Stats()
	return st.Running + st.Waiting
}

// begin starts the next step at now, if there is anything to do.
func (s *station) begin(now time.Duration) {
	s.step, s.end = s.core.Step(), never
	if s.step.Idle {
		s.step = nil
		return
	}
	s.busy += s.step.Duration
	s.end = max(now, s.hung) + s.step.Duration
	s.steps++
}

// skip skips the quiet steps that start before until, and returns the time at which they end.
func (s *station) skip(now, until time.Duration) time.Duration {
	if until <= now {
		return now
	}
	n, d := s.core.Skip(until - now)
	s.steps += n
	s.busy += d
	return now + d
}

// first returns the station with the earliest step end.
func first(stations []station) (at time.Duration, i int) {
	at = never
	for k := range stations {
		if stations[k].end < at {
			at, i = stations[k].end, k
		}
	}
	return at, i
}

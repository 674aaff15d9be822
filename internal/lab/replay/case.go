package replay

import (
	"errors"
	"fmt"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/trace"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/sizing"
)

// ErrCase is wrapped by the errors of Case.check.
var ErrCase = errors.New("replay: bad case")

// Index is the source of the replicas' data about the engines' caches.
type Index uint8

// Kinds of Index. With both, a replica's own decisions count as cached until
// events could have confirmed them (Case.Speculate).
const (
	Precise     Index = iota // events published by engines, IndexDelay ago
	Approximate              // decisions of replicas, in an LRU of the engine's size
)

// String returns the name used on command lines.
func (i Index) String() string {
	if i == Approximate {
		return "approximate"
	}
	return "precise"
}

// Cut as a Case.Share disables sharing between replicas.
const Cut time.Duration = -1

// Case is one run: a load, a fleet and the data available to its replicas. The zero value of an
// optional field means the default.
type Case struct {
	Trace  *trace.Trace // scaled; required
	Policy Policy       // required

	Endpoints int            // engines; default 8
	Engine    engine.Config  // Blocks defaults to 4,000; the block size is the trace's
	Models    []engine.Model // by engine; missing and zero: Engine.Model
	Slow      []float64      // by engine: factor on its times; missing and 0 mean 1
	Roles     []string       // by engine: prefill or decode; missing and "": whole requests
	Network   Network        // between engines with roles
	Changes   []Change       // of engines, in mid-run
	Prior     endpoint.Cost  // initial cost estimate for engines; default endpoint.PriorCost

	Replicas   int           // default 1; arrivals are spread over them at random
	Share      time.Duration // delay of messages between replicas, or Cut
	Zones      []string      // by engine; missing and "": no zone
	Homes      []Home        // by replica: its zone and demand; empty: no zones, requests are spread at random
	Index      Index
	IndexDelay time.Duration // of cache events; default 10 ms, negative 0
	IndexScale float64       // size of the approximate index relative to the cache; default 1
	Speculate  time.Duration // how long a decision counts as cached once the queue is done; default 5 s, negative 0
	Gauges     time.Duration // sampling period of the engines' metrics; default 50 ms, negative: none
	Bodies     float64       // share of responses whose tokens a replica sees; default 1
	Whole      bool          // answers are not streamed: a replica sees only their end
	Histograms bool          // engines report their latency counters with the gauges

	// Urgency is the number of seconds by which an engine delays a request per second of its
	// expected prefill. It applies to engines that schedule by priority (engine-priority-producer).
	// 0 keeps the order of arrival.
	Urgency float64

	// Target is the target for Result.Wanted; nil: none.
	Target *sizing.Target

	Warmup time.Duration // requests that arrive before are not measured
	Seed   uint64

	// Progress, if not nil, is called periodically with the share of requests that have arrived.
	Progress func(share float64)
}

// Home is the place of a replica. Requests of one session go to one replica.
type Home struct {
	Zone   string
	Demand float64 // share of the sessions that begin here, relative to the other replicas
}

func (c Case) check() (Case, error) {
	if c.Trace == nil || len(c.Trace.Requests) == 0 {
		return c, fmt.Errorf("%w: no requests", ErrCase)
	}
	if c.Policy.Rules == nil {
		return c, fmt.Errorf("%w: no policy", ErrCase)
	}
	setDefault(&c.Endpoints, 8)
	setDefault(&c.Replicas, 1)
	setDefault(&c.IndexDelay, 10*time.Millisecond)
	setDefault(&c.IndexScale, 1)
	setDefault(&c.Speculate, 5*time.Second)
	setDefault(&c.Gauges, 50*time.Millisecond)
	setDefault(&c.Bodies, 1)
	setDefault(&c.Engine.Blocks, 4000)
	setDefault(&c.Prior, endpoint.PriorCost)
	c.IndexDelay, c.Speculate = max(c.IndexDelay, 0), max(c.Speculate, 0)
	c.Engine.BlockSize, c.Engine.Events, c.Engine.ByPriority = c.Trace.BlockSize, true, c.Urgency > 0
	if c.Warmup >= c.Trace.Length {
		return c, fmt.Errorf("%w: nothing is left of %v after a warm-up of %v", ErrCase, c.Trace.Length, c.Warmup)
	}
	if c.Endpoints < 1 || c.Replicas < 1 || c.Endpoints > maxEndpoints {
		return c, fmt.Errorf("%w: %d engines, %d replicas", ErrCase, c.Endpoints, c.Replicas)
	}
	if len(c.Homes) > 0 && len(c.Homes) != c.Replicas {
		return c, fmt.Errorf("%w: %d homes for %d replicas", ErrCase, len(c.Homes), c.Replicas)
	}
	if err := c.checkChanges(); err != nil {
		return c, err
	}
	var err error
	c.Engine, err = c.Engine.Check()
	return c, err
}

const maxEndpoints = 4096

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

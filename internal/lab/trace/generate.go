package trace

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Spread is a log-normal distribution.
type Spread struct {
	Median, Sigma, Max float64
}

func (s Spread) draw(rng *rand.Rand) float64 {
	v := s.Median * math.Exp(s.Sigma*rng.NormFloat64())
	if s.Max > 0 {
		v = min(v, s.Max)
	}
	return v
}

func (s Spread) tokens(rng *rand.Rand) int { return max(int(s.draw(rng)+.5), 1) }

// Workload is a synthetic load. Sessions start with a preamble that many share and optionally with
// a document that some share. Each turn contains all previous turns.
type Workload struct {
	Name      string
	Preambles int     // number of different ones; with Tenants each belongs to a tenant
	Skew      float64 // Zipf exponent of their popularity; 0: even
	Tenants   bool    // report figures by preamble as well
	Preamble  Spread  // tokens
	Documents int     // per preamble; 0: none
	Document  Spread  // tokens
	First     Spread  // tokens of the first question
	Turns     Spread
	Question  Spread  // tokens added by a later turn: tool results, user text
	Answer    Spread  // tokens
	Gap       Spread  // seconds from an answer to the next turn
	Pauses    float64 // share of turns before which a person pauses
	Pause     Spread  // seconds
	Fan       Spread  // concurrent requests per turn on the same context; zero: one
	Burst     float64 // coefficient of variation of the gaps between sessions' starts; 0 means 1, a Poisson process
	Flash     Flash   // additional crowd; zero: none
	Limit     int     // context tokens at which a session ends or is compacted
	Compact   Spread  // tokens of the summary that replaces all but the preamble; zero: sessions end
}

// Names returns the names of the built-in workloads.
func Names() []string {
	names := make([]string, len(Workloads))
	for i := range Workloads {
		names[i] = Workloads[i].Name
	}
	return names
}

// Named returns a built-in workload.
func Named(name string) (Workload, error) {
	names := Names()
	if i := slices.Index(names, name); i >= 0 {
		return Workloads[i], nil
	}
	return Workload{}, fmt.Errorf("trace: workload %q: there are %s", name, strings.Join(names, ", "))
}

// GenerateOptions select the rate and length of a trace.
type GenerateOptions struct {
	Rate   float64       // requests per second; default 1
	Length time.Duration // default 1 h
	// Requests, if above 0, replaces Length. The trace then lasts for this many requests, and at
	// least five times the length of a session.
	Requests  int
	BlockSize int     // default 512
	Speed     float64 // factor on the clocks of sessions; default 1
	Seed      uint64
}

// rampShare is the share of the length in which sessions that are already running at the start
// join.
const rampShare = .2

// Generate generates a trace. Sessions start uniformly over its length. Turns after the end wrap
// around to the start, so the load is constant. In the first fifth these sessions join gradually,
// because no cache holds them yet.
func (w Workload) Generate(o GenerateOptions) *Trace {
	setDefault(&o.Rate, 1)
	if o.Requests > 0 {
		o.Length = max(time.Duration(float64(o.Requests)/o.Rate*float64(time.Second)), 5*w.session())
	}
	setDefault(&o.Length, time.Hour)
	setDefault(&o.BlockSize, DefaultBlockSize)
	setDefault(&o.Speed, 1)
	g := generator{
		Workload: w, speed: o.Speed, rng: rand.New(rand.NewPCG(o.Seed, 0x9e7)), preambles: map[[2]int][]Block{},
		trace: &Trace{Name: w.Name, BlockSize: o.BlockSize, Length: o.Length},
	}
	for want := max(int(o.Rate*o.Length.Seconds()), 1); g.made < want; {
		g.session(want - g.made)
	}
	g.burst()
	g.crowd(o.Rate)
	t := g.trace
	slices.SortStableFunc(t.Requests, byArrival)
	t.nameAnswers()
	for k := 0; w.Tenants && k < w.Preambles; k++ {
		t.Tenants = append(t.Tenants, "tenant-"+strconv.Itoa(k))
	}
	return t
}

// session returns the seconds of a session of median lengths on an idle engine.
func (w *Workload) session() time.Duration {
	turn := unhurried(w.Answer.Median) + w.Gap.Median + w.Pauses*w.Pause.Median
	return time.Duration(w.Turns.Median * turn * float64(time.Second))
}

// unhurried returns the seconds of an answer on a lightly loaded engine.
func unhurried(tokens float64) float64 { return 1 + .045*tokens }

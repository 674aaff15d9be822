package replay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/trace"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/gauge"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// epoch is the date at which virtual time begins.
var epoch = time.Unix(1_700_000_000, 0).UTC()

// progressEvery is the minimum interval between progress reports of a decoding request to its
// replica.
const progressEvery = 50 * time.Millisecond

// journey is one request on its way.
type journey struct {
	number   int // in the trace
	request  request.Request
	decision *request.Decision
	replica  *replica
	station  int
	names    []engine.Hash
	blocks   []trace.Block // full blocks of the prompt
	keys     blockKeys
	seen     bool // its tokens are shown to the replica
	usage    bool // the replica sees the usage at its end
	reported int  // tokens reported to the replica
	atStep   int  // station.steps at the last telling
	permit   picker.Permit

	remote  int           // station that computes the prompt, or sends its blocks
	fetched int           // leading blocks fetched from that engine; 0: it computed all of its blocks
	sent    time.Duration // when the current leg began
	report  kvtransfer.Report
}

// simulation is a running simulation.
type simulation struct {
	Case
	now      time.Duration
	stations []station
	shared   *shared
	replicas []*replica
	rng      *rand.Rand // which replica gets an arrival, which bodies are seen

	flying     map[uint64]*journey
	spare      []*journey
	sampled    int64 // gauge samples taken
	changed    int   // of Changes
	moving     moves
	reportedAt time.Duration
	outcomes   []Outcome
	wanted     []Wanted

	tick      time.Duration // time of the next queue check
	ticks     int
	forgotten int // ticks for which nothing was in flight
	waiting   int // requests
	turns     []turn
	evicted   []*journey

	runs     *runs      // nil: the trace has no programs
	admitted []*journey // requests whose programs are no longer kept

	warming         map[uint64]warmUp
	warmUps, warmed int // that ended, and tokens that they computed

	timeline          timeline
	inFlight, fullest float64 // summed over arrivals after the warm-up: requests in flight, and those at the fullest engine
}

// Run plays one case to the end of its last request. It stops early only when
// ctx is done.
func Run(ctx context.Context, c Case) (*Result, error) {
	c, err := c.check()
	if err != nil {
		return nil, err
	}
	s, err := prepare(c)
	if err != nil {
		return nil, err
	}
	if err := s.play(ctx); err != nil {
		return nil, err
	}
	return s.result(), nil
}

// prepare builds the fleet and the replicas of a checked case.
func prepare(c Case) (*simulation, error) {
	s := &simulation{Case: c, flying: map[uint64]*journey{}, warming: map[uint64]warmUp{}, tick: never, rng: rand.New(rand.NewPCG(c.Seed, 0xa441))}
	var err error
	if s.stations, err = newStations(&c); err != nil {
		return nil, err
	}
	s.followRuns()
	s.outcomes = make([]Outcome, len(c.Trace.Requests))
	s.shared = newShared(&c)
	for i := range c.Replicas {
		r, err := newReplica(i, s)
		if err != nil {
			return nil, err
		}
		s.replicas = append(s.replicas, r)
	}
	s.absentAtFirst()
	return s, nil
}

func (s *simulation) clock() time.Time { return epoch.Add(s.now) }

// play handles arrivals and ends of steps in order of time; an end of a step
// comes before an arrival at the same moment.
func (s *simulation) play(ctx context.Context) error {
	arrivals := arrivals{s: s}
	for {
		at, i := first(s.stations)
		arrival := arrivals.next()
		come := min(s.moving.next(), s.tick, s.nextChange())
		if at == never && arrival == never && min(s.moving.next(), s.tick) == never {
			return s.settled()
		}
		s.sample(min(at, arrival, come))
		if at <= min(arrival, come) {
			s.now = at
			s.stepEnded(i, min(arrival, come))
		} else if come <= arrival {
			s.now = come
			if err := s.came(); err != nil {
				return err
			}
		} else {
			s.now = arrival
			if err := s.progress(ctx, arrivals.count); err != nil {
				return err
			}
			if err := s.arrive(arrivals.take()); err != nil {
				return err
			}
		}
		if err := s.takeTurns(); err != nil {
			return err
		}
	}
}

// came processes due events other than steps and arrivals.
func (s *simulation) came() error {
	if s.nextChange() <= s.now {
		return s.change()
	}
	if s.moving.next() <= s.now {
		return s.moved()
	}
	s.ticked()
	return nil
}

// progress periodically checks whether ctx has ended, and reports progress.
func (s *simulation) progress(ctx context.Context, next int) error {
	if next%256 != 0 {
		return nil
	}
	if s.Progress != nil {
		s.Progress(float64(next) / float64(len(s.Trace.Requests)))
	}
	return ctx.Err()
}

func (s *simulation) settled() error {
	if n := len(s.flying) + s.waiting + s.runs.left(); n > 0 {
		return fmt.Errorf("replay: %d requests were never answered", n)
	}
	return nil
}

// sample takes the gauge samples that are due before at.
func (s *simulation) sample(at time.Duration) {
	if s.Gauges < 0 {
		return
	}
	due := int64(at / s.Gauges)
	if due <= s.sampled {
		return
	}
	s.sampled = due
	taken := epoch.Add(time.Duration(due) * s.Gauges)
	for i := range s.stations {
		if s.stations[i].away || at < s.stations[i].hung {
			continue
		}
		st := s.stations[i].core.Stats()
		g := endpoint.Gauges{
			At: taken, Engine: endpoint.EngineVLLM, Values: gauge.Values{Waiting: st.Waiting, Running: st.Running, KVUse: st.Usage()},
			BlockSize: s.Engine.BlockSize, Blocks: s.Engine.Blocks, Started: epoch,
		}
		if s.Engine.AdapterLoad > 0 {
			g.LoRA = s.stations[i].adapters()
		}
		for _, r := range s.replicas {
			r.endpoints[i].SetGauges(g)
			if s.Histograms {
				r.pool.LearnLatency(r.endpoints[i], s.stations[i].latency.Latency, taken)
			}
		}
	}
}

// arrive places one request.
func (s *simulation) arrive(number int) error {
	r := &s.Trace.Requests[number]
	s.lookAtFlight(r.At)
	s.lookAtDemand(r.At)
	s.reportProgress()
	j := s.journey(number, r)
	j.replica.catchUp(s.now)
	if !s.admit(j) {
		return nil
	}
	return s.proceedToQueue(j)
}

// proceedToQueue asks for a permit, if the replica has a queue, or places the request.
func (s *simulation) proceedToQueue(j *journey) error {
	if j.replica.queue != nil {
		return s.enqueue(j)
	}
	return s.place(j)
}

// lookAtDemand reads the replicas' metrics of wanted engines.
func (s *simulation) lookAtDemand(at time.Duration) {
	const every = 10 * time.Second
	if s.Target == nil || len(s.wanted) > 0 && at-s.wanted[len(s.wanted)-1].At < every {
		return
	}
	w := Wanted{At: at}
	for _, r := range s.replicas {
		n, _ := r.meter.Wanted("")
		w.Replicas = append(w.Replicas, n)
	}
	s.wanted = append(s.wanted, w)
}

// refused notes that a request is not served.
func (s *simulation) refused(j *journey, err error) error {
	var refusal *request.Error
	if !errors.As(err, &refusal) {
		return err
	}
	s.outcomes[j.number] = Outcome{Endpoint: -1, Error: refusal.Message}
	s.ended(j.number)
	return nil
}

// place sends a request to an engine.
func (s *simulation) place(j *journey) error {
	number, r := j.number, &s.Trace.Requests[j.number]
	j.replica.placing = j
	if q := j.replica.queue; q != nil {
		q.permit = j.permit
	}
	if a := j.replica.admissions; a != nil {
		a.permit = j.permit
	}
	d, err := j.replica.scheduler.Choose(context.Background(), &j.request)
	if err != nil {
		return s.refused(j, err)
	}
	j.decision, j.station = d, j.replica.index(d.Endpoints[0])
	s.outcomes[number] = Outcome{Endpoint: j.station, Queued: s.now - r.At, Crossed: s.crossed(j.replica.number, j.station)}
	if p := s.prefiller(j); p >= 0 {
		err = s.prefill(j, p)
	} else if from, blocks := s.sender(j); from >= 0 {
		s.fetch(j, from, blocks)
	} else if err = s.submit(j.station, engine.Request{ID: uint64(number) + 1, Prompt: r.Input, Output: r.Output, Blocks: j.names, Priority: d.Priority, Adapter: uint32(r.Adapter)}); err == nil {
		s.flying[uint64(number)+1] = j
	}
	if err != nil {
		d.Done(request.Outcome{At: s.clock(), Status: 400})
		s.outcomes[number].Error = complaint(err)
		s.ended(number)
	}
	return nil
}

// complaint returns an engine's error without the figures of one request.
func complaint(err error) string {
	for _, kind := range []error{engine.ErrTooLong, engine.ErrRequest} {
		if errors.Is(err, kind) {
			return kind.Error()
		}
	}
	return err.Error()
}

func (s *simulation) journey(number int, r *trace.Request) *journey {
	var j *journey
	if n := len(s.spare); n > 0 {
		j, s.spare = s.spare[n-1], s.spare[:n-1]
	} else {
		j = new(journey)
	}
	*j = journey{number: number, names: j.names[:0], keys: j.keys[:0]}
	j.replica = s.replicas[0]
	if len(s.Homes) > 0 {
		j.replica = s.replicas[s.home(r.Session)]
	} else if n := len(s.replicas); n > 1 {
		j.replica = s.replicas[s.rng.IntN(n)]
	}
	j.usage = s.Bodies >= 1 || s.rng.Float64() < s.Bodies
	j.seen = j.usage && !s.Whole
	j.blocks = r.Blocks[:r.Full(s.Trace.BlockSize)]
	for _, b := range j.blocks {
		j.names = append(j.names, engine.Hash(b)+1)
	}
	for _, b := range r.Answer {
		j.names = append(j.names, engine.Hash(b)+1)
	}
	j.keys = j.keys.of(j.blocks)
	j.request = request.Request{
		ID: "r", Path: "/v1/completions", Kind: request.KindCompletions, Model: "m", Target: "m", Objective: objective(r.Priority),
		Session: s.shared.sessionName(r.Session), InputTokens: r.Input, Stream: !s.Whole, ChunkKeys: j.keys,
	}
	if r.Program > 0 {
		j.request.Headers = programHeader(strconv.Itoa(int(r.Program)))
	}
	if r.Adapter > 0 {
		j.request.Adapter = adapterName(uint32(r.Adapter))
	}
	return j
}

// adapterName is the name of an adapter.
func adapterName(number uint32) string { return "adapter-" + strconv.FormatUint(uint64(number), 10) }

// stepEnded applies the end of a station's step and starts the next one. No other event occurs
// before until.
func (s *simulation) stepEnded(i int, until time.Duration) {
	st := &s.stations[i]
	if step := st.step; step != nil {
		s.shared.cacheChanged(i, s.now, step.Events)
		for _, m := range step.First {
			if m.ID&(remoteLeg|warmLeg) == 0 {
				s.firstToken(st, m)
			}
		}
		for _, m := range step.Finished {
			switch {
			case m.ID&warmLeg != 0:
				s.warming[m.ID].end(m.Cached, 200)
			case m.ID&remoteLeg == 0:
				s.finished(st, m)
			default:
				s.prefilled(m)
			}
		}
		st.step = nil
		if end := st.skip(s.now, until); end > s.now {
			st.end = end
			return
		}
	}
	st.begin(s.now)
}

func (s *simulation) firstToken(st *station, m engine.Mark) {
	j := s.flying[m.ID]
	if j == nil {
		return // it was ended during the step
	}
	o := &s.outcomes[j.number]
	st.latency.First.Count++
	st.latency.First.Seconds += (s.now - s.Trace.Requests[j.number].At).Seconds()
	if o.First = s.now; !o.Remote {
		o.Cached = max(m.Cached-o.Fetched, 0)
	}
	s.reportKVTransfer(j)
	j.reported, j.atStep = 1, st.steps
	st.decoding = append(st.decoding, j)
	if j.seen {
		j.decision.Observe(request.Event{Kind: request.EventFirstToken, At: s.clock()})
	}
}

func (s *simulation) finished(st *station, m engine.Mark) {
	j := s.flying[m.ID]
	if j == nil {
		return // it was ended during the step
	}
	delete(s.flying, m.ID)
	st.forget(j)
	o := &s.outcomes[j.number]
	o.End, o.Preempted = s.now, m.Preemptions
	j.reportTokens(s.Trace.Requests[j.number].Output, s.clock())
	r := &s.Trace.Requests[j.number]
	st.latency.answered(o, r.Output)
	if s.Whole {
		j.decision.Observe(request.Event{Kind: request.EventHeaders, At: s.clock(), Status: 200})
	}
	j.decision.Done(request.Outcome{
		At: s.clock(), Status: 200, Served: j.decision.Endpoints[0], Complete: true,
		Usage: request.Usage{Seen: j.usage, CachedSeen: j.usage, PromptTokens: r.Input, OutputTokens: r.Output, CachedTokens: m.Cached},
	})
	j.decision = nil
	s.ended(j.number)
	s.spare = append(s.spare, j)
}

// reportTokens reports to the replica that the response has reached that many tokens.
func (j *journey) reportTokens(tokens int, at time.Time) {
	if n := tokens - j.reported; n > 0 && j.seen {
		j.decision.Observe(request.Event{Kind: request.EventTokens, At: at, Tokens: n})
		j.reported = tokens
	}
}

// reportProgress reports the progress of all answers to the replicas.
func (s *simulation) reportProgress() {
	if s.now-s.reportedAt < progressEvery {
		return
	}
	s.reportedAt = s.now
	for i := range s.stations {
		st := &s.stations[i]
		for _, j := range st.decoding {
			most := s.Trace.Requests[j.number].Output - 1
			j.reportTokens(min(j.reported+st.steps-j.atStep, most), s.clock())
			j.atStep = st.steps
		}
	}
}

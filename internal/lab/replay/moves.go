package replay

import (
	"slices"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Network is the network that transfers KV blocks between engines. With the zero value nothing is
// transferred: prompts are computed by the engine that responds.
type Network struct {
	BytesPerToken  float64
	BytesPerSecond float64       // out of one engine; transfers of an engine follow each other
	Latency        time.Duration // of each KV transfer besides
}

// move is a prompt's blocks on their way.
type move struct {
	at time.Duration // time of arrival
	j  *journey
}

// moves are the running transfers in order of time; of equal times, the first begun is first.
type moves []move

func (m *moves) add(n move) {
	at, _ := slices.BinarySearchFunc(*m, n.at, func(o move, at time.Duration) int {
		if o.at <= at {
			return -1
		}
		return 1
	})
	*m = slices.Insert(*m, at, n)
}

// take removes the first.
func (m *moves) take() move {
	first := (*m)[0]
	*m = slices.Delete(*m, 0, 1)
	return first
}

// next returns when the first move ends.
func (m moves) next() time.Duration {
	if len(m) == 0 {
		return never
	}
	return m[0].at
}

// remoteLeg marks the ids of prefill legs.
const remoteLeg = 1 << 40

// prefiller returns the station that is to compute the journey's prompt, -1 when that
// is the one that answers.
func (s *simulation) prefiller(j *journey) int {
	if s.Network.BytesPerSecond == 0 {
		return -1
	}
	for _, h := range j.decision.SetHeaders {
		if h.Name == request.HeaderPrefiller {
			first, _, _ := strings.Cut(h.Value, ",")
			return j.replica.index(first)
		}
	}
	return -1
}

// sender returns the station from which the journey's own station should fetch blocks, and its
// number of leading blocks. The number is 0 if there is nothing to fetch.
func (s *simulation) sender(j *journey) (from, blocks int) {
	for _, h := range j.decision.SetHeaders {
		if h.Name == request.HeaderKVSource && s.Network.BytesPerSecond > 0 {
			from = j.replica.index(h.Value)
			if blocks = s.stations[from].core.Cached(j.names[:len(j.blocks)]); blocks > s.stations[j.station].core.Cached(j.names) {
				return from, blocks
			}
		}
	}
	return -1, 0
}

// fetch begins the transfer of blocks that another station has.
func (s *simulation) fetch(j *journey, from, blocks int) {
	j.remote, j.fetched = from, blocks
	tokens := (blocks - s.stations[j.station].core.Cached(j.names)) * s.Trace.BlockSize
	s.outcomes[j.number].Fetched = tokens
	s.send(j, tokens)
}

// send queues a transfer of the blocks of that many tokens on the link of j's remote station.
func (s *simulation) send(j *journey, tokens int) {
	from, n := &s.stations[j.remote], &s.Network
	took := time.Duration(n.BytesPerToken * float64(tokens) / n.BytesPerSecond * float64(time.Second))
	from.link = max(from.link, s.now) + took
	s.moving.add(move{from.link + n.Latency, j})
}

// prefill sends the journey's prompt to another station than the one that answers.
func (s *simulation) prefill(j *journey, at int) error {
	j.remote, j.sent = at, s.now
	r := &s.Trace.Requests[j.number]
	err := s.submit(at, engine.Request{ID: (uint64(j.number) + 1) | remoteLeg, Prompt: r.Input, Output: 1, Blocks: j.names, Hold: true, Priority: j.decision.Priority})
	if err == nil {
		s.flying[(uint64(j.number)+1)|remoteLeg] = j
	}
	return err
}

// prefilled starts the transfer of a prompt's blocks. Blocks that the decode station already has
// are not transferred.
func (s *simulation) prefilled(m engine.Mark) {
	j := s.flying[m.ID]
	delete(s.flying, m.ID)
	to := &s.stations[j.station]
	s.outcomes[j.number].Cached, s.outcomes[j.number].Remote = m.Cached, true
	r := &s.Trace.Requests[j.number]
	tokens := max(r.Input-to.core.Cached(j.names)*s.Trace.BlockSize, 0)
	j.report = kvtransfer.Report{Known: true, Prefill: s.now - j.sent}
	j.sent = s.now
	s.send(j, tokens)
}

// moved submits the first prompt whose transfer is complete to its decode station.
func (s *simulation) moved() error {
	j := s.moving.take().j
	if j.fetched == 0 {
		s.stations[j.remote].core.Release((uint64(j.number) + 1) | remoteLeg)
	}
	if s.stations[j.station].failed {
		s.lose(j)
		return nil
	}
	r := &s.Trace.Requests[j.number]
	s.flying[uint64(j.number)+1] = j
	return s.submit(j.station, engine.Request{
		ID: uint64(j.number) + 1, Prompt: r.Input, Output: r.Output, Blocks: j.names, Remote: j.fetched == 0, Fetched: j.fetched,
		Priority: j.decision.Priority,
	})
}

// submit gives a station a request.
func (s *simulation) submit(at int, r engine.Request) error {
	st := &s.stations[at]
	if err := st.core.Submit(r); err != nil {
		return err
	}
	if st.step == nil && st.end == never {
		st.begin(s.now)
	}
	return nil
}

// reportKVTransfer reports to the replica how the first token was produced, as the proxy next to the
// engine does.
func (s *simulation) reportKVTransfer(j *journey) {
	if !j.report.Known || !j.seen {
		return
	}
	j.report.Decode = s.now - j.sent
	j.decision.Observe(request.Event{Kind: request.EventHeaders, At: s.clock(), Status: 200, Served: j.decision.Endpoints[0], KVTransfer: j.report})
}

package trace

import (
	"math/rand/v2"
	"slices"
	"time"
)

// ScaleOptions say how a trace becomes a load.
type ScaleOptions struct {
	Rate     float64       // requests per second; 0 keeps the trace's own users
	Speed    float64       // factor by which the clock runs faster; 0 means 1
	Duration time.Duration // only arrivals before; 0: all
	Seed     uint64
}

// Scale returns the trace with the number of users that gives the rate. Additional users are copies
// of its sessions: private blocks get new names, shared blocks stay shared, and the clock of each
// copy is shifted by a random offset. To reduce the rate, it keeps a random choice of sessions.
func (t *Trace) Scale(o ScaleOptions) *Trace {
	rng := rand.New(rand.NewPCG(o.Seed, 0x5ca1e))
	out := &Trace{Name: t.Name, BlockSize: t.BlockSize, Blocks: t.Blocks, Length: t.Length, Tenants: t.Tenants}
	if o.Speed <= 0 {
		o.Speed = 1
	}
	want := len(t.Requests)
	if o.Rate > 0 {
		want = max(int(o.Rate/o.Speed*t.Length.Seconds()+.5), 1)
	}
	s := scaler{from: t, to: out, rng: rng, private: t.private(), turns: t.turns()}
	for copies := 0; len(out.Requests) < want; copies++ {
		s.copy(copies, want)
	}
	slices.SortStableFunc(out.Requests, byArrival)
	out.accelerate(o.Speed)
	out.cut(o.Duration)
	return out
}

// AsRecorded returns the trace with its own users at their own times.
func (t *Trace) AsRecorded(o ScaleOptions) *Trace {
	out := *t
	out.Requests = slices.Clone(t.Requests)
	setDefault(&o.Speed, 1)
	out.accelerate(o.Speed)
	out.cut(o.Duration)
	return &out
}

type scaler struct {
	from, to *Trace
	rng      *rand.Rand
	private  []bool
	turns    [][]int32 // by session: its requests
	name     []Block   // new name + 1 of private blocks in this copy
}

// copy adds a copy of the trace, or as many of its sessions as are wanted.
func (s *scaler) copy(number, want int) {
	turn := time.Duration(s.rng.Int64N(int64(s.from.Length)))
	s.name = make([]Block, s.from.Blocks)
	for _, session := range s.rng.Perm(len(s.turns)) {
		if len(s.to.Requests) >= want {
			return
		}
		for _, i := range s.turns[session] {
			r := s.from.Requests[i]
			r.At = (r.At + turn) % s.from.Length
			r.Session = int32(s.to.Sessions)
			if number > 0 {
				r.Blocks, r.Answer = s.rename(r.Blocks), s.rename(r.Answer)
			}
			s.to.Requests = append(s.to.Requests, r)
		}
		s.to.Sessions++
	}
}

func (s *scaler) rename(blocks []Block) []Block {
	out := slices.Clone(blocks)
	for k, b := range out {
		if !s.private[b] {
			continue
		}
		if s.name[b] == 0 {
			s.name[b] = Block(s.to.Blocks) + 1
			s.to.Blocks++
		}
		out[k] = s.name[b] - 1
	}
	return out
}

// private returns, by block, whether only one session uses it.
func (t *Trace) private() []bool {
	user := make([]int32, t.Blocks) // session + 1; -1: several
	for i := range t.Requests {
		s := t.Requests[i].Session + 1
		for _, b := range t.Requests[i].Blocks {
			if user[b] == 0 {
				user[b] = s
			} else if user[b] != s {
				user[b] = -1
			}
		}
	}
	out := make([]bool, t.Blocks)
	for b, u := range user {
		out[b] = u >= 0
	}
	return out
}

// turns returns the requests of each session.
func (t *Trace) turns() [][]int32 {
	out := make([][]int32, t.Sessions)
	for i := range t.Requests {
		s := t.Requests[i].Session
		out[s] = append(out[s], int32(i))
	}
	return out
}

func (t *Trace) accelerate(speed float64) {
	if speed == 1 {
		return
	}
	for i := range t.Requests {
		t.Requests[i].At = time.Duration(float64(t.Requests[i].At) / speed)
	}
	t.Length = time.Duration(float64(t.Length) / speed)
}

func (t *Trace) cut(d time.Duration) {
	if d <= 0 || d >= t.Length {
		return
	}
	n, _ := slices.BinarySearchFunc(t.Requests, d, func(r Request, d time.Duration) int { return int(min(max(r.At-d, -1), 1)) })
	t.Requests, t.Length = t.Requests[:n], d
}

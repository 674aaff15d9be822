package sandbox

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/internal/monotime"
)

// Reason says why a call has no usable result.
type Reason uint8

// Reasons.
const (
	OK      Reason = iota
	Steps          // the limit of instructions
	Trap           // an invalid memory access, a division by zero, an exception or the like
	Refused        // the module returned an error
	Result         // results are missing, not finite, or no verdict
	Start          // a new instance did not start
	Busy           // all instances are in use
	Paused         // calls pause after failures
	NumReasons
)

var reasonNames = [NumReasons]string{"ok", "steps", "trap", "refused", "result", "start", "busy", "paused"}

// String returns the label of metrics.
func (r Reason) String() string { return reasonNames[r] }

// Pauses after failures.
const (
	failuresInRow = 5
	firstPause    = time.Second
	longestPause  = 30 * time.Second
)

// Options are the inputs of [Open].
type Options struct {
	Code   []byte // the module
	Filter bool   // it filters; otherwise it scores
	Config string // passed to the module
	Memory int64  // bytes of an instance at most, a multiple of 64 KiB
	Steps  int64  // instructions of a call at most
}

// shape is the number of facts.
type shape struct{ request, endpoint int }

// Module is a module that can be called. It is safe for concurrent use.
type Module struct {
	program *program
	fn      string
	config  string
	limit   int64
	facts   []string
	shape   shape

	slots []seat
	made  atomic.Int32 // seats in use so far

	row    atomic.Int32 // failures since the last success
	pauses atomic.Int32 // pauses since then
	until  atomic.Int64 // end of the pause, Unix time in nanoseconds

	counters
}

// seat holds an instance that one call at a time uses.
type seat struct {
	busy     atomic.Bool
	instance *instance // nil: not started, or lost; used by the holder of busy
	_        [40]byte  // seats of different processors in different cache lines
}

// Open compiles a module and starts an instance of it.
func Open(o Options) (*Module, error) {
	p, err := compile(o.Code, uint32(o.Memory/pageSize))
	if err != nil {
		return nil, err
	}
	m := &Module{program: p, fn: fnScore, config: o.Config, limit: o.Steps, slots: make([]seat, 4*runtime.GOMAXPROCS(0))}
	if o.Filter {
		m.fn = fnFilter
	}
	for _, f := range []struct {
		name            string
		params, results int
	}{{m.fn, 4, 1}, {fnAlloc, 1, 1}, {fnFacts, 0, 1}} {
		if err := p.requires(f.name, f.params, f.results); err != nil {
			return nil, err
		}
	}
	if p.exports(fnStart) {
		if err := p.requires(fnStart, 2, 1); err != nil {
			return nil, err
		}
	}
	first, err := p.start(m.fn, m.config)
	if err != nil {
		return nil, err
	}
	m.slots[0].instance = first
	m.made.Store(1)
	if m.facts, err = first.facts(); err != nil {
		return nil, err
	}
	// The program, which other modules may share, lists running instances until they are closed.
	runtime.AddCleanup(m, closeAll, m.slots)
	return m, nil
}

func closeAll(slots []seat) {
	for k := range slots {
		if i := slots[k].instance; i != nil {
			i.close()
		}
	}
}

// Facts returns the names of the facts that the module reads, in its order.
func (m *Module) Facts() []string { return m.facts }

// SetShape sets the number of facts that sources write for the request and for each endpoint. It has
// to be called before the first call.
func (m *Module) SetShape(request, endpoint int) { m.shape = shape{request, endpoint} }

// Score sets scores. A score is NaN if the module did not compute it. All are NaN unless Score returns
// OK or Result. now is the time of the decision.
func (m *Module) Score(now time.Time, s Source, scores []float64) Reason {
	for k := range scores {
		scores[k] = math.NaN()
	}
	return m.use(now, s, len(scores), 8, func(data []byte) (bad int) {
		for k := range scores {
			scores[k] = math.Float64frombits(binary.LittleEndian.Uint64(data[k*8:]))
			if math.IsNaN(scores[k]) || math.IsInf(scores[k], 0) {
				scores[k] = math.NaN()
				bad++
			}
		}
		return bad
	})
}

// Verdicts of a filter about an endpoint.
const (
	Drop    byte = 0
	Keep    byte = 1
	Unknown byte = 0xff
)

// Filter sets verdicts. A verdict is Unknown if the module gave none.
func (m *Module) Filter(now time.Time, s Source, verdicts []byte) Reason {
	for k := range verdicts {
		verdicts[k] = Unknown
	}
	return m.use(now, s, len(verdicts), 1, func(data []byte) (bad int) {
		for k, v := range data {
			if v > Keep {
				v = Unknown
				bad++
			}
			verdicts[k] = v
		}
		return bad
	})
}

// use calls an instance and passes the results to read, which returns how many are invalid.
func (m *Module) use(now time.Time, s Source, n, width int, read func([]byte) int) Reason {
	if n == 0 {
		return OK
	}
	if !m.admit(now) {
		m.count(Paused)
		return Paused
	}
	at := m.take()
	if at == nil {
		m.count(Busy)
		return Busy
	}
	defer at.busy.Store(false)
	start := monotime.Now()
	reason, err := Start, error(nil)
	if at.instance == nil {
		at.instance, err = m.program.start(m.fn, m.config)
	}
	if i := at.instance; i != nil {
		var data []byte
		if data, reason, err = i.run(n, width, m, s); reason == OK {
			if bad := read(data); bad > 0 {
				reason, err = Result, fmt.Errorf("%d of %d results are missing or not valid", bad, n)
			}
		} else {
			err = fmt.Errorf("%s", i.cause(err))
			i.close()
			at.instance = nil
		}
	}
	m.took(monotime.Now().Sub(start))
	m.count(reason)
	if reason == OK {
		m.succeeded()
	} else {
		m.failed(now, reason, err)
	}
	return reason
}

// take returns a seat that no other call uses, or nil.
func (m *Module) take() *seat {
	for range 2 {
		made := m.made.Load()
		first := rand.Uint32N(uint32(made))
		for k := range uint32(made) {
			at := &m.slots[(first+k)%uint32(made)]
			if !at.busy.Load() && at.busy.CompareAndSwap(false, true) {
				return at
			}
		}
		if int(made) < len(m.slots) {
			at := &m.slots[made]
			if at.busy.CompareAndSwap(false, true) {
				if m.made.CompareAndSwap(made, made+1) {
					return at
				}
				at.busy.Store(false)
			}
		}
		runtime.Gosched()
	}
	return nil
}

// admit reports whether a call may run: not in a pause, except for one call after it.
func (m *Module) admit(now time.Time) bool {
	until := m.until.Load()
	if until == 0 {
		return true
	}
	at := now.UnixNano()
	return at >= until && m.until.CompareAndSwap(until, at+int64(firstPause))
}

func (m *Module) succeeded() {
	if m.row.Load() != 0 {
		m.row.Store(0)
		m.pauses.Store(0)
	}
	if m.until.Load() != 0 {
		m.until.Store(0)
	}
}

// failed records a failure. The fifth in a row begins a pause, and so does each one after a pause.
func (m *Module) failed(now time.Time, reason Reason, err error) {
	m.note(now, reason, err)
	if m.row.Add(1) >= failuresInRow {
		pause := min(firstPause<<min(m.pauses.Add(1)-1, 10), longestPause)
		m.until.Store(now.UnixNano() + int64(pause))
	}
}

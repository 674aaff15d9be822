package trace

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"time"
)

// ErrTrace is wrapped by every complaint about a trace's content.
var ErrTrace = errors.New("trace: bad trace")

// Block names a KV block and all before it, densely from 0 within one Trace.
type Block uint32

// Request is one line of a trace.
type Request struct {
	At      time.Duration // arrival, from the start
	Input   int           // prompt tokens
	Output  int           // generated tokens
	Session int32         // dense from 0
	Tenant  int32         // index into Trace.Tenants; 0 if the trace names none

	Priority int32
	Adapter  int32 // number of its LoRA adapter, 0 for none
	// Blocks names the prompt's blocks. The last one may be partial.
	Blocks []Block
	// Answer names the blocks behind the full ones of the prompt, as far as a
	// later turn of the session shows them: its prompt holds this answer.
	Answer []Block

	Program int32 // number of its program from 1, 0 for none
	// After lists the requests that must end before this one arrives, Pause after the last of them.
	// If it is empty, the request arrives at At.
	After []int32
	Pause time.Duration
}

// Full returns the number of full blocks of the prompt.
func (r *Request) Full(blockSize int) int { return min(r.Input/blockSize, len(r.Blocks)) }

// Trace is a list of requests in order of arrival. It is read-only once made.
type Trace struct {
	Name      string
	BlockSize int // tokens
	Requests  []Request
	Blocks    int // distinct blocks
	Sessions  int
	Programs  int           // runs of agents whose requests depend on each other
	Tenants   []string      // names by number; missing ones go by their number
	Length    time.Duration // the span that arrivals cover
	Recorded  Recorded      // as read; scaled traces have none
	Model     string        // what the file does not say and was made up, in words; "": nothing
}

// Recorded holds the additional data in the lines of a recording.
type Recorded struct {
	Unseen  int // answers without a recorded length, which is drawn from recorded ones
	LeftOut int // requests that engines refused as wrong, or that failed: they were no load
	Counted int // answers with the engine's count of cached tokens
	Cached  int // tokens of those
	Input   int // prompt tokens of those
}

// HitRatio returns the part of prompt tokens that engines counted as cached.
func (r *Recorded) HitRatio() float64 { return ratio(float64(r.Cached), float64(r.Input)) }

// TenantName returns the name of a request's tenant.
func (t *Trace) TenantName(tenant int32) string {
	if tenant >= 0 && int(tenant) < len(t.Tenants) {
		return t.Tenants[tenant]
	}
	return strconv.Itoa(int(tenant))
}

// Rate returns the mean arrivals per second.
func (t *Trace) Rate() float64 {
	if t.Length <= 0 {
		return 0
	}
	return float64(len(t.Requests)) / t.Length.Seconds()
}

// finish sorts a trace and derives missing data.
func (t *Trace) finish(spread time.Duration, derive bool) {
	slices.SortStableFunc(t.Requests, func(a, b Request) int { return cmp.Compare(a.At, b.At) })
	t.fromFirst()
	if spread == 0 {
		spread = tick(t.Requests)
	}
	t.spreadOver(spread)
	if derive {
		t.deriveSessions()
	}
	t.drawAnswers()
	t.nameAnswers()
}

// fromFirst makes the first arrival the start of a trace whose clock began long
// before: Unix time, for one.
func (t *Trace) fromFirst() {
	begin, end := t.Requests[0].At, t.Requests[len(t.Requests)-1].At
	if begin >= 0 && (begin <= end-begin || begin < time.Hour) {
		return
	}
	for i := range t.Requests {
		t.Requests[i].At -= begin
	}
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

package picker

import (
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/explanation"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// maxRecorded bounds the candidates of one record. Of more, those named by the plan and the first
// ones are kept.
const maxRecorded = cycle.Listed

// Records keeps the latest decisions for explain, without prompt text. Records are reused, so
// recording stops allocating once their number is stable. It is safe for concurrent use.
type Records struct {
	keep Retention

	mu          sync.Mutex
	ring        []*record // record n is at n % len(ring)
	first, next uint64    // the kept records are first..next-1
	bytes       int
}

// Retention limits the decisions that are kept for explain.
type Retention struct {
	// Most is the greatest number of decisions; 0 means no limit.
	Most int
	// Age is how long decisions are kept. The last Least decisions are kept longer.
	Age   time.Duration
	Least int
	// Bytes limits the memory of all decisions.
	Bytes int
}

// recordRef identifies a record while it is kept.
type recordRef struct{ number uint64 } // from 1; 0: none

// record is one decision in compact form.
type record struct {
	number    uint64
	id        []byte // printable copies, since the originals alias the request's headers
	model     []byte
	target    []byte
	kind      request.Kind
	at        time.Time
	input     int
	priority  int
	prompt    explanation.Prompt
	stream    bool
	plan      []int32
	headers   []request.HeaderSet
	stages    []cycle.Stage
	predicted cycle.Prediction
	total     int // number of candidates, including those not recorded
	rows      []recordRow
	rankings  []recordRanking
	outcome   recordOutcome
	pool      *endpoint.Snapshot
	health    *health.Snapshot // nil without a monitor
	refused   string           // why it was not dispatched
	clusters  []cycle.RemoteTerms
	avoided   []cycle.Avoided
	allowed   []bool // by position in pool; empty: all are
	pinned    bool   // bound to the engine that stores its conversation
	warmUp    explanation.WarmUp
	bytes     int // of memory, with what it alone refers to
}

type recordRow struct {
	index int32 // among all candidates of the request
	view  cycle.View
	run   block.Run
	held  float64 // tokens of run, weighted by tier
	pred  cycle.Prediction
}

type recordRanking struct {
	profile *cycle.Profile
	order   []int32
	verdict []uint8   // by row
	raw     []float64 // rows × scorers
	total   []float64 // by row
}

type recordOutcome struct {
	done   bool
	status int
	served string
	ttft   time.Duration
	took   time.Duration
	usage  request.Usage
	failed string       // the endpoint that failed before a fallback served
	cause  health.Cause // counted against the serving endpoint
}

func newRecords(keep Retention) *Records { return &Records{keep: keep, first: 1, next: 1} }

// at returns the record with that number, or nil if it is not kept. The caller holds rs.mu.
func (rs *Records) at(number uint64) *record {
	if number < rs.first || number >= rs.next {
		return nil
	}
	return rs.ring[number%uint64(len(rs.ring))]
}

// addRefused records that the request of c was not dispatched.
func (rs *Records) addRefused(c *cycle.Cycle, why error) {
	ref := rs.add(c, cycle.Prediction{})
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rec := rs.at(ref.number); rec != nil {
		rec.refused = why.Error()
	}
}

// add records the decision of c.
func (rs *Records) add(c *cycle.Cycle, p cycle.Prediction) recordRef {
	if rs.keep.Bytes <= 0 {
		return recordRef{}
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rec := rs.recycle(c.Now)
	if rec == nil {
		rec = new(record)
	}
	rec.number = rs.next
	rec.fill(c, p)
	rec.bytes = rec.size()
	if last := rs.at(rs.next - 1); last != nil && last.health != rec.health {
		rec.bytes += rec.health.Bytes()
	}
	rs.push(rec)
	for rs.bytes > rs.keep.Bytes && rs.next-rs.first > 1 {
		rs.pop()
	}
	return recordRef{rec.number}
}

// recycle drops the records that are too old or too many, and returns the last of them for reuse.
func (rs *Records) recycle(now time.Time) (rec *record) {
	for kept := rs.next - rs.first; kept > 0; kept-- {
		old := rs.at(rs.first)
		tooMany := rs.keep.Most > 0 && kept >= uint64(rs.keep.Most) || rs.bytes+old.bytes > rs.keep.Bytes
		tooOld := kept > uint64(rs.keep.Least) && rs.keep.Age > 0 && now.Sub(old.at) > rs.keep.Age
		if !tooMany && !tooOld {
			break
		}
		rec = rs.pop()
	}
	return rec
}

// pop removes the oldest record.
func (rs *Records) pop() *record {
	at := rs.first % uint64(len(rs.ring))
	rec := rs.ring[at]
	rs.ring[at] = nil
	rs.first++
	rs.bytes -= rec.bytes
	return rec
}

// push appends a record.
func (rs *Records) push(rec *record) {
	if rs.next-rs.first == uint64(len(rs.ring)) {
		ring := make([]*record, max(2*len(rs.ring), 64))
		for n := rs.first; n < rs.next; n++ {
			ring[n%uint64(len(ring))] = rs.ring[n%uint64(len(rs.ring))]
		}
		rs.ring = ring
	}
	rs.ring[rs.next%uint64(len(rs.ring))] = rec
	rs.next++
	rs.bytes += rec.bytes
}

// size returns the memory of a record without the snapshots that it shares with others.
func (rec *record) size() int {
	n := int(unsafe.Sizeof(*rec)) + cap(rec.id) + cap(rec.model) + cap(rec.target) + cap(rec.allowed) + 4*cap(rec.plan)
	n += sizeOf(rec.headers) + sizeOf(rec.stages) + sizeOf(rec.rows) + sizeOf(rec.rankings) + sizeOf(rec.clusters) + sizeOf(rec.avoided)
	for i := range rec.rankings {
		rr := &rec.rankings[i]
		n += 4*cap(rr.order) + cap(rr.verdict) + 8*cap(rr.raw) + 8*cap(rr.total)
	}
	return n
}

// sizeOf returns the memory of a slice.
func sizeOf[T any](s []T) int {
	var one T
	return cap(s) * int(unsafe.Sizeof(one))
}

func (rec *record) fill(c *cycle.Cycle, p cycle.Prediction) {
	r, plan := c.Request, c.Plan()
	rec.id, rec.kind = append(rec.id[:0], budget.PrintableName(r.ID)...), r.Kind
	rec.model, rec.target = append(rec.model[:0], budget.PrintableName(r.Model)...), append(rec.target[:0], budget.PrintableName(r.Target)...)
	rec.at, rec.input, rec.priority = c.Now, r.InputTokens, r.Priority
	rec.prompt, rec.stream = explainPrompt(r), r.Stream
	rec.plan = append(rec.plan[:0], plan.Order...)
	rec.headers = append(rec.headers[:0], plan.Headers...)
	rec.stages = append(rec.stages[:0], plan.Stages...)
	rec.predicted, rec.total = p, c.Candidates()
	rec.pool, rec.health, rec.refused = c.Pool, c.Health, ""
	rec.outcome, rec.warmUp = recordOutcome{}, explanation.WarmUp{}
	rec.clusters = append(rec.clusters[:0], c.Considered()...)
	rec.fillAvoided(c)
	rec.fillRows(c)
	rec.rankings = resizeKeep(rec.rankings, len(c.Rankings()))
	for k, ranking := range c.Rankings() {
		rec.rankings[k].fill(ranking, rec.rows)
	}
}

func (rec *record) fillRows(c *cycle.Cycle) {
	rec.rows = rec.rows[:0]
	for i := range int32(c.Candidates()) {
		if i < maxRecorded || planned(c.Plan(), i) {
			row := recordRow{index: i, view: *c.All(i), pred: c.Predicted(i)}
			row.run, row.held = c.Known(i)
			rec.rows = append(rec.rows, row)
		}
	}
}

// planned reports whether a plan names candidate i. The record keeps these candidates and the first
// of the others, which is the cheapest selection.
func planned(plan *cycle.Plan, i int32) bool {
	return slices.Contains(plan.Order, i) || slices.ContainsFunc(plan.Stages, func(s cycle.Stage) bool { return s.Chosen == i })
}

func (rr *recordRanking) fill(r *cycle.Ranking, rows []recordRow) {
	n, scorers := len(r.Live), len(r.Profile.Scorers)
	rr.profile = r.Profile
	rr.order = append(rr.order[:0], r.Order...)
	rr.verdict, rr.total, rr.raw = rr.verdict[:0], rr.total[:0], rr.raw[:0]
	k := 0
	for _, row := range rows {
		for k < n && r.Live[k] < row.index {
			k++
		}
		rr.verdict = append(rr.verdict, r.Verdict(row.index))
		if k == n || r.Live[k] != row.index {
			rr.total = append(rr.total, 0)
			for range scorers {
				rr.raw = append(rr.raw, 0)
			}
			continue
		}
		rr.total = append(rr.total, r.Total[k])
		for s := range scorers {
			rr.raw = append(rr.raw, r.Raw[s*n+k])
		}
	}
}

// addWarmUp adds the endpoint of a warm-up to the record.
func (rs *Records) addWarmUp(ref recordRef, ep *endpoint.Endpoint, w endpoint.Work) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rec := rs.at(ref.number); rec != nil {
		rec.warmUp = explanation.WarmUp{Endpoint: ep.Address, Missing: w.New}
	}
}

// finish adds the request's end, if its record still exists.
func (rs *Records) finish(ref recordRef, f *flight, o request.Outcome) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rec := rs.at(ref.number)
	if rec == nil {
		return
	}
	rec.outcome = recordOutcome{done: true, status: o.Status, served: f.ep.Address, usage: o.Usage, failed: f.evidence.failed, cause: f.evidence.cause}
	// Other responses have no first token: they are complete answers or errors.
	if !f.firstAt.IsZero() && rec.stream && o.Status < 400 {
		rec.outcome.ttft = f.firstAt.Sub(rec.at)
	}
	if !o.At.IsZero() {
		rec.outcome.took = o.At.Sub(rec.at)
	}
}

// resizeKeep is resize that preserves elements, so that their slices are reused.
func resizeKeep[T any](s []T, n int) []T {
	if cap(s) < n {
		grown := make([]T, n)
		copy(grown, s[:cap(s)])
		return grown
	}
	return s[:n]
}

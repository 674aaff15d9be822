package picker

import (
	"slices"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/explanation"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/request"
	"github.com/grapevine-epp/grapevine/picker/sessions"
)

// maxRecorded bounds the candidates of one record. Of more, those named by the plan and the first
// ones are kept.
const maxRecorded = 128

// Records keeps the latest decisions for explain, without prompt text. Slots are reused, so
// recording stops allocating once they have grown. It is safe for concurrent use.
type Records struct {
	mu    sync.Mutex
	slots []record
	next  uint64 // number of records made
}

// recordRef identifies a record while its slot is not reused.
type recordRef struct{ number uint64 } // from 1; 0: none

// record is one decision in compact form.
type record struct {
	number    uint64
	id        []byte // printable copies, since the originals alias the request's headers
	model     []byte
	target    []byte
	kind      request.Kind
	at        time.Time
	session   sessions.Key
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

func newRecords(n int) *Records { return &Records{slots: make([]record, max(n, 0))} }

// addRefused records that the request of c was not dispatched.
func (rs *Records) addRefused(c *cycle.Cycle, why error) {
	ref := rs.add(c, cycle.Prediction{})
	if ref.number == 0 {
		return
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rec := &rs.slots[(ref.number-1)%uint64(len(rs.slots))]; rec.number == ref.number {
		rec.refused = why.Error()
	}
}

// add records the decision of c.
func (rs *Records) add(c *cycle.Cycle, p cycle.Prediction) recordRef {
	if len(rs.slots) == 0 {
		return recordRef{}
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rec := &rs.slots[rs.next%uint64(len(rs.slots))]
	rs.next++
	rec.number = rs.next
	rec.fill(c, p)
	return recordRef{rs.next}
}

func (rec *record) fill(c *cycle.Cycle, p cycle.Prediction) {
	r, plan := c.Request, c.Plan()
	rec.id, rec.kind = append(rec.id[:0], budget.PrintableName(r.ID)...), r.Kind
	rec.model, rec.target = append(rec.model[:0], budget.PrintableName(r.Model)...), append(rec.target[:0], budget.PrintableName(r.Target)...)
	rec.at, rec.session, rec.input, rec.priority = c.Now, c.Session, r.InputTokens, r.Priority
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

// warmed adds the endpoint of a warm-up to the record.
func (rs *Records) warmed(ref recordRef, ep *endpoint.Endpoint, w endpoint.Work) {
	if ref.number == 0 {
		return
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rec := &rs.slots[(ref.number-1)%uint64(len(rs.slots))]; rec.number == ref.number {
		rec.warmUp = explanation.WarmUp{Endpoint: ep.Address, Missing: w.New}
	}
}

// finish adds the request's end, if its record still exists.
func (rs *Records) finish(ref recordRef, f *flight, o request.Outcome) {
	if ref.number == 0 {
		return
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rec := &rs.slots[(ref.number-1)%uint64(len(rs.slots))]
	if rec.number != ref.number {
		return
	}
	rec.outcome = recordOutcome{done: true, status: o.Status, served: f.ep.Address, usage: o.Usage, failed: f.vitals.failed, cause: f.vitals.cause}
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

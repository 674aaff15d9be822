package replay

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Change is something that becomes of an engine while a run lasts.
type Change struct {
	At     time.Duration // from the start of the run
	Engine int
	What   ChangeKind
	Factor float64       // Slow: factor on the engine's own step times from then on
	Length time.Duration // Hang: duration without any computation
}

// ChangeKind is the kind of a change to an engine.
type ChangeKind uint8

// Kinds of Change. Replicas see the list of engines without delay, as from a pod list. They are not
// notified that an engine is slow or hangs. There are no health checks in a run.
const (
	Slow  ChangeKind = iota // all step times change
	Hang                    // computes nothing, and its metrics page does not respond
	Fail                    // disappears with its cache and its requests in flight
	Leave                   // gets no new requests, and finishes its current ones
	Join                    // is there, or again: with an empty cache after Fail
)

var changeNames = [...]string{Slow: "slow", Hang: "hang", Fail: "fail", Leave: "leave", Join: "join"}

// String returns the name used on command lines.
func (k ChangeKind) String() string { return changeNames[k] }

// ParseChange parses TIME:ENGINE:CHANGE, where CHANGE is slow=FACTOR, hang=DURATION, fail, leave or
// join.
func ParseChange(s string) (Change, error) {
	var c Change
	wrong := func() (Change, error) {
		return c, fmt.Errorf("%w: change %q: want TIME:ENGINE:WHAT, such as 20m:3:slow=4, hang=30s, fail, leave or join, engines from 0 on", ErrCase, s)
	}
	parts := strings.Split(s, ":")
	if len(parts) != 3 {
		return wrong()
	}
	what, value, _ := strings.Cut(parts[2], "=")
	kind := slices.Index(changeNames[:], what)
	var err error
	if c.At, err = time.ParseDuration(parts[0]); err != nil || c.At < 0 || kind < 0 {
		return wrong()
	}
	if c.Engine, err = strconv.Atoi(parts[1]); err != nil || c.Engine < 0 {
		return wrong()
	}
	switch c.What = ChangeKind(kind); c.What {
	case Slow:
		c.Factor, err = strconv.ParseFloat(value, 64)
	case Hang:
		c.Length, err = time.ParseDuration(value)
	default:
		if value != "" {
			return wrong()
		}
	}
	if err != nil || c.check() != nil {
		return wrong()
	}
	return c, nil
}

func (c *Change) check() error {
	if c.What == Slow && !(c.Factor >= .01 && c.Factor <= 1000) || c.What == Hang && (c.Length <= 0 || c.Length > 24*time.Hour) {
		return fmt.Errorf("%w: %s by %v, for %v", ErrCase, c.What, c.Factor, c.Length)
	}
	return nil
}

// checkChanges puts a case's changes in order.
func (c *Case) checkChanges() error {
	c.Changes = slices.Clone(c.Changes)
	slices.SortStableFunc(c.Changes, func(a, b Change) int { return cmp.Compare(a.At, b.At) })
	for i := range c.Changes {
		if err := c.Changes[i].check(); err != nil {
			return err
		}
		if n := c.Changes[i].Engine; n >= c.Endpoints {
			return fmt.Errorf("%w: a change of engine %d of %d", ErrCase, n, c.Endpoints)
		}
	}
	if len(c.Changes) > 0 && slices.ContainsFunc(c.Roles, func(role string) bool { return role != "" }) {
		return fmt.Errorf("%w: engines with roles do not change in mid-run", ErrCase)
	}
	return nil
}

// absentAtFirst removes the engines that join later.
func (s *simulation) absentAtFirst() {
	for i := range s.stations {
		k := slices.IndexFunc(s.Changes, func(c Change) bool { return c.Engine == i && (c.What == Join || c.What == Leave || c.What == Fail) })
		s.stations[i].away = k >= 0 && s.Changes[k].What == Join
	}
	if len(s.Changes) > 0 {
		s.list()
	}
}

// nextChange returns when the next one is.
func (s *simulation) nextChange() time.Duration {
	if s.changed == len(s.Changes) {
		return never
	}
	return s.Changes[s.changed].At
}

// change applies the next change.
func (s *simulation) change() error {
	c := &s.Changes[s.changed]
	s.changed++
	st := &s.stations[c.Engine]
	switch c.What {
	case Slow:
		st.core.SetModel(st.model.SlowedBy(c.Factor))
	case Hang:
		st.hung = max(st.hung, s.now) + c.Length
		if st.end != never {
			st.end += c.Length
		}
	case Fail:
		if err := s.fail(c.Engine); err != nil {
			return err
		}
		st.away = true
		s.list()
	case Leave, Join:
		st.away = c.What == Leave
		s.list()
		if c.What == Join && st.failed {
			st.failed = false
			s.reborn(c.Engine)
		}
	}
	return nil
}

// list sends the current list of engines to the replicas.
func (s *simulation) list() {
	for _, r := range s.replicas {
		var there []endpoint.Spec
		for i := range s.stations {
			if !s.stations[i].away {
				there = append(there, r.specs[i])
			}
		}
		r.pool.Set(there)
	}
}

// reborn starts a new incarnation of an engine at all replicas.
func (s *simulation) reborn(station int) {
	for _, r := range s.replicas {
		r.pool.Renew(r.endpoints[station])
		r.endpoints[station] = r.pool.Snapshot().ByID(int(r.endpoints[station].ID))
		r.match.approx.Forget(r.endpoints[station].ID)
	}
}

// errFailed is the error of requests at a failed engine.
const errFailed = "the engine failed"

// fail ends an engine's requests and clears its cache.
func (s *simulation) fail(number int) error {
	st := &s.stations[number]
	var there []uint64
	for id, j := range s.flying {
		if j.station == number {
			there = append(there, id)
		}
	}
	slices.Sort(there) // maps have no order, and runs must be equal
	for _, id := range there {
		s.lose(s.flying[id])
		delete(s.flying, id)
	}
	there = there[:0]
	for id, w := range s.warming {
		if w.station == number {
			there = append(there, id)
		}
	}
	slices.Sort(there)
	for _, id := range there {
		s.warming[id].end(0, 503)
	}
	core, err := engine.New(st.config)
	if err != nil {
		return err
	}
	s.shared.changes = append(s.shared.changes, cacheChange{at: s.now, engine: int16(number), all: true})
	*st = station{core: core, config: st.config, model: st.model, slow: st.slow, end: never, steps: st.steps, busy: st.busy, hung: st.hung, failed: true}
	return nil
}

// lose ends a request whose engine failed.
func (s *simulation) lose(j *journey) {
	o := &s.outcomes[j.number]
	*o = Outcome{Endpoint: j.station, Queued: o.Queued, Error: errFailed}
	s.ended(j.number)
	j.decision.Done(request.Outcome{At: s.clock(), Status: 503})
	j.decision = nil
	s.spare = append(s.spare, j)
}

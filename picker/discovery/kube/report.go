package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
)

// Limits of writing.
const (
	reportSettle = 2 * time.Second  // temporary problems are not reported
	reportAgain  = 10 * time.Minute // interval for an event of one reason, and for retries after a missing permission
	maxNote      = 1000             // bytes; the server's limit is 1024
	maxReported  = 1000             // reports remembered before old ones are dropped
)

const (
	reporter     = "grapevine-epp.github.io/picker"
	condAccepted = "Accepted"
)

var events = kubeapi.Resource{Group: "events.k8s.io", Version: "v1", Plural: "events"}

// Reference identifies the object of an event.
type Reference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	Namespace  string `json:"namespace"`
	UID        string `json:"uid,omitempty"`
}

// remark is a problem to show when the object is described.
type remark struct {
	about        Reference
	reason, note string
}

// reports writes remarks as events, and the conditions of objectives and rewrites. Missing write
// permissions are tolerated, because serving does not need them.
type reports struct {
	s        *Source
	reported map[string]time.Time // by reason and object, and by kind if a permission is missing

	pools map[string]lookup // referenced pools, by group and name
	again bool              // a check must be repeated later without a trigger

	// unwritten is since when another replica should have written a report, by report.
	unwritten map[string]time.Time
}

// run writes reports after changes until ctx ends.
func (r *reports) run(ctx context.Context, changed <-chan struct{}) {
	for {
		var again <-chan time.Time
		if r.again {
			again = time.After(r.s.o.LookAgain)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-again:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(reportSettle):
		}
		r.again = false
		r.forget()
		for _, m := range r.s.remarks() {
			r.event(ctx, m)
		}
		r.conditions(ctx)
		r.tryGet(ctx)
	}
}

// tryGet reads the pool to find out whether that is permitted: now and, if not, once per LookAgain.
func (r *reports) tryGet(ctx context.Context) {
	s := r.s
	s.mu.Lock()
	p, group, missing := s.pool, s.group, s.missing[getPool] != nil
	s.mu.Unlock()
	const what = "get/pool"
	_, tried := r.reported[what]
	if s.o.Pool == "" || p == nil || tried && !missing || r.soonAgain(what) {
		return
	}
	err := s.client.Get(ctx, poolResource(group), s.o.Namespace, s.o.Pool, nil)
	s.permission(getPool, err)
	r.again = r.again || kubeapi.IsForbidden(err)
}

// remarks returns the current problems.
func (s *Source) remarks() (out []remark) {
	s.mu.Lock()
	p, group, view, f, held := s.pool, s.group, s.pods, s.last, s.held
	s.mu.Unlock()
	if s.o.Pool == "" {
		return nil
	}
	if p == nil {
		if st := s.poolState(group); st.Listed && st.Err == nil && st.Broken == 0 && s.o.Self.Name != "" {
			out = append(out, remark{s.o.Self, "PoolNotFound", "there is no " + s.o.from()})
		}
		return out
	}
	about := Reference{APIVersion: group + "/" + poolResource(group).Version, Kind: kindPool, Name: p.name, Namespace: s.o.Namespace, UID: p.uid}
	add := func(reason, format string, args ...any) {
		out = append(out, remark{about, reason, fmt.Sprintf(format, args...)})
	}
	if p.problem != "" {
		add("InvalidSelector", "%s; the endpoints of the last good selector stay", p.problem)
	}
	if len(p.ports) == 0 {
		add("NoTargetPort", "the pool has no target port")
	}
	if view != nil && view.State().Listed && f.ready+f.unready == 0 {
		add("NoPods", "the selector %s matches no pod", view.selector)
	}
	if !held.since.IsZero() {
		add("ChangeHeld", "the selector %s has %d endpoints, not %d: the change is held for up to %v", held.selector, held.then, held.now, s.o.Guard)
	}
	if len(f.problems) > 0 {
		add("InvalidPod", "%d problems; the first: pod %s: %s", len(f.problems), f.problems[0].pod, f.problems[0].message)
	}
	if f.doubled > 0 {
		add("DuplicateAddress", "%d endpoints are left out since a newer pod has their address", f.doubled)
	}
	return out
}

// due reports whether a report may be repeated now, and records it.
func (r *reports) due(what string) bool {
	if time.Since(r.reported[what]) < reportAgain {
		return false
	}
	r.reported[what] = time.Now()
	return true
}

// forget drops expired records.
func (r *reports) forget() {
	if len(r.reported) > maxReported {
		maps.DeleteFunc(r.reported, func(_ string, at time.Time) bool { return time.Since(at) >= reportAgain })
	}
}

// soonAgain reports whether a report was made within LookAgain. If so, it schedules another
// check; otherwise it records the report.
func (r *reports) soonAgain(what string) bool {
	if time.Since(r.reported[what]) < r.s.o.LookAgain {
		r.again = true
		return true
	}
	r.reported[what] = time.Now()
	return false
}

// mine reports whether this replica writes a report now: it writes for the group, or no other replica
// has written the report for half of LookAgain.
func (r *reports) mine(what string) bool {
	if r.s.o.Sink.Writes() {
		delete(r.unwritten, what)
		return true
	}
	r.again = true
	since, ok := r.unwritten[what]
	if !ok {
		if len(r.unwritten) >= maxReported {
			clear(r.unwritten)
		}
		r.unwritten[what] = time.Now()
		return false
	}
	return time.Since(since) >= r.s.o.LookAgain/2
}

// event writes a remark: the same one once per ten minutes, others with its reason once per
// LookAgain.
func (r *reports) event(ctx context.Context, m remark) {
	about := m.reason + "/" + m.about.Name
	if time.Since(r.reported[about+"/"+m.note]) < reportAgain || r.soonAgain(about) || !r.due(about+"/"+m.note) {
		return
	}
	err := r.s.client.Create(ctx, events, m.about.Namespace, map[string]any{
		"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": map[string]any{"generateName": m.about.Name + "-"},
		"eventTime": time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"), "reportingController": reporter,
		"reportingInstance": r.s.o.Agent, "action": "Discover", "type": "Warning", "reason": m.reason, "note": m.note[:min(len(m.note), maxNote)], "regarding": m.about,
	})
	r.failed(events, err)
}

func (r *reports) failed(what kubeapi.Resource, err error) {
	use := "no conditions are written"
	if what == events {
		use = "no events are written"
	}
	r.s.permission(use+" at "+what.String(), err)
	if err != nil && r.due("failed/"+what.String()) {
		r.s.o.Sink.Log.Info("writing events or conditions failed", "kind", what.String(), "error", err)
	}
}

// condition is an object's condition of type Accepted.
type condition struct {
	Type       string `json:"type"`
	Status     string `json:"status"`
	Reason     string `json:"reason"`
	Generation int64  `json:"observedGeneration"`
}

// acceptedOf returns an object's condition, or zero.
func acceptedOf(raw []byte) (c condition) {
	var o struct {
		Status struct {
			Conditions []condition `json:"conditions"`
		} `json:"status"`
	}
	if json.Unmarshal(raw, &o) != nil {
		return c
	}
	for _, x := range o.Status.Conditions {
		if x.Type == condAccepted {
			return x
		}
	}
	return c
}

// verdict returns whether an object that refers to a pool is in use; "" if that is for another
// picker to decide.
func (s *Source) verdict(group string, ref *poolRef) (status, reason, message string) {
	switch {
	case group == "" || ref.Name != s.o.Pool || ref.Kind != "" && ref.Kind != kindPool:
		return "", "", ""
	case ref.names(group, s.o.Pool):
		return "True", "Accepted", "in use for " + s.o.from()
	}
	return "False", "PoolGroupMismatch", "the pool is of group " + group
}

const (
	maxLookups  = 1000 // pools whose existence is cached
	noSuchPool  = "PoolNotFound"
	poolIsThere = "Pending"
)

// lookup is the cached existence of a pool.
type lookup struct {
	at    time.Time
	there bool
}

// verdictOtherPool reports for an object of another pool if that pool does not exist, and withdraws
// the report once it does. All other reports are the task of that pool's picker.
func (r *reports) verdictOtherPool(ctx context.Context, on verdictOn) (status, reason, message string) {
	group := GroupPool
	if on.pool.Group != nil {
		group = *on.pool.Group
	}
	kind, known := map[string]kubeapi.Resource{GroupPool: poolsV1, GroupPoolOld: poolsOld}[group]
	if !known || on.pool.Name == "" || on.pool.Kind != "" && on.pool.Kind != kindPool {
		return "", "", ""
	}
	id := group + "/" + on.pool.Name
	l, ok := r.pools[id]
	if !ok || time.Since(l.at) >= r.s.o.LookAgain {
		err := r.s.client.Get(ctx, kind, r.s.o.Namespace, on.pool.Name, &struct{}{})
		if err != nil && !kubeapi.IsGone(err) {
			return "", "", "" // unknown
		}
		if len(r.pools) >= maxLookups {
			clear(r.pools)
		}
		l = lookup{time.Now(), err == nil}
		r.pools[id] = l
	}
	switch {
	case !l.there:
		r.again = true
		return "False", noSuchPool, "there is no " + kindPool + " " + r.s.o.Namespace + "/" + on.pool.Name + " of group " + group
	case on.have.Reason == noSuchPool:
		return "Unknown", poolIsThere, "the pool exists, and its picker has not reported yet"
	}
	return "", "", ""
}

// conditions writes the conditions of objectives and rewrites.
func (r *reports) conditions(ctx context.Context) {
	s := r.s
	s.mu.Lock()
	group := s.group
	s.mu.Unlock()
	if s.o.Pool == "" {
		return
	}
	for i, kind := range []kubeapi.Resource{objectives, objectivesOld} {
		for _, o := range s.objectives[i].Items() {
			r.accept(ctx, verdictOn{kind, "InferenceObjective", &o.meta, o.accepted, &o.pool}, group)
		}
	}
	for i, kind := range []kubeapi.Resource{rewrites, rewritesOld} {
		for _, w := range s.rewrites[i].Items() {
			r.accept(ctx, verdictOn{kind, "InferenceModelRewrite", &w.meta, w.accepted, &w.pool}, group)
		}
	}
}

// verdictOn is an object whose condition this picker writes.
type verdictOn struct {
	resource kubeapi.Resource
	kind     string
	*meta
	have condition
	pool *poolRef
}

// accept writes one object's condition if it differs.
func (r *reports) accept(ctx context.Context, on verdictOn, group string) {
	k, kind, m := on.resource, on.kind, on.meta
	status, reason, message := r.s.verdict(group, on.pool)
	if status == "" {
		status, reason, message = r.verdictOtherPool(ctx, on)
	}
	if status == "" || on.have == (condition{Type: condAccepted, Status: status, Reason: reason, Generation: m.generation}) {
		return
	}
	if at, ok := r.reported["failed/"+k.String()]; ok && time.Since(at) < reportAgain {
		r.again = true
		return
	}
	what := fmt.Sprintf("accepted/%s/%s/%d/%s", kind, m.uid, m.generation, reason)
	if !r.mine(what) {
		return
	}
	delete(r.unwritten, what)
	// Do not answer another writer of this condition write for write.
	if r.soonAgain(what) {
		return
	}
	r.failed(k, r.s.client.Apply(ctx, kubeapi.Patch{Resource: k, Namespace: r.s.o.Namespace, Name: m.name, Sub: "status", Manager: reporter}, map[string]any{
		"apiVersion": k.Group + "/" + k.Version, "kind": kind, "metadata": map[string]any{"name": m.name, "namespace": r.s.o.Namespace},
		"status": map[string]any{"conditions": []any{map[string]any{
			"type": condAccepted, "status": status, "reason": reason, "message": message, "observedGeneration": m.generation,
			"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
		}}},
	}))
}

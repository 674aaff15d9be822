package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
)

// Pace of what is written.
const (
	reportSettle = 2 * time.Second  // what passes by itself is not reported
	reportAgain  = 10 * time.Minute // an event of one reason, and a right that was missing
	maxNote      = 1000             // bytes; the server takes 1024
	maxSaid      = 1000             // of what was reported and when, before what is old is forgotten
)

const (
	reporter     = "grapevine-epp.github.io/picker"
	condAccepted = "Accepted"
)

var events = kubeapi.Resource{Group: "events.k8s.io", Version: "v1", Plural: "events"}

// Reference names the object that an event is about.
type Reference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	Namespace  string `json:"namespace"`
	UID        string `json:"uid,omitempty"`
}

// remark is a fault that whoever describes an object should see.
type remark struct {
	about        Reference
	reason, note string
}

// reports writes remarks as events, and whether objectives and rewrites hold as
// their conditions. What may not be written is not: serving needs none of it.
type reports struct {
	s    *Source
	said map[string]time.Time // by reason and object, and by kind where a right is missing

	pools map[string]lookup // that objects name, by group and name
	again bool              // something is to be looked at again although nobody tells when
}

// run reports after changes, until ctx ends.
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
	}
}

// remarks are the faults that there are.
func (s *Source) remarks() (out []remark) {
	s.mu.Lock()
	p, group, view, f := s.pool, s.group, s.pods, s.last
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
	version := poolsV1.Version
	if group == GroupPoolOld {
		version = poolsOld.Version
	}
	about := Reference{APIVersion: group + "/" + version, Kind: kindPool, Name: p.name, Namespace: s.o.Namespace, UID: p.uid}
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
	if len(f.problems) > 0 {
		add("InvalidPod", "%d problems; the first: %s", len(f.problems), f.problems[0])
	}
	if f.doubled > 0 {
		add("DuplicateAddress", "%d endpoints are left out since a newer pod has their address", f.doubled)
	}
	return out
}

// due reports whether something may be said again, and notes that it is.
func (r *reports) due(what string) bool {
	if time.Since(r.said[what]) < reportAgain {
		return false
	}
	r.said[what] = time.Now()
	return true
}

// forget drops what was said so long ago that it may be said again.
func (r *reports) forget() {
	if len(r.said) > maxSaid {
		maps.DeleteFunc(r.said, func(_ string, at time.Time) bool { return time.Since(at) >= reportAgain })
	}
}

// soonAgain reports whether something was reported within LookAgain, and has it looked at
// once more after that; otherwise it notes that it is.
func (r *reports) soonAgain(what string) bool {
	if time.Since(r.said[what]) < r.s.o.LookAgain {
		r.again = true
		return true
	}
	r.said[what] = time.Now()
	return false
}

// event writes a remark: the same one once in ten minutes, others of its reason once in
// LookAgain.
func (r *reports) event(ctx context.Context, m remark) {
	about := m.reason + "/" + m.about.Name
	if time.Since(r.said[about+"/"+m.note]) < reportAgain || r.soonAgain(about) || !r.due(about+"/"+m.note) {
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
	if err != nil && r.due("failed/"+what.String()) {
		r.s.o.Sink.Log.Info("cannot be reported in objects", "kind", what.String(), "error", err)
	}
}

// condition is the one of type Accepted, as it stands in an object.
type condition struct {
	Type       string `json:"type"`
	Status     string `json:"status"`
	Reason     string `json:"reason"`
	Generation int64  `json:"observedGeneration"`
}

// acceptedOf reads the condition out of an object, zero when it has none.
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

// verdict says whether an object that names a pool is in use, "" when that is
// for others to say.
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
	maxLookups  = 1000 // pools of which it is known whether they are there
	noSuchPool  = "PoolNotFound"
	poolIsThere = "Pending"
)

// lookup is whether a pool was there.
type lookup struct {
	at    time.Time
	there bool
}

// verdictElsewhere says of an object that names another pool that there is no such
// pool, and takes it back when there is. All else is for that pool's picker to say.
func (r *reports) verdictElsewhere(ctx context.Context, on verdictOn) (status, reason, message string) {
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
			return "", "", "" // nobody can say
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
		return "Unknown", poolIsThere, "the pool is there, and its picker has not said anything yet"
	}
	return "", "", ""
}

// conditions writes whether objectives and rewrites hold.
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

// verdictOn is an object whose condition is ours to write.
type verdictOn struct {
	resource kubeapi.Resource
	kind     string
	*meta
	have condition
	pool *poolRef
}

// accept writes the condition of one object, if it does not say so already.
func (r *reports) accept(ctx context.Context, on verdictOn, group string) {
	k, kind, m := on.resource, on.kind, on.meta
	status, reason, message := r.s.verdict(group, on.pool)
	if status == "" {
		status, reason, message = r.verdictElsewhere(ctx, on)
	}
	if status == "" || on.have == (condition{Type: condAccepted, Status: status, Reason: reason, Generation: m.generation}) {
		return
	}
	if at, ok := r.said["failed/"+k.String()]; ok && time.Since(at) < reportAgain {
		r.again = true
		return
	}
	// Whoever else writes this condition is not answered write for write.
	if r.soonAgain(fmt.Sprintf("accepted/%s/%s/%d/%s", kind, m.uid, m.generation, reason)) {
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

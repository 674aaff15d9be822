package kube

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
	"github.com/grapevine-epp/grapevine/picker/discovery"
)

const (
	// A healthy server sends something about once a minute.
	silence = 3 * time.Minute
	// Maximum number of pod problems that are listed.
	maxPodProblems = 10
)

// Status implements discovery.Source. Read is when the server last sent data about the pool or the
// pods, the earlier of the two.
func (s *Source) Status() discovery.Status {
	s.mu.Lock()
	pool, group, pods, f, held := s.pool, s.group, s.pods, s.last, s.held
	s.mu.Unlock()
	st := discovery.Status{From: s.o.from(), Endpoints: len(f.specs), Doubled: f.doubled, Refused: f.refused}
	complain := func(state discovery.State, about, hint, format string, args ...any) {
		if len(st.Problems) == 0 {
			st.State = state
		}
		st.Problems = append(st.Problems, discovery.Problem{File: about, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
	if s.o.Pool != "" {
		ps := s.poolState(group)
		s.complainOfPool(complain, pool, ps)
		st.Read = ps.Read
		st.Notes = slices.Concat(unwatched(s.o.from(), ps), unread("objectives", s.objectives), unread("rewrites", s.rewrites))
		st.MissingRights = slices.Concat(kubeapi.MissingRights(ps.Watch), missingRights(s.objectives), missingRights(s.rewrites))
	}
	st.Notes = append(st.Notes, s.unpermitted()...)
	st.MissingRights = append(st.MissingRights, s.missingUses()...)
	switch {
	case pods == nil:
		st.Read = time.Time{}
		if st.State == discovery.StateCurrent {
			st.State = discovery.StateUnread
		}
		return st
	case !pods.State().Listed:
		st.Read = time.Time{}
	case s.o.Pool == "" || pods.State().Read.Before(st.Read):
		st.Read = pods.State().Read
	}
	if !held.since.IsZero() {
		complain(discovery.StateHeld, s.o.from(), "correct the selector, or delete the pool to remove its endpoints at once", "%s", held.describe(s.o.Guard))
	}
	podState := pods.State()
	reportUnreadable(complain, "pods "+pods.selector, "list and watch", podState)
	st.Notes = append(st.Notes, unwatched("pods "+pods.selector, podState)...)
	st.MissingRights = append(st.MissingRights, kubeapi.MissingRights(podState.Watch)...)
	if podState.Broken > 0 {
		st.Invalid = append(st.Invalid, discovery.Problem{File: "pods", Message: fmt.Sprintf("%d cannot be read, see the log", podState.Broken)})
	}
	st.Invalid = append(st.Invalid, invalid(f.problems)...)
	switch {
	case st.State != discovery.StateCurrent:
	case st.Read.IsZero():
		st.State = discovery.StateUnread
	case len(f.specs) == 0:
		st.State = discovery.StateEmpty
		st.Notes = append(st.Notes, s.selectsNone(pods, &f))
	}
	return st
}

// selectsNone explains an empty list.
func (s *Source) selectsNone(pods *podView, f *found) discovery.Problem {
	p := discovery.Problem{
		File: "pods " + pods.selector, Message: "the selector matches no pod of namespace " + s.o.Namespace,
		Hint: "compare it with the labels of the engines' pods",
	}
	if f.unready > 0 {
		p.Message, p.Hint = fmt.Sprintf("the selector matches %d pods, none of them ready", f.unready), "kubectl describe shows why their readiness probes fail"
	}
	return p
}

// invalid returns the first of the pods' own problems, and the number of further ones.
func invalid(problems []podProblem) (out []discovery.Problem) {
	for i, p := range problems {
		if i == maxPodProblems {
			return append(out, discovery.Problem{File: "pods", Message: fmt.Sprintf("%d further problems", len(problems)-i)})
		}
		out = append(out, discovery.Problem{File: "pod " + p.pod, Message: p.message})
	}
	return out
}

// invalidPods returns the number of pods with a problem of their own.
func (s *Source) invalidPods() int {
	s.mu.Lock()
	view, problems := s.pods, s.last.problems
	s.mu.Unlock()
	n := 0
	for i, p := range problems {
		if i == 0 || p.pod != problems[i-1].pod {
			n++
		}
	}
	if view != nil {
		n += view.State().Broken
	}
	return n
}

// grant is the remedy for a missing permission.
const grant = "grant it to the service account"

// unwatched returns a note if the permission to watch is missing.
func unwatched(what string, st kubeapi.State) []discovery.Problem {
	if st.Watch == nil {
		return nil
	}
	return []discovery.Problem{{File: what, Message: "listed every few seconds instead of watched: " + st.Watch.Error(), Hint: grant}}
}

// unread returns notes about objects that cannot be read or watched. They are optional. of are the
// followers of the newer group, which takes precedence if installed, and the older one.
func unread[T any](what string, of [2]*kubeapi.Follower[T]) (out []discovery.Problem) {
	for _, f := range of {
		st := f.State()
		if st.Absent() {
			continue
		}
		switch {
		case kubeapi.IsForbidden(st.Err) && !st.Listed:
			out = append(out, discovery.Problem{File: what, Message: "not in use, which is fine if none exist: " + st.Err.Error()})
		case st.Err != nil && st.Listed:
			out = append(out, discovery.Problem{File: what, Message: fmt.Sprintf("not readable for %v, the known ones stay in use: %v", time.Since(st.Since).Round(time.Second), st.Err)})
		}
		return append(out, unwatched(what, st)...)
	}
	return out
}

// unpermitted returns a note for each missing permission that endpoints do not need.
func (s *Source) unpermitted() (out []discovery.Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, use := range slices.Sorted(maps.Keys(s.missing)) {
		out = append(out, discovery.Problem{File: s.o.from(), Message: use + ": " + s.missing[use].Error(), Hint: grant})
	}
	return out
}

// missingUses returns the rules of the permissions that unpermitted reports.
func (s *Source) missingUses() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, use := range slices.Sorted(maps.Keys(s.missing)) {
		errs = append(errs, s.missing[use])
	}
	return kubeapi.MissingRights(errs...)
}

// missingRights returns the missing rules of optional objects, of the group that is in use.
func missingRights[T any](of [2]*kubeapi.Follower[T]) []string {
	for _, f := range of {
		if st := f.State(); !st.Absent() {
			return kubeapi.MissingRights(st.Err, st.Watch)
		}
	}
	return nil
}

// complainer receives one problem.
type complainer func(state discovery.State, about, hint, format string, args ...any)

// poolState returns the state of reading the current pool, or of the kind that would be read first.
func (s *Source) poolState(group string) kubeapi.State {
	newer, older := s.pools[0], s.pools[1]
	switch {
	case newer == nil || group == GroupPoolOld:
		return older.State()
	case group == "" && newer.State().Absent() && !older.State().Absent():
		return older.State()
	}
	return newer.State()
}

func (s *Source) complainOfPool(complain complainer, p *pool, st kubeapi.State) {
	reportUnreadable(complain, s.o.from(), "get, list and watch", st)
	switch {
	case st.Broken > 0:
		complain(discovery.StateInvalid, s.o.from(), "its last valid content stays in use", "the pool cannot be read, see the log")
	case st.Err == nil && st.Listed && p == nil:
		complain(discovery.StateMissing, s.o.from(), "create it, or correct its name and namespace", "there is no such pool")
	case p == nil:
	case p.problem != "":
		complain(discovery.StateInvalid, s.o.from(), "the endpoints of the last good selector stay", "%s", p.problem)
	case len(p.ports) == 0:
		complain(discovery.StateInvalid, s.o.from(), "add one to spec.targetPorts", "the pool has no target port")
	}
}

// reportUnreadable reports why reading fails. verbs are the permissions that reading needs.
func reportUnreadable(complain complainer, about, verbs string, st kubeapi.State) {
	since := func(t time.Time) time.Duration { return time.Since(t).Round(time.Second) }
	switch {
	case st.Absent():
		complain(discovery.StateUnreadable, about, "install the definitions of the Gateway API inference extension", "the kind is not installed")
	case kubeapi.IsForbidden(st.Err):
		complain(discovery.StateForbidden, about, "grant "+verbs+" to the service account", "%v", st.Err)
	case st.Err != nil && st.Listed:
		complain(discovery.StateUnreadable, about, "what is known stays in use", "not readable for %v: %v", since(st.Since), st.Err)
	case st.Err != nil:
		complain(discovery.StateUnreadable, about, "", "%v", st.Err)
	case st.Listed && time.Since(st.Read) > silence:
		complain(discovery.StateUnreadable, about, "what is known stays in use", "the API server has not answered for %v", since(st.Read))
	}
}

// register registers the source's metrics.
func (s *Source) register(reg prometheus.Registerer) error {
	if reg == nil {
		return nil
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "grapevine", Subsystem: "discovery", Name: name, Help: help}, value)
	}
	for _, c := range []prometheus.Collector{
		gauge("endpoints", "Endpoints in the list in use.", func() float64 { return float64(s.Status().Endpoints) }),
		gauge("invalid_pods", "Pods with an invalid label, annotation or address, or unreadable.", func() float64 { return float64(s.invalidPods()) }),
		gauge("held_endpoints", "Endpoints that stay only because a change of the pool's selector is held.", func() float64 { return float64(s.heldEndpoints()) }),
		gauge("ok", "1 if the current pool and pods were read, 0 if an older list or none is in use.", func() float64 {
			if s.Status().OK() {
				return 1
			}
			return 0
		}),
		gauge("last_success_timestamp_seconds", "When the API server last answered about pool and pods.", func() float64 {
			if at := s.Status().Read; !at.IsZero() {
				return float64(at.UnixMilli()) / 1e3
			}
			return 0
		}),
	} {
		if err := reg.Register(c); err != nil {
			return err
		}
	}
	return nil
}

package kube

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
	"github.com/grapevine-epp/grapevine/picker/discovery"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Source is a discovery.Source for a Kubernetes API server.
type Source struct {
	o      Options
	client *kubeapi.Client
	wake   chan struct{}
	cancel context.CancelFunc
	done   chan struct{}
	report chan struct{} // reports may have changed

	// Newer kind first; nil if not followed.
	pools      [2]*kubeapi.Follower[pool]
	objectives [2]*kubeapi.Follower[objective]
	rewrites   [2]*kubeapi.Follower[rewrite]

	// Owned by the goroutine.
	next      *podView  // pods of a new selector, until they were read
	gone      time.Time // since when the pool seems to be deleted; zero: it does not
	delivered bool
	before    discovery.Found

	mu    sync.Mutex
	pool  *pool    // current pool, also while it is unreadable; nil: none was found
	group string   // of the pool
	pods  *podView // nil before a pool is known
	last  found    // last update
	held  heldChange
	// missing has the errors of permissions that are not needed for endpoints, by their use.
	missing map[string]error
}

// podView is the pods of one selector.
type podView struct {
	selector string
	ports    []uint16 // of the pool when it had this selector
	*kubeapi.Follower[pod]
}

// Open follows a pool, or the pods of a selector, until Close. It does not wait for the server:
// data is published as it arrives.
func Open(o Options) (*Source, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	client, err := kubeapi.NewClient(o.Config, o.Agent)
	if err != nil {
		return nil, err
	}
	s := &Source{o: o, client: client, wake: make(chan struct{}, 1), report: make(chan struct{}, 1), done: make(chan struct{}), missing: map[string]error{}}
	if err := s.register(o.Sink.Registerer); err != nil {
		return nil, err
	}
	if o.Pool != "" {
		s.followPool()
	} else {
		s.pool = &pool{selector: o.Selector, ports: o.Ports}
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.woken()
	go s.run(ctx)
	return s, nil
}

// followPool follows the pool and the objects that refer to it.
func (s *Source) followPool() {
	one := kubeapi.View{Namespace: s.o.Namespace, Name: s.o.Pool}
	all := kubeapi.View{Namespace: s.o.Namespace, Optional: true}
	if s.o.Group != GroupPoolOld {
		s.pools[0] = follow(s, one, kubeapi.Kind[pool]{Resource: poolsV1, Read: readPool, Key: (*pool).key, Same: samePool})
	}
	one.Optional = s.o.Group != GroupPoolOld
	s.pools[1] = follow(s, one, kubeapi.Kind[pool]{Resource: poolsOld, Read: readPoolOld, Key: (*pool).key, Same: samePool})
	// Changes of our condition by other writers count too.
	same := func(a, b *objective) bool { return a.same(&b.meta) && a.accepted == b.accepted }
	s.objectives[0] = follow(s, all, kubeapi.Kind[objective]{Resource: objectives, Read: readObjective, Key: (*objective).key, Same: same})
	s.objectives[1] = follow(s, all, kubeapi.Kind[objective]{Resource: objectivesOld, Read: readObjective, Key: (*objective).key, Same: same})
	sameRewrite := func(a, b *rewrite) bool { return a.same(&b.meta) && a.accepted == b.accepted }
	s.rewrites[0] = follow(s, all, kubeapi.Kind[rewrite]{Resource: rewrites, Read: readRewrite, Key: (*rewrite).key, Same: sameRewrite})
	s.rewrites[1] = follow(s, all, kubeapi.Kind[rewrite]{Resource: rewritesOld, Read: readRewrite, Key: (*rewrite).key, Same: sameRewrite})
}

func samePool(a, b *pool) bool { return a.same(&b.meta) }

func follow[T any](s *Source, v kubeapi.View, k kubeapi.Kind[T]) *kubeapi.Follower[T] {
	return kubeapi.Follow(s.client, k, v, s.o.Sink.Log, s.woken)
}

// Close implements discovery.Source.
func (s *Source) Close() {
	s.cancel()
	<-s.done
	closeAll(s.pools[:])
	closeAll(s.objectives[:])
	closeAll(s.rewrites[:])
	for _, v := range []*podView{s.pods, s.next} {
		if v != nil {
			v.Close()
		}
	}
	s.client.Close()
}

func closeAll[T any](list []*kubeapi.Follower[T]) {
	for _, f := range list {
		if f != nil {
			f.Close()
		}
	}
}

// woken schedules an update.
func (s *Source) woken() { soon(s.wake) }

// soon signals a channel of capacity one.
func soon(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (s *Source) run(ctx context.Context) {
	defer close(s.done)
	var reporting sync.WaitGroup
	defer reporting.Wait()
	reporting.Go(func() {
		(&reports{s: s, reported: map[string]time.Time{}, pools: map[string]lookup{}, unwritten: map[string]time.Time{}}).run(ctx, s.report)
	})
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-s.later():
		}
		s.update(ctx)
		soon(s.report)
		select {
		case <-ctx.Done():
			return
		case <-time.After(s.o.Settle):
		}
	}
}

// later returns a channel for the next check without a change.
func (s *Source) later() <-chan time.Time {
	var next time.Time
	if !s.gone.IsZero() {
		next = s.gone.Add(s.o.Grace)
	}
	if since := s.held.since; !since.IsZero() && (next.IsZero() || since.Add(s.o.Guard).Before(next)) {
		next = since.Add(s.o.Guard)
	}
	if next.IsZero() {
		return nil
	}
	return time.After(max(time.Until(next), time.Second))
}

// update checks everything and publishes differences.
func (s *Source) update(ctx context.Context) {
	if s.o.Pool != "" {
		s.lookAtPool(ctx)
	}
	if s.pool == nil {
		if s.delivered { // the pool was deleted
			s.deliver(found{}, request.Names{})
		}
		return
	}
	if s.lookAtPods(); s.pods == nil || !s.pods.State().Listed {
		return
	}
	f := specs(s.pods.Items(), s.pods.ports, s.o.Events)
	s.deliver(f, namesOf(s.group, s.o.Pool, itemsOf(s.objectives), itemsOf(s.rewrites)))
}

// itemsOf returns the objects of the newer kind if it is installed, and otherwise of the older one.
func itemsOf[T any](list [2]*kubeapi.Follower[T]) []*T {
	for _, f := range list {
		if f != nil && f.State().Listed && !f.State().Absent() {
			return f.Items()
		}
	}
	return nil
}

// lookAtPool updates the pool, and drops it once it was deleted.
func (s *Source) lookAtPool(ctx context.Context) {
	groups := [2]string{GroupPool, GroupPoolOld}
	for i, f := range s.pools {
		if f == nil {
			continue
		}
		if items := f.Items(); len(items) > 0 {
			s.gone = time.Time{}
			s.hold(items[0], groups[i])
			return
		}
		if s.group == groups[i] && s.pool != nil {
			break // the older one does not replace a pool that seems deleted
		}
		if st := f.State(); i == 0 && s.pool == nil && !st.Listed && st.Err == nil {
			return // the newer one may exist
		}
	}
	if s.pool == nil || !s.deleted(ctx) {
		return
	}
	s.o.Sink.Log.Warn("the pool was deleted, removing its endpoints", "pool", s.o.from())
	s.hold(nil, "")
	s.gone = time.Time{}
	s.drop()
	if s.pods != nil {
		s.swap(nil)
	}
	s.woken() // an older one may have existed all along
}

func (s *Source) hold(p *pool, group string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pool, s.group = p, group
}

// deleted reports whether the current pool was deleted: it is not in view, and the server confirms
// that after the grace period. An uninstalled resource type or an unreachable server confirms
// nothing.
func (s *Source) deleted(ctx context.Context) bool {
	if s.gone.IsZero() {
		s.gone = time.Now()
	}
	if time.Since(s.gone) < s.o.Grace {
		return false
	}
	r := poolResource(s.group)
	err := s.client.Get(ctx, r, s.o.Namespace, s.o.Pool, nil)
	s.permission(getPool, err)
	gone := kubeapi.IsGone(err)
	if kubeapi.IsForbidden(err) {
		found, err := s.client.Exists(ctx, r, s.o.Namespace, s.o.Pool)
		gone = err == nil && !found
	}
	if !gone {
		s.gone = time.Now() // list again later
	}
	return gone
}

func poolResource(group string) kubeapi.Resource {
	if group == GroupPoolOld {
		return poolsOld
	}
	return poolsV1
}

// Uses of permissions in Source.missing.
const getPool = "the pool's deletion is confirmed by listing it"

// permission records whether a permission is missing. Other errors change nothing.
func (s *Source) permission(use string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case kubeapi.IsForbidden(err):
		s.missing[use] = err
	case err == nil || kubeapi.IsGone(err):
		delete(s.missing, use)
	}
}

// lookAtPods follows the pool's selector. After a change, the new pods replace the old ones once
// they were read.
func (s *Source) lookAtPods() {
	want := s.pool.selector
	if want == "" { // an invalid selector: keep the list
		s.drop()
		return
	}
	if s.pods != nil && s.pods.selector == want {
		s.pods.ports = s.pool.ports
		s.drop()
		return
	}
	if s.next == nil || s.next.selector != want {
		s.drop()
		view := kubeapi.View{Namespace: s.o.Namespace, Labels: want}
		s.next = &podView{selector: want, ports: s.pool.ports, Follower: follow(s, view, kubeapi.Kind[pod]{Resource: pods, Read: rulesFor(s.o.IPFamily, s.o.Config.Server).readPod, Key: (*pod).key, Same: samePod})}
	}
	s.next.ports = s.pool.ports
	if s.pods == nil || s.next.State().Listed && !s.guarded() {
		next := s.next
		s.next = nil
		s.holdChange(heldChange{})
		s.swap(next)
	}
}

// drop stops following an outdated selector.
func (s *Source) drop() {
	if s.next != nil {
		s.next.Close()
		s.next = nil
	}
	s.holdChange(heldChange{})
}

// swap makes v the current pods.
func (s *Source) swap(v *podView) {
	s.mu.Lock()
	old := s.pods
	s.pods = v
	s.mu.Unlock()
	if old != nil {
		old.Close()
	}
}

// deliver publishes f if it differs.
func (s *Source) deliver(f found, names request.Names) {
	s.mu.Lock()
	s.last = f
	s.mu.Unlock()
	now := discovery.Found{Specs: f.specs, Names: names}
	if s.delivered && sameFound(&s.before, &now) {
		return
	}
	s.delivered, s.before = true, now
	s.o.Sink.Log.Info("endpoints changed", "from", s.o.from(), "endpoints", len(f.specs), "pods", f.ready, "pods_not_ready", f.unready,
		"objectives", len(names.Objectives), "rewrites", len(names.Rewrites))
	now.Specs = slices.Clone(now.Specs)
	s.o.Sink.Update(now)
}

func sameFound(a, b *discovery.Found) bool {
	return slices.EqualFunc(a.Specs, b.Specs, endpoint.Spec.Equal) && maps.Equal(a.Objectives, b.Objectives) &&
		maps.EqualFunc(a.Rewrites, b.Rewrites, func(x, y request.Rewrite) bool { return slices.Equal(x, y) })
}

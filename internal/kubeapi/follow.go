package kubeapi

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"sync"
	"time"
)

// Retry delays, doubled from the first to the longest, plus up to a third at random.
const (
	firstRetry = 200 * time.Millisecond
	longRetry  = 7 * time.Second  // the server is unreachable
	quietRetry = 20 * time.Second // a type is not installed, or a permission is missing
	pollEvery  = 5 * time.Second  // interval of listing while watching is forbidden
	longPoll   = time.Minute      // its maximum, for lists that take long
	calmAfter  = 30 * time.Second // a watch that lasted this long resets the delay
)

// Kind defines how objects of a type are read.
type Kind[T any] struct {
	Resource Resource
	// Read reduces an object to the relevant data.
	Read func(raw []byte) (T, error)
	// Key returns the object's name and version.
	Key func(*T) (name, version string)
	// Same reports whether two reads of an object are equivalent.
	Same func(a, b *T) bool
}

// View selects objects of a type.
type View struct {
	Namespace string
	Labels    string // label selector, "" for all
	Name      string // a single object, "" for all
	Optional  bool   // a missing permission to read them is not an error
}

// State is the state of a Follower.
type State struct {
	Listed bool      // all objects were read at least once
	Read   time.Time // last response of the server; zero: never
	Err    error     // why reading fails at present, or nil
	Since  time.Time // start of Err
	Watch  error     // the missing permission to watch, or nil; objects are listed repeatedly instead
	Broken int       // unreadable objects in view
}

// Absent reports whether the server does not have the type.
func (s State) Absent() bool { return IsAbsent(s.Err) }

// Follower keeps an up-to-date view of the objects of one type.
type Follower[T any] struct {
	client  *Client
	kind    Kind[T]
	call    call
	log     *slog.Logger
	changed func()
	cancel  context.CancelFunc
	done    chan struct{}

	optional bool
	version  string // where a watch continues, "" to list all; owned by the goroutine

	mu     sync.Mutex
	items  map[string]*T
	broken map[string]bool
	state  State
}

// Follow starts following objects. It calls changed on the follower's goroutine after every change
// of the objects or of the State.
func Follow[T any](c *Client, k Kind[T], v View, log *slog.Logger, changed func()) *Follower[T] {
	f := &Follower[T]{
		client: c, kind: k, changed: changed, done: make(chan struct{}), items: map[string]*T{}, broken: map[string]bool{},
		call: call{resource: k.Resource, namespace: v.Namespace, query: url.Values{}},
	}
	f.optional = v.Optional
	f.log = log.With("kind", k.Resource.String(), "namespace", v.Namespace)
	if v.Labels != "" {
		f.call.query.Set("labelSelector", v.Labels)
	}
	if v.Name != "" {
		f.call.query.Set("fieldSelector", "metadata.name="+v.Name)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	go f.run(ctx)
	return f
}

// Close stops following and waits for a running call of changed.
func (f *Follower[T]) Close() {
	f.cancel()
	<-f.done
}

// Items returns the objects in view, in no order. They are immutable.
func (f *Follower[T]) Items() []*T {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]*T, 0, len(f.items))
	for _, x := range f.items {
		out = append(out, x)
	}
	return out
}

// State returns the current state.
func (f *Follower[T]) State() State {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.state
	s.Broken = len(f.broken)
	return s
}

func (f *Follower[T]) run(ctx context.Context) {
	defer close(f.done)
	wait := firstRetry
	for ctx.Err() == nil {
		start, resumed := time.Now(), f.version != ""
		err := f.round(ctx)
		if ctx.Err() != nil {
			return
		}
		switch {
		case errors.Is(err, errEnded) && time.Since(start) > time.Second:
			wait = firstRetry
			continue
		case errors.Is(err, errEnded):
			// Pause even if a server ends every watch immediately.
		case stale(err) && resumed: // if a version that was just listed is unknown, do not hurry
			f.log.Info("the watch cannot be resumed, listing all objects again", "error", err)
			f.version = ""
			continue
		case unwatchable(err):
			f.version = ""
			f.unwatched(err)
			if !resumed && !pause(ctx, pollPause(time.Since(start))) {
				return
			}
			wait = firstRetry
			continue
		default:
			if stale(err) {
				f.version = ""
			}
			f.failed(err)
		}
		if time.Since(start) > calmAfter {
			wait = firstRetry
		}
		if !pause(ctx, wait+rand.N(wait/3)) {
			return
		}
		wait = min(2*wait, longest(err))
	}
}

// unwatchable reports whether the permission to watch is missing.
func unwatchable(err error) bool {
	var e *Error
	return IsForbidden(err) && errors.As(err, &e) && e.Verb == "watch"
}

// pollPause returns the pause between lists. Lists that take long are read less often.
func pollPause(took time.Duration) time.Duration {
	d := min(max(pollEvery, 10*took), longPoll)
	return d + rand.N(d/10)
}

// longest returns the longest delay after err.
func longest(err error) time.Duration {
	if IsAbsent(err) || IsForbidden(err) {
		return quietRetry
	}
	return longRetry
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// round lists, unless a watch can be resumed, and watches until that ends.
func (f *Follower[T]) round(ctx context.Context) error {
	if f.version == "" {
		if err := f.list(ctx); err != nil {
			return err
		}
	}
	return f.client.watch(ctx, f.call, f.version, f.watched, f.take)
}

func (f *Follower[T]) list(ctx context.Context) error {
	fresh, broken := map[string]*T{}, map[string]bool{}
	version, err := f.client.list(ctx, f.call, func(raw json.RawMessage) error {
		if x, name, ok := f.read(raw); ok {
			fresh[name] = x
		} else if name != "" {
			broken[name] = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	f.mu.Lock()
	changed := !f.state.Listed || len(fresh) != len(f.items)
	for name, x := range fresh {
		old, ok := f.items[name]
		changed = changed || !ok || !f.kind.Same(old, x)
	}
	// An unreadable object keeps its last readable content.
	for name := range broken {
		if old, ok := f.items[name]; ok {
			fresh[name] = old
		}
	}
	f.items, f.broken = fresh, broken
	f.state.Listed = true
	f.mu.Unlock()
	f.version = version
	f.well()
	if changed {
		f.changed()
	}
	return nil
}

// read reduces an object. It returns the object's name even if the rest is unreadable.
func (f *Follower[T]) read(raw json.RawMessage) (*T, string, bool) {
	x, err := f.kind.Read(raw)
	if err == nil {
		name, _ := f.kind.Key(&x)
		return &x, name, name != ""
	}
	var m struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal(raw, &m) // only the name is needed
	f.log.Warn("object is unreadable", "name", m.Metadata.Name, "error", err)
	return nil, m.Metadata.Name, false
}

// take applies one event.
func (f *Follower[T]) take(e event) error {
	if e.Type == "BOOKMARK" {
		var m struct {
			Metadata listMeta `json:"metadata"`
		}
		if err := json.Unmarshal(e.Object, &m); err != nil {
			return err
		}
		f.version = m.Metadata.ResourceVersion
		f.well()
		return nil
	}
	x, name, ok := f.read(e.Object)
	if !ok {
		f.mu.Lock()
		if e.Type == "DELETED" {
			delete(f.items, name)
			delete(f.broken, name)
		} else if name != "" {
			f.broken[name] = true
		}
		f.mu.Unlock()
		f.well()
		f.changed()
		return nil
	}
	_, f.version = f.kind.Key(x)
	f.mu.Lock()
	old, known := f.items[name]
	changed := e.Type == "DELETED" && known || e.Type != "DELETED" && (!known || !f.kind.Same(old, x))
	if e.Type == "DELETED" {
		delete(f.items, name)
	} else {
		f.items[name] = x
	}
	delete(f.broken, name)
	f.mu.Unlock()
	f.well()
	if changed {
		f.changed()
	}
	return nil
}

// well records a response of the server.
func (f *Follower[T]) well() {
	f.mu.Lock()
	was := f.state.Err
	f.state.Read, f.state.Err, f.state.Since = time.Now(), nil, time.Time{}
	f.mu.Unlock()
	if was != nil {
		f.log.Info("reading objects works again", "after", was)
		f.changed()
	}
}

// watched records that the server accepted a watch.
func (f *Follower[T]) watched() {
	f.mu.Lock()
	was := f.state.Watch
	f.state.Watch = nil
	f.mu.Unlock()
	if was != nil {
		f.log.Info("watching objects is permitted again")
		f.changed()
	}
	f.well()
}

// unwatched records that watching is forbidden, and logs it once.
func (f *Follower[T]) unwatched(err error) {
	f.mu.Lock()
	was := f.state.Watch
	f.state.Watch = err
	f.mu.Unlock()
	if was == nil {
		f.log.Warn("no permission to watch objects, listing them repeatedly", "interval", pollEvery, "error", err)
		f.changed()
	}
}

// failed records a failure and logs each reason once.
func (f *Follower[T]) failed(err error) {
	f.mu.Lock()
	was := f.state.Err
	if was == nil {
		f.state.Since = time.Now()
	}
	f.state.Err = err
	f.mu.Unlock()
	if was != nil && was.Error() == err.Error() {
		return
	}
	switch {
	case IsAbsent(err):
		f.log.Info("resource type is not installed, waiting for it")
	case f.optional && IsForbidden(err):
		f.log.Info("no permission to read objects, continuing without them", "error", err)
	default:
		f.log.Warn("reading objects failed, keeping the known ones", "error", err)
	}
	f.changed()
}

package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/internal/share/facts"
	"github.com/grapevine-epp/grapevine/internal/watchdog"
	"github.com/grapevine-epp/grapevine/picker/config"
	"github.com/grapevine-epp/grapevine/picker/discovery"
)

const (
	// A source that can be read answers within this time, and its own list is better than others.
	peerListAfter = time.Second
	// Lists of peers are better than a file, and arrive once the group was found.
	fileListAfter = 3 * time.Second
	listInterval  = time.Second
	// How often the age of an unchanged list is published and stored.
	ageInterval = 10 * time.Second
	// A peer's list replaces the list of another peer if it is newer by this much.
	newerBy = 5 * time.Second
	// How long a pool must be missing before endpoints that are not from the source are removed.
	missingGrace = 10 * time.Second

	listFile     = "endpoints.json"
	maxListFile  = 64 << 20
	originSource = "source"
	originPeer   = "peer"
	originFile   = "file"
)

// listOptions are what endpointLists connects.
type listOptions struct {
	Config *configuration // uses the list
	Group  *facts.Lists   // nil without a group
	Folder string         // of the stored list; "": none
	Log    *slog.Logger
}

// endpointLists keeps the list of endpoints available while its source cannot be read. It publishes
// the list in use to the group and stores it in a file. Until a replica has read its source for the
// first time, it uses the list of a peer or, without one, the stored file. It is safe for concurrent
// use.
type endpointLists struct {
	config *configuration
	group  *facts.Lists // nil without a group
	file   string       // "": none
	log    *slog.Logger
	wake   chan struct{}
	source discovery.Source // nil until it is open

	// Changed only with configuration.mu held too, so that they agree with the endpoints in use.
	mu   sync.Mutex
	own  bool              // the source has provided a list
	used *discovery.Record // list in use; nil: none. Read is zero for lists of the source
	kind string            // origin of used
	from string            // peer or file

	// Owned by run.
	sent         *discovery.Record // list that was published last
	published    time.Time
	lastRead     time.Time // latest reading of the source
	missingSince time.Time
	complaint    string // last problem with the file
}

// openLists creates the folder for the stored list.
func openLists(o listOptions) (*endpointLists, error) {
	l := &endpointLists{config: o.Config, group: o.Group, log: o.Log, wake: make(chan struct{}, 1)}
	if o.Folder != "" {
		l.file = filepath.Join(o.Folder, listFile)
		if err := os.MkdirAll(o.Folder, 0o700); err != nil {
			return nil, fmt.Errorf("server: --state-dir: %w", err)
		}
	}
	return l, nil
}

// sourceOptions name the endpoint source. Open and File take precedence over the file named in the
// configuration.
type sourceOptions struct {
	Open   discovery.Opener // nil: a file
	File   string           // "": the configuration's
	Sink   discovery.Sink   // without Update, which openSource sets
	Watch  *watchdog.Loop
	Config *config.Config
}

// openSource opens the endpoint source. Updates arrive from then on.
func (l *endpointLists) openSource(o sourceOptions) (err error) {
	o.Sink.Update = func(f discovery.Found) {
		o.Watch.Working()
		defer o.Watch.Waiting()
		l.onFound(f)
	}
	if o.Open != nil {
		l.source, err = o.Open(o.Sink)
		return err
	}
	fo := discovery.FileOptions{Path: o.File, Sink: o.Sink}
	if d := o.Config.Discovery; fo.Path == "" && d != nil {
		fo.Path = d.Path
		if !d.Watch {
			fo.NoWatch, fo.Poll = true, math.MaxInt64
		}
	}
	if fo.Path == "" {
		return errNoEndpoints
	}
	file, err := discovery.OpenFile(fo)
	if err == nil {
		l.source = file
	}
	return err
}

// close closes the source.
func (l *endpointLists) close() {
	if l != nil && l.source != nil {
		l.source.Close()
	}
}

// onFound applies an update of the endpoint source.
func (l *endpointLists) onFound(f discovery.Found) {
	l.config.mu.Lock()
	defer l.config.mu.Unlock()
	l.use(f)
	l.config.apply(f)
}

// use notes a new list of the source. The caller holds configuration.mu.
func (l *endpointLists) use(f discovery.Found) {
	l.mu.Lock()
	l.own, l.used, l.kind, l.from = true, &discovery.Record{Found: f}, originSource, ""
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run publishes and stores the list in use, and looks for one while the source has none.
func (l *endpointLists) run(ctx context.Context) {
	start := time.Now()
	tick := time.NewTicker(listInterval)
	defer tick.Stop()
	for {
		l.update(time.Since(start))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-l.wake: // the next tick at the latest; a burst of changes is one update
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}
}

func (l *endpointLists) update(up time.Duration) {
	st := l.source.Status()
	own, used := l.inUse()
	if !own {
		l.look(&st, used, up)
		if own, used = l.inUse(); used == nil {
			return
		}
	}
	r := *used
	r.From = st.From
	if own {
		if st.Read.After(l.lastRead) {
			l.lastRead = st.Read
		}
		r.Read = l.lastRead
		if r.Read.IsZero() {
			return
		}
	}
	if used != l.sent || time.Since(l.published) >= ageInterval {
		l.sent, l.published = used, time.Now()
		l.publish(&r, own)
	}
}

func (l *endpointLists) inUse() (own bool, used *discovery.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.own, l.used
}

// look adopts a list of a peer or of the file.
func (l *endpointLists) look(st *discovery.Status, used *discovery.Record, up time.Duration) {
	if st.State == discovery.StateMissing { // the source was read
		if l.missingSince.IsZero() {
			l.missingSince = time.Now()
		}
		if used != nil && len(used.Found.Specs) > 0 && time.Since(l.missingSince) >= missingGrace {
			l.adopt(&discovery.Record{From: st.From, Read: time.Now()}, originSource, "")
		}
		return
	}
	l.missingSince = time.Time{}
	if l.group != nil && up >= peerListAfter {
		if p, ok := l.group.Newest(st.From); ok && len(p.Found.Specs) > 0 && (used == nil || p.Read.Sub(used.Read) > newerBy && !sameList(&p.Record, used)) {
			l.adopt(&p.Record, originPeer, p.Peer)
			return
		}
	}
	if used == nil && up >= fileListAfter && l.file != "" {
		r, err := readListFile(l.file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			l.complain(err)
		case r.From == st.From && len(r.Found.Specs) > 0:
			l.adopt(r, originFile, l.file)
		}
	}
}

func sameList(a, b *discovery.Record) bool {
	x, y := *a, *b
	x.Read, y.Read = time.Time{}, time.Time{}
	v, err := x.Encode()
	w, err2 := y.Encode()
	return err == nil && err2 == nil && bytes.Equal(v, w)
}

// adopt uses a list until the source provides one.
func (l *endpointLists) adopt(r *discovery.Record, kind, from string) {
	if !l.apply(r, kind, from) {
		return
	}
	l.log.Warn("the source of endpoints cannot be read, another list is used", "from", r.From, "endpoints", len(r.Found.Specs), "origin", kind, "name", from, "age", time.Since(r.Read).Round(time.Second))
}

// apply puts a list into use. It returns false if the source has provided one.
func (l *endpointLists) apply(r *discovery.Record, kind, from string) bool {
	l.config.mu.Lock()
	defer l.config.mu.Unlock()
	l.mu.Lock()
	if l.own {
		l.mu.Unlock()
		return false
	}
	l.used, l.kind, l.from = r, kind, from
	l.mu.Unlock()
	l.config.apply(r.Found)
	return true
}

// publish sends the list to the group, and stores it if it is from the source.
func (l *endpointLists) publish(r *discovery.Record, own bool) {
	if l.group != nil {
		l.group.Publish(r)
	}
	if l.file == "" || !own {
		return
	}
	if err := writeListFile(l.file, r); err != nil {
		l.complain(err)
	}
}

// complain logs a problem with the file once.
func (l *endpointLists) complain(err error) {
	if complaint := err.Error(); complaint != l.complaint {
		l.complaint = complaint
		l.log.Warn("the stored list of endpoints cannot be read or written", "file", l.file, "error", err)
	}
}

func readListFile(path string) (*discovery.Record, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxListFile {
		return nil, fmt.Errorf("%s has %d bytes, want at most %d", path, info.Size(), maxListFile)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return discovery.DecodeRecord(b)
}

// writeListFile replaces the file at once, so that a crash leaves the old or the new one.
func writeListFile(path string, r *discovery.Record) error {
	b, err := r.Encode()
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), listFile+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // of no use
	}
	return err
}

// status returns the status of the list in use, the zero value before the source is open.
func (l *endpointLists) status() (st discovery.Status) {
	if l.source == nil {
		return st
	}
	st = l.source.Status()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.own && l.used != nil && l.kind != originSource {
		st.Origin = l.kind + " " + l.from
		st.Endpoints, st.Read = len(l.used.Found.Specs), l.used.Read
		if len(st.Problems) == 0 {
			st.State = discovery.StateUnread
			st.Problems = []discovery.Problem{{File: st.From, Message: "has not been read yet"}}
		}
	}
	return st
}

// ok reports whether the list in use is current.
func (l *endpointLists) ok() bool {
	st := l.status()
	return st.OK()
}

// origin returns the origin of the list in use, "" for no list, and when that was read.
func (l *endpointLists) origin() (kind string, read time.Time) {
	st := l.status()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kind, st.Read
}

// problem describes the problem with the source of endpoints.
func (l *endpointLists) problem() string {
	if l.source == nil {
		return "discovering endpoints"
	}
	st := l.status()
	if why := st.Reason(); why != "" {
		return why
	}
	return st.From + " names no endpoint"
}

// empty reports whether the list was read successfully and is empty.
func (l *endpointLists) empty() bool {
	st := l.status()
	return l.source != nil && st.OK() && !st.Read.IsZero() && st.Endpoints == 0
}

// describe describes the list in use, which has n endpoints, for readiness checks.
func (l *endpointLists) describe(n int) string {
	known := fmt.Sprintf("%d known", n)
	if st := l.status(); st.Origin != "" {
		known += fmt.Sprintf(", from %s, read %s ago", st.Origin, time.Since(st.Read).Round(time.Second))
	}
	return known
}

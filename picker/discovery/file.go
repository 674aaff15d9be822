package discovery

import (
	"bytes"
	"context"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/internal/strict"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// File is a Source that follows an endpoints file and the addresses of its host names.
type File struct {
	opts    FileOptions
	metrics *metrics
	reload  chan struct{}
	cancel  context.CancelFunc
	done    chan struct{}

	// Owned by the goroutine.
	names     *names
	list      []Endpoint
	specs     []endpoint.Spec
	delivered bool
	bytes     []byte // as last read, in use or not
	fresh     bool   // bytes is the current content of the file

	mu     sync.Mutex
	status Status
}

// OpenFile reads the file, resolves its names, publishes the list, and starts a goroutine that
// follows both until Close. An unreadable file or one with problems is an error, a strict.Problems.
// An unresolved name is not: its endpoints appear once it resolves.
func OpenFile(o FileOptions) (*File, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	s := &File{
		opts: o, names: newNames(o.Resolver),
		reload: make(chan struct{}, 1), done: make(chan struct{}),
	}
	data, err := os.ReadFile(o.Path)
	if err != nil {
		return nil, strict.Problems{unreadable(o.Path, err)}
	}
	list, problems := Parse(o.Path, data)
	if len(problems) > 0 {
		return nil, strict.Problems(problems)
	}
	if s.metrics, err = newMetrics(o.Sink.Registerer); err != nil {
		return nil, err
	}
	var w *watch
	if !o.NoWatch {
		w = newWatch(o.Path, s.watching())
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.bytes, s.fresh = data, true
	s.adopt(ctx, list)
	go s.run(ctx, w)
	return s, nil
}

// Close implements Source. It stops the goroutine and waits.
func (s *File) Close() {
	s.cancel()
	<-s.done
}

// Reload schedules reading the file and resolving the names. It does not block.
func (s *File) Reload() { soon(s.reload) }

// Status implements Source.
func (s *File) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

func (s *File) watching() WatchOptions {
	return WatchOptions{Poll: s.opts.Poll, Settle: s.opts.Settle, Log: s.opts.Sink.Log}
}

func (s *File) run(ctx context.Context, w *watch) {
	defer close(s.done)
	resolve := time.NewTicker(s.opts.ResolveEvery)
	defer resolve.Stop()
	look := make(chan struct{}, 1)
	var watcher sync.WaitGroup
	defer watcher.Wait()
	watcher.Go(func() { w.run(ctx, s.watching(), func() { soon(look) }) })
	for {
		select {
		case <-ctx.Done():
			return
		case <-look:
			s.read(ctx)
		case <-s.reload:
			s.read(ctx)
			s.resolve(ctx)
		case <-resolve.C:
			s.resolve(ctx)
		}
	}
}

// soon signals a channel of capacity one.
func soon(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// read reads the file and adopts a valid change.
func (s *File) read(ctx context.Context) {
	data, err := os.ReadFile(s.opts.Path)
	if err != nil {
		s.refuse(resultMissing, []Problem{unreadable(s.opts.Path, err)})
		s.fresh = false
		return
	}
	if s.fresh && bytes.Equal(data, s.bytes) {
		return
	}
	s.bytes, s.fresh = data, true
	list, problems := Parse(s.opts.Path, data)
	if len(problems) > 0 {
		s.refuse(resultProblems, problems)
		return
	}
	s.adopt(ctx, list)
}

// refuse records why the current list stays in use.
func (s *File) refuse(result string, problems []Problem) {
	s.mu.Lock()
	same := slices.Equal(s.status.Problems, problems)
	s.status.Problems = problems
	if !same { // under the lock, so that metrics match a visible status
		s.metrics.reloads.WithLabelValues(result).Inc()
		s.metrics.ok.Set(0)
	}
	s.mu.Unlock()
	if same {
		return
	}
	s.opts.Sink.Log.Warn("endpoints file rejected, keeping the current list", "path", s.opts.Path,
		"endpoints", len(s.specs), "problems", len(problems), "first", problems[0].String())
}

// adopt makes list the current one.
func (s *File) adopt(ctx context.Context, list []Endpoint) {
	s.list = list
	if hosts := hostsOf(list); s.names.missing(hosts) {
		s.lookUp(ctx, hosts)
	}
	s.mu.Lock()
	s.status.Problems = nil
	s.status.Read = s.opts.Now()
	s.metrics.ok.Set(1)
	s.metrics.lastOK.Set(float64(s.status.Read.UnixMilli()) / 1e3)
	s.mu.Unlock()
	result := resultUnchanged
	if s.deliver() {
		result = resultChanged
	}
	s.metrics.reloads.WithLabelValues(result).Inc()
}

// resolve resolves all names again.
func (s *File) resolve(ctx context.Context) {
	if hosts := hostsOf(s.list); len(hosts) > 0 {
		s.lookUp(ctx, hosts)
		s.deliver()
	}
}

func (s *File) lookUp(ctx context.Context, hosts []string) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.ResolveTimeout)
	defer cancel()
	before := s.names.failed
	s.names.resolve(ctx, hosts)
	if ctx.Err() == context.Canceled {
		return
	}
	for host, why := range s.names.failed {
		if _, old := before[host]; !old {
			s.opts.Sink.Log.Warn("host name does not resolve", "host", host, "error", why, "addresses_kept", len(s.names.known[host]))
		}
	}
}

// deliver calls Update if the specs have changed and reports whether it did.
func (s *File) deliver() bool {
	specs, doubled := s.names.specs(s.list)
	changed := !s.delivered || !slices.EqualFunc(specs, s.specs, endpoint.Spec.Equal)
	s.specs, s.delivered = specs, true
	s.mu.Lock()
	s.status.From = s.opts.Path
	s.status.Endpoints, s.status.Doubled, s.status.Unresolved = len(specs), doubled, s.names.failed
	s.mu.Unlock()
	s.metrics.endpoints.Set(float64(len(specs)))
	s.metrics.unresolved.Set(float64(len(s.names.failed)))
	if !changed {
		return false
	}
	s.opts.Sink.Log.Info("endpoints changed", "path", s.opts.Path, "endpoints", len(specs), "entries", len(s.list), "doubled", doubled)
	s.opts.Sink.Update(Found{Specs: slices.Clone(specs)})
	return true
}

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

// File is the Source that keeps an endpoints file and the addresses of its host names in view.
type File struct {
	opts    FileOptions
	metrics *metrics
	reload  chan struct{}
	cancel  context.CancelFunc
	done    chan struct{}

	// Owned by the goroutine.
	names *names
	list  []Endpoint
	specs []endpoint.Spec
	told  bool
	bytes []byte // as last read, in use or not
	fresh bool   // bytes says what the file says

	mu     sync.Mutex
	status Status
}

// OpenFile reads the file, resolves its names, tells the list and starts the
// goroutine that keeps both in view until Close. A file that cannot be read or
// has problems is an error, a strict.Problems; a name that does not resolve is
// not, its endpoints come when it does.
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

// Close implements Source: it stops the goroutine and waits for it.
func (s *File) Close() {
	s.cancel()
	<-s.done
}

// Reload has the file read and the names resolved soon. It does not wait.
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

// soon leaves word in a channel that holds one.
func soon(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// read looks at the file and adopts it when it changed for something good.
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

// refuse keeps the list in use and says why.
func (s *File) refuse(result string, problems []Problem) {
	s.mu.Lock()
	same := slices.Equal(s.status.Problems, problems)
	s.status.Problems = problems
	if !same { // before the lock goes: metrics agree with a status that is seen
		s.metrics.reloads.WithLabelValues(result).Inc()
		s.metrics.ok.Set(0)
	}
	s.mu.Unlock()
	if same {
		return
	}
	s.opts.Sink.Log.Warn("endpoints file refused, keeping the list in use", "path", s.opts.Path,
		"endpoints", len(s.specs), "problems", len(problems), "first", problems[0].String())
}

// adopt makes list the one in use.
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
	if s.tell() {
		result = resultChanged
	}
	s.metrics.reloads.WithLabelValues(result).Inc()
}

// resolve looks all names up again.
func (s *File) resolve(ctx context.Context) {
	if hosts := hostsOf(s.list); len(hosts) > 0 {
		s.lookUp(ctx, hosts)
		s.tell()
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

// tell calls Update when the specs differ from those told before, and
// reports whether it did.
func (s *File) tell() bool {
	specs, doubled := s.names.specs(s.list)
	changed := !s.told || !slices.EqualFunc(specs, s.specs, endpoint.Spec.Equal)
	s.specs, s.told = specs, true
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

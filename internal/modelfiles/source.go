package modelfiles

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/internal/budget"
)

// State is the state of one model's files.
type State string

// States.
const (
	StatePending  State = "pending"   // not searched for yet
	StateReady    State = "ready"     // found
	StateGated    State = "gated"     // the Hub requires a token with access
	StateNotFound State = "not_found" // no such repository, revision or folder, or no vocabulary in it
	StateOffline  State = "offline"   // not in a cache, and downloads are off
	StateRefused  State = "refused"   // the name or the files are not acceptable
	StateFailed   State = "failed"    // the download failed and is retried
)

// States lists all states.
func States() []State {
	return []State{StatePending, StateReady, StateGated, StateNotFound, StateOffline, StateRefused, StateFailed}
}

// Origins of files.
const (
	OriginFolder = "folder" // the local folder that the engine names
	OriginCache  = "cache"  // a Hugging Face cache, or the own cache
	OriginHub    = "hub"    // the Hub or a mirror
	OriginPeer   = "peer"   // another replica
)

// Want is a model whose files are wanted.
type Want struct {
	Root string // as engines report it: an absolute folder or a repository name
	// Names are further names that may be repositories. They are used if Root is a folder that this
	// machine does not have.
	Names []string
}

// Status is the state of one model's files.
type Status struct {
	Model    string  `json:"model"` // as engines name it
	State    State   `json:"state"`
	Origin   string  `json:"origin,omitempty"`   // folder, cache, hub or peer
	Peer     string  `json:"peer,omitempty"`     // replica that sent the files
	Folder   string  `json:"folder,omitempty"`   // of the files in use
	Revision string  `json:"revision,omitempty"` // commit of the files in use
	Files    []File  `json:"files,omitempty"`
	Error    string  `json:"error,omitempty"`
	Remedy   string  `json:"remedy,omitempty"`
	Waiting  string  `json:"waiting,omitempty"`  // reason why a first search goes on
	Attempts int     `json:"attempts,omitempty"` // failed ones since the last success
	NextS    float64 `json:"next_s,omitempty"`   // seconds until the next attempt

	repo, rev string // of files in a cache
}

// Source finds and downloads model files. It is safe for concurrent use.
type Source struct {
	o       Options
	hub     *hubClient // nil: downloads are off
	metrics *metrics
	slots   chan struct{} // held during a download
	ctx     context.Context
	stop    context.CancelFunc
	wg      sync.WaitGroup

	mu       sync.Mutex
	models   map[string]*model // by root
	ignored  int               // models beyond the limit
	rejected map[string]bool   // unusable offers of peers, by offerKey
	waiting  map[string]string // reasons of waits for peers, by repository
}

// model is one wanted model. Source.mu guards it.
type model struct {
	want   Want
	status Status
	next   time.Time // of the next attempt; zero: none is scheduled
	retry  chan struct{}
	stop   context.CancelFunc
}

// Open returns a Source that searches for models once Set names some. It does no I/O itself.
func Open(o Options) (*Source, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	s := &Source{o: o, models: map[string]*model{}, rejected: map[string]bool{}, waiting: map[string]string{}, slots: make(chan struct{}, atOnce)}
	if o.Mode == ModeAuto && o.Offline == "" {
		var err error
		if s.hub, err = newHubClient(&s.o); err != nil {
			return nil, err
		}
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.metrics = newMetrics(s)
	if o.Registerer != nil {
		if err := o.Registerer.Register(s.metrics); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Close stops all searches and waits.
func (s *Source) Close() {
	s.stop()
	s.wg.Wait()
	if t, ok := s.o.Transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// Set replaces the wanted models, the most important ones first. Searches for models that are no
// longer wanted stop. Models beyond the limit are ignored.
func (s *Source) Set(wants []Want) {
	if s.o.Mode == ModeOff {
		return
	}
	ignored, dropped := s.replace(wants)
	for i := range dropped {
		s.withdraw(&dropped[i])
	}
	if ignored > 0 {
		s.o.Log.Warn("engines name more models than files are fetched for", "limit", s.o.MaxModels, "ignored", ignored)
	}
}

// replace replaces the wanted models. It returns the number of models beyond the limit if that has
// grown, or 0, and the models that are no longer wanted.
func (s *Source) replace(wants []Want) (ignored int, dropped []Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return 0, nil
	}
	beyond := max(len(wants)-s.o.MaxModels, 0)
	wants = wants[:len(wants)-beyond]
	named := map[string]bool{}
	for _, w := range wants {
		named[w.Root] = true
	}
	for root, m := range s.models {
		if !named[root] {
			m.stop()
			delete(s.models, root)
			dropped = append(dropped, m.status)
		}
	}
	for _, w := range wants {
		if m := s.models[w.Root]; m != nil {
			m.want.Names = slices.Clone(w.Names)
		} else {
			s.start(w)
		}
	}
	if beyond > s.ignored {
		ignored = beyond
	}
	s.ignored = beyond
	return ignored, dropped
}

// start begins the search for a model. The caller holds mu.
func (s *Source) start(w Want) {
	ctx, stop := context.WithCancel(s.ctx)
	m := &model{want: Want{w.Root, slices.Clone(w.Names)}, status: Status{Model: w.Root, State: StatePending}, retry: make(chan struct{}, 1), stop: stop}
	s.models[w.Root] = m
	s.wg.Go(func() { s.follow(ctx, m) })
}

// Retry starts the next attempt for each model without files now, such as after a token was
// installed. Rejected offers of peers are considered again.
func (s *Source) Retry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.rejected)
	for _, m := range s.models {
		select {
		case m.retry <- struct{}{}:
		default:
		}
	}
}

// Folder returns the folder of a model's files, "" if there is none yet.
func (s *Source) Folder(root string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.models[root]; m != nil {
		return m.status.Folder
	}
	return ""
}

// Missing returns the state of a model without files, and the remedy. ok is false if the model is
// not wanted, if its files were found, or if the first search is still running.
func (s *Source) Missing(root string) (state State, remedy string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.models[root]
	if m == nil || m.status.State == StateReady || m.status.State == StatePending {
		return "", "", false
	}
	return m.status.State, m.status.Remedy, true
}

// Found returns the number of models whose files have been found.
func (s *Source) Found() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.models {
		if m.status.State == StateReady {
			n++
		}
	}
	return n
}

// Pending reports whether the first search for a model is still running.
func (s *Source) Pending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.models {
		if m.status.State == StatePending {
			return true
		}
	}
	return false
}

// Status returns the state of each wanted model, by name.
func (s *Source) Status() (out []Status) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, root := range slices.Sorted(maps.Keys(s.models)) {
		m := s.models[root]
		st := m.status
		st.Model = budget.PrintableName(st.Model)
		if left := m.next.Sub(now); !m.next.IsZero() && left > 0 {
			st.NextS = left.Seconds()
		}
		if st.State == StatePending {
			for _, repo := range m.want.repos() {
				st.Waiting = cmp.Or(st.Waiting, s.waiting[repo])
			}
		}
		out = append(out, st)
	}
	return out
}

// follow searches for a model's files until they are found or the model is no longer wanted.
func (s *Source) follow(ctx context.Context, m *model) {
	for failed := 0; ; failed++ {
		s.mu.Lock()
		want := Want{m.want.Root, m.want.Names}
		s.mu.Unlock()
		had := s.offers(&want)
		found, err := s.find(ctx, want)
		if ctx.Err() != nil {
			s.withdraw(&found)
			return
		}
		if err == nil {
			s.ready(m, &found)
			return
		}
		s.pause(ctx, m, &want, had, s.failed(m, &found, err, failed))
		if ctx.Err() != nil {
			return
		}
	}
}

func (s *Source) ready(m *model, found *Status) {
	s.mu.Lock()
	found.Model = m.want.Root
	m.status, m.next = *found, time.Time{}
	s.mu.Unlock()
	s.offer(found)
	s.withdraw(found)
	s.o.Log.Info("model files found", "model", budget.PrintableName(found.Model), "origin", found.Origin, "peer", found.Peer, "folder", found.Folder, "revision", found.Revision)
	s.o.Changed()
}

// failed records a failed search and returns the pause before the next.
func (s *Source) failed(m *model, found *Status, err error, n int) time.Duration {
	found.State, found.Error = StateFailed, err.Error()
	wait := min(s.o.Retry<<min(n, 16), maxAfter)
	wait += time.Duration(rand.Int64N(int64(wait)/2 + 1)) //nolint:gosec // jitter
	var e *hubError
	if errors.As(err, &e) {
		found.State, wait = e.state, max(wait, e.after)
	}
	found.Attempts, found.Remedy = n+1, s.remedy(found.State, m.want.Root)
	s.mu.Lock()
	found.Model = m.want.Root
	news := m.status.State != found.State
	m.status, m.next = *found, time.Now().Add(wait)
	s.mu.Unlock()
	if news {
		s.o.Log.Warn("model files not found, prompts of the model are matched approximately", "model", budget.PrintableName(found.Model), "state", string(found.State), "error", found.Error, "remedy", found.Remedy)
	}
	return wait
}

// remedy returns the operator's way out of a state.
func (s *Source) remedy(state State, root string) string {
	switch state {
	case StateGated:
		return "set HF_TOKEN to a token of an account with access to the model"
	case StateOffline:
		why := "downloads are off"
		if s.o.Offline != "" {
			why = s.o.Offline + " is set"
		}
		where := "mount a Hugging Face cache that has the model (HF_HUB_CACHE)"
		if s.o.Group != nil {
			where += " in any replica"
		}
		return why + ": " + where + ", or name its folder (" + s.o.FolderSetting + ")"
	case StateNotFound:
		if filepath.IsAbs(root) {
			return "mount the engine's model folder at the same path, or name another one (" + s.o.FolderSetting + ")"
		}
		return "name the model's folder (" + s.o.FolderSetting + "); set HF_TOKEN if the repository is private"
	case StateRefused:
		return "name the model's folder (" + s.o.FolderSetting + ")"
	}
	return "check the network to " + s.o.Endpoint + " and that " + s.o.Cache + " is writable"
}

// repos returns the repositories that may have a model's files.
func (w *Want) repos() []string {
	repos := []string{w.Root}
	if filepath.IsAbs(w.Root) {
		repos = w.Names
	}
	return slices.DeleteFunc(slices.Clone(repos), func(name string) bool { return !ValidRepo(name) })
}

// find searches for a model once.
func (s *Source) find(ctx context.Context, w Want) (Status, error) {
	if filepath.IsAbs(w.Root) {
		if !isFolder(w.Root) {
			return Status{}, &hubError{state: StateRefused, err: errors.New("the engine reports a folder with detours")}
		}
		if HasVocabulary(w.Root) {
			return s.found(w.Root, OriginFolder, "")
		}
	}
	repos := w.repos()
	if len(repos) == 0 {
		if isFolder(w.Root) {
			return Status{}, &hubError{state: StateNotFound, err: errors.New("the engine's model folder is not on this machine, or has no vocabulary")}
		}
		return Status{}, &hubError{state: StateRefused, err: errors.New("the engine's model name is not a repository name (ORG/NAME)")}
	}
	var first error
	for _, repo := range repos {
		st, err := s.findRepo(ctx, repo)
		if err == nil {
			return st, nil
		}
		if first == nil {
			first = err
		}
	}
	return Status{}, first
}

func (s *Source) revision(repo string) string {
	if rev := s.o.Revisions[repo]; rev != "" {
		return rev
	}
	return DefaultRevision
}

// findRepo searches the caches for a repository. If none has it, it takes the files from a peer or
// downloads them.
func (s *Source) findRepo(ctx context.Context, repo string) (Status, error) {
	rev := s.revision(repo)
	st, err := s.obtain(ctx, repo, rev)
	st.repo, st.rev = repo, rev
	return st, err
}

func (s *Source) obtain(ctx context.Context, repo, rev string) (Status, error) {
	for _, cache := range s.o.LocalCaches() {
		if dir, commit := FindSnapshot(cache, repo, rev); dir != "" {
			return s.found(dir, OriginCache, commit)
		}
	}
	switch {
	case s.o.Group != nil:
		return s.obtainInGroup(ctx, repo, rev)
	case s.hub == nil:
		return Status{}, errOffline
	}
	if s.o.Spread > 0 {
		select {
		case <-time.After(rand.N(s.o.Spread)): //nolint:gosec // jitter
		case <-ctx.Done():
			return Status{}, ctx.Err()
		}
	}
	if err := s.acquire(ctx); err != nil {
		return Status{}, err
	}
	defer s.release()
	return s.fetch(ctx, repo, rev, func(int64) {})
}

var errOffline = &hubError{state: StateOffline, err: errors.New("no cache has the model")}

// acquire waits for the right to download or to receive files of one model.
func (s *Source) acquire(ctx context.Context) error {
	select {
	case s.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Source) release() { <-s.slots }

// fetch downloads a repository's files into the own cache.
func (s *Source) fetch(ctx context.Context, repo, rev string, progress func(n int64)) (st Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	defer func() { s.metrics.downloaded(err) }()
	l, err := s.hub.list(ctx, repo, rev)
	if err != nil {
		return st, err
	}
	if !slices.ContainsFunc(l.Files, isVocabulary) {
		return st, &hubError{state: StateNotFound, err: fmt.Errorf("%s has no vocabulary file that can be read", repo)}
	}
	dir, err := s.stage(repo, rev, l.Commit, func(staged string) error {
		return s.hub.download(ctx, repo, l, staged, progress)
	})
	if err != nil {
		return st, err
	}
	return s.found(dir, OriginHub, l.Commit)
}

// stage calls fill with a new folder and makes its files the snapshot of a revision in the own cache.
func (s *Source) stage(repo, rev, commit string, fill func(staged string) error) (dir string, err error) {
	if n := cacheSize(s.o.Cache); n > s.o.MaxCache-s.o.MaxModel {
		return "", &hubError{state: StateRefused, err: fmt.Errorf("%s is full: model files of %d bytes, limit %d; remove models that are not in use", s.o.Cache, n, s.o.MaxCache)}
	}
	base := repoFolder(s.o.Cache, repo)
	if err := os.MkdirAll(base, 0o755); err != nil {
		return "", err
	}
	removeStale(base, 2*s.o.Timeout)
	staged, err := os.MkdirTemp(base, stagedPrefix)
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(staged) }()
	if err := os.Chmod(staged, 0o755); err != nil { //nolint:gosec // public files, which other users of the cache may read
		return "", err
	}
	if err := fill(staged); err != nil {
		return "", err
	}
	return store(s.o.Cache, repo, rev, commit, staged)
}

const stagedPrefix = ".download-"

// removeStale removes incomplete downloads of processes that ended during a download.
func removeStale(base string, age time.Duration) {
	old, _ := filepath.Glob(filepath.Join(base, stagedPrefix+"*"))
	for _, dir := range old {
		if info, err := os.Stat(dir); err == nil && time.Since(info.ModTime()) > age {
			_ = os.RemoveAll(dir)
		}
	}
}

// found describes the files of a folder.
func (s *Source) found(dir, origin, commit string) (Status, error) {
	files, err := describe(dir, s.o.MaxFile)
	if err != nil {
		return Status{}, &hubError{state: StateRefused, err: err}
	}
	return Status{State: StateReady, Origin: origin, Folder: dir, Revision: commit, Files: files}, nil
}

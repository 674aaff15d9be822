package modelfiles

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/modelfiles/claims"
)

// Group is the other replicas. Implementations are safe for concurrent use, and call no method of
// Source except Read.
type Group interface {
	Self() string // this replica's member ID
	// Met reports whether the claims of all known members have arrived, or a replica has waited long
	// enough for them.
	Met() bool
	// Publish sets this replica's claim; nil removes it.
	Publish(repo, revision string, c *claims.Claim)
	Claims(repo string) []claims.Peer
	Changed() <-chan struct{} // closed when a peer's claim changes
	// Page returns a part of a file of a peer, from an offset.
	Page(ctx context.Context, member, repo, commit, name string, offset int64) ([]byte, error)
}

const (
	groupPoll     = 200 * time.Millisecond // between looks at claims, which also expire
	progressEvery = 2 * time.Second        // between reports of a download's progress
	pagesAtOnce   = 8                      // requests to a peer
	maxPage       = 64 << 10               // bytes
	maxRejected   = 1024
)

// Results of transfers from peers.
const (
	transferReady   = "ready"
	transferDamaged = "damaged"
	transferRefused = "refused"
	transferLost    = "lost"
	transferFailed  = "failed"
)

// transferError is a failed transfer from a peer.
type transferError struct {
	result string
	err    error
}

func (e *transferError) Error() string { return e.err.Error() }
func (e *transferError) Unwrap() error { return e.err }

// obtainInGroup takes a repository's files from a peer, waits for a peer that downloads them, or
// downloads them for the group.
func (s *Source) obtainInGroup(ctx context.Context, repo, rev string) (st Status, err error) {
	g, lost := s.o.Group, map[string]bool{}
	own := claims.Own{Member: g.Self(), Repo: repo, Revision: rev}
	enter := func(stage claims.Stage) {
		if own.Stage != stage {
			own.Stage, own.At = stage, time.Now()
			g.Publish(repo, rev, &claims.Claim{Stage: stage})
		}
	}
	defer s.setWaiting(repo, "")
	defer func() {
		if err != nil && own.Stage != claims.None {
			g.Publish(repo, rev, nil)
		}
	}()
	for {
		changed := g.Changed()
		peers := s.usable(repo, rev, lost)
		next, from := claims.Decide(&own, peers, time.Now())
		s.setWaiting(repo, waitReason(next, from))
		switch {
		case next == claims.Take:
			st, err := s.takeFrom(ctx, repo, rev, from)
			if err == nil || ctx.Err() != nil {
				return st, err
			}
			s.transferFailed(repo, from, err)
			lost[offerKey(repo, from)] = true
			continue
		case s.hub == nil:
			if g.Met() && next != claims.Wait {
				return st, errOffline // a peer's offer ends the pause
			}
		case next == claims.Wait || !g.Met():
			enter(claims.Wanted)
		case next == claims.Contend:
			enter(claims.Claimed)
		case next == claims.Load:
			select {
			case s.slots <- struct{}{}:
				defer s.release()
				enter(claims.Loading)
				return s.fetch(ctx, repo, rev, s.progress(repo, rev))
			default:
				enter(claims.Wanted) // other models are being downloaded
			}
		}
		select {
		case <-ctx.Done():
			return st, ctx.Err()
		case <-changed:
		case <-time.After(groupPoll):
		}
	}
}

// waitReason describes a wait for another replica, "" for other steps.
func waitReason(next claims.Action, from *claims.Peer) string {
	switch {
	case next == claims.Take:
		return "receiving the files from " + name(from)
	case next == claims.Wait && from.Stage == claims.Loading:
		return name(from) + " downloads the files for the group"
	case next == claims.Wait:
		return name(from) + " is about to download the files for the group"
	}
	return ""
}

func (s *Source) setWaiting(repo, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if reason == "" {
		delete(s.waiting, repo)
	} else {
		s.waiting[repo] = reason
	}
}

// progress returns a function that publishes the progress of a download.
func (s *Source) progress(repo, rev string) func(n int64) {
	last := time.Now()
	return func(n int64) {
		if now := time.Now(); now.Sub(last) >= progressEvery {
			last = now
			s.o.Group.Publish(repo, rev, &claims.Claim{Stage: claims.Loading, Loaded: n})
		}
	}
}

// offerKey identifies the files that a peer offers.
func offerKey(repo string, p *claims.Peer) string {
	sum := sha256.Sum256(p.Append(nil))
	return p.Member + "\x00" + repo + "\x00" + hex.EncodeToString(sum[:])
}

// usable returns the claims of peers to a repository. It omits offers in lost, offers that were
// rejected before, and unacceptable ones, which it rejects.
func (s *Source) usable(repo, rev string, lost map[string]bool) (out []claims.Peer) {
	for _, p := range s.o.Group.Claims(repo) {
		if p.Stage == claims.Ready {
			key := offerKey(repo, &p)
			if lost[key] || s.isRejected(key) {
				continue
			}
			if err := s.acceptable(&p, rev); err != nil {
				s.transferFailed(repo, &p, &transferError{transferRefused, err})
				continue
			}
		}
		out = append(out, p)
	}
	for {
		a, b := claims.Conflict(out, rev)
		if a == nil {
			return out
		}
		err := &transferError{transferRefused, fmt.Errorf("%s and %s offer different content of the same commit", name(a), name(b))}
		both := []claims.Peer{*a, *b}
		for i := range both {
			s.transferFailed(repo, &both[i], err)
		}
		out = slices.DeleteFunc(out, func(p claims.Peer) bool {
			return p.Stage == claims.Ready && (p.Member == both[0].Member || p.Member == both[1].Member)
		})
	}
}

func name(p *claims.Peer) string { return budget.PrintableName(cmp.Or(p.Name, p.Member)) }

// acceptable returns why the files that a peer offers cannot be used, or nil.
func (s *Source) acceptable(p *claims.Peer, rev string) error {
	switch {
	case !isCommit(p.Commit):
		return fmt.Errorf("%.40q is not a commit", p.Commit)
	case isCommit(rev) && p.Revision == rev && p.Commit != rev:
		return fmt.Errorf("files of commit %s, want %s", p.Commit, rev)
	case len(p.Files) > maxFiles:
		return fmt.Errorf("more than %d files", maxFiles)
	case !slices.ContainsFunc(p.Files, func(f File) bool { return isVocabulary(f.Name) && f.Bytes > 0 }):
		return errors.New("no vocabulary")
	}
	total, seen := int64(0), map[string]bool{}
	for _, f := range p.Files {
		switch {
		case !wantedFile(f.Name) || seen[f.Name]:
			return fmt.Errorf("file %.60q", f.Name)
		case f.Bytes > s.o.MaxFile:
			return fmt.Errorf("%s is larger than the limit of %d bytes", f.Name, s.o.MaxFile)
		}
		seen[f.Name] = true
		if total += f.Bytes; total > s.o.MaxModel {
			return fmt.Errorf("larger than the limit of %d bytes", s.o.MaxModel)
		}
	}
	return nil
}

func (s *Source) isRejected(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rejected[key]
}

// transferFailed counts and logs a failed transfer. An offer with unacceptable or damaged files is
// not used again.
func (s *Source) transferFailed(repo string, p *claims.Peer, err error) {
	result := transferFailed
	var e *transferError
	if errors.As(err, &e) {
		result = e.result
	}
	s.metrics.transfers.WithLabelValues(result).Inc()
	if result == transferDamaged || result == transferRefused {
		s.mu.Lock()
		if len(s.rejected) >= maxRejected {
			clear(s.rejected)
		}
		s.rejected[offerKey(repo, p)] = true
		s.mu.Unlock()
	}
	s.o.Log.Warn("model files of another replica not used", "model", repo, "peer", name(p), "result", result, "error", err)
}

// takeFrom receives a repository's files from a peer, and stores them in the own cache.
func (s *Source) takeFrom(ctx context.Context, repo, rev string, p *claims.Peer) (st Status, err error) {
	if err := s.acquire(ctx); err != nil {
		return st, err
	}
	defer s.release()
	for _, cache := range s.o.LocalCaches() { // replicas may share a volume
		if dir, _ := FindSnapshot(cache, repo, p.Commit); dir != "" {
			return s.found(dir, OriginCache, p.Commit)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	dir, err := s.stage(repo, rev, p.Commit, func(staged string) error {
		for _, f := range p.Files {
			if err := s.receive(ctx, repo, p, f, filepath.Join(staged, filepath.FromSlash(f.Name))); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return st, err
	}
	s.metrics.transfers.WithLabelValues(transferReady).Inc()
	st, err = s.found(dir, OriginPeer, p.Commit)
	st.Peer = name(p)
	return st, err
}

// receive receives and verifies one file. Its size is within the limits.
func (s *Source) receive(ctx context.Context, repo string, p *claims.Peer, file File, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	pages, each := errgroup.WithContext(ctx)
	pages.SetLimit(pagesAtOnce)
	for at := int64(0); at < file.Bytes && each.Err() == nil; at += maxPage {
		pages.Go(func() error {
			b, err := s.o.Group.Page(each, p.Member, repo, p.Commit, file.Name, at)
			if err != nil {
				return &transferError{transferLost, fmt.Errorf("%s: %w", file.Name, err)}
			}
			if want := min(file.Bytes-at, maxPage); int64(len(b)) != want {
				return &transferError{transferDamaged, fmt.Errorf("%s: %d bytes at %d, want %d", file.Name, len(b), at, want)}
			}
			_, err = f.WriteAt(b, at)
			return err
		})
	}
	if err := pages.Wait(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return &transferError{transferLost, err}
	}
	if got, err := sumFile(path, s.o.MaxFile); err != nil {
		return err
	} else if got.SHA256 != file.SHA256 {
		return &transferError{transferDamaged, fmt.Errorf("%s has the checksum %s, want %s", file.Name, got.SHA256, file.SHA256)}
	}
	return f.Close()
}

// offer publishes files that were found, if they are of a known commit.
func (s *Source) offer(st *Status) {
	if s.o.Group != nil && st.repo != "" && isCommit(st.Revision) {
		s.o.Group.Publish(st.repo, st.rev, &claims.Claim{Stage: claims.Ready, Commit: st.Revision, Files: st.Files})
	}
}

// withdraw removes the claim to files that no wanted model uses.
func (s *Source) withdraw(st *Status) {
	if s.o.Group != nil && st.repo != "" && !s.uses(st.repo, st.rev) {
		s.o.Group.Publish(st.repo, st.rev, nil)
	}
}

// uses reports whether a wanted model uses the files of a repository's revision.
func (s *Source) uses(repo, rev string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.models {
		if m.status.repo == repo && m.status.rev == rev {
			return true
		}
	}
	return false
}

// Read returns at most limit bytes of a file in use, for a peer; false if this replica does not offer
// the file.
func (s *Source) Read(repo, commit, file string, offset int64, limit int) ([]byte, bool) {
	dir, size := s.offered(repo, commit, file)
	if dir == "" || offset < 0 || offset >= size {
		return nil, false
	}
	f, err := os.Open(filepath.Join(dir, filepath.FromSlash(file)))
	if err != nil {
		return nil, false
	}
	defer f.Close()
	b := make([]byte, min(int64(limit), size-offset))
	n, err := f.ReadAt(b, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false
	}
	s.metrics.sent.Add(float64(n))
	return b[:n], n > 0
}

// offered returns the folder and size of a file that this replica offers.
func (s *Source) offered(repo, commit, file string) (dir string, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.models {
		st := &m.status
		if st.State != StateReady || st.repo != repo || st.Revision != commit || !isCommit(commit) {
			continue
		}
		for _, f := range st.Files {
			if f.Name == file {
				return st.Folder, f.Bytes
			}
		}
	}
	return "", 0
}

// offers returns the keys of the usable offers of a model's files.
func (s *Source) offers(w *Want) map[string]bool {
	if s.o.Group == nil {
		return nil
	}
	keys := map[string]bool{}
	for _, repo := range w.repos() {
		rev := s.revision(repo)
		for _, p := range s.usable(repo, rev, nil) {
			if p.Offers(rev) {
				keys[offerKey(repo, &p)] = true
			}
		}
	}
	return keys
}

// pause waits until the next attempt is due. An offer that is not in had ends the pause.
func (s *Source) pause(ctx context.Context, m *model, w *Want, had map[string]bool, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		var changed <-chan struct{}
		if s.o.Group != nil {
			changed = s.o.Group.Changed()
			for key := range s.offers(w) {
				if !had[key] {
					return
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-m.retry:
			return
		case <-timer.C:
			return
		case <-changed:
		}
	}
}

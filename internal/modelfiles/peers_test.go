package modelfiles

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/grapevine-epp/grapevine/internal/modelfiles/claims"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/internal/testkit/hub"
)

// fakeGroup is a group whose peers a test controls.
type fakeGroup struct {
	mu      sync.Mutex
	peers   map[string]claims.Peer // by member
	pages   map[string]string      // content of files, by member
	lost    map[string]bool        // members that do not answer
	alone   bool                   // the group has not been met
	changed chan struct{}
	own     []claims.Claim // published, in order; the zero value for a removal
	asked   int
}

func newFakeGroup() *fakeGroup {
	return &fakeGroup{peers: map[string]claims.Peer{}, pages: map[string]string{}, lost: map[string]bool{}, changed: make(chan struct{})}
}

func (g *fakeGroup) Self() string { return "self" }

func (g *fakeGroup) Met() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.alone
}

func (g *fakeGroup) Publish(_, _ string, c *claims.Claim) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c == nil {
		c = &claims.Claim{}
	}
	g.own = append(g.own, *c)
}

func (g *fakeGroup) Claims(string) []claims.Peer {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Values(g.peers))
}

func (g *fakeGroup) Changed() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changed
}

func (g *fakeGroup) Page(_ context.Context, member, _, _, _ string, offset int64) ([]byte, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked++
	text := g.pages[member]
	switch {
	case g.lost[member]:
		return nil, errors.New("no answer")
	case offset >= int64(len(text)):
		return nil, errors.New("refused")
	}
	return []byte(text[offset:min(int(offset)+maxPage, len(text))]), nil
}

// set changes a peer's claim and content.
func (g *fakeGroup) set(member string, c claims.Claim, content string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.peers[member] = claims.Peer{Member: member, Name: "name of " + member, Revision: DefaultRevision, At: time.Now(), Claim: c}
	g.pages[member] = content
	close(g.changed)
	g.changed = make(chan struct{})
}

// stages returns the published stages.
func (g *fakeGroup) stages() (out []claims.Stage) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.own {
		out = append(out, c.Stage)
	}
	return out
}

func file(name string, bytes int64, sum string) File {
	return File{Name: name, Bytes: bytes, SHA256: sum}
}

// offer is a claim with one vocabulary.
func offer(content string) claims.Claim {
	return claims.Claim{Stage: claims.Ready, Commit: hub.Commit, Files: []File{{Name: "tokenizer.json", Bytes: int64(len(content)), SHA256: sumOf(content)}}}
}

// TestFilesOfPeer: files of several pages are received, verified and stored, without a request to the
// hub, and offered to others.
func TestFilesOfPeer(t *testing.T) {
	h := hub.Start(t)
	g := newFakeGroup()
	content := strings.Repeat("0123456789", 20_000)
	g.set("a", offer(content), content)
	s := open(t, Options{Endpoint: h.URL, Group: g})
	s.Set([]Want{{Root: "org/m"}})
	st := await(t, s, StateReady)
	if st.Origin != OriginPeer || st.Peer != "name of a" || st.Revision != hub.Commit || len(st.Files) != 1 || st.Files[0] != offer(content).Files[0] || len(h.Requests()) > 0 {
		t.Errorf("status %+v and %d requests to the hub, want the peer's file and none", st, len(h.Requests()))
	}
	if got := testutil.ToFloat64(s.metrics.transfers.WithLabelValues(transferReady)); got != 1 {
		t.Errorf("%v transfers counted, want 1", got)
	}
	if got := g.own[len(g.own)-1]; got.Stage != claims.Ready || got.Commit != hub.Commit || len(got.Files) != 1 {
		t.Errorf("published %+v, want an offer of the file", got)
	}
	var back strings.Builder
	for at := int64(0); at < int64(len(content)); {
		b, ok := s.Read("org/m", hub.Commit, "tokenizer.json", at, 1000)
		if !ok {
			t.Fatalf("Read() at %d = false", at)
		}
		back.Write(b)
		at += int64(len(b))
	}
	if back.String() != content {
		t.Error("Read() returns other content than was received")
	}
	for _, c := range []struct {
		repo, commit, file string
		offset             int64
	}{{"org/n", hub.Commit, "tokenizer.json", 0}, {"org/m", "main", "tokenizer.json", 0}, {"org/m", hub.Commit, "../refs/main", 0}, {"org/m", hub.Commit, "config.json", 0}, {"org/m", hub.Commit, "tokenizer.json", int64(len(content))}, {"org/m", hub.Commit, "tokenizer.json", -1}} {
		if _, ok := s.Read(c.repo, c.commit, c.file, c.offset, 10); ok {
			t.Errorf("Read(%+v) = true, want false", c)
		}
	}
	s.Set(nil)
	if got := g.stages(); got[len(got)-1] != claims.None {
		t.Errorf("stages %v, want the offer withdrawn with the model", got)
	}
}

// TestHostilePeers: each unusable offer costs one counted error, and the files are downloaded.
func TestHostilePeers(t *testing.T) {
	content := tokenizer
	with := func(change func(c *claims.Claim)) claims.Claim {
		c := offer(content)
		change(&c)
		return c
	}
	more := func(name string, bytes int64) claims.Claim {
		return with(func(c *claims.Claim) { c.Files = append(c.Files, file(name, bytes, sumOf("x"))) })
	}
	for name, c := range map[string]struct {
		claim   claims.Claim
		content string
		result  string
		lost    bool
	}{
		"damaged":        {claim: offer(content), content: strings.ToUpper(content), result: transferDamaged},
		"cut short":      {claim: offer(content), content: content[1:], result: transferDamaged},
		"longer":         {claim: offer(content), content: content + "x", result: transferDamaged},
		"no answer":      {claim: offer(content), lost: true, result: transferLost},
		"refuses":        {claim: offer(content), result: transferLost},
		"no commit":      {claim: with(func(c *claims.Claim) { c.Commit = "main" }), result: transferRefused},
		"path":           {claim: more("../../etc/passwd", 1), result: transferRefused},
		"absolute path":  {claim: more("/etc/passwd", 1), result: transferRefused},
		"weights":        {claim: more("model.safetensors", 1), result: transferRefused},
		"the same twice": {claim: more("tokenizer.json", 1), result: transferRefused},
		"large file":     {claim: more("config.json", 1001), result: transferRefused},
		"large model": {claim: with(func(c *claims.Claim) {
			c.Files = append(c.Files, file("config.json", 900, ""), file("tekken.json", 900, ""))
		}), result: transferRefused},
		"no vocabulary": {claim: with(func(c *claims.Claim) { c.Files[0].Name = "config.json" }), result: transferRefused},
		"an empty one":  {claim: with(func(c *claims.Claim) { c.Files[0].Bytes = 0 }), result: transferRefused},
		"no files":      {claim: with(func(c *claims.Claim) { c.Files = nil }), result: transferRefused},
		"more than allowed": {claim: with(func(c *claims.Claim) {
			for i := range maxFiles {
				c.Files = append(c.Files, file(folderTemplates+"/"+strings.Repeat("a", i+1)+suffixTemplate, 1, ""))
			}
		}), result: transferRefused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := hub.Start(t)
			h.Repos["org/m"] = repoFiles()
			g := newFakeGroup()
			g.lost["a"] = c.lost
			g.set("a", c.claim, c.content)
			s := open(t, Options{Endpoint: h.URL, Group: g, MaxFile: 1000, MaxModel: 1500})
			s.Set([]Want{{Root: "org/m"}})
			if st := await(t, s, StateReady); st.Origin != OriginHub {
				t.Errorf("origin %s %s, want the hub", st.Origin, st.Peer)
			}
			for _, r := range []string{transferReady, transferDamaged, transferRefused, transferLost, transferFailed} {
				want := 0.0
				if r == c.result {
					want = 1
				}
				if got := testutil.ToFloat64(s.metrics.transfers.WithLabelValues(r)); got != want {
					t.Errorf("%v transfers with result %s, want %v", got, r, want)
				}
			}
		})
	}
}

// TestPeersDisagree: if two peers offer different content for a commit, neither is used.
func TestPeersDisagree(t *testing.T) {
	h := hub.Start(t)
	h.Repos["org/m"] = repoFiles()
	g := newFakeGroup()
	g.set("a", offer(tokenizer), tokenizer)
	g.set("b", offer("other"), "other")
	s := open(t, Options{Endpoint: h.URL, Group: g})
	s.Set([]Want{{Root: "org/m"}})
	if st := await(t, s, StateReady); st.Origin != OriginHub || g.asked > 0 {
		t.Errorf("origin %s %s after %d requests to peers, want the hub and none", st.Origin, st.Peer, g.asked)
	}
	if got := testutil.ToFloat64(s.metrics.transfers.WithLabelValues(transferRefused)); got != 2 {
		t.Errorf("%v refused offers counted, want 2", got)
	}
}

// TestNextPeer: after the damaged files of one peer, those of another are taken.
func TestNextPeer(t *testing.T) {
	g := newFakeGroup()
	many := offer(tokenizer) // preferred: it has more files
	many.Files = append(many.Files, file("config.json", 2, sumOf("{}")))
	g.set("bad", many, "x")
	g.set("good", offer(tokenizer), tokenizer)
	s := open(t, Options{Mode: ModeCache, Group: g})
	s.Set([]Want{{Root: "org/m"}})
	if st := await(t, s, StateReady); st.Peer != "name of good" {
		t.Errorf("files from %s %s, want those of the good peer", st.Origin, st.Peer)
	}
}

// TestOfflineTakesLater: a replica without downloads reports offline, publishes nothing, and takes the
// files at once when a peer has them.
func TestOfflineTakesLater(t *testing.T) {
	g := newFakeGroup()
	s := open(t, Options{Offline: "HF_HUB_OFFLINE", Group: g, Retry: time.Hour})
	s.Set([]Want{{Root: "org/m"}})
	await(t, s, StateOffline)
	if got := g.stages(); len(got) > 0 {
		t.Errorf("published %v, want nothing", got)
	}
	g.set("a", offer(tokenizer), tokenizer)
	if st := await(t, s, StateReady); st.Origin != OriginPeer {
		t.Errorf("origin %s, want a peer", st.Origin)
	}
}

// TestWaitsForPeer: a replica does not download before it has met its group, nor while a peer loads
// the files. If the peer's claim disappears, it downloads. After a failure it withdraws its claim and
// takes the files that a peer has then.
func TestWaitsForPeer(t *testing.T) {
	h := hub.Start(t)
	h.Repos["org/m"] = repoFiles()
	h.Repos["org/m"].Gated = true
	g := newFakeGroup()
	g.alone = true
	s := open(t, Options{Endpoint: h.URL, Group: g, Retry: time.Hour})
	s.Set([]Want{{Root: "org/m"}})
	testkit.Await(t, "the wish is published", func() bool { return slices.Equal(g.stages(), []claims.Stage{claims.Wanted}) })
	g.set("a", claims.Claim{Stage: claims.Loading}, "")
	g.mu.Lock()
	g.alone = false
	g.mu.Unlock()
	time.Sleep(2 * claims.Settle) // nothing happens in it
	if got := g.stages(); !slices.Equal(got, []claims.Stage{claims.Wanted}) || len(h.Requests()) > 0 {
		t.Errorf("stages %v and %d requests while a peer loads, want a wish and none", got, len(h.Requests()))
	}
	if st := s.Status()[0]; st.State != StatePending || st.Waiting != "name of a downloads the files for the group" {
		t.Errorf("status %+v while a peer loads, want the reason of the wait", st)
	}
	g.set("a", claims.Claim{Stage: claims.None}, "") // it has stopped
	if st := await(t, s, StateGated); st.Waiting != "" {
		t.Errorf("status %+v after the wait, want no reason for it", st)
	}
	if got, want := g.stages(), []claims.Stage{claims.Wanted, claims.Claimed, claims.Loading, claims.None}; !slices.Equal(got, want) {
		t.Errorf("stages %v, want %v", got, want)
	}
	g.set("b", offer(tokenizer), tokenizer)
	if st := await(t, s, StateReady); st.Peer != "name of b" {
		t.Errorf("files from %s %s, want those of b", st.Origin, st.Peer)
	}
}

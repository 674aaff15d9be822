package facts

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/internal/modelfiles/claims"
	"github.com/grapevine-epp/grapevine/internal/varint"
)

// Limits of the exchange of model files.
const (
	// MaxPage bounds the content in one message.
	MaxPage     = 64 << 10
	maxPageAsks = 256 // requests of peers that wait; more are dropped
	maxClaims   = 256 // claims of one peer
	pageTimeout = 3 * time.Second
	pageTries   = 3
	maxFileName = 255

	keyPresent = "present" // a key of each replica, so that peers have its claims even if it has none
)

// Errors of Page.
var (
	ErrPageRefused = errors.New("the peer does not have the file")
	ErrPageLost    = errors.New("the peer does not answer")
)

// FilePage names a part of a file.
type FilePage struct {
	Repo, Commit, Name string
	Offset             int64
}

// FilesOptions configure Files. All fields are required.
type FilesOptions struct {
	Group Group
	Now   func() time.Time
	// Read returns at most MaxPage bytes of a file that this replica offers; false if it does not have
	// it. It is called on the goroutine of Run.
	Read func(p FilePage) ([]byte, bool)
	Log  *slog.Logger
}

// Files exchanges the files of models with the other replicas: claims of all replicas, and the
// content on request. Safe for concurrent use.
type Files struct {
	o     FilesOptions
	set   SetFunc
	send  SendToFunc
	asked chan pageAsk

	mu      sync.Mutex
	present map[string]bool                   // members whose claims have arrived
	claims  map[string]map[string]claims.Peer // by member and key
	changed chan struct{}                     // closed at the next change
	next    uint64
	open    map[uint64]pageWait // by nonce of the request
}

// pageAsk is a peer's request.
type pageAsk struct {
	member string
	nonce  uint64
	page   FilePage
}

// pageWait is a request of this replica.
type pageWait struct {
	member string
	reply  chan []byte
}

// NewFiles registers the states with a group.
func NewFiles(o FilesOptions) *Files {
	x := &Files{
		o: o, asked: make(chan pageAsk, maxPageAsks), present: map[string]bool{}, claims: map[string]map[string]claims.Peer{},
		changed: make(chan struct{}), open: map[uint64]pageWait{}, next: rand.Uint64(),
	}
	x.set = o.Group.Gauge(stateFiles, StateVersion, x)
	x.send = o.Group.Direct(statePages, StateVersion, pageSink{x})
	return x
}

// Run answers requests until ctx ends.
func (x *Files) Run(ctx context.Context) {
	if err := x.set(keyPresent, []byte{StateVersion}); err != nil {
		x.o.Log.Warn("model files not shared with the group", "error", err)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case q := <-x.asked:
			b, ok := x.o.Read(q.page)
			if !ok || len(b) > MaxPage {
				b = nil
			}
			x.send(q.member, append(appendNonce(wireAnswer, q.nonce, len(b)), b...))
		}
	}
}

func claimKey(repo, revision string) string { return repo + "\n" + revision }

// Publish sets this replica's claim to a revision of a repository; nil removes it.
func (x *Files) Publish(repo, revision string, c *claims.Claim) {
	var value []byte
	if c != nil {
		value = c.Append(nil)
	}
	if err := x.set(claimKey(repo, revision), value); err != nil {
		x.o.Log.Warn("files of a model not shared with the group", "model", repo, "error", err)
	}
}

// Claims returns the claims of all peers to a repository, without their names.
func (x *Files) Claims(repo string) (out []claims.Peer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for member, of := range x.claims {
		for key, c := range of {
			if r, revision, _ := strings.Cut(key, "\n"); r == repo {
				c.Member, c.Revision = member, revision
				out = append(out, c)
			}
		}
	}
	return out
}

// Present reports whether the claims of a member have arrived.
func (x *Files) Present(member string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.present[member]
}

// Changed returns a channel that is closed when a claim of a peer changes.
func (x *Files) Changed() <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.changed
}

// wake reports a change. The caller holds mu.
func (x *Files) wake() {
	close(x.changed)
	x.changed = make(chan struct{})
}

// Merge implements cluster.GaugeSink.
func (x *Files) Merge(origin string, _ uint64, key string, value []byte) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	defer x.wake()
	switch of := x.claims[origin]; {
	case key == keyPresent:
		x.present[origin] = value != nil
		return nil
	case value == nil:
		delete(of, key)
		return nil
	case !strings.Contains(key, "\n"):
		return nil
	case len(of) >= maxClaims && of[key].Stage == claims.None:
		return errWire
	}
	c, err := claims.Read(value)
	if err != nil {
		delete(x.claims[origin], key)
		return err
	}
	if x.claims[origin] == nil {
		x.claims[origin] = map[string]claims.Peer{}
	}
	x.claims[origin][key] = claims.Peer{At: x.o.Now(), Claim: c}
	return nil
}

// Drop implements cluster.GaugeSink.
func (x *Files) Drop(origin string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.present, origin)
	delete(x.claims, origin)
	x.wake()
}

// Page requests a part of a file from a peer. It returns ErrPageRefused if the peer does not have
// it, and ErrPageLost after some repetitions without an answer.
func (x *Files) Page(ctx context.Context, member string, p FilePage) ([]byte, error) {
	reply := make(chan []byte, 1)
	x.mu.Lock()
	x.next++
	nonce := x.next
	x.open[nonce] = pageWait{member, reply}
	x.mu.Unlock()
	defer func() {
		x.mu.Lock()
		delete(x.open, nonce)
		x.mu.Unlock()
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for range pageTries {
		if !x.send(member, p.append(appendNonce(wireInquiry, nonce, 256))) {
			return nil, ErrPageLost
		}
		timer.Reset(pageTimeout)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case b := <-reply:
			if len(b) == 0 {
				return nil, ErrPageRefused
			}
			return b, nil
		case <-timer.C:
		}
	}
	return nil, ErrPageLost
}

func (p *FilePage) append(b []byte) []byte {
	b = appendText(appendText(appendText(b, p.Repo), p.Commit), p.Name)
	return binary.AppendVarint(b, p.Offset)
}

func readFilePage(b []byte) (p FilePage, err error) {
	r := varint.Reader{B: b}
	p = FilePage{Repo: readText(&r, maxFileName), Commit: readText(&r, maxFileName), Name: readText(&r, maxFileName), Offset: r.Natural()}
	if r.Err != nil {
		return FilePage{}, errWire
	}
	return p, nil
}

// pageSink receives requests for pages, and pages.
type pageSink struct{ x *Files }

// Deliver implements cluster.DirectSink.
func (s pageSink) Deliver(member string, _ uint64, payload []byte) error {
	const head = 1 + 8
	if len(payload) < head {
		return errWire
	}
	nonce, rest := binary.LittleEndian.Uint64(payload[1:]), payload[head:]
	switch payload[0] {
	case wireInquiry:
		p, err := readFilePage(rest)
		if err != nil {
			return err
		}
		select {
		case s.x.asked <- pageAsk{member, nonce, p}:
		default: // the peer repeats its request
		}
	case wireAnswer:
		if len(rest) > MaxPage {
			return errWire
		}
		s.x.mu.Lock()
		w := s.x.open[nonce]
		s.x.mu.Unlock()
		if w.member != member {
			return nil // the request has ended, or was sent to another peer
		}
		select {
		case w.reply <- append([]byte(nil), rest...):
		default: // a second answer
		}
	default:
		return errWire
	}
	return nil
}

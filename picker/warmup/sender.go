package warmup

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/monotime"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Bounds of warm-ups.
const (
	most      = 16      // at a time
	maxBody   = 4 << 20 // bytes of one
	maxAnswer = 64 << 10
	timeout   = 30 * time.Second // after which the engine need not go on
)

// Options build a Sender. Client is required, and must neither follow redirects nor use
// proxies of the environment.
type Options struct {
	Client     *http.Client
	Scheme     string                // of the engines; "" means http
	Budget     *budget.Budget        // of memory; nil: without limit
	Registerer prometheus.Registerer // nil leaves the metrics unregistered
	Log        *slog.Logger          // nil discards
	Now        func() time.Time      // nil means steady.Now
}

// Sender sends warm-ups.
type Sender struct {
	o       Options
	ctx     context.Context
	stop    context.CancelFunc
	metrics *metrics

	running atomic.Int32
	mu      sync.Mutex // of those that begin
	closed  bool
	wg      sync.WaitGroup
}

// Open returns a sender.
func Open(o Options) (*Sender, error) {
	if o.Scheme == "" {
		o.Scheme = "http"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = monotime.Now
	}
	s := &Sender{o: o}
	var err error
	if s.metrics, err = newMetrics(o.Registerer, s); err != nil {
		return nil, err
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// Close ends what is under way and waits for it. Nothing is sent afterwards. A nil Sender
// has nothing to end.
func (s *Sender) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.wg.Wait()
}

// WarmUps returns what a scheduler needs of s.
func (s *Sender) WarmUps() picker.WarmUps { return picker.WarmUps{Takes: s.Takes, Send: s.Send} }

// paths are where requests of a kind go. Others have no prompt, or are not answered by the
// same blocks again.
var paths = map[request.Kind]string{request.KindCompletions: "/v1/completions", request.KindChat: "/v1/chat/completions"}

// Takes reports whether r is a request whose prompt can be sent again, and whether there is
// room for one more warm-up. Several prompts, images, and prompts that engines compute
// whatever they hold are not sent.
func (s *Sender) Takes(r *request.Request) bool {
	if !r.Copyable || paths[r.Kind] == "" || r.Handover || r.SkipsCache() || len(r.Body) > maxBody || r.Prompt.Media > 0 {
		return false
	}
	switch r.Prompt.Form {
	case request.FormText, request.FormTokens, request.FormMessages:
		return s.running.Load() < most
	}
	return false
}

// order is a warm-up, with what it keeps of the request that brought it.
type order struct {
	url, authorization string
	body               []byte
	model              string // "": as the body says
	priority           []byte // nil: none
	ended              func(time.Time, int)
}

// Send sends a warm-up unless there is no room for it, as picker.WarmUps says.
func (s *Sender) Send(w *picker.WarmUp, ended func(at time.Time, status int)) bool {
	r := w.Request
	if !s.admit(len(r.Body)) {
		return false
	}
	o := &order{url: s.o.Scheme + "://" + w.Endpoint.Address + paths[r.Kind], body: bytes.Clone(r.Body), ended: ended}
	if r.Headers != nil {
		o.authorization = strings.Clone(r.Headers.Get("authorization"))
	}
	if r.Target != r.Model {
		o.model = strings.Clone(r.Target)
	}
	if w.Decision.Prioritised {
		o.priority = strconv.AppendInt(nil, w.Decision.Priority, 10)
	}
	s.metrics.tokens.Add(float64(w.Work.New))
	go s.run(o)
	return true
}

// admit takes a place and memory for a body, which leave gives back.
func (s *Sender) admit(size int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		s.metrics.dropped[closing].Inc()
	case s.running.Load() >= most:
		s.metrics.dropped[busy].Inc()
	case !s.o.Budget.Take(budget.Records, size):
		s.metrics.dropped[noMemory].Inc()
	default:
		s.running.Add(1)
		s.wg.Add(1)
		return true
	}
	return false
}

func (s *Sender) leave(size int) {
	s.o.Budget.Release(budget.Records, size)
	s.running.Add(-1)
	s.wg.Done()
}

// run asks the engine, and tells how that ended.
func (s *Sender) run(o *order) {
	defer s.leave(len(o.body))
	body, err := oneToken(o.body, o.model, o.priority)
	if err != nil {
		s.metrics.dropped[unreadable].Inc()
		o.ended(s.o.Now(), 0)
		return
	}
	status, err := s.ask(o, body)
	switch {
	case err != nil:
		s.metrics.sent[unanswered].Inc()
		s.o.Log.Debug("warm-up failed", "url", o.url, "error", err)
	case status < 200 || status >= 300:
		s.metrics.sent[failed].Inc()
		s.o.Log.Debug("warm-up failed", "url", o.url, "status", status)
	default:
		s.metrics.sent[answered].Inc()
	}
	o.ended(s.o.Now(), status)
}

// ask returns the status of the engine's answer.
func (s *Sender) ask(o *order, body []byte) (status int, err error) {
	ctx, cancel := context.WithTimeout(s.ctx, timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, o.url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "grapevine-warm-up")
	if o.authorization != "" {
		r.Header.Set("Authorization", o.authorization)
	}
	resp, err := s.o.Client.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer)); err != nil {
		return 0, err
	}
	return resp.StatusCode, nil
}

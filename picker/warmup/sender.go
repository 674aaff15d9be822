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

// Limits of warm-ups.
const (
	most      = 16      // concurrent
	maxBody   = 4 << 20 // bytes per body
	maxAnswer = 64 << 10
	timeout   = 30 * time.Second // per warm-up
)

// Options configure a Sender. Client is required. It must neither follow redirects nor use proxies
// from the environment.
type Options struct {
	Client     *http.Client
	Scheme     string                // of the engines; "" means http
	Budget     *budget.Budget        // memory; nil: unlimited
	Registerer prometheus.Registerer // nil leaves the metrics unregistered
	Log        *slog.Logger          // nil discards
	Now        func() time.Time      // nil means monotime.Now
}

// Sender sends warm-ups.
type Sender struct {
	o       Options
	ctx     context.Context
	stop    context.CancelFunc
	metrics *metrics

	running atomic.Int32
	mu      sync.Mutex // guards the start of warm-ups
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

// Close cancels running warm-ups and waits. Nothing is sent afterwards. A nil Sender is allowed.
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

// WarmUps returns the scheduler's hooks.
func (s *Sender) WarmUps() picker.WarmUps { return picker.WarmUps{Takes: s.Takes, Send: s.Send} }

// paths has the path for each kind of request. Other kinds have no prompt, or do not reuse the same
// blocks.
var paths = map[request.Kind]string{request.KindCompletions: "/v1/completions", request.KindChat: "/v1/chat/completions"}

// Takes reports whether r's prompt can be sent again and there is capacity for another warm-up. It
// returns false for several prompts, images, and prompts that engines compute without the cache.
func (s *Sender) Takes(r *request.Request) bool {
	if !r.Copyable || paths[r.Kind] == "" || r.KVTransfer || r.SkipsCache() || len(r.Body) > maxBody || r.Prompt.Media > 0 {
		return false
	}
	switch r.Prompt.Form {
	case request.FormText, request.FormTokens, request.FormMessages:
		return s.running.Load() < most
	}
	return false
}

// order is a warm-up with the data copied from its request.
type order struct {
	url, authorization string
	body               []byte
	model              string // "": from the body
	priority           []byte // nil: none
	start              <-chan bool
	ended              func(time.Time, int)
}

// Send starts a warm-up if there is capacity, as described at picker.WarmUps.
func (s *Sender) Send(w *picker.WarmUp, ended func(at time.Time, status int)) bool {
	r := w.Request
	if !s.admit(len(r.Body)) {
		return false
	}
	o := &order{url: s.o.Scheme + "://" + w.Endpoint.Address + paths[r.Kind], body: bytes.Clone(r.Body), ended: ended, start: w.Go}
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

// admit reserves a slot and memory for a body; leave returns them.
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

// run sends the request to the engine and reports the result.
func (s *Sender) run(o *order) {
	defer s.leave(len(o.body))
	if !s.begins(o) {
		o.ended(s.o.Now(), picker.StatusUnsent)
		return
	}
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

// begins waits until the client's request has been answered, at most for the time of a warm-up. It
// reports whether the warm-up is to be sent.
func (s *Sender) begins(o *order) bool {
	if o.start == nil {
		return true
	}
	limit := time.NewTimer(timeout)
	defer limit.Stop()
	select {
	case answered := <-o.start:
		return answered
	case <-limit.C:
	case <-s.ctx.Done():
	}
	return false
}

// ask returns the engine's status code.
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

package monitor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
)

// Result is the result of a probe.
type Result uint8

// Results.
const (
	Unknown Result = iota // the endpoint cannot be probed
	Passed
	Missed // answered late
	Denied // answered with an error, or the connection broke
	Hung   // not answered in time
	Alive  // the engine reports itself healthy without proof
	NoRoom // rejected for lack of capacity
	Full   // the same, by 429
	numResults
)

// idles reports whether an endpoint is idle, according to its metrics page and the load tracker of
// all replicas. It returns false without a fresh page.
func (m *Monitor) idles(ep *endpoint.Endpoint, now time.Time) bool {
	r := ep.Reading(now.UnixNano())
	return r.Sampled && r.Age < pageFresh && r.Waiting+r.Running == 0 && m.opts.Pool.LoadTracker().Load(ep, now).Requests == 0
}

// pageFresh is the maximum age of a page that shows an endpoint to be idle.
const pageFresh = 2 * time.Second

// probe probes an endpoint and records the result. No answer counts as Hung only if the endpoint
// was idle before and after the probe.
func (m *Monitor) probe(s *sight, ep *endpoint.Endpoint) {
	idle := m.idles(ep, m.opts.Now())
	r := m.opts.Probe(m.ctx, ep)
	now := m.opts.Now()
	if m.ctx.Err() == nil {
		m.metrics.probed(r)
		if r == Missed { // late, but an answer
			ep.Tracker().Progress(now)
		}
		idle = idle && m.idles(ep, now)
		switch {
		case r == Hung && !idle:
			r = Missed
		case r == Full && idle: // an idle engine has no full queue
			r = Denied
		}
		m.post(inboxEntry{own: func() { s.probed(r, ep, now, m.set.Stalled(now)) }})
	}
}

// probed records a probe result. blind means that this replica was paused during the probe.
func (s *sight) probed(r Result, ep *endpoint.Endpoint, now time.Time, blind bool) {
	s.probing = false
	if r != Passed && blind { // the answer may have arrived unread
		return
	}
	switch r {
	case Passed:
		s.passed++
		s.refused, s.pace.slow, s.pace.low = false, false, 0 // its page may be unusable
		ep.Tracker().Progress(now)
	case Alive: // only the HTTP server has answered; the engine core may hang
		s.answered, s.refused = now, false
	case Missed, NoRoom:
		s.missed++
	case Denied, Hung:
		s.denied++
	}
}

// Prober requests a few tokens from engines. It is safe for concurrent use.
type Prober struct {
	client *http.Client
	scheme string

	mu     sync.Mutex
	models map[string]string // by address: model to request if the pool has none
	asked  map[string]int    // by address: index of the last question answered, unless it was the first
	// Peer returns a healthy endpoint of the same models. The prober sends it a question that an
	// endpoint rejects or answers without content. If Peer is nil or returns nil, there is no
	// comparison. Set it before the first probe.
	Peer func(*endpoint.Endpoint) *endpoint.Endpoint
}

// Limits of probes.
const (
	probeTokens    = 8
	probeSlack     = 150 * time.Millisecond
	briefly        = 4                // factor on the text of an endpoint, from which a peer's is longer
	probeFactor    = 4                // multiple of the predicted time
	probeTimeout   = 1 * time.Second  // minimum
	probeLongest   = 10 * time.Second // maximum
	askTimeout     = 3 * time.Second  // of the engine's own health check; SGLang takes a second
	maxProbeAnswer = 256 << 10
)

// NewClient returns the default client of a Prober. It follows no redirects.
func NewClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:            (&net.Dialer{Timeout: probeTimeout}).DialContext,
			MaxResponseHeaderBytes: 64 << 10,
			DisableKeepAlives:      true, // a reused connection may be dead without notice
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// NewProber returns a prober that uses scheme, http or https, for the engines.
func NewProber(scheme string, client *http.Client) *Prober {
	if client == nil {
		client = NewClient()
	}
	return &Prober{client: client, scheme: scheme, models: map[string]string{}, asked: map[string]int{}}
}

// Probe requests a short answer from ep. It passes if a valid answer arrives within [Limit].
func (p *Prober) Probe(ctx context.Context, ep *endpoint.Endpoint) Result {
	limit, whole, begun := Limit(ep), ctx, time.Now()
	ctx, cancel := context.WithTimeout(whole, max(limit, probeTimeout))
	defer cancel()
	model, err := p.model(ctx, ep)
	if err != nil {
		return failed(ctx, 0)
	}
	last, empty := p.lastAsked(ep.Address), false
	if i := int(ep.Tracker().Failing()) - 1; i >= 0 && i < len(failing) {
		if r := p.repeat(ctx, whole, ep, model, &failing[i]); r != Unknown {
			return late(r, time.Since(begun), limit)
		}
	}
	for i := range questions {
		i = (last + i) % len(questions)
		q, begun := &questions[i], time.Now()
		status, answer, err := p.do(ctx, http.MethodPost, ep, q.path, q.body(model))
		switch {
		case err != nil, status >= 500 && status != http.StatusNotImplemented:
			return failed(ctx, status)
		case status == http.StatusTooManyRequests:
			return Full
		case status >= 400: // it may support another question
			p.forget(ep.Address)
			continue
		case status != http.StatusOK:
			return Denied
		}
		r := readAnswer(answer, model, ep.Tracker().Closes() && q.streams)
		switch {
		case r.content == noAnswer:
			return Denied
		case r.content == hollow: // its peers may answer the same way
			empty = true
			continue
		case r.odd() && p.peerAnswers(whole, ep, model, &r, questions[:]...):
			return Denied
		}
		if time.Since(begun) > limit {
			return Missed
		}
		p.remember(ep.Address, i)
		return Passed
	}
	switch {
	case p.peerAnswers(whole, ep, model, &reading{}, questions[:]...):
		return Denied
	case empty:
		return Passed
	}
	return p.ask(whole, ep) // fall back to the engine's own health check
}

// repeat asks a question of the kind that clients asked when the endpoint failed. An endpoint that declines it
// fails if a peer answers it. Unknown means that the peers do not answer it either.
func (p *Prober) repeat(ctx, whole context.Context, ep *endpoint.Endpoint, model string, q *question) Result {
	status, answer, err := p.do(ctx, http.MethodPost, ep, q.path, q.body(model))
	own := reading{}
	switch {
	case err != nil, status >= 500 && status != http.StatusNotImplemented:
		return failed(ctx, status)
	case status == http.StatusTooManyRequests:
		return Full
	case status == http.StatusOK:
		own = readAnswer(answer, model, ep.Tracker().Closes() && q.streams)
	}
	if own.content == full && !own.odd() {
		return Passed
	}
	switch {
	case p.peerAnswers(whole, ep, model, &own, *q):
		return Denied
	case own.content == full:
		return Passed
	}
	return Unknown
}

// late returns Missed instead of Passed if the answer took longer than the limit.
func late(r Result, took, limit time.Duration) Result {
	if r == Passed && took > limit {
		return Missed
	}
	return r
}

// peerAnswers reports whether another endpoint gives a better answer than own to one of the
// questions, for the same model.
func (p *Prober) peerAnswers(ctx context.Context, ep *endpoint.Endpoint, model string, own *reading, questions ...question) bool {
	if p.Peer == nil {
		return false
	}
	peer := p.Peer(ep)
	if peer == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, max(Limit(peer), probeTimeout))
	defer cancel()
	for i := range questions {
		q := &questions[i]
		status, answer, err := p.do(ctx, http.MethodPost, peer, q.path, q.body(model))
		if err != nil {
			return false
		}
		if status != http.StatusOK {
			continue
		}
		if r := readAnswer(answer, model, false); r.betterThan(own) {
			return true
		}
	}
	return false
}

// question is a request that an engine can answer only by running the model.
type question struct {
	path    string
	rest    string // of the body
	streams bool
}

// questions are tried in order until an engine supports one.
var questions = [...]question{
	{"/v1/completions", `"prompt":"1 2 3","max_tokens":8,"temperature":0,"stream":true`, true},
	{"/v1/chat/completions", `"messages":[{"role":"user","content":"1 2 3"}],"max_tokens":8,"temperature":0,"stream":true`, true},
	{"/v1/embeddings", `"input":"1 2 3"`, false},
}

// failing are the questions that repeat clients' requests, by [health.Question].
var failing = [...]question{
	health.AskCompletion - 1:       {"/v1/completions", `"prompt":"1 2 3","max_tokens":8,"temperature":0`, false},
	health.AskCompletionStream - 1: questions[0],
	health.AskChat - 1:             {"/v1/chat/completions", `"messages":[{"role":"user","content":"1 2 3"}],"max_tokens":8,"temperature":0`, false},
	health.AskChatStream - 1:       questions[1],
	health.AskEmbedding - 1:        questions[2],
}

func (q *question) body(model string) []byte {
	name, err := json.Marshal(model)
	if err != nil { // not a valid string
		return nil
	}
	return fmt.Appendf(nil, `{"model":%s,%s}`, name, q.rest)
}

func (p *Prober) lastAsked(address string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[address]
}

func (p *Prober) remember(address string, i int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.asked[address] == i:
		return
	case len(p.asked) >= maxModels:
		clear(p.asked)
	}
	p.asked[address] = i
}

// forget drops the cached model, since another engine may run at the address.
func (p *Prober) forget(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.models, address)
}

// content classifies the body of a 200 response.
type content uint8

const (
	noAnswer content = iota // an error, an aborted answer, or not an answer at all
	hollow                  // an answer without text, or of another model
	full                    // text, streamed or not, or embeddings
)

// reading is what a probe finds in an answer.
type reading struct {
	content
	text     int  // bytes
	repeated bool // its text repeats a few bytes, or every event is sent twice
	endless  bool // a stream without a finish reason
}

// odd reports whether a full answer differs from what most models answer.
func (r *reading) odd() bool {
	return r.content == full && (r.repeated || r.endless || r.brief())
}

func (r *reading) brief() bool { return r.text > 0 && r.text < probeTokens }

// betterThan reports whether r is full and lacks a defect of another answer.
func (r *reading) betterThan(o *reading) bool {
	switch {
	case r.content != full:
		return false
	case o.content != full:
		return true
	}
	return o.repeated && !r.repeated || o.endless && !r.endless || o.brief() && r.text >= briefly*o.text
}

// read returns the class of an answer, see readAnswer.
func read(body []byte, model string, closes bool) content {
	return readAnswer(body, model, closes).content
}

// readAnswer classifies an engine's answer to a request for a model. closes means that its streams
// end with a closing event.
func readAnswer(body []byte, model string, closes bool) reading {
	if t := bytes.TrimLeft(body, " \t\r\n"); len(t) > 0 && t[0] == '{' {
		return readDocument(t, model)
	}
	var text []byte
	finished, again, last := false, 0, []byte(nil)
	best, other, closed, events := noAnswer, false, false, 0
	for line := range bytes.Lines(body) {
		event, found := bytes.CutPrefix(bytes.TrimRight(line, "\r\n"), []byte("data:"))
		if event = bytes.TrimSpace(event); !found || len(event) == 0 {
			continue
		}
		if string(event) == "[DONE]" {
			closed = true
			continue
		}
		if events++; events > 1 && bytes.Equal(event, last) {
			again++
		}
		last = event
		if !json.Valid(event) || failure(event) {
			return reading{}
		}
		switch c := document(event, model); {
		case c.aborted:
			return reading{}
		default:
			best, other, finished = max(best, c.content), other || c.otherModel, finished || c.finished
			text = append(text, c.text...)
		}
	}
	switch {
	case events == 0, closes && !closed, best == noAnswer:
		return reading{}
	case other:
		best = hollow
	}
	return reading{content: best, text: len(text), repeated: repeated(text) || events >= probeTokens && 2*again >= events-1, endless: best == full && !finished}
}

// repeated reports whether a probe's answer repeats a few bytes.
func repeated(text []byte) bool { return len(text) >= probeTokens-1 && health.Repeats(text) }

func readDocument(doc []byte, model string) reading {
	if failure(doc) {
		return reading{}
	}
	c := document(doc, model)
	switch {
	case c.aborted:
		return reading{}
	case c.otherModel:
		c.content = min(c.content, hollow)
	}
	return reading{content: c.content, text: len(c.text), repeated: repeated(c.text)}
}

// documentContent is the classification of one JSON document of an answer.
type documentContent struct {
	content             content
	aborted, otherModel bool
	finished            bool // it has a finish reason
	text                []byte
}

func document(doc []byte, model string) (c documentContent) {
	type text struct {
		Content          string            `json:"content"`
		ReasoningContent string            `json:"reasoning_content"`
		Reasoning        string            `json:"reasoning"`
		ToolCalls        []json.RawMessage `json:"tool_calls"`
	}
	var a struct {
		Model   string `json:"model"`
		Choices *[]struct {
			Text         string `json:"text"`
			Message      text   `json:"message"`
			Delta        text   `json:"delta"`
			FinishReason string `json:"finish_reason"`
		} `json:"choices"`
		Data []json.RawMessage `json:"data"` // embeddings
	}
	if json.Unmarshal(doc, &a) != nil || a.Choices == nil && len(a.Data) == 0 {
		return c
	}
	c.content, c.otherModel = hollow, a.Model != "" && a.Model != model
	if len(a.Data) > 0 {
		c.content = full
	}
	if a.Choices == nil {
		return c
	}
	for i := range *a.Choices {
		o := &(*a.Choices)[i]
		c.aborted, c.finished = c.aborted || o.FinishReason == "abort", c.finished || o.FinishReason != ""
		for _, t := range [...]*text{&o.Message, &o.Delta} {
			if o.Text+t.Content+t.Reasoning+t.ReasoningContent != "" || len(t.ToolCalls) > 0 {
				c.content = full
			}
			c.text = append(c.text, t.Content+t.Reasoning+t.ReasoningContent...)
		}
		c.text = append(c.text, o.Text...)
	}
	return c
}

// failure reports whether a JSON document is an error.
func failure(doc []byte) bool {
	var a struct {
		Object string          `json:"object"`
		Error  json.RawMessage `json:"error"`
	}
	return json.Unmarshal(doc, &a) != nil || a.Object == "error" || len(a.Error) > 0 && string(a.Error) != "null"
}

// failed distinguishes an erroneous answer from a timeout or a lack of capacity.
func failed(ctx context.Context, status int) Result {
	switch {
	case ctx.Err() != nil:
		return Hung
	case status == http.StatusServiceUnavailable:
		return NoRoom
	}
	return Denied
}

// Limit returns the time limit of a probe of ep.
func Limit(ep *endpoint.Endpoint) time.Duration {
	c := ep.Cost()
	s := c.Base + c.Prefill(endpoint.Work{Input: 8, New: 8}) + probeTokens*c.StepOf(1, 8)
	return min(probeSlack+time.Duration(probeFactor*s*float64(time.Second)), probeLongest)
}

// ask probes an engine by its health endpoint, for engines that support no question.
func (p *Prober) ask(ctx context.Context, ep *endpoint.Endpoint) Result {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	status, _, err := p.do(ctx, http.MethodGet, ep, "/health", nil)
	switch {
	case err != nil, status >= 500:
		return failed(ctx, status)
	case status == http.StatusOK:
		return Alive
	}
	return Unknown
}

// model returns a model that ep serves.
func (p *Prober) model(ctx context.Context, ep *endpoint.Endpoint) (string, error) {
	if name := ep.Base(); name != "" {
		return name, nil
	}
	p.mu.Lock()
	name := p.models[ep.Address]
	p.mu.Unlock()
	if name != "" {
		return name, nil
	}
	_, body, err := p.do(ctx, http.MethodGet, ep, "/v1/models", nil)
	if err != nil {
		return "", err
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if json.Unmarshal(body, &list) == nil && len(list.Data) > 0 {
		name = list.Data[0].ID
		p.mu.Lock()
		if len(p.models) > maxModels {
			clear(p.models)
		}
		p.models[ep.Address] = name
		p.mu.Unlock()
	}
	return name, nil
}

const maxModels = 4096

func (p *Prober) do(ctx context.Context, method string, ep *endpoint.Endpoint, path string, body []byte) (int, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, p.scheme+"://"+ep.Address+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "grapevine-probe")
	resp, err := p.client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxProbeAnswer))
	return resp.StatusCode, answer, err
}

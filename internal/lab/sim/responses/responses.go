package responses

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	path = "/v1/responses"
	chat = "/v1/chat/completions"
	most = 4096 // responses that are kept
)

// Status of a response.
const (
	queued    = "queued"
	progress  = "in_progress"
	completed = "completed"
	cancelled = "cancelled"
	failed    = "failed"
)

// Handler serves the Responses API and passes other requests to next.
type Handler struct {
	ctx  context.Context // ends with the engine's incarnation
	next http.Handler
	head http.Header // of all answers
	runs sync.WaitGroup

	mu    sync.Mutex
	kept  map[string]*response
	order []string // oldest first
}

// New returns the handler of one incarnation of an engine, which ends with ctx. All responses carry
// the headers in head.
func New(ctx context.Context, next http.Handler, head http.Header) *Handler {
	return &Handler{ctx: ctx, next: next, head: head, kept: map[string]*response{}}
}

// Wait waits for background responses. It does nothing on a nil Handler.
func (h *Handler) Wait() {
	if h != nil {
		h.runs.Wait()
	}
}

type message struct {
	Role    string `json:"role"`
	Content any    `json:"content"`
}

type part struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type item struct {
	Type    string `json:"type"`
	ID      string `json:"id"`
	Role    string `json:"role"`
	Content []part `json:"content"`
}

// response is a stored response as clients see it.
type response struct {
	ID         string          `json:"id"`
	Object     string          `json:"object"`
	Created    int64           `json:"created_at"`
	Status     string          `json:"status"`
	Model      string          `json:"model"`
	Background bool            `json:"background"`
	Previous   string          `json:"previous_response_id,omitempty"`
	Output     []item          `json:"output"`
	Usage      json.RawMessage `json:"usage,omitempty"`
	KV         json.RawMessage `json:"kv_transfer_params,omitempty"`

	asked   json.RawMessage // the KV transfer of the request
	history []message       // up to it
	cancel  context.CancelFunc
}

// ask is the body of a request.
type ask struct {
	Model      string          `json:"model"`
	Input      json.RawMessage `json:"input"`
	Stream     bool            `json:"stream"`
	Store      *bool           `json:"store"`
	Background bool            `json:"background"`
	Previous   string          `json:"previous_response_id"`
	MaxTokens  int             `json:"max_output_tokens"`
	KV         json.RawMessage `json:"kv_transfer_params"`
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	maps.Copy(w.Header(), h.head)
	rest, ok := strings.CutPrefix(r.URL.Path, path)
	if !ok || rest != "" && rest[0] != '/' {
		h.next.ServeHTTP(w, r)
		return
	}
	id, action, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	switch {
	case id == "" && r.Method == http.MethodPost:
		h.create(w, r)
	case id != "" && r.Method == http.MethodGet && action == "":
		h.show(w, id, func(*response) {})
	case id != "" && r.Method == http.MethodPost && action == "cancel":
		h.show(w, id, func(p *response) {
			if p.cancel != nil {
				p.cancel()
				p.Status = cancelled
			}
		})
	default:
		fail(w, http.StatusMethodNotAllowed, "Method Not Allowed")
	}
}

func (h *Handler) show(w http.ResponseWriter, id string, change func(*response)) {
	h.mu.Lock()
	p := h.kept[id]
	if p != nil {
		change(p)
	}
	h.mu.Unlock()
	if p == nil {
		notFound(w, id)
		return
	}
	send(w, http.StatusOK, h.text(p))
}

// text returns the JSON of a response.
func (h *Handler) text(p *response) json.RawMessage {
	h.mu.Lock()
	defer h.mu.Unlock()
	b, _ := json.Marshal(p) // it is plain
	return b
}

func (h *Handler) create(w http.ResponseWriter, r *http.Request) {
	var q ask
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<20)).Decode(&q); err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	talk, ok := h.conversation(&q)
	if !ok {
		notFound(w, q.Previous)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	if q.Background {
		cancel()
		ctx, cancel = context.WithCancel(h.ctx)
	}
	p := &response{
		ID: "resp_" + strings.ToLower(rand.Text()), Object: "response", Created: time.Now().Unix(), Status: progress,
		Model: q.Model, Background: q.Background, Previous: q.Previous, Output: []item{}, asked: q.KV, history: talk, cancel: cancel,
	}
	if q.Background {
		p.Status = queued
	}
	if q.Store == nil || *q.Store {
		h.keep(p)
	}
	if q.Background {
		send(w, http.StatusOK, h.text(p))
		h.runs.Go(func() {
			defer cancel()
			h.compute(ctx, r, p, q.MaxTokens)
		})
		return
	}
	defer cancel()
	if !q.Stream {
		if a := h.compute(ctx, r, p, q.MaxTokens); a.status != http.StatusOK {
			a.copyTo(w)
			return
		}
		send(w, http.StatusOK, h.text(p))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	event := func(kind string, more map[string]any) {
		more["type"] = kind
		b, _ := json.Marshal(more) // strings and numbers
		_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, b)
		_ = http.NewResponseController(w).Flush()
	}
	event("response.created", map[string]any{"response": h.text(p)})
	if a := h.compute(ctx, r, p, q.MaxTokens); a.status != http.StatusOK {
		event("response.failed", map[string]any{"response": h.text(p)})
		return
	}
	event("response.output_text.delta", map[string]any{"delta": p.Output[0].Content[0].Text})
	event("response.completed", map[string]any{"response": h.text(p)})
}

// talk returns the messages of a request, preceded by the messages of the response that it
// continues.
func (h *Handler) conversation(q *ask) (conversation []message, ok bool) {
	if q.Previous != "" {
		h.mu.Lock()
		defer h.mu.Unlock()
		p := h.kept[q.Previous]
		if p == nil {
			return nil, false
		}
		conversation = append(conversation, p.history...)
		for _, o := range p.Output {
			conversation = append(conversation, message{o.Role, o.Content[0].Text})
		}
	}
	var list []message
	var text string
	if json.Unmarshal(q.Input, &text) == nil {
		list = []message{{"user", text}}
	} else if json.Unmarshal(q.Input, &list) != nil {
		return conversation, true
	}
	return append(conversation, list...), true
}

func (h *Handler) keep(p *response) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept[p.ID] = p
	if h.order = append(h.order, p.ID); len(h.order) > most {
		delete(h.kept, h.order[0])
		h.order = h.order[1:]
	}
}

// compute has the engine answer the chat that p is.
func (h *Handler) compute(ctx context.Context, r *http.Request, p *response, tokens int) *recorder {
	body := map[string]any{"model": p.Model, "messages": p.history}
	if tokens > 0 {
		body["max_tokens"] = tokens
	}
	if p.asked != nil {
		body["kv_transfer_params"] = p.asked
	}
	b, _ := json.Marshal(body) // it was JSON
	sub := r.Clone(ctx)
	sub.Method, sub.Body, sub.ContentLength = http.MethodPost, http.NoBody, int64(len(b))
	sub.URL.Path, sub.RequestURI = chat, chat
	sub.Body = readCloser{bytes.NewReader(b)}
	a := &recorder{header: http.Header{}}
	func() {
		defer func() {
			if e := recover(); e != nil && (!p.Background || e != http.ErrAbortHandler) { //nolint:errorlint // what was panicked with, not an error
				panic(e)
			}
		}()
		h.next.ServeHTTP(a, sub)
	}()
	var out struct {
		Choices []struct{ Message struct{ Content string } }
		Usage   json.RawMessage
		KV      json.RawMessage `json:"kv_transfer_params"`
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	p.cancel = nil
	switch {
	case p.Status == cancelled:
	case a.status != http.StatusOK || json.Unmarshal(a.body.Bytes(), &out) != nil || len(out.Choices) == 0:
		p.Status = failed
	default:
		p.Status, p.Usage, p.KV = completed, out.Usage, out.KV
		p.Output = []item{{"message", "msg_" + p.ID[len("resp_"):], "assistant", []part{{"output_text", out.Choices[0].Message.Content}}}}
	}
	return a
}

func notFound(w http.ResponseWriter, id string) {
	fail(w, http.StatusNotFound, fmt.Sprintf("Response with id '%s' not found.", id))
}

func fail(w http.ResponseWriter, status int, text string) {
	send(w, status, map[string]any{"error": map[string]any{"message": text, "type": "invalid_request_error", "code": status}})
}

func send(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client is gone
}

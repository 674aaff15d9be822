package sim

import (
	"context"
	"errors"
	"math"
	"net/http"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/sim/core"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/faults"
)

// call is one inference request being answered.
type call struct {
	w    *responder
	p    *params
	seqs []*sequence
	core *core.Core
	head reply // id, object, created, model
	chat bool

	engine  *Engine
	prompts []prompt

	cut      bool // the answer lacks its second half
	twice    bool // every event is sent twice
	cutAfter int  // tokens of a sequence, after which a stream breaks off
}

func (e *Engine) completions(w *responder, r *http.Request) { e.infer(w, r, false) }
func (e *Engine) chat(w *responder, r *http.Request)        { e.infer(w, r, true) }

func (e *Engine) infer(w *responder, r *http.Request, chat bool) {
	body, fail := w.body(r)
	if fail != nil {
		w.fail(fail)
		return
	}
	if status := e.faults.refuse(body); status != 0 {
		w.fail(&apiError{status, errInternal, "simulated fault", ""})
		return
	}
	after, cut := e.faults.reset()
	if e.dies(body) || cut && after == 0 {
		w.abort()
		return
	}
	if time.Now().Before(w.st.ready) {
		w.fail(&apiError{http.StatusServiceUnavailable, errUnavailable, "the engine is starting", ""})
		return
	}
	if e.faults.garbage() {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("<html>simulated"))
		return
	}
	c, err := e.begin(w, r, body, chat)
	if c != nil && e.opt.OnDone != nil {
		defer e.opt.OnDone(r.Header)
	}
	if err != nil {
		if c != nil {
			c.notify() // the blocks of a refused request are never read
		}
		w.fail(asAPIError(err))
		return
	}
	switch wrong := e.Faults().Answer; {
	case wrong == faults.AnswerAbort, wrong == faults.AnswerEmpty:
		c.hollow(wrong)
		return
	case wrong == faults.AnswerError, wrong == faults.AnswerNothing, wrong == faults.AnswerHTML, wrong == faults.AnswerBytes, wrong == faults.AnswerLength:
		c.notify()
		c.nonsense(wrong)
		return
	case wrong == faults.AnswerHalf && !c.p.Stream:
		c.half(r.Context())
		return
	case wrong == faults.AnswerModel:
		c.head.Model = "another-model"
	case wrong == faults.AnswerNoise:
		c.repeat()
	case wrong == faults.AnswerCut:
		c.halve()
	case wrong == faults.AnswerTwice:
		c.twice = true
	}
	if e.opt.PD != nil && !c.kvTransfer(r.Context()) {
		return
	}
	if c.cutAfter = math.MaxInt; cut {
		c.cutAfter = after
	}
	for _, s := range c.seqs {
		c.core.Submit(s.job)
	}
	defer func() {
		for _, s := range c.seqs {
			c.core.Abort(s.job)
		}
	}()
	var answered bool
	if c.p.Stream {
		answered = c.stream(r.Context())
	} else {
		answered = c.whole(r.Context())
	}
	if !answered { // the client must not treat a partial response as complete
		panic(http.ErrAbortHandler)
	}
}

func (e *Engine) begin(w *responder, r *http.Request, body []byte, chat bool) (*call, error) {
	p, prompts, err := e.parse(body, chat)
	if err != nil {
		return nil, err
	}
	if e.opt.OnRequest != nil {
		e.opt.OnRequest(r.Header)
	}
	c := &call{w: w, p: p, chat: chat, engine: e, prompts: prompts}
	if e.opt.PD == nil {
		p.KV = nil
	}
	if c.seqs, err = e.plan(p, prompts, chat); err != nil {
		return c, err
	}
	if c.core, err = w.st.pick(r.Header.Get(headerRank)); err != nil {
		return c, err
	}
	id := r.Header.Get(headerRequestID)
	if id == "" {
		id = sumText(checksum(body))
	}
	c.head = reply{ID: "cmpl-" + id, Object: objectCompletion, Created: e.opt.Created, Model: p.Model}
	if chat {
		c.head.ID, c.head.Object = "chatcmpl-"+id, objectChat
	}
	if c.head.Created == 0 {
		c.head.Created = time.Now().Unix()
	}
	if p.Model == "" {
		c.head.Model = e.opt.Model
	}
	return c, nil
}

func asAPIError(err error) *apiError {
	var api *apiError
	if errors.As(err, &api) {
		return api
	}
	return badRequest("", "%v", err)
}

// usage sums up after every sequence has ended.
func (c *call) usage() *usage {
	u := &usage{Details: &usageDetails{}}
	var counted *prompt
	for _, s := range c.seqs {
		tokens, cached, _, _ := s.job.State()
		u.CompletionTokens += tokens
		if s.prompt != counted { // choices share their prompt
			counted = s.prompt
			u.PromptTokens += len(s.prompt.tokens)
			u.Details.CachedTokens += cached
		}
	}
	if h := c.p.KV; h.pulls() && h.Cached != nil {
		u.Details.CachedTokens = *h.Cached
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	return u
}

// whole waits for every sequence and answers at once; it returns false when
// client or engine went away.
func (c *call) whole(ctx context.Context) bool {
	for _, s := range c.seqs {
		for {
			_, _, over, err := s.job.State()
			if err != nil {
				return c.failed(err)
			}
			if over {
				break
			}
			select {
			case <-s.job.Notify:
			case <-ctx.Done():
				return false
			}
		}
	}
	r := c.head
	r.Usage = c.usage()
	if c.cut {
		return c.truncated(r)
	}
	for _, s := range c.seqs {
		r.Choices = append(r.Choices, c.choice(s))
	}
	if c.chat && c.p.ReturnTokenIDs {
		r.PromptTokenIDs = c.seqs[0].prompt.tokens
	}
	if c.p.KV.prefills() {
		r.KV = c.offer()
	}
	c.w.send(http.StatusOK, r)
	return true
}

func (c *call) choice(s *sequence) choice {
	text := string(s.text)
	ch := choice{Index: s.index, FinishReason: &s.finish}
	if c.p.ReturnTokenIDs {
		ch.TokenIDs = s.output
	}
	if c.chat {
		ch.Message = &message{Role: "assistant", Content: text, ToolCalls: []struct{}{}}
		return ch
	}
	if c.p.Echo {
		text = string(s.prompt.text) + text
	}
	if c.p.ReturnTokenIDs {
		ch.PromptTokenIDs = s.prompt.tokens
	}
	ch.Text = &text
	return ch
}

// failed answers for a job that did not end well.
func (c *call) failed(err error) bool {
	if errors.Is(err, core.ErrStopped) {
		return false
	}
	c.w.fail(badRequest("", "%v", err)) // the core refused it
	return true
}

package sim

import (
	"context"
	"errors"
	"net/http"

	"github.com/grapevine-epp/grapevine/internal/lab/answer"
	"github.com/grapevine-epp/grapevine/internal/lab/blockhash"
)

// kvTransfer performs the KV transfer that the request asks for before it is computed. On failure it
// sends the error response and returns false.
func (c *call) kvTransfer(ctx context.Context) bool {
	if c.p.KV.prefills() {
		c.keepFor()
	}
	first := &c.prompts[0]
	extra := blockhash.Extra{Salt: c.p.CacheSalt}
	right := true
	if c.p.KV.pulls() {
		var err error
		right, err = c.pull(ctx, first, extra)
		switch {
		case errors.Is(err, errKilled):
			c.engine.die()
			panic(http.ErrAbortHandler)
		case err != nil && !errors.Is(err, errLoad):
			panic(http.ErrAbortHandler) // the client is gone
		case err != nil && c.engine.opt.PD.Recompute:
			return true
		case err != nil:
			c.loadFailed()
			return false
		}
	}
	names := c.engine.opt.Namer.Append(nil, first.tokens, c.engine.opt.Core.BlockSize, extra)
	if !right && len(names) > 0 {
		c.w.st.spoiled.Store(names[0], true)
	}
	if _, spoiled := c.w.st.spoiled.Load(first0(names)); spoiled && right && !c.p.KV.pulls() {
		right = c.core.Cached(names[:1]) == 0
	}
	if !right {
		c.spoil()
	}
	for _, s := range c.seqs {
		s.job.Req.Remote = c.p.KV.pulls()
	}
	return true
}

func first0(names []uint64) any {
	if len(names) == 0 {
		return nil
	}
	return names[0]
}

// spoil replaces the responses by the responses to another prompt.
func (c *call) spoil() {
	for i := range c.prompts {
		c.prompts[i].seed ^= answer.Seed(0xbadbadbadbad)
	}
	if seqs, err := c.engine.plan(c.p, c.prompts, c.chat); err == nil {
		c.seqs = seqs
	}
}

// loadFailed answers for blocks that did not come: with 500, or within a stream that
// has begun.
func (c *call) loadFailed() {
	if !c.p.Stream {
		c.w.fail(&apiError{http.StatusInternalServerError, errInternal, "Internal server error", ""})
		return
	}
	c.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	c.w.WriteHeader(http.StatusOK)
	if c.chat {
		c.head.Object = objectChunk
		c.opening(c.seqs[0])
	}
	_, _ = c.w.Write([]byte(`data: {"error":{"message":"Internal server error","type":"InternalServerError","param":null,"code":500}}` + "\n\ndata: [DONE]\n\n"))
}

// die ends the engine permanently, as a failed assertion does.
func (e *Engine) die() {
	e.background(func() { _ = e.down(false) }) // its listener may be closed already
}

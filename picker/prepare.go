package picker

import (
	"context"
	"time"

	"github.com/grapevine-epp/grapevine/internal/tracing"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Prompts computes the data by which a request's prompt is matched. Its methods are safe for
// concurrent use.
type Prompts interface {
	// Fill sets Adapter, Exact, Chunks.Root, ChunkKeys, PromptBytes and InputTokens of a parsed
	// request. It may call an engine to render the prompt, within ctx.
	Fill(ctx context.Context, r *request.Request)
	// Release returns the buffers behind r.Exact, which is empty afterwards.
	Release(r *request.Request)
}

// Matcher returns the part of a prompt that each endpoint holds, and is notified of decisions. It
// does not change requests. Its methods are safe for concurrent use.
type Matcher interface {
	// Match implements [cycle.Match].
	Match(ctx context.Context, r *request.Request, eps []*endpoint.Endpoint, held []cycle.PrefixMatch)
	// Chosen reports that r was sent to ep, so that its blocks will soon be cached there.
	Chosen(r *request.Request, ep *endpoint.Endpoint)
	// Finished reports the end of r at ep. h is the result of Match for ep, or zero if the request
	// moved to an endpoint that was not matched.
	Finished(r *request.Request, ep *endpoint.Endpoint, h cycle.PrefixMatch, o request.Outcome)
}

// prepared is a request with the inputs of its decision: the candidates and its rendered prompt.
// The prompt is matched with their caches when a plugin first asks.
type prepared struct {
	cleared
	cycle *cycle.Cycle // must be returned with free
}

// prepare renders the prompt and opens the request's cycle.
func (s *Scheduler) prepare(ctx context.Context, cl cleared, now time.Time) prepared {
	r := cl.request
	if s.opts.Prompts != nil {
		span := r.Trace.Start(tracing.SpanRender)
		s.opts.Prompts.Fill(ctx, r)
		tracePrompt(span, r)
	}
	return prepared{cl, cycle.New(cycle.Options{
		Context: ctx, Pool: s.opts.Pool, Match: s.match, Sessions: s.opts.Sessions, Now: now, Seed: cl.seed, Tiers: cl.rules.Tiers,
		Harmful: s.isSuspect(r, now), WarmUps: s.mayWarmUp(r), ByPriority: cl.rules.Urgency != nil && !cl.rules.Propagates,
	}, r)}
}

// isSuspect reports whether several engines failed on r's prompt, or one died while it was in
// flight.
func (s *Scheduler) isSuspect(r *request.Request, now time.Time) bool {
	return !s.prompts.Empty() && s.prompts.Suspected(r.PromptKey(), now)
}

// free returns the cycle, and the buffers that prepare borrowed for the prompt.
func (s *Scheduler) free(p prepared) {
	p.cycle.Free()
	if s.opts.Prompts != nil {
		s.opts.Prompts.Release(p.request)
	}
}

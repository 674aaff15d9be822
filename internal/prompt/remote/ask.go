package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/grapevine-epp/grapevine/internal/prompt"
	"github.com/grapevine-epp/grapevine/internal/prompt/value"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Route is an endpoint of an engine that returns the tokens of a chat.
type Route string

// Routes, the most reliable first.
const (
	// RouteRender renders a request without executing it.
	RouteRender Route = "render"
	// RouteGenerate generates one token and returns the prompt's tokens. vLLM supports it without
	// flags.
	RouteGenerate Route = "generate"
	// RouteTokenize counts a chat's tokens.
	RouteTokenize Route = "tokenize"
)

// Errors of Engine.Tokens in addition to connection errors.
var (
	// ErrNoRoute: the engine has no route that returns the tokens of a chat.
	ErrNoRoute = errors.New("remote: the engine does not tell what it makes of a chat")
	// ErrRefused: the engine rejects the chat.
	ErrRefused = errors.New("remote: the engine refuses the chat")
	// ErrBusy: the only route would generate a token, and the engine has queued requests.
	ErrBusy = errors.New("remote: the engine is busy")
)

// maxProbeAnswer bounds an engine's answer to a fixed chat.
const maxProbeAnswer = 1 << 20

// Engine is an engine that can render fixed chats.
type Engine struct {
	URL    string // http://host:port
	Kind   endpoint.EngineType
	As     prompt.Profile // its rendering profile
	Busy   bool           // do not use RouteGenerate
	Client *http.Client
}

// Tokens returns the engine's tokens for a chat, from the first supported route. SGLang's tokenize
// route uses the same code as its chats; for vLLM, generating a token is more reliable. Other
// engines are not asked to generate, because they may not return the prompt's tokens.
func (e *Engine) Tokens(ctx context.Context, model string, c Chat) ([]uint32, Route, error) {
	ids, err := e.post(ctx, pathRender, c.Body(model))
	if err == nil || !errors.Is(err, ErrNoRoute) {
		return ids, RouteRender, err
	}
	if e.Kind == endpoint.EngineVLLM {
		if e.Busy {
			return nil, RouteGenerate, ErrBusy
		}
		ids, err = e.post(ctx, "/v1/chat/completions", c.with(model, `,"max_tokens":1,"temperature":0,"return_token_ids":true`))
		if err == nil || !errors.Is(err, ErrNoRoute) {
			return ids, RouteGenerate, err
		}
	}
	if c.Tools && e.Kind != endpoint.EngineSGLang {
		return nil, "", ErrNoRoute // only SGLang's tokenize route is known to support tools
	}
	ids, err = e.post(ctx, "/tokenize", c.with(model, `,"add_generation_prompt":true`))
	return ids, RouteTokenize, err
}

func (e *Engine) post(ctx context.Context, path string, body []byte) ([]uint32, error) {
	status, data, err := e.do(ctx, http.MethodPost, path, body)
	switch {
	case err != nil:
		return nil, err
	case status == http.StatusOK:
		if ids := probeIDs(data); len(ids) > 0 {
			return ids, nil
		}
		return nil, ErrNoRoute
	case status == http.StatusBadRequest, status == http.StatusUnprocessableEntity:
		return nil, ErrRefused
	case status < http.StatusInternalServerError && status != http.StatusTooManyRequests, status == http.StatusNotImplemented:
		return nil, ErrNoRoute
	}
	return nil, fmt.Errorf("remote: %s is answered with status %d", path, status)
}

// do sends a request and returns a bounded response.
func (e *Engine) do(ctx context.Context, method, path string, body []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, e.URL+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "grapevine-probe")
	resp, err := e.Client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxProbeAnswer+1))
	if err == nil && len(data) > maxProbeAnswer {
		err = fmt.Errorf("remote: %s is answered with more than %d bytes", path, maxProbeAnswer)
	}
	return resp.StatusCode, data, err
}

// probeIDs returns a prompt's token ids from the response of any route, nil if there are none.
func probeIDs(data []byte) []uint32 {
	dec := value.Decoder{PackIDs: true}
	v, err := dec.Decode(data)
	if err != nil {
		return nil
	}
	if _, ids := findIDs(v, 0); ids != nil {
		return ids
	}
	if d := v.Dict(); d != nil {
		if v, ok := d.Get("tokens"); ok && v.Kind() == value.KindIDs {
			return v.IDs()
		}
	}
	return nil
}

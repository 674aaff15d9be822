package workload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/grapevine-epp/grapevine/internal/lab/answer"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
)

// ErrWrong is wrapped by errors of answers that differ from the expected answer.
var ErrWrong = errors.New("workload: wrong answer")

// Client sends turns and checks answers.
type Client struct {
	// URL is the base URL, such as "http://127.0.0.1:8080". The path of the turn is appended.
	URL string
	// HTTP is the HTTP client. The default has its own keep-alive connections.
	HTTP *http.Client
	// Header is added to every request; SessionHeader carries the session's key
	// when it is set.
	Header        http.Header
	SessionHeader string
	// Rewritten permits changes of request bodies on the way to engines.
	Rewritten bool

	words *vocab.Vocabulary
}

// NewClient returns a client with up to conns connections.
func NewClient(url string, conns int) *Client {
	return &Client{URL: url, words: vocab.New(), HTTP: &http.Client{Transport: &http.Transport{
		MaxIdleConns: conns, MaxIdleConnsPerHost: conns, IdleConnTimeout: 20 * time.Second, DisableCompression: true,
	}}}
}

// Close closes idle connections.
func (c *Client) Close() { c.HTTP.CloseIdleConnections() }

// Outcome is the result of one request.
type Outcome struct {
	Err     error // nil for a complete and correct answer
	Wrong   bool  // Err wraps ErrWrong
	Aborted bool  // the context ended first
	Status  int
	Engine  string // serving engine
	Text    string

	TTFT    time.Duration // to the first token of a stream
	TPOT    time.Duration // per token after the first, of a stream
	Latency time.Duration

	PromptTokens, CachedTokens, OutputTokens int
}

// Do sends a turn and reads its answer.
func (c *Client) Do(ctx context.Context, t *Turn) *Outcome {
	begun := time.Now()
	o := &Outcome{}
	err := c.do(ctx, t, o, begun)
	o.Latency = time.Since(begun)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		o.Aborted = errors.Is(ctx.Err(), context.Canceled)
		o.Err = ctx.Err()
	default:
		o.Err, o.Wrong = fmt.Errorf("%s turn %d (status %d, engine %q): %w", t.Session, t.Number, o.Status, o.Engine, err), errors.Is(err, ErrWrong)
	}
	return o
}

func (c *Client) do(ctx context.Context, t *Turn, o *Outcome, begun time.Time) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+t.Path, bytes.NewReader(t.Body))
	if err != nil {
		return err
	}
	for k, v := range c.Header {
		req.Header[k] = v
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(sim.HeaderVerify, "1")
	if c.SessionHeader != "" {
		req.Header.Set(c.SessionHeader, t.Session)
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	o.Status, o.Engine = resp.StatusCode, resp.Header.Get(sim.HeaderEngine)
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
		return fmt.Errorf("workload: status %d: %s", resp.StatusCode, body)
	}
	if got, want := resp.Header.Get(sim.HeaderRequestSum), fmt.Sprintf("%016x", xxhash.Sum64(t.Body)); got != want && !c.Rewritten {
		return fmt.Errorf("%w: the engine read a body with checksum %s, sent was %s", ErrWrong, got, want)
	}
	if t.Stream {
		err = readStream(resp.Body, o, begun)
	} else {
		err = readWhole(resp.Body, resp.Header.Get(sim.HeaderResponseSum), o)
	}
	if err != nil {
		return err
	}
	return c.check(t, o)
}

// check compares the answer with the expected one.
func (c *Client) check(t *Turn, o *Outcome) error {
	if err := answer.Check(c.words, t.Seed, o.Text); err != nil {
		return fmt.Errorf("%w: %w", ErrWrong, err)
	}
	if o.OutputTokens != t.Answer || o.Text == "" {
		return fmt.Errorf("%w: %d tokens, %d asked for, %d bytes of text", ErrWrong, o.OutputTokens, t.Answer, len(o.Text))
	}
	return nil
}

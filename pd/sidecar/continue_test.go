package sidecar

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/grapevine-epp/grapevine/pd/signed"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// parted are engines by host. Each answers with its stream, whose end is an error.
type parted struct {
	mu       sync.Mutex
	answers  map[string]func(*http.Request) (*http.Response, error)
	requests []string // host and body
	headers  []http.Header
	lives    bool // engine one answers health checks
}

// RoundTrip implements http.RoundTripper.
func (p *parted) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path == "/health" && p.lives {
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	}
	if r.URL.Path == "/health" {
		return nil, syscall.ECONNREFUSED
	}
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		r.Body.Close()
	}
	p.mu.Lock()
	p.requests = append(p.requests, r.URL.Host+" "+string(body))
	p.headers = append(p.headers, r.Header)
	p.mu.Unlock()
	return p.answers[r.URL.Host](r)
}

// breaks returns an answer with a stream that ends with an error.
func breaks(stream string, err error) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) {
		h := http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}}
		return &http.Response{StatusCode: http.StatusOK, Header: h, ContentLength: -1, TransferEncoding: []string{"chunked"}, Body: io.NopCloser(io.MultiReader(strings.NewReader(stream), failing{err}))}, nil
	}
}

type failing struct{ error }

// Read implements io.Reader.
func (f failing) Read([]byte) (int, error) { return 0, f.error }

func refuses(*http.Request) (*http.Response, error) { return nil, syscall.ECONNREFUSED }

func busy(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: http.NoBody}, nil
}

// tokens is an event with one token of engine id.
func tokens(id, prompt, ids, text, finish string) string {
	return fmt.Sprintf(`data: {"id":"cmpl-%s","created":1%s,"model":"m","choices":[{"index":0,"text":"%s","finish_reason":%s,"token_ids":%s,"prompt_token_ids":%s}]}`+"\n\n", id, id, text, finish, ids, prompt)
}

const (
	failedEvent = `data: {"error":{"message":"EngineCore encountered an issue","type":"InternalServerError","param":null,"code":500}}` + "\n\n"
)

var (
	firstPart  = tokens("1", "[5]", "[7]", "b", "null") + tokens("1", "null", "[8]", "c", "null")
	secondPart = tokens("2", "[5,7,8]", "[9]", "d", "null") + tokens("2", "null", "[10]", "e", `"stop"`) + doneEvent
	firstSent  = tokens("1", "null", "null", "b", "null") + tokens("1", "null", "null", "c", "null")
	wholeSent  = firstSent + tokens("1", "null", "null", "d", "null") +
		strings.Replace(tokens("1", "null", "null", "e", `"stop"`), "}]}", `}],"grapevine_continued":{"after_tokens":2}}`, 1) + doneEvent
)

// play sends a streamed completion through a sidecar and returns what the client got.
func (p *parted) play(t *testing.T, s *Server, others string, more ...string) (text string, aborted bool) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(`{"model":"m","prompt":"a","stream":true,"temperature":0,"max_tokens":9}`))
	if others != "" {
		r.Header.Set(request.HeaderContinuation, others)
	}
	for i := 0; i+1 < len(more); i += 2 {
		r.Header.Set(more[i], more[i+1])
	}
	w := httptest.NewRecorder()
	defer func() {
		text = w.Body.String()
		if err := recover(); err != nil {
			if cause, ok := err.(error); !ok || !errors.Is(cause, http.ErrAbortHandler) {
				panic(err)
			}
			aborted = true
		}
	}()
	s.ServeHTTP(w, r)
	return "", false
}

func (p *parted) server(t *testing.T, o Options) *Server {
	t.Helper()
	o.Engine, o.Transport = "http://one", p
	o.ReturnWait, o.DeathWait = 100*time.Millisecond, 100*time.Millisecond
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// reason returns the only reason for which streams were not continued, "" if there is none.
func (s *Server) reason(t *testing.T) (reason string) {
	t.Helper()
	for _, r := range []string{"api", "field", "sampling", "content", "tokens", "large", "finished", "endpoint", "suspect", "refused", "differs", "broken"} {
		switch testutil.ToFloat64(s.continuing.refused.WithLabelValues(r)) {
		case 0:
		case 1:
			reason += r
		default:
			t.Errorf("reason %s was counted more than once", r)
		}
	}
	return reason
}

func TestContinueStream(t *testing.T) {
	const asked = `one {"model":"m","prompt":"a","stream":true,"temperature":0,"max_tokens":9,"return_token_ids":true}`
	const again = ` {"model":"m","prompt":[5,7,8],"stream":true,"temperature":0,"max_tokens":7,"return_token_ids":true}`
	reset := errors.New("connection reset")
	type answer = func(*http.Request) (*http.Response, error)
	for name, c := range map[string]struct {
		first, second, third answer
		want                 string
		aborted              bool
		reason               string
		requests             []string
	}{
		"the engine vanishes":             {first: breaks(firstPart, reset), second: breaks(secondPart, io.EOF), want: wholeSent, requests: []string{asked, "two" + again}},
		"it vanishes within an event":     {first: breaks(firstPart+secondPart[:30], reset), second: breaks(secondPart, io.EOF), want: wholeSent, requests: []string{asked, "two" + again}},
		"its stream ends without the end": {first: breaks(firstPart, io.EOF), second: breaks(secondPart, io.EOF), want: wholeSent, requests: []string{asked, "two" + again}},
		"the second cannot be reached":    {first: breaks(firstPart, reset), second: refuses, third: breaks(secondPart, io.EOF), want: wholeSent, requests: []string{asked, "two" + again, "three" + again}},
		"the second has no room":          {first: breaks(firstPart, reset), second: busy, third: breaks(secondPart, io.EOF), want: wholeSent, requests: []string{asked, "two" + again, "three" + again}},
		"nobody can be reached":           {first: breaks(firstPart, reset), second: refuses, third: busy, want: firstSent, aborted: true, reason: "refused", requests: []string{asked, "two" + again, "three" + again}},
		"a clean end that is none":        {first: breaks(firstPart, io.EOF), second: refuses, third: busy, want: firstSent, aborted: true, reason: "refused", requests: []string{asked, "two" + again, "three" + again}},
		"the second vanishes at once":     {first: breaks(firstPart, reset), second: breaks("", reset), want: firstSent, aborted: true, reason: "refused", requests: []string{asked, "two" + again}},
		"the second vanishes too":         {first: breaks(firstPart, reset), second: breaks(tokens("2", "[5,7,8]", "[9]", "d", "null")+"data: {", reset), want: firstSent + tokens("1", "null", "null", "d", "null"), aborted: true, reason: "broken", requests: []string{asked, "two" + again}},
		"the second has other tokens":     {first: breaks(firstPart, reset), second: breaks(tokens("2", "[5,7]", "[9]", "d", "null"), io.EOF), want: firstSent, aborted: true, reason: "differs", requests: []string{asked, "two" + again}},
		"no token ids":                    {first: breaks(firstSent, reset), want: firstSent, aborted: true, reason: "tokens", requests: []string{asked}},
		"the answer is complete":          {first: breaks(firstPart+tokens("1", "null", "[9]", "d", `"stop"`)+doneEvent, io.EOF), want: firstSent + tokens("1", "null", "null", "d", `"stop"`) + doneEvent, requests: []string{asked}},
		"only the end is missing":         {first: breaks(firstPart+tokens("1", "null", "[9]", "d", `"stop"`), reset), want: firstSent + tokens("1", "null", "null", "d", `"stop"`), aborted: true, reason: "finished", requests: []string{asked}},
		"the engine reports an error":     {first: breaks(firstPart+failedEvent+doneEvent, io.EOF), want: firstSent + failedEvent + doneEvent, reason: "suspect", requests: []string{asked}},
		"the request was wrong":           {first: breaks(firstPart+strings.Replace(failedEvent, "500", "400", 1)+doneEvent, io.EOF), want: firstSent + strings.Replace(failedEvent, "500", "400", 1) + doneEvent, requests: []string{asked}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &parted{answers: map[string]func(*http.Request) (*http.Response, error){"one": c.first, "two": c.second, "three": c.third}}
			s := p.server(t, Options{Continue: true})
			text, aborted := p.play(t, s, "two,three")
			if text != c.want || aborted != c.aborted {
				t.Errorf("client got %s\naborted %v, want %s", text, aborted, c.want)
			}
			if fmt.Sprint(p.requests) != fmt.Sprint(c.requests) {
				t.Errorf("requests %q, want %q", p.requests, c.requests)
			}
			continued := 0.
			if strings.Contains(c.want, "grapevine_continued") {
				continued = 1
			}
			if got := testutil.ToFloat64(s.continuing.continued); got != continued || s.reason(t) != c.reason {
				t.Errorf("%v continued, reason %q, want %v, %q", got, s.reason(t), continued, c.reason)
			}
			for i, h := range p.headers {
				if h.Get(request.HeaderContinuation) != "" {
					t.Errorf("request %d has the header that names endpoints", i)
				}
			}
		})
	}
}

// TestContinueOff checks that a sidecar without the option changes nothing.
func TestContinueOff(t *testing.T) {
	p := &parted{answers: map[string]func(*http.Request) (*http.Response, error){"one": breaks(firstPart, io.ErrUnexpectedEOF)}}
	s := p.server(t, Options{})
	text, aborted := p.play(t, s, "two")
	if want := `[one {"model":"m","prompt":"a","stream":true,"temperature":0,"max_tokens":9}]`; text != firstPart || !aborted || fmt.Sprint(p.requests) != want {
		t.Errorf("client got %s, aborted %v, requests %q", text, aborted, p.requests)
	}
}

// TestContinueAllowed checks the rules for endpoints that the request names.
func TestContinueAllowed(t *testing.T) {
	signer, err := signed.NewSigner(make([]byte, 32), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := signed.NewVerifier(time.Now, signer.Public())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		targets   Targets
		others    string
		signature string
		to        string
	}{
		"all":                     {others: "two", to: "two"},
		"named by no picker":      {},
		"listed":                  {targets: Listed{"two": AnyRole}, others: "two", to: "two"},
		"listed to decode":        {targets: Listed{"three": endpoint.RoleDecode}, others: "two,three", to: "three"},
		"listed to prefill":       {targets: Listed{"two": endpoint.RolePrefill}, others: "two"},
		"not listed":              {targets: Listed{}, others: "two"},
		"signed":                  {targets: Signed{Verifier: verifier}, others: "two", signature: signer.SignContinuation("two"), to: "two"},
		"signed, listed":          {targets: Signed{Verifier: verifier, Listed: Listed{"three": AnyRole}}, others: "two,three", signature: signer.SignContinuation("two,three"), to: "three"},
		"not signed":              {targets: Signed{Verifier: verifier}, others: "two"},
		"signed for prefill":      {targets: Signed{Verifier: verifier}, others: "two", signature: signer.Sign("two", "")},
		"signed for another host": {targets: Signed{Verifier: verifier}, others: "two", signature: signer.SignContinuation("three")},
	} {
		t.Run(name, func(t *testing.T) {
			second := breaks(secondPart, io.EOF)
			first := firstPart
			if c.to == "" {
				first = firstSent // such an answer is not asked for token ids
			}
			p := &parted{answers: map[string]func(*http.Request) (*http.Response, error){"one": breaks(first, io.ErrUnexpectedEOF), "two": second, "three": second}}
			s := p.server(t, Options{Continue: true, Targets: c.targets})
			text, _ := p.play(t, s, c.others, request.HeaderContinuationSignature, c.signature)
			if c.to == "" {
				if text != firstSent || len(p.requests) != 1 || strings.Contains(p.requests[0], "return_token_ids") || s.reason(t) != "endpoint" {
					t.Errorf("client got %s, requests %q, reason %q", text, p.requests, s.reason(t))
				}
				return
			}
			if text != wholeSent || len(p.requests) != 2 || !strings.HasPrefix(p.requests[1], c.to+" ") {
				t.Errorf("client got %s, requests %q", text, p.requests)
			}
		})
	}
}

// TestContinueSuspects checks that no stream of an engine is continued that died and reported an error to
// any of them: its prompt may be the cause. If the engine lives, all are continued.
func TestContinueSuspects(t *testing.T) {
	const n = 4
	for _, lives := range []bool{false, true} {
		var arrived, reported sync.WaitGroup
		arrived.Add(n)
		reported.Add(1)
		var count atomic.Int64
		first := func(r *http.Request) (*http.Response, error) {
			resp, err := breaks("", nil)(r)
			parts := io.MultiReader(strings.NewReader(firstPart), waiting{&arrived}, waiting{&reported}, failing{errors.New("connection reset")})
			if count.Add(1) == 1 { // the others break off once the client of this one has got its answer
				parts = io.MultiReader(strings.NewReader(firstPart), waiting{&arrived}, strings.NewReader(failedEvent+doneEvent))
			}
			arrived.Done()
			resp.Body = io.NopCloser(parts)
			return resp, err
		}
		p := &parted{lives: lives, answers: map[string]func(*http.Request) (*http.Response, error){"one": first, "two": breaks(secondPart, io.EOF)}}
		s := p.server(t, Options{Continue: true})
		var wg sync.WaitGroup
		var aborted atomic.Int64
		for i := range n {
			wg.Go(func() {
				r := httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(fmt.Sprintf(`{"model":"m","prompt":"a%d","stream":true,"temperature":0}`, i)))
				r.Header.Set(request.HeaderContinuation, "two")
				w := httptest.NewRecorder()
				defer func() {
					if recover() != nil {
						aborted.Add(1)
					}
				}()
				s.ServeHTTP(w, r)
				if lives == strings.Contains(w.Body.String(), failedEvent) {
					t.Errorf("client got %s", w.Body)
				}
				if lives || strings.Contains(w.Body.String(), failedEvent) {
					reported.Done()
				}
			})
			if lives { // one stream is enough
				arrived.Add(1 - n)
				break
			}
		}
		wg.Wait()
		want := map[bool][3]float64{false: {0, n, n - 1}, true: {1, 0, 0}}[lives]
		got := [3]float64{testutil.ToFloat64(s.continuing.continued), testutil.ToFloat64(s.continuing.refused.WithLabelValues("suspect")), float64(aborted.Load())}
		if got != want {
			t.Errorf("the engine lives %v: %v were continued, suspected, broken off; want %v", lives, got, want)
		}
	}
}

// waiting ends when all have arrived.
type waiting struct{ all *sync.WaitGroup }

// Read implements io.Reader.
func (w waiting) Read([]byte) (int, error) {
	w.all.Wait()
	return 0, io.EOF
}

// TestContinueConnector checks that engines without token ids are refused at the start.
func TestContinueConnector(t *testing.T) {
	for _, c := range []Connector{SGLang, TRTLLM} {
		if _, err := New(Options{Engine: "http://one", Connector: c, Continue: true}); !errors.Is(err, errConnector) {
			t.Errorf("New() with connector %d: %v, want %v", c, err, errConnector)
		}
	}
}

package workload

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
)

// PoisonText is the prompt of [Paced.Poison].
const (
	PoisonText   = "a prompt that kills engines"
	poisonEvery  = 4 * time.Second
	pacedTimeout = 10 * time.Second // about twenty times the duration of an answer
	pacedTokens  = 24
	// TenantText is in the requests of one tenant, a quarter of the load. The others name none.
	TenantText = "a-tenant"
	// ToolText is in requests with tools, a quarter of the load.
	ToolText = "a-tool"
	// LongText is in requests with a long prompt, an eighth of the load.
	LongText = "a long prompt"
	// StreamText is in streamed requests, and WholeText in the others.
	StreamText = `"stream":true`
	WholeText  = `"stream":false`
)

// Paced sends small chats at a steady rate, independent of their answers. Every second one is
// streamed.
type Paced struct {
	url    string
	client *http.Client
	cancel context.CancelFunc
	ctx    context.Context
	wg     sync.WaitGroup

	mu       sync.Mutex
	sent     []pacedRequest
	poisoned time.Time
}

// pacedRequest is one request with its sending time.
type pacedRequest struct {
	at     time.Time
	took   time.Duration // 0 while it runs
	engine string
	err    error
}

// StartPaced sends requests per second to url until Stop.
func StartPaced(url string, rate float64) *Paced {
	l := &Paced{url: url, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.wg.Go(func() {
		tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-l.ctx.Done():
				return
			case <-tick.C:
				l.wg.Go(func() { l.send(n) })
			}
		}
	})
	return l
}

// Stop ends the load and waits for its requests.
func (l *Paced) Stop() {
	l.cancel()
	l.wg.Wait()
	l.client.CloseIdleConnections()
}

// send sends request n and records its end.
func (l *Paced) send(n int) {
	text := fmt.Sprintf("request %d of a load: %s", n, strings.Repeat("some words to compute ", 40))
	if n/2%8 == 1 {
		text += LongText + strings.Repeat(" with more words to compute", 200)
	}
	l.mu.Lock()
	at := len(l.sent)
	l.sent = append(l.sent, pacedRequest{at: time.Now()})
	l.mu.Unlock()
	tenant := ""
	if n/2%4 == 0 {
		tenant = TenantText
	}
	engine, err := l.ask(text, tenant, n%2 == 0, n/2%4 == 2)
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &l.sent[at]
	r.took, r.engine, r.err = time.Since(r.at), engine, err
}

// ask sends one chat and reads its answer.
func (l *Paced) ask(text, tenant string, stream, tools bool) (engine string, err error) {
	ctx, cancel := context.WithTimeout(l.ctx, pacedTimeout)
	defer cancel()
	members := map[string]any{
		"model": vocab.Name, "stream": stream, "max_tokens": pacedTokens, "ignore_eos": true,
		"messages": []map[string]string{{"role": "user", "content": text}},
	}
	if tenant != "" {
		members["user"] = tenant
	}
	if tools {
		members["tools"] = []any{map[string]any{"type": "function", "function": map[string]any{"name": ToolText, "parameters": map[string]any{"type": "object"}}}}
		members["tool_choice"] = "none"
	}
	body, err := json.Marshal(members)
	if err != nil {
		return "", err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := l.client.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	engine = resp.Header.Get(sim.HeaderEngine)
	answer, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return engine, err
	case resp.StatusCode != http.StatusOK:
		return engine, fmt.Errorf("status %d: %.100s", resp.StatusCode, answer)
	case !hasContent.Match(answer):
		return engine, fmt.Errorf("an answer without content: %.100s", answer)
	case !bytes.Contains(answer, []byte(`"model":"`+vocab.Name+`"`)):
		return engine, fmt.Errorf("an answer of another model: %.100s", answer)
	case repeated.Match(answer):
		return engine, fmt.Errorf("an answer of one character: %.100s", answer)
	case !bytes.Contains(answer, []byte(`"finish_reason":"`)):
		return engine, fmt.Errorf("an answer without a finish reason: %d bytes", len(answer))
	case stream && bytes.Count(answer, []byte("data:")) < pacedTokens/2, !stream && !bytes.Contains(answer, fmt.Appendf(nil, `"completion_tokens":%d`, pacedTokens)):
		return engine, fmt.Errorf("a short answer: %d bytes", len(answer))
	case stream && bytes.Count(answer, []byte("data:")) > 2*pacedTokens:
		return engine, fmt.Errorf("a stream with repeated events: %d bytes", len(answer))
	case stream && !bytes.Contains(answer, []byte("[DONE]")):
		return engine, fmt.Errorf("a stream without its end: %d bytes", len(answer))
	}
	return engine, nil
}

// hasContent matches generated text in a chat's answer, streamed or not.
var hasContent = regexp.MustCompile(`"content":"[^"]`)

// repeated matches the text of logits that are not numbers, streamed or not.
var repeated = regexp.MustCompile(`"content":"!("|!!!)`)

// Poison occasionally sends the prompt that kills engines. These requests are not counted.
func (l *Paced) Poison(now time.Time) {
	if now.Sub(l.poisoned) < poisonEvery {
		return
	}
	l.poisoned = now
	l.wg.Go(func() { _, _ = l.ask(PoisonText, "", false, false) })
}

// Span summarizes the requests of a period.
type Span struct {
	Requests, Failed int
	P50, P90         time.Duration // total times of answered requests
	Error            error         // of one failed request
}

// FailedShare returns the share of failed requests.
func (s *Span) FailedShare() float64 {
	if s.Requests == 0 {
		return 0
	}
	return float64(s.Failed) / float64(s.Requests)
}

// Between waits until the requests sent in a period have ended, and summarizes them.
func (l *Paced) Between(from, to time.Time) (s Span) {
	var took []time.Duration
	for i := range l.count() {
		r := l.ended(i)
		if r.at.Before(from) || !r.at.Before(to) {
			continue
		}
		s.Requests++
		if r.err != nil {
			s.Failed++
			s.Error = r.err
			continue
		}
		took = append(took, r.took)
	}
	if n := len(took); n > 0 {
		slices.Sort(took)
		s.P50, s.P90 = took[n/2], took[n*9/10]
	}
	return s
}

func (l *Paced) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.sent)
}

// ended returns request i once it has ended.
func (l *Paced) ended(i int) pacedRequest {
	for {
		l.mu.Lock()
		r := l.sent[i]
		l.mu.Unlock()
		if r.took > 0 {
			return r
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// FirstFrom returns the time from after until the sending time of the first request that the engine
// answered, or 0.
func (l *Paced) FirstFrom(engine string, after time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.sent {
		if r := &l.sent[i]; r.engine == engine && r.err == nil && r.at.After(after) {
			return r.at.Add(r.took).Sub(after)
		}
	}
	return 0
}

package monitor

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
)

// asked is an engine that a Prober probes, with its answer for each path.
type asked struct {
	*Prober
	ep *endpoint.Endpoint

	mu      sync.Mutex
	paths   []string
	answers map[string]http.HandlerFunc
}

// text is a handler that answers with a status and a body.
func text(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

const (
	wellStreamed = "data: {\"choices\":[{\"text\":\"4\"}]}\n\ndata: {\"choices\":[],\"usage\":{}}\n\ndata: [DONE]\n\n"
	completions  = "/v1/completions"
)

func newAsked(t *testing.T) *asked {
	a := &asked{Prober: NewProber("http", nil), answers: map[string]http.HandlerFunc{
		"/v1/models": text(200, `{"data":[{"id":"m"}]}`), "/health": text(200, ""), completions: text(200, wellStreamed),
	}}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		a.paths = append(a.paths, r.URL.Path)
		h := a.answers[r.URL.Path]
		a.mu.Unlock()
		if h == nil {
			h = text(404, `{"detail":"Not Found"}`)
		}
		h(w, r)
	}))
	t.Cleanup(srv.Close)
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	pool.Set([]endpoint.Spec{{Addr: netip.MustParseAddrPort(srv.Listener.Addr().String())}})
	a.ep = pool.Snapshot().Endpoints[0]
	return a
}

// probe probes an engine that answers a path with h. It returns the result and the requested paths.
func (a *asked) probe(path string, h http.HandlerFunc) (Result, string) {
	a.mu.Lock()
	a.answers[path], a.paths = h, nil
	a.mu.Unlock()
	r := a.Probe(context.Background(), a.ep)
	a.mu.Lock()
	defer a.mu.Unlock()
	return r, strings.Join(a.paths, " ")
}

// TestProbe: the results of a probe by its answers.
func TestProbe(t *testing.T) {
	a := newAsked(t)
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		want   Result
	}{
		{"text", text(200, wellStreamed), Passed},
		{"text at once", text(200, `{"object":"text_completion","choices":[{"text":"4"}],"error":null}`), Passed},
		{"500", text(500, "{}"), Denied},
		{"503", text(503, "{}"), NoRoom},
		{"429", text(429, "{}"), Full},
		{"nothing", text(200, ""), Denied},
		{"another program", text(200, "<html>welcome</html>"), Denied},
		{"no choices", text(200, `{"object":"text_completion"}`), Denied},
		{"an error at once", text(200, `{"error":{"message":"EngineCore died"}}`), Denied},
		{"a flat error", text(200, `{"object":"error","message":"died","choices":[{}]}`), Denied},
		{"an error in the stream", text(200, "data: {\"choices\":[{}]}\n\ndata: {\"error\":{\"code\":500}}\n\ndata: [DONE]\n\n"), Denied},
		{"only an end", text(200, "data: [DONE]\n\n"), Denied},
		{"no JSON in the stream", text(200, "data: {\"choices\":[{}]}\n\ndata: oops\n\n"), Denied},
		{"a redirect", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusFound) }, Denied},
		{"no content", text(204, ""), Denied},
		{"a broken connection", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, Denied},
		{"half of an answer", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("data: {\"choices\":[{}]}\n\n"))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, Denied},
		{"no end yet", text(200, "data: {\"choices\":[{}]}\n\n"), Passed},
	} {
		if got, _ := a.probe(completions, c.answer); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	a.ep.Tracker().SetCloses()
	if got, _ := a.probe(completions, text(200, "data: {\"choices\":[{}]}\n\n")); got != Denied {
		t.Errorf("no end, of an engine whose streams have one: %v", got)
	}
	free := make(chan struct{})
	defer close(free)
	if got, _ := a.probe(completions, func(http.ResponseWriter, *http.Request) { <-free }); got != Hung {
		t.Errorf("an engine that hangs: %v", got)
	}
}

// TestProbeAsks: a probe uses a request that the engine can answer. A response that only its HTTP
// server needs to give is no proof that the engine works.
func TestProbeAsks(t *testing.T) {
	a := newAsked(t)
	if got, paths := a.probe(completions, text(200, wellStreamed)); got != Passed || paths != "/v1/models /v1/completions" {
		t.Errorf("at first: %v by %s", got, paths)
	}
	if got, paths := a.probe(completions, text(200, wellStreamed)); got != Passed || paths != "/v1/completions" {
		t.Errorf("again: %v by %s", got, paths)
	}
	const embeddings = "/v1/embeddings"
	if got, paths := a.probe(completions, nil); got != Alive || paths != "/v1/completions /v1/chat/completions /v1/embeddings /health" {
		t.Errorf("of an engine that answers no question: %v by %s", got, paths)
	}
	if got, _ := a.probe("/health", text(503, "")); got != NoRoom {
		t.Errorf("an engine that reports a problem is %v", got)
	}
	if got, _ := a.probe(embeddings, text(200, `{"object":"list","data":[{"embedding":[1,2]}]}`)); got != Passed {
		t.Errorf("of one that embeds: %v", got)
	}
	if got, paths := a.probe(embeddings, text(200, `{"object":"list","data":[{"embedding":[1,2]}]}`)); got != Passed || paths != "/v1/models "+embeddings {
		t.Errorf("of one that embeds, again: %v by %s", got, paths)
	}
}

// FuzzProbeAnswer: any answer of an engine gives a result.
func FuzzProbeAnswer(f *testing.F) {
	for _, s := range []string{wellStreamed, `{"choices":[1]}`, `{"error":{}}`, "data: x", "data:{\"data\":[null]}"} {
		f.Add([]byte(s))
	}
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, b []byte) {
		if read(b, "m", true) == full && read(b, "m", false) != full {
			t.Error("an answer that is one with its end is none without")
		}
	})
}

// TestAliveIsNoProgress: an answer without proof of progress removes no evidence.
func TestAliveIsNoProgress(t *testing.T) {
	r := newRig(t, 1, 2, func(_ int, o *Options) { o.Probe = func(context.Context, *endpoint.Endpoint) Result { return Alive } })
	r.pass(tickEvery, nil, nil)
	p := r.replicas[0]
	ep := p.pool.Snapshot().Endpoints[1]
	var w [2]health.Watch
	for i := range w {
		ep.Tracker().Begin(&w[i], r.now, r.now.Add(time.Second))
	}
	r.pass(4*time.Second, nil, nil)
	if got := r.states(1); got[0] != "out" {
		t.Errorf("an engine that hangs and reports no problem is %v", got)
	}
}

// TestProbeComparesWithAPeer: an endpoint that rejects all probes, or answers them without content,
// is at fault if a peer answers, and not if the peer does the same.
func TestProbeComparesWithAPeer(t *testing.T) {
	hollowStream := "data: {\"choices\":[{\"text\":\"\"}]}\n\ndata: [DONE]\n\n"
	other := "data: {\"model\":\"other\",\"choices\":[{\"text\":\"4\"}]}\n\ndata: [DONE]\n\n"
	streamed := func(finish string, pieces ...string) (s string) {
		for _, p := range pieces {
			s += fmt.Sprintf("data: {\"choices\":[{\"text\":%q}]}\n\n", p)
		}
		return s + fmt.Sprintf("data: {\"choices\":[{\"text\":\"\",\"finish_reason\":%s}]}\n\ndata: [DONE]\n\n", finish)
	}
	sentence, brief := streamed(`"length"`, " 4", " 5", " 6", " 7", " 8", " 9", " 10", " 11"), streamed(`"stop"`, " 4")
	endless, noise := streamed("null", " 4 5 6", " 7 8 9"), streamed(`"length"`, "!", "!", "!", "!", "!", "!", "!", "!")
	for _, c := range []struct {
		name      string
		own, peer http.HandlerFunc
		want      Result
	}{
		{"it declines, the peer answers", text(401, "{}"), text(200, wellStreamed), Denied},
		{"both decline", text(401, "{}"), text(401, "{}"), Alive},
		{"it says nothing, the peer answers", text(200, hollowStream), text(200, wellStreamed), Denied},
		{"both say nothing", text(200, hollowStream), text(200, hollowStream), Passed},
		{"it has no choices, the peer answers", text(200, `{"choices":[]}`), text(200, wellStreamed), Denied},
		{"another model", text(200, other), text(200, wellStreamed), Denied},
		{"both name another model", text(200, other), text(200, other), Passed},
		{"an aborted answer", text(200, "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"abort\"}]}\n\ndata: [DONE]\n\n"), text(200, wellStreamed), Denied},
		{"it repeats itself, the peer does not", text(200, noise), text(200, sentence), Denied},
		{"both repeat themselves", text(200, noise), text(200, noise), Passed},
		{"it says a word, the peer a sentence", text(200, brief), text(200, sentence), Denied},
		{"both say a word", text(200, brief), text(200, brief), Passed},
		{"no finish reason, the peer has one", text(200, endless), text(200, sentence), Denied},
		{"neither has a finish reason", text(200, endless), text(200, endless), Passed},
		{"a whole answer that repeats itself", text(200, `{"choices":[{"text":"!!!!!!!!","finish_reason":"length"}]}`), text(200, sentence), Denied},
		{"the peer is broken", text(401, "{}"), text(500, "{}"), Alive},
	} {
		a, b := newAsked(t), newAsked(t)
		b.answers[completions] = c.peer
		a.Peer = func(*endpoint.Endpoint) *endpoint.Endpoint { return b.ep }
		if got, _ := a.probe(completions, c.own); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestProbeRepeatsWhatFailed: a probe has the kind of the last failed request. An endpoint that declines
// chats and completes prompts is at fault if its peer answers chats.
func TestProbeRepeatsWhatFailed(t *testing.T) {
	const chats = "/v1/chat/completions"
	whole := text(200, `{"choices":[{"message":{"content":"4 5 6 7 8 9"},"finish_reason":"length"}]}`)
	for _, c := range []struct {
		name      string
		failing   health.Question
		own, peer http.HandlerFunc
		want      Result
		paths     string
	}{
		{"completions failed", health.AskCompletionStream, text(404, "{}"), whole, Passed, completions},
		{"whole chats failed", health.AskChat, text(404, "{}"), whole, Denied, chats},
		{"no peer chats", health.AskChat, text(404, "{}"), text(404, "{}"), Passed, chats + " " + completions},
		{"chats are answered again", health.AskChat, whole, whole, Passed, chats},
		{"streamed chats failed", health.AskChatStream, text(500, "{}"), whole, Denied, chats},
		{"the queue is full", health.AskChat, text(429, "{}"), whole, Full, chats},
		{"embeddings failed, which no peer has", health.AskEmbedding, whole, text(404, "{}"), Passed, "/v1/embeddings " + completions},
	} {
		a, peer := newAsked(t), newAsked(t)
		a.Peer = func(*endpoint.Endpoint) *endpoint.Endpoint { return peer.ep }
		peer.answers[chats] = c.peer
		a.ep.Tracker().SetFailing(c.failing)
		if got, paths := a.probe(chats, c.own); got != c.want || paths != "/v1/models "+c.paths && paths != c.paths {
			t.Errorf("%s: %v after %q, want %v after %q", c.name, got, paths, c.want, c.paths)
		}
	}
}

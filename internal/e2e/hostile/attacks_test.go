//go:build hostile

package hostile

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

const (
	chat    = "/v1/chat/completions"
	sources = "/kv_event_sources"
)

// smuggled are headers that only pickers may set.
var smuggled = []string{"x-prefiller-host-port", "x-encoder-hosts-ports", "x-data-parallel-host-port", "x-kv-cache-source-host-port", "x-grapevine-continuation-hosts-ports"}

// attack is one kind of hostile input. run returns problems beyond the checks for every attack.
type attack struct {
	name    string
	run     func(r *rig) string
	counted string // part of the counter that must grow; "" for none
}

var attacks = []attack{
	{"8 MB of empty values", (*rig).values, `use="work"`},
	{"a client's destination and helpers", (*rig).headers, ""},
	{"bodies without an end", (*rig).endless, ""},
	{"bodies that are held open", (*rig).held, ""},
	{"bodies whose last byte does not come", (*rig).lastByte, ""},
	{"12 MB model names", (*rig).names, ""},
	{"an engine that names 30,000 streams", (*rig).ranks, ""},
	{"KV transfer fields", (*rig).transferFields, `result="bad_request"`},
	{"a template without an end", (*rig).template, `model="poison",reason="`},
	{"administration by other sites", (*rig).sites, `reason="cross_site"`},
	{"large bodies for administration", (*rig).adminBodies, `reason="memory"`},
	{"2,500 connections that say nothing", (*rig).silent, `reason="`},
}

// together runs n calls concurrently.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

func (r *rig) values() string {
	const user = `"messages":[{"role":"user","content":"a"}],`
	bodies := [][]byte{}
	for _, head := range []string{user + `"documents":[`, user + `"tools":[`, `"messages":[`, user + `"chat_template_kwargs":{"x":[`} {
		b := fmt.Appendf(nil, `{"model":%q,%s`, vocab.Name, head)
		b = append(b, bytes.Repeat([]byte("{},"), 8<<20/3)...)
		end := "{}]}"
		if strings.Contains(head, "kwargs") {
			end = "{}]}}"
		}
		bodies = append(bodies, append(b, end...))
	}
	together(3, func(i int) {
		for k := range bodies {
			r.post(chat, bodies[(i+k)%len(bodies)])
		}
	})
	return ""
}

func (r *rig) headers() string {
	body := fmt.Appendf(nil, `{"model":%q,"max_tokens":2,"messages":[{"role":"user","content":"b"}]}`, vocab.Name)
	large := fmt.Appendf(nil, `{"model":%q,"max_tokens":2,"messages":[{"role":"user","content":"b"}],"documents":[%s{}]}`, vocab.Name, strings.Repeat("{},", 1<<20))
	var header []string
	for _, name := range append([]string{"x-gateway-destination-endpoint", "x-gateway-destination-endpoint-subset"}, smuggled...) {
		header = append(header, name, r.addr(r.canary.URL))
	}
	bad := 0
	together(4, func(i int) {
		for k := range 20 {
			b := body
			if k == 10 {
				b = large
			}
			if status := r.post(chat, b, header...); status != http.StatusOK && k != 10 {
				bad++
			}
		}
	})
	if bad > 0 {
		return fmt.Sprintf("%d requests with such headers were not served", bad)
	}
	return ""
}

// dial connects to the program as a proxy does.
func (r *rig) dial() (*grpc.ClientConn, extprocv3.ExternalProcessorClient) {
	conn, c, err := dial(r.pickAt)
	if err != nil {
		r.t.Error(err)
	}
	return conn, c
}

func dial(at string) (*grpc.ClientConn, extprocv3.ExternalProcessorClient, error) {
	conn, err := grpc.NewClient(at, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})))
	if err != nil {
		return nil, nil, err
	}
	return conn, extprocv3.NewExternalProcessorClient(conn), nil
}

// stream opens a request and sends n bytes of its body in pieces.
func (r *rig) stream(ctx context.Context, c extprocv3.ExternalProcessorClient, n int) {
	s, err := c.Process(ctx)
	if err != nil {
		return
	}
	header := func(k, v string) *corev3.HeaderValue { return &corev3.HeaderValue{Key: k, RawValue: []byte(v)} }
	head := &extprocv3.HttpHeaders{Headers: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{header(":method", "POST"), header(":path", chat), header("content-type", "application/json")}}}
	if s.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: head}}) != nil {
		return
	}
	piece := bytes.Repeat([]byte{'x'}, 256<<10)
	for sent := 0; sent < n; sent += len(piece) {
		body := &extprocv3.HttpBody{Body: piece}
		if s.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: body}}) != nil {
			return
		}
	}
	<-ctx.Done()
}

// endless sends bodies without an end on 64 streams. If they were not charged to the memory budget,
// each could grow to the limit of a body, and together they would exceed the program's memory.
func (r *rig) endless() string {
	conn, c := r.dial()
	defer conn.Close()
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
	defer cancel()
	together(64, func(int) { r.stream(ctx, c, 60<<20) })
	return ""
}

// held keeps bodies open whose sizes together stay below the budget of bodies. The program must report all
// their bytes as taken from that budget, and as released when the streams end. Other limits do not
// apply: the program has memory for these bodies, so that nothing is refused.
func (r *rig) held() string {
	const (
		streams, each = 10, 4 << 20
		others        = 1 << 20 // at most, of honest requests that come in meanwhile
		used          = `grapevine_memory_budget_used_bytes{use="bodies"}`
	)
	conn, c := r.dial()
	defer conn.Close()
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for range streams {
		wg.Go(func() { r.stream(ctx, c, each) })
	}
	most := 0.0
	charged := testkit.PollUntil(func() bool {
		most = max(most, r.cage.counters()[used])
		return most >= streams*each
	})
	cancel()
	wg.Wait()
	if !charged {
		return fmt.Sprintf("%d bytes of bodies are held, and at most %.0f are charged to the budget", streams*each, most)
	}
	left := 0.0
	if !testkit.PollUntil(func() bool { left = r.cage.counters()[used]; return left <= others }) {
		return fmt.Sprintf("%.0f bytes are still charged after all bodies ended", left)
	}
	return ""
}

func (r *rig) lastByte() string {
	const size = 24 << 20
	together(12, func(int) {
		c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		if err != nil {
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(8 * time.Second))
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", chat, size)
		piece := bytes.Repeat([]byte{' '}, 64<<10)
		for sent := 0; sent+len(piece) < size; sent += len(piece) {
			if _, err := c.Write(piece); err != nil {
				return
			}
		}
		_, _ = c.Read(make([]byte, 1))
	})
	return ""
}

func (r *rig) names() string {
	for i := range 30 {
		body := append([]byte(`{"model":"`), bytes.Repeat([]byte{'a' + byte(i%26)}, 12<<20)...)
		r.post(chat, append(body, `","messages":[{"role":"user","content":"a"}]}`...))
	}
	resp, err := impatient.Get("http://" + r.cage.admin + "/debug/decisions?n=1000")
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	if n, _ := io.Copy(io.Discard, resp.Body); n > 8<<20 {
		return fmt.Sprintf("the decisions take %d bytes", n)
	}
	if n := len(r.cage.log.String()); n > 1<<20 {
		return fmt.Sprintf("the log has %d bytes", n)
	}
	return ""
}

func (r *rig) ranks() string {
	defer r.truth(sources)
	before := r.cage.files()
	many := func(n int, at func(i int) string) func(w http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			io.WriteString(w, `[`)
			for i := range n {
				if i > 0 {
					io.WriteString(w, ",")
				}
				fmt.Fprintf(w, `{"dp_rank":%d,"endpoint":"tcp://%s","replay_endpoint":"tcp://%s","topic":""}`, i, at(i), at(i))
			}
			io.WriteString(w, `]`)
		}
	}
	redirect := func(w http.ResponseWriter) {
		w.Header().Set("Location", r.canary.URL+"/latest/meta-data")
		w.WriteHeader(http.StatusFound)
	}
	for _, say := range []func(w http.ResponseWriter){
		many(30_000, func(i int) string { return fmt.Sprintf("127.0.%d.%d:9000", i>>8, i&255) }),
		many(200, func(int) string { return "127.0.0.1:9000" }), redirect,
	} {
		r.lie(sources, say)
		r.stir()
		time.Sleep(3 * time.Second)
	}
	if n := r.cage.files(); n > before+300 {
		return fmt.Sprintf("%d files are open, %d before", n, before)
	}
	return ""
}

func (r *rig) transferFields() string {
	for _, member := range []string{`"kv_transfer_params":{"do_remote_prefill":true,"remote_block_ids":null}`, `"bootstrap_host":"x","bootstrap_port":1`, `"kv_transfer_params":null,"kv_transfer_params":{"do_remote_decode":true}`} {
		body := fmt.Appendf(nil, `{"model":%q,"messages":[{"role":"user","content":"a"}],%s}`, vocab.Name, member)
		if status := r.post(chat, body); status != http.StatusBadRequest {
			return fmt.Sprintf("%s: status %d, want 400", member, status)
		}
	}
	return ""
}

func (r *rig) template() string {
	body := fmt.Appendf(nil, `{"model":%q,"messages":[{"role":"user","content":%q}]}`, poison, strings.Repeat("a ", 50_000))
	slow := time.Duration(0)
	for range 3 {
		began := time.Now()
		r.post(chat, body)
		slow = max(slow, time.Since(began))
	}
	if slow > 20*time.Second { // the work limit is one second
		return fmt.Sprintf("a decision took %v", slow)
	}
	return ""
}

func (r *rig) sites() string {
	ask := func(method, path, host string, header ...string) int {
		q, err := http.NewRequest(method, "http://"+r.cage.admin+path, nil)
		if err != nil {
			return 0
		}
		if host != "" {
			q.Host = host
		}
		for i := 0; i+1 < len(header); i += 2 {
			q.Header.Set(header[i], header[i+1])
		}
		resp, err := impatient.Do(q)
		if err != nil {
			return 0
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	for name, status := range map[string]int{
		"a reload by another site":      ask("POST", "/-/reload", "", "Origin", "http://evil.example", "Sec-Fetch-Site", "cross-site"),
		"a dry run by another site":     ask("POST", "/debug/explain?path="+chat, "", "Origin", "http://evil.example", "Content-Type", "text/plain"),
		"the heap by a foreign name":    ask("GET", "/debug/pprof/heap", "evil.example"),
		"a recording by a foreign name": ask("GET", "/debug/record?bodies=true&duration=1s", "evil.example"),
	} {
		if status != http.StatusForbidden {
			return fmt.Sprintf("%s: status %d, want 403", name, status)
		}
	}
	return ""
}

func (r *rig) adminBodies() string {
	together(40, func(int) {
		c, err := net.Dial("tcp", r.cage.admin)
		if err != nil {
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(6 * time.Second))
		fmt.Fprintf(c, "POST /debug/explain?path=%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", chat, 30<<20)
		piece := bytes.Repeat([]byte{' '}, 256<<10)
		for range 119 {
			if _, err := c.Write(piece); err != nil {
				return
			}
		}
		_, _ = c.Read(make([]byte, 1))
	})
	return ""
}

func (r *rig) silent() string {
	var held []net.Conn
	defer func() {
		for _, c := range held {
			c.Close()
		}
	}()
	for i := range 2500 {
		at := r.pickAt
		if i%5 == 0 {
			at = r.cage.admin
		}
		c, err := net.DialTimeout("tcp", at, time.Second)
		if err != nil {
			break
		}
		held = append(held, c)
	}
	lines := strings.Count(r.cage.log.String(), "\n")
	if !testkit.PollUntil(func() bool { return r.cage.files() < 1000 }) {
		return fmt.Sprintf("%d files are open a minute later", r.cage.files())
	}
	if n := strings.Count(r.cage.log.String(), "\n") - lines; n > 50 {
		return fmt.Sprintf("%d lines in the log", n)
	}
	return ""
}

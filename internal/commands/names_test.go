package commands

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// hostileNames are names that tenants can give themselves, their models and their requests. FORGED
// stands where a new line or cell would begin.
var hostileNames = map[string]string{
	"lines":      "gold\nFORGED 200\r\n\r\nFORGED: 1\tFORGED",
	"quotes":     "gold\"} 1\nFORGED{a=\"b\\\", 'c' `d` <script>FORGED</script> $(FORGED) %s %!d",
	"escapes":    "gold\x1b[2J\x1b]0;FORGED\x07\x1b[1A\x7f\x08",
	"c1":         "gold\u009b2J\u009d0;FORGED\u009c",
	"no utf-8":   "gold\xff\xc3\xed\xa0\x80\x9b2J",
	"marks":      "gold\u202e4201 DEGROF\u2066\u200b\u200f\ufeff\u2028FORGED\u2029\U000e0041",
	"look-alike": "g\u043eld",
	"long":       strings.Repeat("gold\u202e\n", 1<<17),
	"many marks": "g" + strings.Repeat("\u0301", 500),
}

// nameHeaders are the headers in which clients send names.
var nameHeaders = []string{
	"x-request-id", "x-llm-d-inference-objective", "x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id", "x-llm-d-model-name-rewrite",
	"x-session-id", "x-session-token", "x-grapevine-clusters", "x-slo-ttft-ms", "prefer", "user-agent",
}

// TestHostileNames sends hostile names, in every header and in the body, through a group of two
// replicas and checks all output. Terminals get no control characters, no line is forged, and no
// request stays in flight.
func TestHostileNames(t *testing.T) {
	s := openSession(t)
	log := &parts.Output{}
	var writers []*cli.LogWriter
	s.options = func(o *server.Options) {
		o.MetricsCompat, o.MetricsPool, o.PlaceUnknown = true, "llama", len(s.replicas) > 0 // the first refuses
		o.PickListen = "127.0.0.1:0"
		o.ConfigText = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nfeatureGates: [flowControl]\n" +
			"plugins: [{type: round-robin-fairness-policy, name: tenants}]\nflowControl: {defaultPriorityBand: {fairnessPolicyRef: tenants}}\n"
		o.LogWriter = cli.NewLogWriter(log)
		var err error
		if o.Log, err = o.LogWriter.Logger([]string{"text", "json"}[len(s.replicas)], "debug"); err != nil {
			t.Error(err)
		}
		writers = append(writers, o.LogWriter)
	}
	s.add()
	s.add()
	for _, r := range s.replicas {
		testkit.Await(t, "ready", func() bool { return r.Status().State == "ready" })
		testkit.Await(t, "the engines' lists of models", func() bool {
			page := read(t, "http://"+r.AdminAddr().String()+"/metrics")
			return strings.Contains(page, "grapevine_models_unknown_endpoints 0")
		})
	}
	var ids []string
	var held []func()
	for what, name := range hostileNames {
		ids = append(ids, name)
		for _, r := range s.replicas {
			for _, model := range []string{name, vocab.Name} {
				end, answers := placeNamed(t, r.ExtProcAddr().String(), name, model)
				held = append(held, end)
				for _, a := range answers {
					clean(t, what+": answer to the proxy", a)
				}
			}
		}
	}
	for i, r := range s.replicas {
		if i == 1 {
			testkit.Await(t, "flows of the first replica at the second", func() bool { return strings.Count(screen(t, r, "flow"), "gold") == len(hostileNames)-3 })
		}
		lookAt(t, r, ids)
	}
	for _, end := range held {
		end()
	}
	for i, r := range s.replicas {
		testkit.Await(t, "nothing in flight", func() bool {
			for _, e := range r.Status().Endpoints {
				if e.InFlight != 0 {
					return false
				}
			}
			return true
		})
		if page := read(t, "http://"+r.AdminAddr().String()+"/metrics"); strings.Contains(page, `end="panicked"`) {
			t.Errorf("replica %d panicked", i)
		}
	}
	for _, w := range writers {
		w.Flush(time.Minute)
	}
	said := log.String()
	clean(t, "log", said)
	if strings.Contains(said, "panic") || !strings.Contains(said, "request refused") {
		t.Errorf("log: %.2000s", said)
	}
	if longest := longestLine(said); longest > 4096 {
		t.Errorf("longest log line has %d bytes", longest)
	}
}

// lookAt reads every page of a replica and every command output about it.
func lookAt(t *testing.T, r *server.Server, ids []string) {
	at := "http://" + r.AdminAddr().String()
	for _, page := range []string{"/", "/status", "/metrics", "/readyz?verbose", "/debug/decisions?n=1000"} {
		text := read(t, at+page)
		clean(t, page, text)
		if len(text) > 4<<20 {
			t.Errorf("%s has %d bytes", page, len(text))
		}
		if page == "/" && strings.Contains(text, "<script>FORGED") {
			t.Errorf("%s: unescaped markup from a request", page)
		}
		if strings.HasPrefix(page, "/debug") || page == "/status" {
			if !json.Valid([]byte(text)) {
				t.Errorf("%s is not JSON", page)
			}
		}
	}
	for _, args := range [][]string{{"status", "--cluster"}, {"flow"}, {"members"}, {"explain", "--last", "100"}, {"explain"}} {
		clean(t, strings.Join(args, " "), screen(t, r, args...))
		clean(t, strings.Join(args, " ")+" -o json", screen(t, r, append(args, "-o", "json")...))
	}
	clean(t, "top --once", screen(t, r, "top", "--once", "--interval", "100ms"))
	for _, id := range ids {
		if len(id) > 1<<10 {
			continue // not the address of a page
		}
		text := screen(t, r, "explain", "--request-id", id)
		clean(t, "explain --request-id", text)
		if !strings.Contains(text, "candidates") {
			t.Errorf("no decision for %q: %s", id, text)
		}
	}
}

// screen returns the output of a command.
func screen(t *testing.T, r *server.Server, args ...string) string {
	t.Helper()
	var out, errOut bytes.Buffer
	root := newScreen(standard, &out, &errOut)
	root.SetArgs(append(args, "--admin", r.AdminAddr().String()))
	err := root.ExecuteContext(t.Context())
	if code := cli.ExitCode(0); err != nil && fmt.Sprintf("%T", err) != fmt.Sprintf("%T", code) {
		t.Errorf("%v: %v", args, err)
	}
	return out.String() + errOut.String()
}

func read(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// clean reports control characters and forged lines in text.
func clean(t *testing.T, what, text string) {
	t.Helper()
	if !utf8.ValidString(text) {
		t.Errorf("%s: invalid UTF-8", what)
	}
	for at, r := range text {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			t.Errorf("%s: unprintable %q in %q", what, r, text[max(0, at-60):min(len(text), at+60)])
			break
		}
	}
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "FORGED") {
			t.Errorf("%s: forged line: %.200s", what, line)
		}
	}
}

func longestLine(text string) (n int) {
	for line := range strings.SplitSeq(text, "\n") {
		n = max(n, len(line))
	}
	return n
}

// placeNamed asks for a place for a request that carries a name wherever one is possible. It
// returns a function that ends the request, and the answers to the proxy.
func placeNamed(t *testing.T, at, name, model string) (end func(), answers []string) {
	t.Helper()
	conn, err := grpc.NewClient(at, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	end = func() { cancel(); conn.Close() }
	stream, err := extprocv3.NewExternalProcessorClient(conn).Process(ctx)
	if err != nil {
		t.Fatal(err)
	}
	list := &corev3.HeaderMap{}
	add := func(name, value string) {
		list.Headers = append(list.Headers, &corev3.HeaderValue{Key: name, RawValue: []byte(value)})
	}
	add(":method", "POST")
	add(":path", "/v1/completions")
	add("content-type", "application/json")
	for _, h := range nameHeaders {
		if h != "x-llm-d-model-name-rewrite" || model != vocab.Name {
			add(h, name)
		}
	}
	body := fmt.Appendf(nil, `{"model":%s,"prompt":"hello","user":%s,"cache_salt":%s,"session_id":%s}`, jsonOf(model), jsonOf(name), jsonOf(name), jsonOf(name))
	for _, m := range []*extprocv3.ProcessingRequest{
		{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: list}}},
		{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: body, EndOfStream: true}}},
	} {
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	answer, err := stream.Recv() // the answer to the headers follows the body
	if err != nil {
		t.Fatalf("%.40q: %v", name, err)
	}
	return end, textsOf(answer)
}

// jsonOf encodes a string as clients do, which may be invalid UTF-8.
func jsonOf(s string) []byte {
	b, _ := json.Marshal(s) // strings always encode
	if !utf8.ValidString(s) {
		b = []byte(`"` + s + `"`)
	}
	return b
}

// textsOf returns the headers, names and documents of an answer.
func textsOf(m *extprocv3.ProcessingResponse) (list []string) {
	of := func(h *extprocv3.HeaderMutation) {
		for _, o := range h.GetSetHeaders() {
			list = append(list, strings.ReplaceAll(o.GetHeader().GetKey()+": "+o.GetHeader().GetValue()+string(o.GetHeader().GetRawValue()), "\n", "\nFORGED"))
		}
	}
	if r := m.GetImmediateResponse(); r != nil {
		of(r.GetHeaders())
		return append(list, string(r.GetBody()), r.GetDetails())
	}
	of(m.GetRequestHeaders().GetResponse().GetHeaderMutation())
	of(m.GetRequestBody().GetResponse().GetHeaderMutation())
	return list
}

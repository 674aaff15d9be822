//go:build hostile

package hostile

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/kvstream"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// strange are attacks by proxies that violate the protocol, and by unusual content and engines.
var strange = []attack{
	{"20,000 streams that never say anything", (*rig).mute, "extproc_shed_total"},
	{"20,000 watches of the health service", (*rig).watches, ""},
	{"1,500 connections that say nothing after their handshake", (*rig).quiet, `reason="many"`},
	{"streams begun and broken off as fast as possible", (*rig).reset, ""},
	{"60,000 headers in a request", (*rig).manyHeaders, ""},
	{"messages in any order", (*rig).order, ""},
	{"JSON at its limits", (*rig).limits, ""},
	{"compressed bodies", (*rig).compressed, ""},
	{"a string without an end, in chunks", (*rig).longString, ""},
	{"a metrics page without an end, and one of a million series", (*rig).pages, ""},
	{"a list of two million models", (*rig).modelList, ""},
	{"random blocks at full speed", (*rig).randomBlocks, ""},
	{"10,000 picks that nobody ends", (*rig).picks, ""},
	{"answers of one line without an end", (*rig).longAnswer, ""},
	{"discovery of a million names and types", (*rig).discovery, ""},
}

func (r *rig) mute() string {
	return r.streams(20_000, func(ctx context.Context, c *grpc.ClientConn) error {
		_, err := extprocv3.NewExternalProcessorClient(c).Process(ctx)
		return err
	})
}

func (r *rig) watches() string {
	return r.streams(20_000, func(ctx context.Context, c *grpc.ClientConn) error {
		_, err := healthpb.NewHealthClient(c).Watch(ctx, &healthpb.HealthCheckRequest{})
		return err
	})
}

// streams opens n streams on ten connections and keeps them open.
func (r *rig) streams(n int, open func(context.Context, *grpc.ClientConn) error) string {
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	var conns []*grpc.ClientConn
	for range 10 {
		conn, _ := r.dial()
		defer conn.Close()
		conns = append(conns, conn)
	}
	for i := range n {
		if err := open(ctx, conns[i%len(conns)]); err != nil {
			return err.Error()
		}
	}
	time.Sleep(4 * time.Second)
	return ""
}

// quiet connects up to the HTTP/2 preface and stays silent. Once the limit is reached new
// connections are refused; open honest ones are not closed.
func (r *rig) quiet() string {
	held := 0
	for range 1500 {
		c, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", r.pickAt, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err != nil {
			continue
		}
		defer c.Close()
		if _, err := io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err == nil {
			held++
		}
	}
	r.t.Logf("%d of 1,500 connections were taken", held)
	return ""
}

func (r *rig) reset() string {
	conn, c := r.dial()
	defer conn.Close()
	end := time.Now().Add(4 * time.Second)
	together(4, func(int) {
		for time.Now().Before(end) {
			ctx, cancel := context.WithCancel(r.t.Context())
			if s, err := c.Process(ctx); err == nil {
				_ = s.Send(headersOf("POST", false)) // the stream may have ended
			}
			cancel()
		}
	})
	return ""
}

// headersOf returns the headers of a request with additional ones.
func headersOf(method string, end bool, more ...*corev3.HeaderValue) *extprocv3.ProcessingRequest {
	header := func(k, v string) *corev3.HeaderValue { return &corev3.HeaderValue{Key: k, RawValue: []byte(v)} }
	list := append([]*corev3.HeaderValue{header(":method", method), header(":path", chat), header("content-type", "application/json")}, more...)
	head := &extprocv3.HttpHeaders{Headers: &corev3.HeaderMap{Headers: list}, EndOfStream: end}
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: head}}
}

func (r *rig) manyHeaders() string {
	conn, c := r.dial()
	defer conn.Close()
	var list []*corev3.HeaderValue
	for i := range 60_000 {
		list = append(list, &corev3.HeaderValue{Key: fmt.Sprint("x-header-", i), RawValue: bytes.Repeat([]byte{'v'}, 80)})
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), 20*time.Second)
	defer cancel()
	answered := atomic.Int64{}
	together(4, func(int) {
		for range 5 {
			if s, err := c.Process(ctx); err == nil && s.Send(headersOf("POST", true, list...)) == nil {
				if _, err := s.Recv(); err == nil {
					answered.Add(1)
				}
				_ = s.CloseSend()
			}
		}
	})
	r.t.Logf("%d of 20 such requests were answered", answered.Load())
	return ""
}

// order sends messages in invalid orders. Each stream must be answered or ended.
func (r *rig) order() string {
	conn, c := r.dial()
	defer conn.Close()
	body := func(response, end bool) *extprocv3.ProcessingRequest {
		b := &extprocv3.HttpBody{Body: []byte(`{"model":"x","prompt":"a"}`), EndOfStream: end}
		if response {
			return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: b}}
		}
		return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: b}}
	}
	answer := &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{}}}
	trailers := []*extprocv3.ProcessingRequest{
		{Request: &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: &extprocv3.HttpTrailers{}}},
		{Request: &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extprocv3.HttpTrailers{}}},
	}
	all := []*extprocv3.ProcessingRequest{
		headersOf("POST", false), headersOf("", true), body(false, false), body(false, true), body(true, false), body(true, true), answer, trailers[0], trailers[1], {},
		{ProtocolConfig: &extprocv3.ProtocolConfiguration{RequestBodyMode: -1, ResponseBodyMode: 99}},
	}
	rng := rand.New(rand.NewPCG(1, 2))
	hang := atomic.Int64{}
	for range 40 {
		plans := make([][]int, 25)
		for i := range plans {
			plans[i] = make([]int, 1+rng.IntN(8))
			for k := range plans[i] {
				plans[i][k] = rng.IntN(len(all))
			}
		}
		together(25, func(i int) {
			ctx, cancel := context.WithTimeout(r.t.Context(), 15*time.Second)
			defer cancel()
			s, err := c.Process(ctx)
			if err != nil {
				return
			}
			for _, k := range plans[i] {
				if s.Send(all[k]) != nil {
					break
				}
			}
			_ = s.CloseSend()
			for err == nil {
				_, err = s.Recv()
			}
			if ctx.Err() != nil {
				hang.Add(1)
			}
		})
	}
	if n := hang.Load(); n > 0 {
		return fmt.Sprintf("%d of 1,000 streams did not end when their proxy had", n)
	}
	if strings.Contains(r.cage.log.String(), "panic") {
		return "something panicked"
	}
	return ""
}

func (r *rig) limits() string {
	head := fmt.Sprintf(`{"model":%q,"max_tokens":2,"messages":[{"role":"user","content":`, vocab.Name)
	keys := strings.Builder{}
	for i := range 200_000 {
		fmt.Fprintf(&keys, `"k%d":0,`, i)
	}
	many := func(part string, n int) string { return strings.Repeat(part, n) }
	for _, body := range []string{
		head + many("[", 400_000) + many("]", 400_000) + `}]}`,
		head + many(`{"a":`, 400_000) + `1` + many("}", 400_000) + `}]}`,
		head + `"a"}],` + many(`"x":1,`, 300_000) + `"y":1}`,
		head + `"a"}],` + keys.String() + `"y":1}`,
		head + `"a"}],` + many(fmt.Sprintf(`"model":%q,`, vocab.Name), 100_000) + `"y":1}`,
		head + `"a"}],"max_tokens":1` + many("0", 1<<20) + `}`,
		head + `"a"}],"temperature":1e` + many("9", 1<<20) + `}`,
		head + `"a"}],"seed":-` + many("1", 1<<20) + `.` + many("1", 1<<20) + `}`,
		head + `"` + many("\xff\xfe", 1<<20) + `"}]}`,
		head + `"` + many(`\ud800`, 300_000) + `"}]}`,
		head + `"` + many(`\u0000`, 300_000) + `"}]}`,
		head + `"` + many("\\", 1<<20) + `"}]}`,
		many(" ", 4<<20) + head + `"a"}]}`,
		head + `"a"}]}` + many(" ", 4<<20) + `x`,
		many("\xef\xbb\xbf", 1<<20), many(`"`, 1<<20), many("{", 1<<20), many("nul", 1<<20),
	} {
		r.post(chat, []byte(body))
	}
	return ""
}

func (r *rig) compressed() string {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		return err.Error()
	}
	fmt.Fprintf(z, `{"model":%q,"messages":[{"role":"user","content":"`, vocab.Name)
	piece := bytes.Repeat([]byte{'a'}, 1<<20)
	for range 512 {
		if _, err := z.Write(piece); err != nil {
			return err.Error()
		}
	}
	fmt.Fprint(z, `"}]}`)
	if err := z.Close(); err != nil {
		return err.Error()
	}
	together(4, func(int) {
		for range 4 {
			r.post(chat, b.Bytes(), "content-encoding", "gzip")
		}
	})
	return ""
}

func (r *rig) longString() string {
	together(8, func(int) {
		c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		if err != nil {
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(6 * time.Second))
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n", chat)
		first := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"`, vocab.Name)
		fmt.Fprintf(c, "%x\r\n%s\r\n", len(first), first)
		piece := bytes.Repeat([]byte{'a'}, 16<<10)
		for {
			if _, err := fmt.Fprintf(c, "%x\r\n%s\r\n", len(piece), piece); err != nil {
				return
			}
		}
	})
	return ""
}

// tell replaces the hostile engine's answers for a path for some time.
func (r *rig) tell(path string, d time.Duration, say func(w http.ResponseWriter)) {
	r.lie(path, say)
	r.stir()
	time.Sleep(d)
	r.truth(path)
	r.stir()
}

func (r *rig) pages() string {
	r.tell("/metrics", 4*time.Second, func(w http.ResponseWriter) {
		line := bytes.Repeat([]byte{'x'}, 1<<20) // a line without end
		for {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	})
	r.tell("/metrics", 4*time.Second, func(w http.ResponseWriter) {
		for i := range 1_000_000 {
			if _, err := fmt.Fprintf(w, "vllm:num_requests_running{model_name=\"m%d\",engine=\"%d\"} 1e400\nvllm:lora_requests_info{running_lora_adapters=\"a%d\",max_lora=\"9\"} %d\n", i, i, i, i); err != nil {
				return
			}
		}
	})
	return ""
}

func (r *rig) modelList() string {
	r.tell("/v1/models", 5*time.Second, func(w http.ResponseWriter) {
		_, _ = io.WriteString(w, `{"object":"list","data":[`)
		for i := range 2_000_000 {
			if _, err := fmt.Fprintf(w, `{"id":"model-%d","object":"model"},`, i); err != nil {
				return
			}
		}
		_, _ = io.WriteString(w, `{"id":"last"}]}`)
	})
	if n := len(r.cage.counters()); n > 20_000 {
		return fmt.Sprintf("%d series", n)
	}
	return ""
}

func (r *rig) randomBlocks() string {
	p, err := kvstream.Open(kvstream.Options{Addr: "127.0.0.1:0", ReplayAddr: "127.0.0.1:0", HWM: 1000})
	if err != nil {
		return err.Error()
	}
	defer p.Close()
	r.lie(sources, func(w http.ResponseWriter) {
		fmt.Fprintf(w, `[{"dp_rank":0,"endpoint":"tcp://%s","replay_endpoint":"tcp://%s","topic":""}]`, p.Addr(), p.ReplayAddr())
	})
	r.stir()
	if !testkit.PollUntil(func() bool { return p.Stats().Subscribers > 0 }) {
		return "nobody reads the stream"
	}
	rng := rand.New(rand.NewPCG(3, 4))
	sent := 0
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); {
		var list []engine.Event
		for range 64 {
			ev := engine.Event{Kind: engine.Stored, Tokens: make([]uint32, 16*16)}
			for range 16 {
				ev.Hashes = append(ev.Hashes, engine.Hash(rng.Uint64()))
			}
			for i := range ev.Tokens {
				ev.Tokens[i] = 32 + rng.Uint32N(90)
			}
			list = append(list, ev)
			sent += 16
		}
		p.Publish(kvstream.AppendBatch(nil, kvstream.FormatMap, kvstream.Batch{Time: 1, BlockSize: 16}, list))
	}
	r.t.Logf("%d random blocks were published", sent)
	r.truth(sources)
	r.stir()
	return ""
}

func (r *rig) picks() string {
	body := fmt.Appendf(nil, `{"model":%q,"messages":[{"role":"user","content":"a"}]}`, vocab.Name)
	large := append([]byte(`{"model":"x","prompt":"`), bytes.Repeat([]byte{'a'}, 8<<20)...)
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	failed, refused := atomic.Int64{}, atomic.Int64{}
	together(16, func(i int) {
		for k := range 625 {
			b := body
			if k%200 == 100 {
				b = large
			}
			resp, err := client.Post("http://"+r.pick+"/v1/pick", "application/json", bytes.NewReader(b))
			if err != nil {
				failed.Add(1)
				continue
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode >= 400 {
				refused.Add(1)
			}
		}
	})
	r.t.Logf("of 10,000 picks %d were refused, %d had no answer", refused.Load(), failed.Load())
	if refused.Load() == 0 {
		return "10,000 picks are open"
	}
	return ""
}

func (r *rig) longAnswer() string {
	const path = "/v1/completions" // which honest requests do not use
	r.lie(path, func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"choices":[{"delta":{"content":"`)
		piece := bytes.Repeat([]byte{'a'}, 64<<10)
		for range 1024 {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	})
	defer r.truth(path)
	together(4, func(i int) {
		for range 4 {
			r.post(path, fmt.Appendf(nil, `{"model":%q,"stream":true,"max_tokens":4,"prompt":"%d"}`, vocab.Name, i))
		}
	})
	return ""
}

// discovery sends xDS requests that no Envoy sends, in open streams: many types, and many names of
// one type.
func (r *rig) discovery() string {
	conn, err := grpc.NewClient(r.xds, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})))
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	names := make([]string, 20_000)
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
	defer cancel()
	together(50, func(i int) {
		s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
		if err != nil {
			return
		}
		kind := resource.EndpointType
		for k := range 50 {
			if i%2 == 0 {
				kind = fmt.Sprintf("type.googleapis.com/%d", k)
			}
			if s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: kind, ResourceNames: names}) != nil {
				return
			}
		}
		_, _ = s.Recv() // until the time or the stream ends
	})
	return ""
}

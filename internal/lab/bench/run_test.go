package bench

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"math/big"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

func TestRunPlaysBothModes(t *testing.T) {
	for _, tc := range []struct {
		name     string
		opts     Options
		picker   *picker
		response bool // the picker sees the response body
		chunks   int  // of request bodies
	}{
		{"full duplex small", Options{Mode: FullDuplex}, &picker{}, true, 1},
		{"full duplex large", Options{Mode: FullDuplex, BodySize: 400 << 10, Chunk: 64 << 10, ResponseSize: 100 << 10, Conversations: 3}, &picker{}, true, 7},
		{"full duplex, chunks returned at once", Options{Mode: FullDuplex, BodySize: 4 << 20, Conversations: 2}, &picker{fault: "eager"}, true, 256},
		{"buffered", Options{Mode: Buffered, BodySize: 40 << 10}, &picker{}, false, 1},
		{"buffered, body asked for", Options{Mode: Buffered, ResponseSize: 50 << 10}, &picker{ask: filter.ProcessingMode_BUFFERED}, true, 1},
		{"buffered, body asked for in chunks", Options{Mode: Buffered, ResponseSize: 50 << 10}, &picker{ask: filter.ProcessingMode_STREAMED}, true, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.opts.Target = tc.picker.serve(t)
			tc.opts.Requests, tc.opts.Warmup, tc.opts.Concurrency, tc.opts.PID = 20, 5, 4, os.Getpid()
			r, err := Run(t.Context(), tc.opts)
			if err != nil {
				t.Fatal(err)
			}
			if r.Requests != 20 || r.Failed != 0 || r.Refused != 0 {
				t.Fatalf("requests %d, failed %d, refused %d (%v), want 20, 0, 0", r.Requests, r.Failed, r.Refused, r.Failure)
			}
			if got := tc.picker.seen.Load(); got != 25 {
				t.Errorf("the picker saw %d streams, want 25", got)
			}
			checkTraffic(t, r.Options, tc.picker, tc.response)
			if got := tc.picker.chunks.Load(); got != int64(25*tc.chunks) {
				t.Errorf("the picker saw %d body chunks, want %d", got, 25*tc.chunks)
			}
			a := r.Answer
			if a.P50 <= 0 || a.P50 > a.P90 || a.P90 > a.P99 || a.P99 > a.P999 || a.P999 > a.Max {
				t.Errorf("percentiles are not in order: %+v", a)
			}
			if r.RSS <= 0 || r.Elapsed <= 0 || r.Throughput() <= 0 {
				t.Errorf("RSS %d, elapsed %v, throughput %v: want more than zero", r.RSS, r.Elapsed, r.Throughput())
			}
		})
	}
}

// checkTraffic checks the last request that the picker received.
func checkTraffic(t *testing.T, o Options, p *picker, seesResponse bool) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if got := p.last["content-length"]; got != strconv.Itoa(o.BodySize) || len(p.body) != o.BodySize {
		t.Errorf("content-length %s and a body of %d bytes, want %d", got, len(p.body), o.BodySize)
	}
	if p.last[":path"] != "/v1/chat/completions" || p.last[":method"] != "POST" || p.last["content-type"] != "application/json" {
		t.Errorf("headers %v", p.last)
	}
	if p.modes == nil || (o.Mode == Buffered) != (p.modes.GetRequestBodyMode() == filter.ProcessingMode_BUFFERED) {
		t.Errorf("announced modes %v", p.modes)
	}
	if seesResponse != bytes.Equal(p.resp, response(o.ResponseSize, o.BodySize/4, true)) {
		t.Errorf("the picker saw %d bytes of the response, want all of it: %v", len(p.resp), seesResponse)
	}
}

func TestRunCountsWrongAnswers(t *testing.T) {
	for _, tc := range []struct {
		fault string
		mode  Mode
		want  string
	}{
		{"corrupt", FullDuplex, "differs"},
		{"truncate", FullDuplex, "lacks 1 bytes"},
		{"disorder", FullDuplex, "out of order"},
		{"extra", FullDuplex, "too many"},
		{"extra", Buffered, "too many"},
		{"no destination", FullDuplex, headerDestination},
		{"no destination", Buffered, headerDestination},
		{"error", FullDuplex, "Internal"},
		{"error", Buffered, "Internal"},
		{"close", FullDuplex, "unexpected EOF"},
		{"close", Buffered, "unexpected EOF"},
		{"hang", FullDuplex, "DeadlineExceeded"},
		{"hang", Buffered, "DeadlineExceeded"},
	} {
		t.Run(tc.fault+" "+string(tc.mode), func(t *testing.T) {
			p, timeout := &picker{fault: tc.fault}, time.Minute
			if tc.fault == "hang" {
				timeout = 300 * time.Millisecond
			}
			r, err := Run(t.Context(), Options{
				Target: p.serve(t), Mode: tc.mode, BodySize: 40 << 10, Requests: 3, Concurrency: 3, Timeout: timeout,
			})
			if err != nil {
				t.Fatal(err)
			}
			if r.Failed != 3 || r.Requests != 0 || r.Failure == nil || !strings.Contains(r.Failure.Error(), tc.want) {
				t.Errorf("failed %d, requests %d: %v; want 3 failures with %q", r.Failed, r.Requests, r.Failure, tc.want)
			}
		})
	}
}

func TestRunCountsRefusals(t *testing.T) {
	for _, mode := range Modes {
		p := &picker{fault: "refuse"}
		r, err := Run(t.Context(), Options{Target: p.serve(t), Mode: mode, BodySize: 400 << 10, Conversations: 2, Requests: 10})
		if err != nil {
			t.Fatal(err)
		}
		if r.Refused != 10 || r.Requests != 0 || r.Failed != 0 {
			t.Errorf("%s: refused %d, requests %d, failed %d (%v); want 10, 0, 0", mode, r.Refused, r.Requests, r.Failed, r.Failure)
		}
	}
}

func TestRunGivesUp(t *testing.T) {
	p := &picker{fault: "error"}
	_, err := Run(t.Context(), Options{Target: p.serve(t), Duration: time.Hour, MaxFailures: 7, Concurrency: 1})
	if !errors.Is(err, errFailing) || p.seen.Load() != 7 {
		t.Errorf("after %d streams: %v; want %v after 7", p.seen.Load(), err, errFailing)
	}
	if _, err := Run(t.Context(), Options{Target: "127.0.0.1:1", Timeout: 200 * time.Millisecond}); err == nil {
		t.Error("no error without a picker")
	}
	if _, err := Run(t.Context(), Options{Target: (&picker{}).serve(t), Requests: 1, PID: 1 << 30}); !errors.Is(err, errStat) {
		t.Errorf("error without the picker's process: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	slow := &picker{fault: "hang"}
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := Run(ctx, Options{Target: slow.serve(t), Requests: 10}); !errors.Is(err, context.Canceled) {
		t.Errorf("error of a cancelled run: %v", err)
	}
}

// TestRunRate checks that a rate is kept, that a duration ends a run, and that latencies start when
// a request was due.
func TestRunRate(t *testing.T) {
	r, err := Run(t.Context(), Options{Target: (&picker{}).serve(t), Rate: 40, Duration: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if r.Requests == 0 || r.Requests > 80 {
		t.Errorf("%d requests at 40/s in two seconds, want 1 to 80", r.Requests)
	}
	// One stream with 20 ms per request cannot reach 1000/s: the tenth request is at least 9·20 - 9
	// ms late.
	slow := &picker{delay: 20 * time.Millisecond}
	r, err = Run(t.Context(), Options{Target: slow.serve(t), Rate: 1000, Requests: 10, Concurrency: 1})
	if err != nil {
		t.Fatal(err)
	}
	if late := 171 * time.Millisecond; r.Answer.Max < late {
		t.Errorf("largest latency %v, want at least %v", r.Answer.Max, late)
	}
}

func TestRunTLS(t *testing.T) {
	target := (&picker{}).serve(t, grpc.Creds(credentials.NewServerTLSFromCert(certificate(t))))
	r, err := Run(t.Context(), Options{Target: target, TLS: SelfSigned(), Requests: 5})
	if err != nil || r.Requests != 5 {
		t.Errorf("%d requests over TLS, want 5: %v", r.Requests, err)
	}
	if _, err := Run(t.Context(), Options{Target: target, Requests: 5, Timeout: 300 * time.Millisecond}); err == nil {
		t.Error("no error without TLS")
	}
}

func certificate(t *testing.T) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, o := range map[string]Options{
		"no target":     {},
		"unknown mode":  {Target: "x", Mode: "half"},
		"tiny body":     {Target: "x", BodySize: 100},
		"huge chunk":    {Target: "x", Chunk: 1 << 20},
		"shared":        {Target: "x", Shared: 1.5},
		"negative rate": {Target: "x", Rate: -1},
	} {
		if _, err := Run(t.Context(), o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestBodies checks size, validity and common text of bodies.
func TestBodies(t *testing.T) {
	for _, n := range []int{smallestBody, 1 << 10, 40 << 10, 400<<10 + 7} {
		o, err := Options{Target: "x", BodySize: n, Conversations: 3}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		c := newCorpus(o)
		bodies := make([][]byte, 6)
		for i := range bodies {
			bodies[i] = c.appendRequest(nil, uint64(i))
			var chat struct {
				Model    string
				Messages []struct{ Role, Content string }
			}
			if err := json.Unmarshal(bodies[i], &chat); err != nil || len(bodies[i]) != n {
				t.Fatalf("body of %d bytes, want %d: %v", len(bodies[i]), n, err)
			}
			if chat.Model != "model" || len(chat.Messages) < 2 || (n >= 40<<10 && len(chat.Messages) < 20) {
				t.Errorf("size %d: model %q, %d messages", n, chat.Model, len(chat.Messages))
			}
		}
		within, across := commonPrefix(bodies[0], bodies[3]), commonPrefix(bodies[0], bodies[1])
		if bytes.Equal(bodies[0], bodies[3]) || float64(within) < 0.7*float64(n)-300 {
			t.Errorf("size %d: requests of a conversation share %d bytes", n, within)
		}
		if n >= 40<<10 && (across < n/5 || across > n/3) {
			t.Errorf("size %d: conversations share %d bytes, want about a quarter", n, across)
		}
		if again := newCorpus(o).appendRequest(nil, 3); !bytes.Equal(again, bodies[3]) {
			t.Errorf("size %d: the same request differs the next time", n)
		}
	}
}

func commonPrefix(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// TestSame checks that a body may be returned with the picker's added field, and with no other
// change.
func TestSame(t *testing.T) {
	const body = `{"model":"m","prompt":"a"}`
	asked := `{"model":"m","vllm_xargs":{"kv_cache_report_mode":"full"},"prompt":"a"}`
	for back, want := range map[string]string{
		body: "", asked: "", asked[:len(asked)-1]: "lacks 1 bytes", `{"model":"n","prompt":"a"}`: "differs", body[:9]: "lacks 17 bytes", asked + "}": "differs",
	} {
		if err := same([]byte(back), []byte(body)); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", back, err, want)
		}
	}
	if err := same([]byte(body), []byte(asked)); err == nil {
		t.Error("what was asked for came back without it")
	}
}

package sidecar

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
)

// TestRefusedKVTransfers: a decode engine that rejects a request may reject its KV transfer, as an
// engine without a connector or of another release does. The repetition without KV transfer shows
// which.
func TestRefusedKVTransfers(t *testing.T) {
	const whole, wrong = `{"choices":[{"message":{"content":"x"}}]}`, `{"error":{"code":422}}`
	refusal := func(status int) *http.Response {
		r := said(wrong, "application/json")
		r.StatusCode = status
		return r
	}
	for status, again := range map[int]bool{400: true, 422: true, 401: false, 404: false, 413: false, 429: false} {
		l := &legsOf{prefill: soundPrefill, decode: []*http.Response{refusal(status), said(whole, "application/json")}}
		want, legs := whole, 2
		if !again {
			want, legs = wrong, 1
		}
		if w := asked(t, Options{Transport: l}, `{"messages":[]}`); w.Body.String() != want || len(l.bodies) != legs || strings.Contains(l.bodies[legs-1], "remote_block_ids") == again {
			t.Errorf("%d: %d %s, decode was asked %q", status, w.Code, w.Body, l.bodies)
		}
		l = &legsOf{prefill: soundPrefill, decode: []*http.Response{refusal(status), refusal(status)}}
		if w := asked(t, Options{Transport: l}, `{"messages":[]}`); w.Code != status || w.Body.String() != wrong {
			t.Errorf("%d, always: %d %s", status, w.Code, w.Body)
		}
	}
}

// TestKVTransfersAreUsedOnce: if an engine closes an idle connection, this may have happened before
// the request arrived or because of the KV transfer. The KV transfer is not sent twice.
func TestKVTransfersAreUsedOnce(t *testing.T) {
	const whole = `{"choices":[{"message":{"content":"x"}}]}`
	var handed atomic.Int64
	engine := talks(t, func(_ int, c net.Conn, r *http.Request) bool {
		if r.ContentLength > int64(len(`{"messages":[]}`)) {
			handed.Add(1)
			return false
		}
		return reply(c, whole)
	})
	prefill := prefiller(t, says(200, soundPrefill))
	s, err := New(Options{Engine: "http://" + engine, Transport: NewTransport(1)})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"messages":[]}`))
		r.Header.Set(headerPrefiller, prefill)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != 200 || w.Body.String() != whole || handed.Load() != int64(i+1) {
			t.Errorf("request %d: %d %s, the engine was given %d KV transfers", i, w.Code, w.Body, handed.Load())
		}
	}
}

// TestOfOtherDirections: fields of another connector, or for the other direction, in a prefill
// answer are no KV transfer.
func TestOfOtherDirections(t *testing.T) {
	for _, object := range []string{
		`{"do_remote_prefill":false,"do_remote_decode":true,"remote_block_ids":[[1]],"remote_request_id":"r","remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600}`,
		`{"do_remote_decode":true,"remote_block_ids":[[1]],"remote_request_id":"r","remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600}`, `{"ret_first_tok":true,"first_tok":7}`, `{}`, `""`,
	} {
		l := &legsOf{prefill: `{"kv_transfer_params":` + object + `}`, decode: []*http.Response{said(`{"choices":[]}`, "application/json")}}
		if w := asked(t, Options{Transport: l}, `{"messages":[]}`); w.Code != 200 || len(l.bodies) != 1 || strings.Contains(l.bodies[0], keyKVTransfer) {
			t.Errorf("%s: %d, decode was asked %q", object, w.Code, l.bodies)
		}
	}
}

// TestReturnsAlone: events with carriage returns as line ends are forwarded immediately and
// inspected like others.
func TestReturnsAlone(t *testing.T) {
	in := "event: e\rdata: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\r\rdata: {\"choices\":[],\"kv_transfer_params\":{\"remote_host\":\"10.9.9.9\"}}\r\rdata: [DONE]\r\r"
	want := "event: e\ndata: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\ndata: {\"choices\":[]}\n\n" + doneEvent
	for i := range len(in) {
		text, aborted, _ := streamed(t, io.MultiReader(strings.NewReader(in[:i]), strings.NewReader(in[i:])))
		if text != want || aborted {
			t.Fatalf("cut at %d, aborted %v:\n%q\n%q", i, aborted, text, want)
		}
	}
}

// TestPassedOnIdleConnections: a forwarded request that was lost with an idle connection is sent
// again only if it changes no state.
func TestPassedOnIdleConnections(t *testing.T) {
	for path, harmless := range map[string]bool{"/v1/embeddings": true, "/tokenize": true, "/v1/load_lora_adapter": false} {
		var asked atomic.Int64
		engine := talks(t, func(nth int, c net.Conn, _ *http.Request) bool {
			asked.Store(int64(nth))
			return nth != 2 && reply(c, `{"data":[]}`) // the 2nd finds it closed
		})
		s, err := New(Options{Engine: "http://" + engine, Transport: NewTransport(1), KVTransfer: kvtransfer.Policy{Action: kvtransfer.Strip}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(`{"input":"x"}`)))
			if ok := w.Code == 200 && w.Body.String() == `{"data":[]}`; ok != (i == 0 || harmless) {
				t.Errorf("%s, request %d: %d %s", path, i, w.Code, w.Body)
			}
		}
		if want := map[bool]int64{true: 3, false: 2}[harmless]; asked.Load() != want {
			t.Errorf("%s: the engine was asked %d times, want %d", path, asked.Load(), want)
		}
	}
}

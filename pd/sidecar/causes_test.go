package sidecar

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestLocalCauses: the report to the picker says why decode computed a prompt that a prefill engine had
// computed too.
func TestLocalCauses(t *testing.T) {
	const whole = `{"choices":[{"message":{"content":"x"}}]}`
	failed := func() *http.Response {
		r := said(`{"error":{}}`, "application/json")
		r.StatusCode = http.StatusInternalServerError
		return r
	}
	ok := func() *http.Response { return said(whole, "application/json") }
	for name, c := range map[string]struct {
		prefill string
		decode  []*http.Response
		late    bool
		want    kvtransfer.Report
	}{
		"works":              {soundPrefill, []*http.Response{ok()}, false, kvtransfer.Report{Known: true}},
		"hands nothing over": {`{"kv_transfer_params":null}`, []*http.Response{ok()}, false, kvtransfer.Report{Known: true, Target: -1, Local: kvtransfer.LocalNothing}},
		"dead side channel":  {soundPrefill, []*http.Response{failed(), ok()}, false, kvtransfer.Report{Known: true, Target: -1, Local: kvtransfer.LocalTransfer}},
		"too old":            {soundPrefill, []*http.Response{ok()}, true, kvtransfer.Report{Known: true, Target: -1, Local: kvtransfer.LocalLate}},
	} {
		var looks atomic.Int64 // at the clock
		o := Options{Transport: &legsOf{prefill: c.prefill, decode: c.decode}, Engine: "http://127.0.0.1:8200", DeathWait: time.Millisecond, Now: func() time.Time {
			if c.late { // each look is a minute later
				return time.Unix(1000+60*looks.Add(1), 0)
			}
			return time.Unix(1000, 0)
		}}
		s, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"messages":[]}`))
		r.Header.Set(headerPrefiller, "10.0.0.1:8000")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		got := kvtransfer.ParseReport(w.Header().Get(request.HeaderKVTransfer))
		got.Prefill, got.Decode = 0, 0
		if w.Code != http.StatusOK || got != c.want {
			t.Errorf("%s: status %d, report %+v, want %+v", name, w.Code, got, c.want)
		}
	}
}

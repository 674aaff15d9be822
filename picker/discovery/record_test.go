package discovery

import (
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

func fullRecord() *Record {
	return &Record{
		From: "InferencePool prod/llama", Read: time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC),
		Found: Found{
			Specs: []endpoint.Spec{{
				Name: "vllm-0", Namespace: "prod", Cluster: "east", Host: "10.0.0.1", Addr: netip.MustParseAddrPort("10.0.0.1:8000"), Labels: map[string]string{"app": "vllm"},
				Rank: 1, Models: []string{"m"}, Events: endpoint.Events{Port: 5557, ReplayPort: 5558, Topic: "kv", Ranks: 2, Host: "h", Inbound: true},
				Metrics: "http://10.0.0.1:9100/metrics", Instance: "uid/0",
			}, {Host: "fd00::1", Addr: netip.MustParseAddrPort("[fd00::1]:8000")}},
			Names: request.Names{Objectives: map[string]int{"gold": 10}, Rewrites: map[string]request.Rewrite{"m": {{Model: "m2", Weight: 3}}}},
		},
	}
}

// TestRecordKeepsEveryField also reads a record that an earlier build wrote.
func TestRecordKeepsEveryField(t *testing.T) {
	want := fullRecord()
	v := reflect.ValueOf(want.Found.Specs[0])
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("the test sets no %s", v.Type().Field(i).Name)
		}
	}
	b, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	stored, err := os.ReadFile("testdata/record.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(b), string(stored)} {
		got, err := DecodeRecord([]byte(text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
			t.Errorf("DecodeRecord() differs (-want +got):\n%s\nfrom %s", diff, text)
		}
	}
}

func TestRecordRefusesInvalid(t *testing.T) {
	b, err := fullRecord().Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{
		{`"Format":1`, `"Format":2`}, {"InferencePool prod/llama", ""}, {"10.0.0.1:8000", "0.0.0.0:8000"}, {"10.0.0.1:8000", "224.0.0.1:8000"},
		{"10.0.0.1:8000", "169.254.169.254:80"}, {"10.0.0.1:8000", "10.0.0.1:0"}, {"10.0.0.1:8000", "[fd00::1]:8000"}, {"10.0.0.1:8000", ""}, {"}", ""},
	} {
		text := strings.Replace(string(b), change[0], change[1], 1)
		if text == string(b) {
			t.Fatalf("%s does not contain %q", b, change[0])
		}
		if r, err := DecodeRecord([]byte(text)); err == nil {
			t.Errorf("DecodeRecord(%s) = %+v, want an error", text, r)
		}
	}
}

func FuzzDecodeRecord(f *testing.F) {
	b, err := fullRecord().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, b []byte) {
		r, err := DecodeRecord(b)
		if err != nil {
			return
		}
		again, err := r.Encode()
		if err != nil {
			return // a year that JSON does not allow
		}
		if _, err := DecodeRecord(again); err != nil {
			t.Errorf("DecodeRecord(%s): %v", again, err)
		}
	})
}

package extproc

import (
	"context"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// A large body whose KV transfer fields are removed is parsed twice within one turn. Two
// turns would wait for each other where the budget has one.
func TestLargeBodyWithKVTransferFieldsTakesOneTurn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	l := &ledger{decision: request.Decision{Endpoints: []string{"10.0.0.1:80"}}}
	p, err := New(Options{Chooser: l, Parse: request.Parse, KVTransfer: kvtransfer.Policy{Action: kvtransfer.Strip}, Budget: budget.New(1 << 30)})
	if err != nil {
		t.Fatal(err)
	}
	body := `{"model":"m","bootstrap_room":1,"prompt":"` + strings.Repeat("a", 300<<10) + `"}`
	link := &scriptedLink{end: io.EOF, in: []*extprocv3.ProcessingRequest{
		{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: scriptHeaders(nil, ":path=/v1/completions", false)}},
		{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: []byte(body), EndOfStream: true}}},
	}}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := p.process(ctx, link); err != nil || len(l.requests) != 1 {
		t.Fatalf("process() = %v with %d decisions, want one decision", err, len(l.requests))
	}
	if got, want := len(l.requests[0].Body), len(body)-len(`"bootstrap_room":1,`); got != want {
		t.Errorf("body of %d bytes, want %d", got, want)
	}
}

package extproc_test

import (
	"context"
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/grapevine-epp/grapevine/extproc"
	"github.com/grapevine-epp/grapevine/extproc/internal/wire"
	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/listen"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// queueing is a chooser with which requests wait until it is opened.
type queueing struct {
	book
	came chan struct{}
	open chan struct{}
}

func (q *queueing) Choose(ctx context.Context, r *request.Request) (*picker.Decision, error) {
	q.came <- struct{}{}
	select {
	case <-q.open:
		return q.book.Choose(ctx, r)
	case <-ctx.Done():
		return nil, request.Errorf(request.ReasonCancelled, "gone")
	}
}

// TestBodiesThatWaitHoldMemory: what waits keeps its part of the process's memory; who comes
// when nothing is left is told 503 at once, and as soon as those that waited are gone the
// next one is served.
func TestBodiesThatWaitHoldMemory(t *testing.T) {
	const size = 600 << 10
	memory := budget.New(10 << 20) // 2 MiB are for bodies: three of these
	q := &queueing{book: book{endpoints: []string{"10.0.0.1:80"}}, came: make(chan struct{}, 8), open: make(chan struct{})}
	s, _ := opened(t, extproc.Options{Chooser: q, Budget: memory}, extproc.Listen{TLS: listen.TLS{Plaintext: true}})
	client := extprocv3.NewExternalProcessorClient(dial(t, s.Addr(), insecure.NewCredentials()))
	messages := duplexMessages(size)
	done := make(chan error, 3)
	for range 3 {
		go func() { done <- oneStream(client, messages, size) }()
		<-q.came
	}
	stream, err := client.Process(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages[:len(messages)-2] {
		if stream.Send(m) != nil { // it was answered and ended
			break
		}
	}
	answer, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	refused := answer.GetImmediateResponse()
	drop := ""
	for _, h := range refused.GetHeaders().GetSetHeaders() {
		if h.Header.Key == extproc.HeaderDropReason {
			drop = string(h.Header.RawValue)
		}
	}
	if code := refused.GetStatus().GetCode(); code != 503 || drop != wire.DropOverloaded {
		t.Errorf("without memory: status %v %q", code, drop)
	}
	close(q.open)
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	testkit.Await(t, "the memory of bodies is free", func() bool { return memory.Used(budget.Bodies) == 0 })
	if err := oneStream(client, messages, size); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

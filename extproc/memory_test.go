package extproc_test

import (
	"context"
	"errors"
	"io"
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/grapevine-epp/grapevine/extproc"
	"github.com/grapevine-epp/grapevine/extproc/internal/wire"
	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/listen"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// queueing is a chooser with which requests wait until it is opened.
type queueing struct {
	book
	came chan struct{}
	open chan struct{}
}

func (q *queueing) Choose(ctx context.Context, r *request.Request) (*request.Decision, error) {
	q.came <- struct{}{}
	select {
	case <-q.open:
		return q.book.Choose(ctx, r)
	case <-ctx.Done():
		return nil, request.Errorf(request.ReasonCancelled, "gone")
	}
}

// TestBodiesThatDoNotEnd: bodies without an end fill the memory. A request of the usual size is
// still scheduled, and the largest body is aborted.
func TestBodiesThatDoNotEnd(t *testing.T) {
	const size, usual = 896 << 10, 8 << 10
	memory := budget.New(10 << 20) // 2 MiB are for bodies
	b := &book{endpoints: []string{"10.0.0.1:80"}}
	s, _ := opened(t, extproc.Options{Chooser: b, Budget: memory}, extproc.Listen{TLS: listen.TLS{Plaintext: true}})
	client := extprocv3.NewExternalProcessorClient(dial(t, s.Addr(), insecure.NewCredentials()))
	messages := duplexMessages(size)
	slow := func(n int) (stream extprocv3.ExternalProcessor_ProcessClient) {
		before := memory.Used(budget.Bodies)
		stream, err := client.Process(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages[:1+n/(16<<10)] { // its headers, and n bytes
			if err := stream.Send(m); err != nil {
				t.Fatal(err)
			}
		}
		testkit.Await(t, "the body is held", func() bool { return memory.Used(budget.Bodies) == before+int64(n) })
		return stream
	}
	largest := slow(size - 16<<10)
	rest := int(memory.Share(budget.Bodies)-memory.Used(budget.Bodies)) / (16 << 10) * (16 << 10)
	other := slow(min(rest, size-32<<10))
	third := slow(int(memory.Share(budget.Bodies)-memory.Used(budget.Bodies)) / (16 << 10) * (16 << 10))
	fourth, err := client.Process(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	left := int(memory.Share(budget.Bodies) - memory.Used(budget.Bodies)) // less than a message
	piece := &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: make([]byte, left)}}}
	for _, m := range []*extprocv3.ProcessingRequest{messages[0], piece} {
		if err := fourth.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Await(t, "nothing is left", func() bool { return memory.Used(budget.Bodies) == memory.Share(budget.Bodies) })
	if err := oneStream(client, duplexMessages(usual), usual); err != nil {
		t.Errorf("a request of the usual size is not placed: %v", err)
	}
	if _, err := largest.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("the largest body that does not end: %v", err)
	}
	testkit.Await(t, "its memory is free", func() bool { return memory.Used(budget.Bodies) == memory.Share(budget.Bodies)-(size-16<<10) })
	for _, stream := range []extprocv3.ExternalProcessor_ProcessClient{other, third, fourth} { // these wait on
		if err := stream.CloseSend(); err != nil {
			t.Error(err)
		}
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("another body that does not end: %v", err)
		}
	}
	testkit.Await(t, "all is free", func() bool { return memory.Used(budget.Bodies) == 0 })
}

// TestBodiesThatWaitHoldMemory: waiting requests keep their part of the process's memory. If none
// is left, a new request gets 503 at once. When the waiting ones are gone, the next one is served.
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

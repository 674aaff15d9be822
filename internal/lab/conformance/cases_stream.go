package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

func streamCases() []Case {
	const (
		intro     = protocol + ", Proposal"
		implement = "The EPP MUST implement the Envoy external processing service protocol."
	)
	return []Case{
		{"close-early", Must, intro, implement, "streams that the proxy cancels before the headers, after them, within the body, within the response; the next request is placed", closeEarly},
		{"concurrent", Must, intro, implement, "50 requests at the same time on one connection; all are placed", concurrent},
		{"two-gateways", Must, intro, implement, "10 pairs of interleaved requests on two connections, each with its own subset; each is placed within its own", twoGateways},
		{"repeated-end", Should, practice + ": envoyproxy/envoy#46237", "Envoy can send a second body message with end_of_stream for large bodies in full duplex.",
			"POST with two body messages that end the stream; a destination, the bytes of the first, and an answer to a response", repeatedEnd},
		{"half-close", May, practice + ": NGINX Gateway Fabric", "The proxy closes its side after the request and reads until the picker ends the stream.", "POST, then close; a destination, then the end of the stream", halfClose},
		{"decision-time", Should, extProcFilter, "If not configured, default is 200 milliseconds [message_timeout].", "21 GETs, one after the other; the median is at most 200 ms", decisionTime},
	}
}

// hostileCases can end a picker, so that they come last.
func hostileCases() []Case {
	return []Case{
		{"out-of-order", Must, protocol + ", Proposal", "The EPP MUST implement the Envoy external processing service protocol.",
			"complete messages in 9 impossible orders, each on its own stream; the next request is placed", outOfOrder},
		{"incomplete-messages", Should, "Protocol Buffers, proto3: field presence", "Every message field is optional: a decoder must expect its absence.",
			"a message without content, headers without a header list, trailers without a list, each on its own stream; the next request is placed", incompleteMessages},
	}
}

func closeEarly(ctx context.Context, s *session) (string, error) {
	const stages = 5
	for stage := range stages {
		inner, cancel := context.WithTimeout(ctx, time.Second)
		s.leave(inner, stage)
		cancel()
	}
	return fmt.Sprintf("placed after %d canceled streams", stages), s.survived(ctx)
}

// leave starts a request and returns at a stage of it. Errors are the case under test.
func (s *session) leave(ctx context.Context, stage int) {
	r := s.streaming()
	switch stage {
	case 0:
		_, _ = s.client.Process(ctx)
	case 1:
		_, _ = s.open(ctx, s.client, r)
	case 2:
		if a, err := s.open(ctx, s.client, r); err == nil {
			_ = a.send(bodyMessage(r.chunks[0][:10], false))
		}
	case 3:
		_, _ = s.ask(ctx, r)
	case 4:
		if a, err := s.finish(ctx, r); err == nil && a.immediate == nil {
			if head, err := sse(events...).head(); err == nil {
				_ = a.send(head)
			}
		}
	}
}

// bad sends each sequence on a stream of its own and checks that the picker survives.
func (s *session) bad(ctx context.Context, sequences [][]*extproc.ProcessingRequest) (string, error) {
	for i, list := range sequences {
		inner, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		if stream, err := s.client.Process(inner); err == nil {
			for _, m := range list {
				_ = stream.Send(m) // the picker may have ended the stream
			}
			for err == nil {
				_, err = stream.Recv()
			}
		}
		cancel()
		if err := s.survived(ctx); err != nil {
			return "", fmt.Errorf("after sequence %d: %w", i+1, err)
		}
	}
	return fmt.Sprintf("placed after each of %d streams", len(sequences)), nil
}

func outOfOrder(ctx context.Context, s *session) (string, error) {
	r := s.post("in the wrong order")
	head, err := s.head(r)
	if err != nil {
		return "", err
	}
	answerHead, err := sse().head()
	if err != nil {
		return "", err
	}
	var (
		body     = bodyMessage(r.chunks[0], true)
		part     = bodyMessage(r.chunks[0][:5], false)
		answered = &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseBody{ResponseBody: &extproc.HttpBody{Body: []byte("x"), EndOfStream: true}}}
		trailers = &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestTrailers{RequestTrailers: &extproc.HttpTrailers{Trailers: &corev3.HeaderMap{}}}}
		ending   = &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extproc.HttpTrailers{Trailers: &corev3.HeaderMap{}}}}
	)
	return s.bad(ctx, [][]*extproc.ProcessingRequest{
		{body}, {part, head}, {trailers}, {ending, answerHead}, {answered, answerHead, head, body},
		{head, head, body}, {head, answerHead, body}, {head, part, trailers, body}, {head, body, body, head},
	})
}

func incompleteMessages(ctx context.Context, s *session) (string, error) {
	r := s.post("incomplete")
	head, err := s.head(r)
	if err != nil {
		return "", err
	}
	return s.bad(ctx, [][]*extproc.ProcessingRequest{
		{{}, head, {}},
		{head, {Request: &extproc.ProcessingRequest_RequestTrailers{RequestTrailers: &extproc.HttpTrailers{}}}},
		{head, {Request: &extproc.ProcessingRequest_RequestBody{}}},
		{{Request: &extproc.ProcessingRequest_RequestHeaders{RequestHeaders: &extproc.HttpHeaders{}}}, bodyMessage(r.chunks[0], true)},
		{head, bodyMessage(r.chunks[0], true), {Request: &extproc.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extproc.HttpHeaders{}}}},
	})
}

func concurrent(ctx context.Context, s *session) (string, error) {
	errs := make([]error, 50)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { _, errs[i] = s.placed(ctx, s.post(fmt.Sprint("number ", i)), s.known) })
	}
	wg.Wait()
	failed := slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil })
	if len(failed) > 0 {
		return "", fmt.Errorf("%d of %d failed: %w", len(failed), len(errs), failed[0])
	}
	return "50 of 50 placed", nil
}

func twoGateways(ctx context.Context, s *session) (string, error) {
	for range 10 {
		var list [2]*answer
		var requests [2]request
		for i, client := range []extproc.ExternalProcessorClient{s.client, s.second} {
			requests[i] = s.post(fmt.Sprint("by way of gateway ", i)).within([]any{s.Endpoints[i]})
			a, err := s.open(ctx, client, requests[i])
			if err != nil {
				return "", err
			}
			list[i] = a
		}
		time.Sleep(20 * time.Millisecond) // the picker has read both headers by then
		for _, i := range []int{1, 0} {   // the bodies come in the other order
			if err := list[i].sendBody(requests[i]); err != nil {
				return "", err
			}
		}
		for i, a := range list {
			err := a.read(requests[i], isHead)
			if err == nil {
				_, err = a.destinations(s.known[i : i+1])
			}
			if err != nil {
				return "", fmt.Errorf("gateway %d: %w", i+1, err)
			}
		}
	}
	return "20 of 20 within their own subset", nil
}

func repeatedEnd(ctx context.Context, s *session) (string, error) {
	a, err := s.passes(ctx, s.streaming())
	if err != nil {
		return "", err
	}
	if err := a.send(bodyMessage("", true)); err != nil {
		return "", err
	}
	out, err := a.respond(sse(events...))
	if err == nil && out.body.Len() == 0 {
		err = errors.New("the response was not forwarded")
	}
	return "the second end is ignored", err
}

func halfClose(ctx context.Context, s *session) (string, error) {
	a, err := s.passes(ctx, s.post("no response follows"))
	if err != nil {
		return "", err
	}
	if err := a.stream.CloseSend(); err != nil {
		return "", err
	}
	for err == nil {
		_, err = a.stream.Recv()
	}
	if !errors.Is(err, io.EOF) {
		return "", endOf(err)
	}
	return "placed, then the stream ended", nil
}

func decisionTime(ctx context.Context, s *session) (string, error) {
	const limit = 200 * time.Millisecond
	took := make([]time.Duration, 21)
	for i := range took {
		start := time.Now()
		if _, err := s.accepted(ctx, get("/health")); err != nil {
			return "", err
		}
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	if took[len(took)/2] > limit {
		return "", fmt.Errorf("the median is %v", took[len(took)/2].Round(time.Millisecond))
	}
	return "the median is at most 200 ms", nil
}

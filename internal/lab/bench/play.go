package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// player plays one request after the other on one connection. It is not safe for concurrent use.
type player struct {
	client   extproc.ExternalProcessorClient
	opts     Options
	corpus   *corpus
	response []byte

	// State of the current request.
	stream      extproc.ExternalProcessor_ProcessClient
	cancel      context.CancelFunc
	body        []byte
	back        []byte    // request body as returned
	answered    time.Time // when the destination arrived
	destination string    // of the request
	refused     bool      // an immediate response ended the request
	asked       filter.ProcessingMode_BodySendMode
	messages    int // messages sent to the picker
}

// play plays request n until its stream ends, and sets answered and refused.
func (p *player) play(ctx context.Context, n uint64) error {
	ctx, p.cancel = context.WithTimeout(ctx, p.opts.Timeout)
	defer p.cancel()
	stream, err := p.client.Process(ctx)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	p.stream = stream
	p.answered, p.destination, p.refused, p.asked, p.messages = time.Time{}, "", false, filter.ProcessingMode_NONE, 0
	p.body = p.corpus.appendRequest(p.body[:0], n)
	first := requestHeaders(p.opts.Mode, n, len(p.body))
	if p.opts.Mode == Buffered {
		err = p.buffered(first)
	} else {
		err = p.fullDuplex(first)
	}
	switch {
	case err != nil:
		return err
	case p.refused:
		return nil
	case p.answered.IsZero():
		return fmt.Errorf("no answer has the header %s", headerDestination)
	}
	return p.finish()
}

// finish ends the stream as Envoy does.
func (p *player) finish() error {
	if err := p.stream.CloseSend(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	extra, err := p.stream.Recv()
	if err == nil {
		k, _ := unpack(extra)
		return fmt.Errorf("close: %s too many", k)
	}
	if !errors.Is(err, io.EOF) {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}

func (p *player) fullDuplex(first *message) error {
	if err := p.exchange(requestSide, first, p.body); err != nil {
		return fmt.Errorf("request: %w", err)
	}
	if p.refused {
		return nil
	}
	if err := p.exchange(responseSide, responseHeaders(), p.response); err != nil {
		return fmt.Errorf("response: %w", err)
	}
	return nil
}

// exchange sends headers and body in full-duplex mode and receives the whole body. It sends and
// receives concurrently, because a picker may return chunks before it has received the last one.
func (p *player) exchange(d direction, headers *message, body []byte) error {
	sent := make(chan error, 1)
	go func() { sent <- p.send(d, headers, body) }()
	err := p.receive(d, body)
	over := err != nil || p.refused
	if over {
		p.cancel() // unblocks a sender
	}
	if sendErr := <-sent; !over {
		err = sendErr
	}
	return err
}

func (p *player) send(d direction, headers *message, body []byte) error {
	p.messages++
	if err := p.stream.Send(headers); err != nil {
		return err
	}
	size, wait := p.opts.Chunk, time.Duration(0)
	if d.body == toResponseBody {
		size, wait = p.opts.responseChunk(), p.opts.ResponsePace
	}
	for {
		time.Sleep(wait)
		n := min(len(body), size)
		p.messages++
		if err := p.stream.Send(d.chunk(body[:n], n == len(body))); err != nil {
			return err
		}
		if body = body[n:]; len(body) == 0 {
			return nil
		}
	}
}

// receive expects the answer to the headers, then the unchanged body except for an added report.
func (p *player) receive(d direction, body []byte) error {
	started := false
	p.back = p.back[:0]
	for {
		a, err := p.stream.Recv()
		if err != nil {
			return noEOF(err)
		}
		k, common := unpack(a)
		switch {
		case k == immediate:
			p.refused = true
			return nil
		case k == d.headers && !started:
			started = true
			p.note(common)
		case k == d.body && started:
			chunk := common.GetBodyMutation().GetStreamedResponse()
			if p.back = append(p.back, chunk.GetBody()...); len(p.back) > len(body)+len(report) {
				return fmt.Errorf("the body that came back is longer than %d bytes", len(body))
			}
			if chunk.GetEndOfStream() {
				return same(p.back, body)
			}
		default:
			return fmt.Errorf("%s out of order", k)
		}
	}
}

// report is a field that a picker may add to one request in fifty. It requests a report of the
// engine's cache.
var report = []byte(`,"vllm_xargs":{"kv_cache_report_mode":"full"}`)

// same compares the returned body with the sent one.
func same(back, body []byte) error {
	if at := bytes.Index(back, report); at >= 0 && !bytes.Contains(body, report) {
		back = append(back[:at], back[at+len(report):]...)
	}
	switch {
	case bytes.Equal(back, body):
		return nil
	case bytes.HasPrefix(body, back):
		return fmt.Errorf("the body that came back lacks %d bytes at its end", len(body)-len(back))
	}
	return errors.New("the body that came back differs")
}

// note records the arrival of the destination.
func (p *player) note(c *extproc.CommonResponse) {
	if !p.answered.IsZero() {
		return
	}
	if to := destination(c); to != "" {
		p.answered, p.destination = time.Now(), to
	}
}

// buffered plays the resilient configuration: one answer per message.
func (p *player) buffered(first *message) error {
	if err := p.ask(first, toRequestHeaders); err != nil || p.refused {
		return err
	}
	if err := p.ask(requestChunk(p.body, true), toRequestBody); err != nil || p.refused {
		return err
	}
	if err := p.ask(responseHeaders(), toResponseHeaders); err != nil {
		return err
	}
	return p.askedBody()
}

// askedBody sends the response body if an answer has requested it.
func (p *player) askedBody() error {
	chunk := len(p.response)
	switch p.asked {
	case filter.ProcessingMode_STREAMED:
		chunk = p.opts.responseChunk()
	case filter.ProcessingMode_BUFFERED, filter.ProcessingMode_BUFFERED_PARTIAL:
	default:
		return nil
	}
	for body := p.response; len(body) > 0; {
		time.Sleep(p.opts.ResponsePace)
		n := min(len(body), chunk)
		if err := p.ask(responseChunk(body[:n], n == len(body)), toResponseBody); err != nil {
			return err
		}
		body = body[n:]
	}
	return nil
}

// ask sends a message and expects an answer of kind want.
func (p *player) ask(m *message, want kind) error {
	p.messages++
	// After io.EOF, Recv returns the reason for the end of the stream.
	if err := p.stream.Send(m); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	a, err := p.stream.Recv()
	if err != nil {
		return fmt.Errorf("%s: %w", want, noEOF(err))
	}
	k, common := unpack(a)
	if k == immediate && (want == toRequestHeaders || want == toRequestBody) {
		p.refused = true
		return nil
	}
	if k != want {
		return fmt.Errorf("%s instead of %s", k, want)
	}
	if b := common.GetBodyMutation().GetBody(); b != nil && want == toRequestBody {
		if err := same(b, p.body); err != nil {
			return err
		}
	}
	if o := a.GetModeOverride(); o != nil {
		p.asked = o.GetResponseBodyMode()
	}
	p.note(common)
	return nil
}

// noEOF turns io.EOF into an error where the stream must not end.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

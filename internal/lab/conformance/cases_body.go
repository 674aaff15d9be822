package conformance

import (
	"context"
	"fmt"
	"strings"
	"time"
)

func bodyCases() []Case {
	const (
		streaming = "The EPP MUST support streaming mode for inference requests and responses."
		intro     = protocol + ", Proposal"
		back      = "The server needs to send StreamedBodyResponse to the client in the body response."
	)
	return []Case{
		{"duplex-pieces", Must, bodyModes, back, "bodies cut at several places, the last piece empty; a destination and the same content", duplexPieces},
		{"duplex-large", Must, bodyModes, back, "2 MiB in pieces of 64 KiB; a destination and the same content", duplexLarge},
		{"duplex-order", Must, bodyModes, "The server response has to maintain the headers-body-trailers ordering.", "POST in pieces; one answer to the headers, and before all of the body", duplexOrder},
		{"duplex-trailers", Must, extProc, "The HTTP trailers for the request path. Unless observability_mode is true, the server must send back a TrailerResponse message or close the stream.",
			"POST that ends with trailers; a destination, the same content, an answer to the trailers", duplexTrailers},
		{"duplex-without-config", Must, intro, streaming, "POST in full duplex without protocol_config, as older proxies send it; a destination and the same content", duplexWithoutConfig},
		{"duplex-bytes", Should, practice + ": clients that sign bodies, engines that hash or log them", "A picker that does not rewrite the model forwards the body byte for byte.",
			"JSON with unsorted members and an integer above 2^53; the same bytes", duplexBytes},
		{"duplex-message-size", Should, bodyModes, "The individual response chunk size is recommended to be no greater than 64K bytes.", "1 MiB; no body message above 64 KiB", duplexMessageSize},
		{"duplex-slow", Should, extProcFilter, "There is no timeout when the filter is running in observability mode or when the body send mode is FULL_DUPLEX_STREAMED.",
			"a body in three pieces, 300 ms before each; a destination and the same content", duplexSlow},
		{"mode-buffered", May, bodyModes, "Buffer the message body in memory and send the entire body at once.", "POST with the body in one message after the answer to the headers; a destination", modeBuffered},
		{"mode-streamed", May, bodyModes, "Stream the body to the server in pieces as they are seen.", "POST, each piece sent after the answer to the one before; a destination in the answer to the headers", modeStreamed},
		{"mode-none", May, bodyModes, "Do not send the body at all. This is the default.", "the headers of a POST whose body is not sent; a destination", modeNone},
	}
}

// words returns a text of about n bytes.
func words(n int) string { return strings.Repeat("many words ", n/11) }

// passes sends a request and checks that it is placed and its body is forwarded.
func (s *session) passes(ctx context.Context, r request) (*answer, error) {
	a, err := s.finish(ctx, r)
	if err == nil {
		_, err = a.destinations(s.known)
	}
	if err == nil {
		err = sameContent(strings.Join(r.chunks, ""), a.body)
	}
	return a, err
}

func duplexPieces(ctx context.Context, s *session) (string, error) {
	r := s.post("a body in pieces")
	whole := r.chunks[0]
	for _, cuts := range [][]int{{1}, {len(whole) / 2}, {len(whole) - 1}, {5, 20, 30}} {
		r.chunks = nil
		rest := whole
		for _, at := range cuts {
			at = min(at, len(rest))
			r.chunks, rest = append(r.chunks, rest[:at]), rest[at:]
		}
		r.chunks = append(r.chunks, rest, "")
		if _, err := s.passes(ctx, r); err != nil {
			return "", fmt.Errorf("cut at %v: %w", cuts, err)
		}
	}
	return "the same content", nil
}

func duplexLarge(ctx context.Context, s *session) (string, error) {
	_, err := s.passes(ctx, s.post(words(2<<20)).cut(64<<10))
	return "the same content", err
}

func duplexOrder(ctx context.Context, s *session) (string, error) {
	a, err := s.passes(ctx, s.post("in order, please").cut(10))
	if err == nil && a.heads != 1 {
		err = fmt.Errorf("%d answers to the headers", a.heads)
	}
	return "headers, then body", err
}

func duplexTrailers(ctx context.Context, s *session) (string, error) {
	r := s.post("with trailers")
	r.trailers = true
	_, err := s.passes(ctx, r)
	return "placed, the same content, an answer to the trailers", err
}

func duplexWithoutConfig(ctx context.Context, s *session) (string, error) {
	r := s.post("from an older proxy")
	r.noConfig = true
	_, err := s.passes(ctx, r)
	return "placed, the same content", err
}

func duplexBytes(ctx context.Context, s *session) (string, error) {
	r := s.raw(fmt.Sprintf(`{"stream": false, "prompt":"x","model":%q, "seed":9007199254740993,"max_tokens":1}`, s.Model))
	a, err := s.finish(ctx, r)
	if err == nil {
		_, err = a.destinations(s.known)
	}
	if err == nil && a.body != r.chunks[0] {
		err = fmt.Errorf("the body was encoded anew: %.160s", a.body)
	}
	return "the same bytes", err
}

func duplexMessageSize(ctx context.Context, s *session) (string, error) {
	a, err := s.passes(ctx, s.post(words(1<<20)).cut(256<<10))
	if err == nil && a.largest > 64<<10 {
		err = fmt.Errorf("a body message of %d bytes", a.largest)
	}
	return "at most 64 KiB", err
}

func duplexSlow(ctx context.Context, s *session) (string, error) {
	r := s.post("a slow client")
	r = r.cut((len(r.chunks[0]) + 2) / 3)
	r.pause = 300 * time.Millisecond
	_, err := s.passes(ctx, r)
	return "placed, the same content", err
}

func (s *session) placedIn(ctx context.Context, m mode) (string, error) {
	r := s.post("another mode").cut(20)
	r.mode = m
	_, err := s.placed(ctx, r, s.known)
	return "placed", err
}

func modeBuffered(ctx context.Context, s *session) (string, error) { return s.placedIn(ctx, buffering) }
func modeStreamed(ctx context.Context, s *session) (string, error) { return s.placedIn(ctx, streamed) }
func modeNone(ctx context.Context, s *session) (string, error)     { return s.placedIn(ctx, withoutBody) }

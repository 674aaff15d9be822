package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"

	"google.golang.org/grpc/health/grpc_health_v1"
)

// Cases returns all rules, in the order of a run.
func Cases() []Case {
	return []Case{
		{"destination", Must, "a request is given ip:port of ready endpoints, the same in header and in envoy.lb metadata", destinations},
		{"headers-only", Must, "a request without a body is placed at its headers", headersOnly},
		{"body-passes", Must, "a body that comes in pieces goes on as it came", bodyPasses},
		{"body-large", Must, "a body of 2 MiB is placed and goes on as it came", bodyLarge},
		{"request-trailers", Must, "a request that ends with trailers is placed", requestTrailers},
		{"subset-list", Must, "the destination is within the subset, a list of ip:port", subsetList},
		{"subset-empty", Must, "a subset that names nobody is answered with 503", subsetEmpty},
		{"subset-foreign", Must, "a subset that names no endpoint of the pool is answered with 503", subsetForeign},
		{"spoofed-destination", Must, "a client's own destination header is overwritten", spoofed},
		{"foreign-metadata", Must, "metadata of others changes nothing", foreignMetadata},
		{"response-passes", Must, "a streamed response goes on as it came, and who served it may be said", responsePasses},
		{"abandoned", Must, "streams that proxies abandon at any point do no harm", abandoned},
		{"concurrent", Must, "fifty requests at a time are all placed", concurrent},
		{"health", Must, "the health service says SERVING for the picker's name and for none", healthy},
		{"unknown-path", Must, "a request that is of no known kind is placed", unknownPath},
		{"buffered", May, "a proxy that buffers the body is answered to headers and body", buffered},
		{"subset-string", May, "the subset may be one string of ip:port separated by commas", subsetString},
		{"subset-addresses", May, "an address without port in the subset stands for all ports of it", subsetAddresses},
		{"health-inference-extension", May, "the health service knows the name that charts probe", healthOfCharts},
		{"unknown-model", May, "older text: a model that nobody serves is answered with 404", unknownModel},
		{"fallback-key", May, "older text: a second endpoint under the fallback key", fallbackKey},
	}
}

// placed sends a request and checks the destination in the answer.
func (s *session) placed(ctx context.Context, r request, among []netip.AddrPort) (*answer, error) {
	a, err := s.ask(ctx, r)
	if err != nil {
		return nil, err
	}
	return a, a.placed(among)
}

func destinations(ctx context.Context, s *session) error {
	_, err := s.placed(ctx, s.post("where to"), s.known)
	return err
}

func headersOnly(ctx context.Context, s *session) error {
	_, err := s.placed(ctx, request{method: "GET", path: "/health"}, s.known)
	return err
}

func bodyPasses(ctx context.Context, s *session) error {
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
		a, err := s.placed(ctx, r, s.known)
		if err == nil && a.body != whole {
			err = fmt.Errorf("%d bytes went on as %d others: %.200s", len(whole), len(a.body), a.body)
		}
		if err != nil {
			return fmt.Errorf("cut at %v: %w", cuts, err)
		}
	}
	return nil
}

func bodyLarge(ctx context.Context, s *session) error {
	r := s.post(strings.Repeat("many words ", 2<<20/11))
	whole := r.chunks[0]
	r.chunks = nil
	for rest := whole; rest != ""; {
		n := min(len(rest), 64<<10)
		r.chunks, rest = append(r.chunks, rest[:n]), rest[n:]
	}
	a, err := s.placed(ctx, r, s.known)
	if err == nil && a.body != whole {
		err = fmt.Errorf("%d bytes went on as %d", len(whole), len(a.body))
	}
	return err
}

func requestTrailers(ctx context.Context, s *session) error {
	r := s.post("with trailers")
	r.trailers = true
	a, err := s.placed(ctx, r, s.known)
	if err == nil && a.body != r.chunks[0] {
		err = fmt.Errorf("the body went on as %.200q", a.body)
	}
	return err
}

func subsetList(ctx context.Context, s *session) error {
	for i, e := range s.Endpoints {
		if _, err := s.placed(ctx, s.post("within").within([]any{e}), s.known[i:i+1]); err != nil {
			return err
		}
	}
	_, err := s.placed(ctx, s.post("within two").within([]any{s.Endpoints[0], s.Endpoints[1], "192.0.2.1:1"}), s.known[:2])
	return err
}

func subsetString(ctx context.Context, s *session) error {
	_, err := s.placed(ctx, s.post("within").within(s.Endpoints[1]+", 192.0.2.1:1"), s.known[1:2])
	return err
}

func subsetAddresses(ctx context.Context, s *session) error {
	var among []netip.AddrPort
	for _, a := range s.known {
		if a.Addr() == s.known[1].Addr() {
			among = append(among, a)
		}
	}
	_, err := s.placed(ctx, s.post("within").within([]any{s.known[1].Addr().String()}), among)
	return err
}

func (s *session) refused(ctx context.Context, r request, code int) error {
	a, err := s.ask(ctx, r)
	if err != nil {
		return err
	}
	return a.refused(code)
}

func subsetEmpty(ctx context.Context, s *session) error {
	return s.refused(ctx, s.post("nobody").within([]any{}), 503)
}

func subsetForeign(ctx context.Context, s *session) error {
	return s.refused(ctx, s.post("nobody of ours").within([]any{"192.0.2.1:8000"}), 503)
}

func spoofed(ctx context.Context, s *session) error {
	r := s.post("elsewhere")
	r.headers = map[string]string{destination: "192.0.2.1:8000"}
	_, err := s.placed(ctx, r, s.known)
	return err
}

func foreignMetadata(ctx context.Context, s *session) error {
	r := s.post("with metadata")
	r.metadata = map[string]map[string]any{
		namespaceIn: {"another-key": []any{"192.0.2.1:1"}}, "envoy.filters.http.jwt_authn": {"sub": "x"}, namespaceLB: {destination: "192.0.2.1:1"},
	}
	_, err := s.placed(ctx, r, s.known)
	return err
}

func responsePasses(ctx context.Context, s *session) error {
	a, err := s.placed(ctx, s.post("answered"), s.known)
	if err != nil {
		return err
	}
	chunks := []string{"data: {\"choices\":[{\"text\":\"a\"}]}\n\n", "data: {\"choi", "ces\":[]}\n\n", "data: [DONE]\n\n"}
	body, err := a.respond(s.Endpoints[0], chunks...)
	if want := strings.Join(chunks, ""); err == nil && body != want {
		err = fmt.Errorf("the response went on as %.300q", body)
	}
	return err
}

func abandoned(ctx context.Context, s *session) error {
	r := s.post("never mind")
	for stage := range 4 {
		inner, cancel := context.WithCancel(ctx)
		stream, err := s.client.Process(inner)
		if err != nil {
			cancel()
			return err
		}
		if head, err := r.head(); stage > 0 && err == nil {
			_ = stream.Send(head) // the stream may already have ended, which is the case under test
		}
		if stage > 1 {
			_, _ = s.ask(inner, r)
		}
		if stage > 2 {
			_ = stream.CloseSend()
		}
		cancel()
	}
	_, err := s.placed(ctx, r, s.known)
	return err
}

func concurrent(ctx context.Context, s *session) error {
	errs := make([]error, 50)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { _, errs[i] = s.placed(ctx, s.post(fmt.Sprint("number ", i)), s.known) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func unknownPath(ctx context.Context, s *session) error {
	_, err := s.placed(ctx, request{method: "POST", path: "/some/other/api", chunks: []string{`{"x":1}`}}, s.known)
	return err
}

func (s *session) serving(ctx context.Context, names ...string) error {
	if s.health == nil {
		return skipped("wants the address of the health service")
	}
	for _, name := range names {
		r, err := s.health.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: name})
		if err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
		if r.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			return fmt.Errorf("%q is %v", name, r.GetStatus())
		}
	}
	return nil
}

func healthy(ctx context.Context, s *session) error {
	return s.serving(ctx, "", "envoy.service.ext_proc.v3.ExternalProcessor")
}

func healthOfCharts(ctx context.Context, s *session) error {
	return s.serving(ctx, "inference-extension")
}

func buffered(ctx context.Context, s *session) error {
	r := s.post("held by the proxy")
	r.buffered = true
	_, err := s.placed(ctx, r, s.known)
	return err
}

func unknownModel(ctx context.Context, s *session) error {
	r := s.post("")
	r.chunks = []string{`{"model":"a-model-that-nobody-serves","prompt":"x"}`}
	return s.refused(ctx, r, 404)
}

func fallbackKey(ctx context.Context, s *session) error {
	a, err := s.placed(ctx, s.post("and else"), s.known)
	if err != nil {
		return err
	}
	if _, ok := a.metadata[fallback]; !ok {
		return fmt.Errorf("no %s", fallback)
	}
	return nil
}

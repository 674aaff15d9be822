package conformance

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// Options configure a run. Target and Endpoints are required.
type Options struct {
	Target    string // host:port of the picker's ext_proc listener
	Plaintext bool   // no TLS; with TLS, any certificate is accepted
	Health    string // host:port of its gRPC health listener, "" for none
	// Empty is the ext_proc listener of a second picker of the same kind whose pool has no
	// endpoints, "" for none.
	Empty string
	// Endpoints are the ip:port of the picker's endpoints. There must be at least two, all ready.
	Endpoints []string
	Model     string        // a model that all endpoints serve; "" means "model"
	Timeout   time.Duration // for each case; 0 means 10 s
	Wait      time.Duration // for the picker to place a first request; 0 means not at all
	Picker    Picker        // for the report
}

// ErrOptions is the error of a run without a target or with fewer than two endpoints.
var ErrOptions = errors.New("conformance: options: a target and at least two endpoints are required")

// Run runs all cases, or those with the given ids. It returns an error if it could run none.
func Run(ctx context.Context, o Options, ids ...string) (*Report, error) {
	if o.Target == "" || len(o.Endpoints) < 2 {
		return nil, ErrOptions
	}
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	o.Model = cmp.Or(o.Model, "model")
	s := &session{Options: o, start: time.Now()}
	for _, e := range o.Endpoints {
		a, err := netip.ParseAddrPort(e)
		if err != nil {
			return nil, fmt.Errorf("conformance: endpoint: %w", err)
		}
		s.known = append(s.known, a)
	}
	defer s.close()
	if err := s.connect(); err != nil {
		return nil, fmt.Errorf("conformance: %w", err)
	}
	s.await(ctx)
	r := newReport(o, s.start)
	for _, c := range Cases() {
		if len(ids) == 0 || slices.Contains(ids, c.ID) {
			r.add(s.play(ctx, c))
		}
	}
	if len(r.Results) == 0 {
		return nil, fmt.Errorf("conformance: no case is named %v", ids)
	}
	return r, nil
}

// session is the state that all cases share.
type session struct {
	Options
	known    []netip.AddrPort
	start    time.Time
	requests atomic.Int64
	conns    []*grpc.ClientConn
	client   extproc.ExternalProcessorClient
	second   extproc.ExternalProcessorClient // another connection, as of a second gateway
	empty    extproc.ExternalProcessorClient // nil without Options.Empty
	health   []grpc_health_v1.HealthClient   // the health listener, then the ext_proc listener
}

func (s *session) connect() error {
	plain := insecure.NewCredentials()
	creds := plain
	if !s.Plaintext {
		creds = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}) // pickers have self-signed certificates
	}
	dial := func(target string, creds credentials.TransportCredentials) (*grpc.ClientConn, error) {
		conn, err := grpc.NewClient("passthrough:///"+target, grpc.WithTransportCredentials(creds))
		if err == nil {
			s.conns = append(s.conns, conn)
		}
		return conn, err
	}
	first, err := dial(s.Target, creds)
	if err != nil {
		return err
	}
	second, err := dial(s.Target, creds)
	if err != nil {
		return err
	}
	s.client, s.second = extproc.NewExternalProcessorClient(first), extproc.NewExternalProcessorClient(second)
	if s.Empty != "" {
		conn, err := dial(s.Empty, creds)
		if err != nil {
			return err
		}
		s.empty = extproc.NewExternalProcessorClient(conn)
	}
	if s.Health != "" {
		conn, err := dial(s.Health, plain)
		if err != nil {
			return err
		}
		s.health = append(s.health, grpc_health_v1.NewHealthClient(conn))
	}
	s.health = append(s.health, grpc_health_v1.NewHealthClient(first))
	return nil
}

func (s *session) close() {
	for _, conn := range s.conns {
		_ = conn.Close() // the run is over
	}
}

// await waits until the picker places requests at every endpoint, for as long as the options allow.
func (s *session) await(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.Wait)
	defer cancel()
	for _, e := range s.Endpoints {
		for ctx.Err() == nil {
			inner, done := context.WithTimeout(ctx, time.Second)
			_, err := s.placed(inner, s.post("are you ready").within([]any{e}), s.known)
			done()
			if err == nil {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// notApplicable is the error of a case whose subject the picker or the run does not have.
type notApplicable string

func (e notApplicable) Error() string { return string(e) }

// inconclusive is the error of a case that could not observe the behavior.
type inconclusive string

func (e inconclusive) Error() string { return string(e) }

// unreachable is the error of a picker that does not accept connections.
type unreachable struct{ err error }

func (e unreachable) Error() string { return "the picker does not accept connections" }
func (e unreachable) Unwrap() error { return e.err }

func (s *session) play(ctx context.Context, c Case) Result {
	limit := s.Timeout
	if c.ID == "body-huge" {
		limit *= 3
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	seen, err := c.run(ctx, s)
	r := Result{ID: c.ID, Level: c.Level, Outcome: Pass, Seen: seen, Requirement: c.Requirement, Source: c.Source, Test: c.Test}
	var (
		na      notApplicable
		unclear inconclusive
		away    unreachable
	)
	switch {
	case errors.As(err, &na):
		r.Outcome, r.Seen = NotApplicable, na.Error()
	case errors.As(err, &unclear):
		r.Outcome, r.Seen = Inconclusive, unclear.Error()
	case errors.As(err, &away):
		r.Outcome, r.Seen = Inconclusive, away.Error()
	case err != nil:
		r.Outcome, r.Seen = Fail, err.Error()
	}
	return r
}

// survived checks that the picker still places requests.
func (s *session) survived(ctx context.Context) error {
	_, err := s.placed(ctx, s.post("and now"), s.known)
	var away unreachable
	switch {
	case errors.As(err, &away):
		return errors.New("the picker no longer accepts connections")
	case err != nil:
		return fmt.Errorf("the next request: %w", err)
	}
	return nil
}

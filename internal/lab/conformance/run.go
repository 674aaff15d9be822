package conformance

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// Options say what is asked. Target and Endpoints are required.
type Options struct {
	Target    string // host:port of the picker's ext_proc listener
	Plaintext bool   // no TLS; else any certificate is taken
	Health    string // host:port of its gRPC health listener, "" for none
	// Endpoints are ip:port of the endpoints that the picker has, two or more, all
	// ready. It must choose among them.
	Endpoints []string
	Model     string        // a model that all of them serve
	Timeout   time.Duration // for each case; 0 means 10 s
}

// Level says how the protocol words a rule.
type Level string

// Levels.
const (
	Must Level = "MUST" // protocol 1.0 demands it
	May  Level = "MAY"  // some proxies or the older text want it, protocol 1.0 does not
)

// Outcome is how a case went.
type Outcome string

// Outcomes.
const (
	Pass Outcome = "pass"
	Fail Outcome = "FAIL"
	Skip Outcome = "skip"
)

// Case is one rule and how it is tried.
type Case struct {
	Name  string
	Level Level
	Rule  string
	run   func(context.Context, *session) error
}

// Result is how one case went.
type Result struct {
	Name    string        `json:"name"`
	Level   Level         `json:"level"`
	Rule    string        `json:"rule"`
	Outcome Outcome       `json:"outcome"`
	Detail  string        `json:"detail,omitempty"` // what was seen, or what a skipped case takes
	Took    time.Duration `json:"took_ns"`
}

// Failed reports whether a rule that must be kept is not.
func (r Result) Failed() bool { return r.Outcome == Fail && r.Level == Must }

var errOptions = errors.New("conformance: options: a target and at least two endpoints are required")

// Run plays all cases, or those named. An error means that none could be played.
func Run(ctx context.Context, o Options, names ...string) ([]Result, error) {
	if o.Target == "" || len(o.Endpoints) < 2 {
		return nil, errOptions
	}
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	s := &session{Options: o}
	for _, e := range o.Endpoints {
		a, err := netip.ParseAddrPort(e)
		if err != nil {
			return nil, fmt.Errorf("conformance: endpoint: %w", err)
		}
		s.known = append(s.known, a)
	}
	creds := insecure.NewCredentials()
	if !o.Plaintext {
		creds = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}) //nolint:gosec // pickers make their own certificates
	}
	conn, err := grpc.NewClient("passthrough:///"+o.Target, grpc.WithTransportCredentials(creds))
	if err != nil {
		return nil, fmt.Errorf("conformance: %w", err)
	}
	defer conn.Close()
	s.client = extproc.NewExternalProcessorClient(conn)
	if o.Health != "" {
		h, err := grpc.NewClient("passthrough:///"+o.Health, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, fmt.Errorf("conformance: %w", err)
		}
		defer h.Close()
		s.health = grpc_health_v1.NewHealthClient(h)
	}
	var out []Result
	for _, c := range Cases() {
		if len(names) == 0 || slices.Contains(names, c.Name) {
			out = append(out, s.play(ctx, c))
		}
	}
	return out, nil
}

// session is what cases have in common.
type session struct {
	Options
	known  []netip.AddrPort
	client extproc.ExternalProcessorClient
	health grpc_health_v1.HealthClient // nil: none was given
}

// skipped is what a case takes that the options do not give.
type skipped string

func (s skipped) Error() string { return string(s) }

func (s *session) play(ctx context.Context, c Case) Result {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	start := time.Now()
	err := c.run(ctx, s)
	r := Result{Name: c.Name, Level: c.Level, Rule: c.Rule, Outcome: Pass, Took: time.Since(start)}
	var skip skipped
	switch {
	case errors.As(err, &skip):
		r.Outcome, r.Detail = Skip, skip.Error()
	case err != nil:
		r.Outcome, r.Detail = Fail, err.Error()
	}
	return r
}

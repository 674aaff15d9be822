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

// Options configure a run. Target and Endpoints are required.
type Options struct {
	Target    string // host:port of the picker's ext_proc listener
	Plaintext bool   // no TLS; with TLS, any certificate is accepted
	Health    string // host:port of its gRPC health listener, "" for none
	// Endpoints are the ip:port of the picker's endpoints. There must be at least two, all ready.
	Endpoints []string
	Model     string        // a model that all endpoints serve
	Timeout   time.Duration // for each case; 0 means 10 s
}

// Level is the requirement level of a rule.
type Level string

// Levels.
const (
	Must Level = "MUST" // required by protocol 1.0
	May  Level = "MAY"  // required by some proxies or the older text, not by protocol 1.0
)

// Outcome is the result of a case.
type Outcome string

// Outcomes.
const (
	Pass Outcome = "pass"
	Fail Outcome = "FAIL"
	Skip Outcome = "skip"
)

// Case is one rule with the exchange that tests it.
type Case struct {
	Name  string
	Level Level
	Rule  string
	run   func(context.Context, *session) error
}

// Result is the outcome of one case.
type Result struct {
	Name    string        `json:"name"`
	Level   Level         `json:"level"`
	Rule    string        `json:"rule"`
	Outcome Outcome       `json:"outcome"`
	Detail  string        `json:"detail,omitempty"` // the picker's answer, or the missing condition of a skipped case
	Took    time.Duration `json:"took_ns"`
}

// Failed reports whether a MUST rule failed.
func (r Result) Failed() bool { return r.Outcome == Fail && r.Level == Must }

var errOptions = errors.New("conformance: options: a target and at least two endpoints are required")

// Run runs all cases, or those named. It returns an error if it could run none.
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
		creds = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}) // pickers have self-signed certificates
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

// session is the state that all cases share.
type session struct {
	Options
	known  []netip.AddrPort
	client extproc.ExternalProcessorClient
	health grpc_health_v1.HealthClient // nil without a health address
}

// skipped is the error of a case that needs options that were not given.
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

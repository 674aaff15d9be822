package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// largestMessage is the limit for answers in bytes.
const largestMessage = 128 << 20

// HTTP/2 windows in bytes that Envoy offers by default.
const (
	streamWindow     = 16 << 20
	connectionWindow = 24 << 20
)

// Run plays requests against a picker until the limits of opts are reached and returns the
// measurements. It returns an error if no measurement is possible: the options are wrong, the
// target cannot be reached, too many requests failed, the picker's process is gone, or ctx ended.
// The report counts single failures and requests that the picker refused.
func Run(ctx context.Context, opts Options) (Report, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return Report{}, err
	}
	c, err := Open(ctx, opts)
	if err != nil {
		return Report{}, err
	}
	defer c.Close()
	l := c.load
	if opts.Warmup > 0 {
		if _, err := l.run(ctx, opts.Warmup, 0); err != nil {
			return Report{}, fmt.Errorf("warm-up: %w", err)
		}
	}
	return l.measure(ctx)
}

// Client keeps connections to a picker open between slices of a measurement.
type Client struct {
	conns []*grpc.ClientConn
	load  *load
}

// Open connects to opts.Target. It returns an error if the options are wrong or no
// connection is ready within opts.Timeout.
func Open(ctx context.Context, opts Options) (*Client, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	conns, err := dial(ctx, opts)
	c := &Client{conns: conns}
	if err != nil {
		c.Close()
		return nil, err
	}
	c.load = &load{opts: opts, players: newPlayers(opts, conns)}
	return c, nil
}

// Play plays requests for the given time and returns the measurements of this slice. Request
// numbers continue from slice to slice, so no question repeats. Not safe for concurrent use.
func (c *Client) Play(ctx context.Context, length time.Duration) (Report, error) {
	c.load.opts.Duration, c.load.opts.Requests = length, 0
	return c.load.measure(ctx)
}

// Body returns the body of request n.
func (c *Client) Body(n uint64) []byte { return c.load.players[0].corpus.appendRequest(nil, n) }

// Destination plays request n and returns its destination, which is "" if the picker refused it.
// Not safe for concurrent use.
func (c *Client) Destination(ctx context.Context, n uint64) (string, error) {
	p := c.load.players[0]
	err := p.play(ctx, n)
	return p.destination, err
}

// Hold opens one request per stream of the load and leaves it before its answer, as with
// engines that are still busy. The streams end with ctx or Close.
func (c *Client) Hold(ctx context.Context) error {
	for i, p := range c.load.players {
		var err error
		if p.stream, err = p.client.Process(ctx); err != nil {
			return fmt.Errorf("open: %w", err)
		}
		p.body = p.corpus.appendRequest(p.body[:0], uint64(i))
		p.cancel = func() {}
		if err := p.exchange(requestSide, requestHeaders(p.opts.Mode, uint64(i), len(p.body)), p.body); err != nil {
			return fmt.Errorf("request: %w", err)
		}
	}
	return nil
}

// Close closes the connections.
func (c *Client) Close() {
	for _, conn := range c.conns {
		conn.Close()
	}
}

// dial opens the connections and waits until they are ready.
func dial(ctx context.Context, opts Options) ([]*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if opts.TLS != nil {
		creds = credentials.NewTLS(opts.TLS)
	}
	ctx, cancel := context.WithTimeout(ctx, opts.Timeout)
	defer cancel()
	var conns []*grpc.ClientConn
	for range opts.Connections {
		conn, err := grpc.NewClient("passthrough:///"+opts.Target, grpc.WithTransportCredentials(creds),
			grpc.WithInitialWindowSize(streamWindow), grpc.WithInitialConnWindowSize(connectionWindow),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(largestMessage), grpc.MaxCallSendMsgSize(largestMessage)))
		if err != nil {
			return conns, fmt.Errorf("bench: %s: %w", opts.Target, err)
		}
		conns = append(conns, conn)
		conn.Connect()
		for s := conn.GetState(); s != connectivity.Ready; s = conn.GetState() {
			if !conn.WaitForStateChange(ctx, s) {
				return conns, fmt.Errorf("bench: no connection to %s (last state: %s): %w", opts.Target, s, ctx.Err())
			}
		}
	}
	return conns, nil
}

func newPlayers(opts Options, conns []*grpc.ClientConn) []*player {
	corpus, answer := newCorpus(opts), response(opts.ResponseSize, opts.BodySize/4, !opts.NoCachedTokens)
	players := make([]*player, opts.Concurrency)
	for i := range players {
		client := extproc.NewExternalProcessorClient(conns[i%len(conns)])
		players[i] = &player{client: client, opts: opts, corpus: corpus, response: answer}
	}
	return players
}

// load runs players. Request numbers continue from run to run, so no question repeats.
type load struct {
	opts    Options
	players []*player
	next    atomic.Uint64
}

// measure is the measured part of Run.
func (l *load) measure(ctx context.Context) (Report, error) {
	var before Usage
	var err error
	if l.opts.PID != 0 {
		if before, err = ReadUsage(l.opts.PID); err != nil {
			return Report{}, err
		}
	}
	start := time.Now()
	t, err := l.run(ctx, l.opts.Requests, l.opts.Duration)
	if err != nil {
		return Report{}, err
	}
	r := Report{
		Options:  l.opts,
		Requests: len(t.latencies),
		Refused:  t.refused,
		Failed:   t.failed,
		Failure:  t.failure,
		Messages: t.messages,
		Elapsed:  time.Since(start),
		Answer:   percentiles(t.latencies),
	}
	if l.opts.PID != 0 {
		after, err := ReadUsage(l.opts.PID)
		if err != nil {
			return Report{}, err
		}
		r.CPU, r.RSS = after.CPU-before.CPU, after.RSS
	}
	return r, nil
}

// counts holds the counters of the players.
type counts struct {
	latencies []time.Duration // of requests with a destination
	refused   int
	failed    int
	messages  int   // sent to the picker, of all requests
	failure   error // the first
}

// run lets all players play until count requests have started or limit has passed, and waits until
// all have ended. Zero means no limit.
func (l *load) run(ctx context.Context, count int, limit time.Duration) (counts, error) {
	s := &session{load: l, start: time.Now(), count: count, limit: limit}
	ctx, s.stop = context.WithCancelCause(ctx)
	defer s.stop(nil)
	tallies := make([]counts, len(l.players))
	var group sync.WaitGroup
	for i, p := range l.players {
		group.Go(func() { s.work(ctx, p, &tallies[i]) })
	}
	group.Wait()
	if err := context.Cause(ctx); err != nil {
		return counts{}, err
	}
	var sum counts
	for _, t := range tallies {
		sum.latencies = append(sum.latencies, t.latencies...)
		sum.refused += t.refused
		sum.failed += t.failed
		sum.messages += t.messages
		if sum.failure == nil {
			sum.failure = t.failure
		}
	}
	slices.Sort(sum.latencies)
	return sum, nil
}

// session is one run of a load.
type session struct {
	*load
	start  time.Time
	count  int
	limit  time.Duration
	begun  atomic.Int64
	failed atomic.Int64
	stop   context.CancelCauseFunc
}

// work plays until the session's bounds are reached.
func (s *session) work(ctx context.Context, p *player, t *counts) {
	for {
		due, ok := s.take(ctx)
		if !ok {
			return
		}
		err := p.play(ctx, s.next.Add(1))
		t.messages += p.messages
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.fail(t, err)
		case p.refused:
			t.refused++
		default:
			t.latencies = append(t.latencies, p.answered.Sub(due))
		}
	}
}

// take waits until the next request is due and returns its time. ok is false at the end.
func (s *session) take(ctx context.Context) (time.Time, bool) {
	n := s.begun.Add(1) - 1
	if s.count > 0 && n >= int64(s.count) || ctx.Err() != nil {
		return time.Time{}, false
	}
	due := time.Now()
	if s.opts.Rate > 0 {
		due = s.start.Add(time.Duration(float64(n) / s.opts.Rate * float64(time.Second)))
	}
	if s.limit > 0 && max(due.Sub(s.start), time.Since(s.start)) >= s.limit {
		return time.Time{}, false
	}
	if wait := time.Until(due); wait > 0 {
		select {
		case <-ctx.Done():
			return time.Time{}, false
		case <-time.After(wait):
		}
	}
	return due, true
}

// fail counts a failed request and ends the session after too many.
func (s *session) fail(t *counts, err error) {
	t.failed++
	if t.failure == nil {
		t.failure = err
	}
	if s.failed.Add(1) >= int64(s.opts.MaxFailures) {
		s.stop(fmt.Errorf("%w: %d, such as: %w", errFailing, s.opts.MaxFailures, err))
	}
}

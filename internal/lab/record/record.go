package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-epp/grapevine/internal/admin"
	"github.com/grapevine-epp/grapevine/internal/server/recording"
)

// Options configure [Run].
type Options struct {
	Admins   []string      // admin addresses of the replicas; at least one
	Duration time.Duration // 0: until ctx ends
	Bodies   bool          // replicas request all response bodies from proxies
	// BytesPerToken is the number of prompt bytes per token. 0: derived from the engines' token
	// counts, per model.
	BytesPerToken float64
	Out           io.Writer // receives the trace
	Begun         func()    // called once all replicas record; may be nil
}

// Run records all replicas until every recording has ended or ctx is done. Neither is an error. The
// summary describes the written trace and is also returned with an error.
func Run(ctx context.Context, o Options) (summary string, err error) {
	t := newTracer(o.Out, o.BytesPerToken)
	err = t.follow(ctx, &o)
	err = errors.Join(err, t.close())
	return t.summary(), err
}

func (t *tracer) follow(ctx context.Context, o *Options) error {
	query := url.Values{"bodies": {strconv.FormatBool(o.Bodies)}}
	if o.Duration > 0 {
		query.Set("duration", o.Duration.String())
	}
	// The first reader that fails cancels the others. Idle replicas would otherwise block forever.
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	streams := make([]io.ReadCloser, 0, len(o.Admins))
	defer func() {
		for _, s := range streams {
			s.Close()
		}
	}()
	for _, addr := range o.Admins {
		s, since, err := open(ctx, addr, query)
		if err != nil {
			return err
		}
		streams = append(streams, s)
		if t.since == 0 || since < t.since {
			t.since = since
		}
	}
	if o.Begun != nil {
		o.Begun()
	}
	// One goroutine reads each stream and sends its lines to the tracer over a channel.
	lines := make(chan recording.Line)
	for i, s := range streams {
		group.Go(func() error { return read(ctx, o.Admins[i], s, lines, &t.dropped) })
	}
	ended := make(chan error, 1)
	go func() {
		ended <- group.Wait()
		close(lines)
	}()
	var failed error
	for l := range lines {
		if err := t.add(l); err != nil && failed == nil {
			failed = err
			stop()
		}
	}
	return errors.Join(failed, <-ended)
}

// open starts a recording. It returns the stream of lines, which the caller must close, and the
// start of the recording in Unix milliseconds.
func open(ctx context.Context, addr string, query url.Values) (io.ReadCloser, int64, error) {
	resp, err := admin.Client(addr).Do(ctx, http.MethodGet, "/debug/record?"+query.Encode(), nil, nil)
	if err != nil {
		return nil, 0, err
	}
	since, err := strconv.ParseInt(resp.Header.Get(recording.Since), 10, 64)
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("%s does not say when its recording began", addr), resp.Body.Close())
	}
	return resp.Body, since, nil
}

// read forwards the lines of one replica and counts gaps in their numbers. Cancellation is not an
// error.
func read(ctx context.Context, addr string, body io.Reader, lines chan<- recording.Line, dropped *atomic.Uint64) error {
	in := json.NewDecoder(body)
	var read, last uint64
	defer func() { dropped.Add(last - read) }()
	for {
		var l recording.Line
		err := in.Decode(&l)
		switch {
		case err == io.EOF, ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("%s: the recording broke off: %w", addr, err)
		}
		read, last = read+1, max(last, l.Seq)
		select {
		case lines <- l:
		case <-ctx.Done():
			return nil
		}
	}
}

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

// Options configure Run.
type Options struct {
	Admins   []string      // administration ports of the replicas, at least one
	Duration time.Duration // 0: until ctx is done
	Bodies   bool          // replicas ask proxies for all response bodies
	// BytesPerToken are bytes of raw prompt for each token; 0: what engines
	// count for each model.
	BytesPerToken float64
	Out           io.Writer // of the trace
	Begun         func()    // called when all replicas record; may be nil
}

// Run records all replicas until each has ended or ctx is done, which is no
// error. The summary tells people what was written, also after an error.
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
	// The first reader that fails ends the requests of all, or those of replicas
	// that have nothing to say would go on.
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
	// One goroutine reads each stream; the tracer is handed lines by a channel.
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

// open returns a replica's lines and when its recording began, in Unix
// milliseconds. The caller closes the lines.
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

// read passes the lines of one replica on, and counts those that it
// numbered and did not send. An interrupt is the normal end.
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

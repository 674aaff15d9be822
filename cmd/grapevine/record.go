package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/grapevine-epp/grapevine/internal/server"
)

// recordFlags are the flags of record.
type recordFlags struct {
	admins        []string
	output        string
	duration      time.Duration
	bytesPerToken float64
	bodies        bool
}

func newRecord() *cobra.Command {
	var f recordFlags
	cmd := &cobra.Command{
		Use:   "record",
		Short: "Write decisions and their outcomes as a trace that replay reads",
		Long: `Follows one or more running replicas and writes one JSON object for each request that
began meanwhile and has ended: timestamp (milliseconds from the start), input_length,
output_length, hash_ids (one for each 512 tokens of the prompt, keyed hashes, no text),
session_id (a keyed hash), and endpoint, status, ttft_ms, took_ms, cached_tokens. Name all
replicas of a group: each sees only the requests that it was asked about. Their hashes agree
when they share a --secret-file.

Lengths of answers and first-token times show only in response bodies. --bodies lets the
replicas ask the proxy for all of them while the recording runs; without it only those are
seen that are seen anyway. Ends after --duration and the end of the requests then open, or
with Ctrl-C.`,
		Example: `  grapevine record --output trace.jsonl --duration 10m
  grapevine record --admin 10.0.1.7:9090 --admin 10.0.1.8:9090 --output trace.jsonl --duration 1h
  grapevine replay --trace trace.jsonl --rate 2 --policy default --policy unified`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	fl := cmd.Flags()
	fl.StringSliceVar(&f.admins, "admin", []string{"127.0.0.1:9090"}, "admin address of a replica (repeatable)")
	fl.StringVarP(&f.output, "output", "o", "", "file to write (required); - for standard output")
	fl.DurationVar(&f.duration, "duration", 0, "how long; 0 until interrupted")
	fl.Float64Var(&f.bytesPerToken, "bytes-per-token", 0, "bytes of raw prompt for each token, by which hash_ids are cut and prompts measured that no engine counted; equal for recordings that are to be joined (default: by what engines count)")
	fl.BoolVar(&f.bodies, "bodies", false, "ask the proxy for all response bodies meanwhile")
	return cmd
}

func (f *recordFlags) run(cmd *cobra.Command) error {
	switch {
	case f.output == "":
		return usageError{errors.New("--output is required")}
	case len(f.admins) == 0:
		return usageError{errors.New("--admin names no replica")}
	case f.bytesPerToken != 0 && !(f.bytesPerToken >= .5 && f.bytesPerToken <= 64):
		return usageError{fmt.Errorf("--bytes-per-token %g: want 0.5 to 64", f.bytesPerToken)}
	case f.duration < 0:
		return usageError{fmt.Errorf("--duration %s is negative", f.duration)}
	}
	out, done, err := f.open(cmd.OutOrStdout())
	if err != nil {
		return err
	}
	t := newTracer(out, f.bytesPerToken)
	err = f.follow(cmd.Context(), t, cmd.ErrOrStderr())
	err = errors.Join(err, t.close(), done())
	fmt.Fprintln(cmd.ErrOrStderr(), t.summary())
	return err
}

func (f *recordFlags) open(stdout io.Writer) (io.Writer, func() error, error) {
	if f.output == "-" {
		return stdout, func() error { return nil }, nil
	}
	file, err := os.Create(f.output)
	if err != nil {
		return nil, nil, err
	}
	return file, file.Close, nil
}

// follow records all replicas until each has ended or ctx is done. It tells
// people when the recording has begun.
func (f *recordFlags) follow(ctx context.Context, t *tracer, people io.Writer) error {
	query := url.Values{"bodies": {strconv.FormatBool(f.bodies)}}
	if f.duration > 0 {
		query.Set("duration", f.duration.String())
	}
	streams := make([]io.ReadCloser, 0, len(f.admins))
	defer func() {
		for _, s := range streams {
			s.Close()
		}
	}()
	for _, admin := range f.admins {
		s, since, err := openRecording(ctx, admin, query)
		if err != nil {
			return err
		}
		streams = append(streams, s)
		if t.since == 0 || since < t.since {
			t.since = since
		}
	}
	fmt.Fprintf(people, "recording from %s\n", strings.Join(f.admins, ", "))
	// One goroutine reads each stream; the tracer is handed lines by a channel.
	lines := make(chan server.TraceLine)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	for i, s := range streams {
		group.Go(func() error { return readRecording(ctx, f.admins[i], s, lines, &t.dropped) })
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

// openRecording returns a replica's lines and when its recording began, in Unix
// milliseconds. The caller closes the lines.
func openRecording(ctx context.Context, admin string, query url.Values) (io.ReadCloser, int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/debug/record?"+query.Encode(), nil)
	if err != nil {
		return nil, 0, usageError{err}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, 0, fmt.Errorf("no replica answers at %s: %w", admin, err)
	}
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		return nil, 0, errors.Join(fmt.Errorf("%s: %s: %s", admin, resp.Status, bytes.TrimSpace(b)), resp.Body.Close())
	}
	since, err := strconv.ParseInt(resp.Header.Get(server.RecordingSince), 10, 64)
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("%s does not say when its recording began", admin), resp.Body.Close())
	}
	return resp.Body, since, nil
}

// readRecording passes the lines of one replica on, and counts those that it
// numbered and did not send. An interrupt is the normal end.
func readRecording(ctx context.Context, admin string, body io.Reader, lines chan<- server.TraceLine, dropped *atomic.Uint64) error {
	in := json.NewDecoder(body)
	var read, last uint64
	defer func() { dropped.Add(last - read) }()
	for {
		var l server.TraceLine
		err := in.Decode(&l)
		switch {
		case err == io.EOF, ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("%s: the recording broke off: %w", admin, err)
		}
		read, last = read+1, max(last, l.Seq)
		select {
		case lines <- l:
		case <-ctx.Done():
			return nil
		}
	}
}

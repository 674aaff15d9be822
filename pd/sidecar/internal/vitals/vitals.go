package vitals

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"hash/maphash"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// maxPage bounds the bytes of an engine's answer that are read.
const maxPage = 4 << 20

// Reader sends the requests.
type Reader struct{ Transport http.RoundTripper }

// Sign is what a health check shows.
type Sign uint8

// Signs of life.
const (
	Unknown Sign = iota
	Alive
	Down      // it refuses connections
	Unhealthy // its /health answers 503, like an API server without its core
	Absent    // its host does not answer
)

// Check requests the /health of the engine at base.
func (r Reader) Check(ctx context.Context, base *url.URL, limit time.Duration) Sign {
	var connected atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	status, err := r.health(traced, base, limit)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return Down
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, context.DeadlineExceeded) && !connected.Load():
		return Absent
	case err != nil:
		return Unknown
	case status == http.StatusServiceUnavailable:
		return Unhealthy
	}
	return Alive
}

// Answers reports whether the engine answers a health check with any status.
func (r Reader) Answers(ctx context.Context, base *url.URL, limit time.Duration) bool {
	_, err := r.health(ctx, base, limit)
	return err == nil
}

// Hangs reports whether a health check ended at its limit. An engine that refuses it does not hang.
func (r Reader) Hangs(ctx context.Context, base *url.URL, limit time.Duration) bool {
	_, err := r.health(ctx, base, limit)
	return errors.Is(err, context.DeadlineExceeded)
}

func (r Reader) health(ctx context.Context, base *url.URL, limit time.Duration) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	resp, err := r.get(ctx, base, "health")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxPage)) // so that the connection can be used again
	return resp.StatusCode, nil
}

func (r Reader) get(ctx context.Context, base *url.URL, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath(path).String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	return r.Transport.RoundTrip(req)
}

var pageSeed = maphash.MakeSeed()

// Page returns a hash of the engine's own metrics, whose names have a colon. Others, such as counters
// of HTTP requests, change with every reading. It returns 0 if there are none.
func (r Reader) Page(ctx context.Context, base *url.URL, limit time.Duration) uint64 {
	var sum maphash.Hash
	sum.SetSeed(pageSeed)
	found := false
	ok := r.lines(ctx, base, limit, func(line []byte) {
		name, _, _ := bytes.Cut(line, []byte{'{'})
		if bytes.HasPrefix(name, []byte{'#'}) || !bytes.Contains(name, []byte{':'}) {
			return
		}
		found = true
		_, _ = sum.Write(line)
	})
	if !found || !ok {
		return 0
	}
	return max(sum.Sum64(), 1)
}

// Sum returns the sum of an engine's counters. ok is false if its metrics page cannot be read within the
// limit or has none of the counters.
func (r Reader) Sum(ctx context.Context, base *url.URL, limit time.Duration, names ...string) (sum float64, ok bool) {
	found := false
	ok = r.lines(ctx, base, limit, func(line []byte) {
		rest := sampleOf(line, names)
		if rest == nil {
			return
		}
		fields := bytes.Fields(rest[bytes.LastIndexByte(rest, '}')+1:])
		if len(fields) == 0 {
			return
		}
		if v, err := strconv.ParseFloat(string(fields[0]), 64); err == nil {
			sum, found = sum+v, true
		}
	})
	return sum, ok && found
}

// Samples returns the first sample of each metric on an engine's metrics page, as its line after the name. Missing
// ones, and all if the page cannot be read within the limit, are left out.
func (r Reader) Samples(ctx context.Context, base *url.URL, limit time.Duration, names ...string) map[string]string {
	found := map[string]string{}
	ok := r.lines(ctx, base, limit, func(line []byte) {
		for i := range names {
			if rest := sampleOf(line, names[i:i+1]); rest != nil && found[names[i]] == "" {
				found[names[i]] = string(rest)
			}
		}
	})
	if !ok {
		return nil
	}
	return found
}

// Label returns the value of a label of a sample, "" if there is none. Values with quotes are cut.
func Label(sample, name string) string {
	for _, before := range []string{"{", ","} {
		if _, rest, ok := strings.Cut(sample, before+name+`="`); ok {
			value, _, _ := strings.Cut(rest, `"`)
			return value
		}
	}
	return ""
}

// lines calls f for each line of the metrics page. It returns false if the page cannot be read.
func (r Reader) lines(ctx context.Context, base *url.URL, limit time.Duration, f func(line []byte)) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	resp, err := r.get(ctx, base, "metrics")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return false
	}
	lines := bufio.NewScanner(io.LimitReader(resp.Body, maxPage))
	lines.Buffer(make([]byte, 0, 4<<10), maxPage)
	for lines.Scan() {
		f(lines.Bytes())
	}
	return lines.Err() == nil
}

// sampleOf returns the line after the metric's name if the metric is one of names, otherwise nil.
func sampleOf(line []byte, names []string) []byte {
	for _, name := range names {
		rest, found := bytes.CutPrefix(line, []byte(name))
		if found && len(rest) > 0 && (rest[0] == '{' || rest[0] == ' ') {
			return rest
		}
	}
	return nil
}

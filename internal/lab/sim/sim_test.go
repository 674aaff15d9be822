package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
)

// fast returns options for an engine whose steps take no time.
func fast(o Options) Options {
	o.Speed = math.Inf(1)
	if o.Core.Blocks == 0 {
		o.Core.Blocks = 2000
	}
	return o
}

func open(t *testing.T, o Options) *Engine {
	t.Helper()
	e, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

type response struct {
	status int
	header http.Header
	body   []byte
}

// do sends a request on a new connection.
func do(t *testing.T, e *Engine, method, path, body string, header ...string) response {
	t.Helper()
	r, err := try(context.Background(), e, method, path, body, header...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return r
}

var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}

func try(ctx context.Context, e *Engine, method, path, body string, header ...string) (r response, err error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+e.Addr()+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return r, err
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return response{resp.StatusCode, resp.Header, b}, err
}

// decoded unmarshals the body of a response with the wanted status.
func (r response) decoded(t *testing.T, status int, v any) {
	t.Helper()
	if r.status != status {
		t.Fatalf("status %d, want %d: %s", r.status, status, r.body)
	}
	if err := json.Unmarshal(r.body, v); err != nil {
		t.Fatalf("%v in %s", err, r.body)
	}
}

func idle(e *Engine) func() bool {
	return func() bool {
		s := e.Stats()
		if s == nil {
			return false
		}
		for _, r := range s {
			if r.Engine.Running+r.Engine.Waiting+r.Engine.UsedBlocks > 0 {
				return false
			}
		}
		return true
	}
}

func smallCore() engine.Config { return engine.Config{Blocks: 100} }

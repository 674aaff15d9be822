package server

import (
	"bytes"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/cluster/federation/link"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/picker/remotecluster"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestResidencyAlone: a named cluster without remote clusters refuses requests that may not be
// served in it. An unnamed cluster serves them, and logs once that it cannot check the restriction.
func TestResidencyAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "alone.yaml")
	if err := os.WriteFile(file, []byte("cluster: paris\nregion: eu\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := link.ReadConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		named          bool
		header, reason string
	}{
		{true, "", ""}, {true, "oslo, paris", ""}, {true, "region:eu", ""}, {true, "oslo", string(request.ReasonNoEndpoints)}, {true, "region:us", string(request.ReasonNoEndpoints)},
		{false, "oslo", ""}, {false, "", ""},
	} {
		var log bytes.Buffer
		_, o := options(t, fleet.Options{Engines: 1})
		o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		if c.named {
			o.Federation.Link = config
			o.Federation.Use = remotecluster.Options{Self: "paris", Region: "eu", Pool: fedPool}
		}
		s := open(t, o)
		for range 2 {
			r := &request.Request{ID: "r", Headers: http.Header{}, Path: "/v1/completions", Body: []byte(`{"model":"` + vocab.Name + `","prompt":"where am I served"}`)}
			if c.header != "" {
				r.Headers = http.Header{http.CanonicalHeaderKey(request.HeaderClusters): {c.header}}
			}
			if err := request.Parse(r); err != nil {
				t.Fatal(err)
			}
			d, err := s.chooser.Choose(t.Context(), r)
			reason := ""
			if err != nil {
				reason = string(request.ReasonOf(err))
			} else {
				d.Done(request.Outcome{})
			}
			if reason != c.reason {
				t.Errorf("named %v, header %q: refused for %q (%v), want %q", c.named, c.header, reason, err, c.reason)
			}
		}
		want := 0
		if !c.named && c.header != "" {
			want = 1
		}
		if n := strings.Count(log.String(), request.HeaderClusters); n != want {
			t.Errorf("named %v, header %q: warned %d times, want %d: %s", c.named, c.header, n, want, log.String())
		}
	}
}

package server

import (
	"errors"
	"io"
	"net/http"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
)

// TestNativeHistograms: a Prometheus that reads native histograms gets them for the time of decisions, waits and
// streams, with the fixed buckets beside them.
func TestNativeHistograms(t *testing.T) {
	_, o := options(t, fleet.Options{Engines: 1})
	s := open(t, o)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.AdminAddr().String()+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	format := expfmt.NewFormat(expfmt.TypeProtoDelim)
	req.Header.Set("Accept", string(format))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	native := map[string]bool{}
	for d := expfmt.NewDecoder(resp.Body, format); ; {
		var f dto.MetricFamily
		if err := d.Decode(&f); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for _, m := range f.GetMetric() {
			if h := m.GetHistogram(); h != nil {
				native[f.GetName()] = h.ZeroThreshold != nil && len(h.GetBucket()) > 0
			}
		}
	}
	for _, name := range []string{"grapevine_picker_decision_seconds", "grapevine_extproc_choose_duration_seconds", "grapevine_extproc_stream_duration_seconds"} {
		if !native[name] {
			t.Errorf("%s has no native form, of %v", name, native)
		}
	}
}

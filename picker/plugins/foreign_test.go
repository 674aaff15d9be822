package plugins

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

func TestPins(t *testing.T) {
	f := newFleet(one{}, one{}, one{})
	for typ, header := range map[string]string{"endpoint-pin-screener": headerEndpointPin, "prefill-pin-screener": headerPrefillPin} {
		for value, want := range map[string]string{
			"": "012", "10.0.0.1:8000": "1", "[::ffff:10.0.0.2]:8000": "2", "10.0.0.1:8001": "", "10.0.0.9:8000": "", "10.0.0.1": "", "e1": "",
		} {
			r := ask(1)
			r.Headers = headerMap{header: value}
			if got := f.kept(t, r, typ, ""); got != want {
				t.Errorf("%s, header %q: kept %q, want %q", typ, value, got, want)
			}
		}
	}
}

func TestModelAffinity(t *testing.T) {
	f := newFleet(labelled("model", "m", "serves", "n"), labelled("model", "n"), one{})
	check := func(model, header, params, want string) {
		t.Helper()
		r := ask(1)
		r.Model, r.Headers = model, headerMap{"x-gateway-model-name": header}
		if got := f.kept(t, r, "model-affinity-filter", params); got != want {
			t.Errorf("model %q, header %q, %s: kept %q, want %q", model, header, params, got, want)
		}
	}
	defaults := `{"labelKey":"model","modelHeader":"x-gateway-model-name"}`
	check("m", "", defaults, "0")
	check("m", "n", defaults, "1")
	check("", "", defaults, "012")
	check("other", "", defaults, "")
	check("m", "n", `{"modelHeader":""}`, "0")
	check("n", "", `{"labelKey":"serves"}`, "0")
}

func TestAttributeWeights(t *testing.T) {
	p := build(t, "endpoint-attribute-weight-scorer", `{"attributeKey":"gpu","weights":{"a":4,"b":1,"c":2}}`)
	f := newFleet(labelled("g", "a"), labelled("g", "b"), labelled("g", "c"), labelled("g", "d"), one{})
	c := f.cycle(ask(1))
	defer c.Free()
	got := make([]float64, 5)
	p.BindLabel("g").Scorer.Score(c, got)
	for k, want := range []float64{1, .25, .5, .25, .25} {
		if got[k] != want {
			t.Errorf("endpoint %d: score %g, want %g", k, got[k], want)
		}
	}
	for _, params := range []string{`{"attributeKey":"g"}`, `{"attributeKey":"g","weights":{"a":0}}`, `{"weights":{"a":1}}`, `{"attributeKey":"g","weights":{"a":1e300,"b":1e-300}}`} {
		if _, err := try("endpoint-attribute-weight-scorer", params); err == nil {
			t.Errorf("%s: no error", params)
		}
	}
}

// TestCalibration: a written throughput wins over a record of this deployment, which wins over the
// default. A record that does not apply changes nothing, and is an error if one is required.
func TestCalibration(t *testing.T) {
	dir := t.TempDir()
	record := func(edits ...string) string {
		text := `{"schema_version":1,"status":"OK","fingerprint":"f","chunk_tokens":512,"valid_samples":10,"median_ttft_seconds":0.1,"peak_prefill_tokens_per_second":50000}`
		path := filepath.Join(dir, strings.NewReplacer("/", "", `"`, "", ":", "-", ",", "").Replace(strings.Join(edits, "-"))+".json")
		if err := os.WriteFile(path, []byte(strings.NewReplacer(edits...).Replace(text)), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const fallback = 15928
	for _, c := range []struct {
		path, more string
		want       float64
	}{
		{record(), "", 50000},
		{record(), `"peakPrefillThroughput":15928,`, 15928},
		{record(`"f"`, `"g"`), "", fallback},
		{record(`"OK"`, `"FAILED"`), "", fallback},
		{record(`:1,`, `:2,`), "", fallback},
		{record(`:10,`, `:9,`), "", fallback},
		{record(`:512,`, `:0,`), "", fallback},
		{record(`50000`, `-1`), "", fallback},
		{record(`0.1`, `0`), "", fallback},
		{record(`{`, `[`), "", fallback},
		{filepath.Join(dir, "missing"), "", fallback},
	} {
		params := `{` + c.more + `"ttftSource":"prefillThroughput","affinityThreshold":0.8,"maxTTFTPenaltyMs":5000,"prefillCalibrationFile":"` + c.path + `","prefillCalibrationFingerprint":"f"`
		p := build(t, "prefix-cache-affinity-filter", params+`}`)
		if got := p.Filter.(prefixAffinity).PeakPrefillThroughput; got != c.want {
			t.Errorf("%s: throughput %g, want %g", params, got, c.want)
		}
		applies := c.want != fallback || c.more != ""
		if told := len(p.Differs) > 0; told == applies {
			t.Errorf("%s: notes %v", params, p.Differs)
		}
		if _, err := try("prefix-cache-affinity-filter", params+`,"prefillCalibrationRequired":true}`); (err == nil) != applies {
			t.Errorf("%s, required: %v", params, err)
		}
	}
}

// TestTokensInFlightPenalty: affinity holds while the best holder has at most that many tokens more
// than the best of the others, whatever the times.
func TestTokensInFlightPenalty(t *testing.T) {
	f := newFleet(one{held: 100, load: endpoint.Load{Prefill: 900_000}}, one{load: endpoint.Load{Prefill: 100}})
	for params, want := range map[string]string{
		`{"maxTokensInFlightPenalty":899900}`:                                  "0",
		`{"maxTokensInFlightPenalty":899899}`:                                  "01",
		`{"maxTokensInFlightPenalty":0}`:                                       "01", // by time: 56 s
		`{"maxTokensInFlightPenalty":899900,"maxTTFTPenaltyMs":0}`:             "0",
		`{"maxTokensInFlightPenalty":899900,"ttftSource":"prefillThroughput"}`: "01",
	} {
		if got := f.kept(t, ask(100), "prefix-cache-affinity-filter", params); got != want {
			t.Errorf("%s: kept %q, want %q", params, got, want)
		}
	}
}

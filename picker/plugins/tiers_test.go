package plugins

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/sessions"
)

type tiers = [block.NumTiers]int32

// All rules that use cached tokens weight them by tier.
func TestTiersWeigh(t *testing.T) {
	f := newFleet(
		one{load: load(1, 0), tiers: &tiers{600, 0, 0, 0}},       // counts for 600
		one{load: load(1, 0), tiers: &tiers{0, 1000, 0, 0}},      // 800
		one{load: load(1, 0), tiers: &tiers{0, 0, 1000, 0}},      // 500
		one{load: load(1, 0), tiers: &tiers{100, 250, 300, 100}}, // 100 + 200 + 150 + 50
		one{load: load(1, 0), tiers: &tiers{0, 0, 0, 400}})       // 200
	r := ask(1000)
	scores := func(typ, params string, want ...float64) {
		t.Helper()
		if got := f.scores(t, r, typ, params); !near(got, want) {
			t.Errorf("%s: %v, want %v", typ, got, want)
		}
	}
	scores("prefix-cache-scorer", "", .6, .8, .5, .5, .2)
	scores("precise-prefix-cache-scorer", "", .6, .8, .5, .5, .2)
	scores("lmetric-policy", "", -400, -200, -500, -500, -800)
	scores("cache-aware-policy", `{"cacheThreshold":0.3}`, .6, .8, .5, .5, .2)
	// Remaining prefill blocks, and (0 + 1000)/10 that would be active.
	scores("dynamo-cost-policy", `{"overlapScoreWeight":1,"blockSize":10}`, -140, -120, -150, -150, -180)
	if got := f.kept(t, r, "prefix-cache-affinity-filter", `{"affinityThreshold":0.6,"explorationProbability":0}`); got != "01" {
		t.Errorf("affinity filter keeps %s", got)
	}
}

// A session stays if more than half of the prompt counts as cached by weight, not if more than half
// is cached.
func TestUnifiedWeighsTiers(t *testing.T) {
	r := ask(1000)
	r.Session = "s"
	for _, c := range []struct {
		held tiers
		want int
	}{{tiers{0, 630, 0, 0}, 0}, {tiers{0, 620, 0, 0}, 1}, {tiers{0, 0, 1000, 0}, 1}, {tiers{2, 0, 1000, 0}, 0}} {
		f := newFleet(one{load: load(1, 9000), tiers: &c.held}, one{}, one{load: load(2, 0)})
		f.sessions.Bind(sessions.Binding{Session: sessions.KeyOf("s"), Endpoint: 0, At: t0})
		if at := f.pick(t, profile(t, "unified"), r); at != c.want {
			t.Errorf("%v: picked %d, want %d", c.held, at, c.want)
		}
	}
}

func TestTierParams(t *testing.T) {
	f := func(params string, want *cycle.TierWeights) {
		t.Helper()
		for _, typ := range []string{"precise-prefix-cache-producer", "precise-prefix-cache-scorer"} {
			if diff := cmp.Diff(want, build(t, typ, params).Producer.Tiers); diff != "" {
				t.Errorf("%s %s: %s", typ, params, diff)
			}
		}
	}
	f("", nil)
	f(`{"indexerConfig":{"kvBlockIndexConfig":{"enableMetrics":true}}}`, nil)
	f(`{"indexerConfig":"anything"}`, nil)
	f(`{"tierWeights":{"cpu":0.9}}`, &cycle.TierWeights{1, .9, .5, .5})
	f(`{"tierWeights":{"gpu":1,"cpu":0,"disk":0,"remote":0.25}}`, &cycle.TierWeights{1, 0, 0, .25})
	backends := `"indexerConfig":{"kvCacheBackendConfigs":[{"name":"gpu","weight":1},{"name":"CPU","weight":0.7},{"name":"tape","weight":7}]}`
	f(`{`+backends+`}`, &cycle.TierWeights{1, .7, .5, .5})
	f(`{"tierWeights":{"disk":0.1},`+backends+`}`, &cycle.TierWeights{1, .8, .1, .5})
	for _, bad := range []string{
		`{"tierWeights":{"cpu":1.1}}`, `{"tierWeights":{"disk":-0.1}}`,
		`{"indexerConfig":{"kvCacheBackendConfigs":[{"name":"cpu","weight":2}]}}`,
	} {
		var wrong *plugin.ParamError
		if _, err := try("precise-prefix-cache-producer", bad); !errors.As(err, &wrong) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

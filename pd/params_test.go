package pd

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// try makes a plugin of JSON parameters; "" means none.
func try(typ, params string) (plugin.Plugin, error) {
	row, ok := rows().Find(typ)
	if !ok {
		return plugin.Plugin{}, fmt.Errorf("no type %s", typ)
	}
	if params == "" {
		return row.New(nil)
	}
	return row.New(&plugin.Params{Decode: func(into any) error { return json.Unmarshal([]byte(params), into) }})
}

// TestDisaggParameters: older fields say the same as the newer ones.
func TestDisaggParameters(t *testing.T) {
	f := func(typ, params string, want []plugin.Use, deciders int, wantErr string) {
		t.Helper()
		p, err := try(typ, params)
		if err == nil {
			if diff := cmp.Diff(want, p.Uses); diff != "" {
				t.Errorf("%s %s: %s", typ, params, diff)
			}
			profiles := []*cycle.Profile{{Name: "decode"}, {Name: "prefill"}, {Name: "d"}, {Name: "p"}, {Name: "e"}}
			var h cycle.ProfileHandler
			if h, err = p.Handler(profiles, make([]plugin.Decider, deciders)); err == nil {
				err = fmt.Errorf("runs %d", len(h.(interface{ Profiles() []*cycle.Profile }).Profiles()))
			}
		}
		if fmt.Sprint(err) != wantErr {
			t.Errorf("%s %s: %v, want %s", typ, params, err, wantErr)
		}
	}
	use := func(field, name string) plugin.Use {
		return plugin.Use{Field: field, Name: name, Kind: plugin.KindDecider}
	}
	f("disagg-profile-handler", "", nil, 0, "runs 2") // by price
	f("disagg-profile-handler", `{"profiles":{"prefill":"none"}}`, nil, 0, "runs 1")
	f("disagg-profile-handler", `{"withoutPrefill":"fail"}`, nil, 0, "runs 2")
	f("disagg-profile-handler", `{"withoutPrefill":"never"}`, nil, 0, "parameter withoutPrefill must be decode-only or fail")
	f("pd-profile-handler", "", nil, 0, "runs 2")
	f("disagg-profile-handler", `{"threshold":10}`, nil, 0, "runs 2")
	f("pd-profile-handler", `{"threshold":10,"hashBlockSize":5,"decodeProfile":"d","prefillProfile":"p"}`, nil, 0, "runs 2")
	f("disagg-profile-handler", `{"deciderPluginName":"x"}`, []plugin.Use{use("deciderPluginName", "x")}, 1, "runs 1")
	f("disagg-profile-handler", `{"deciders":{"prefill":"x"},"threshold":1}`, []plugin.Use{use("deciders.prefill", "x")}, 1, "runs 1")
	f("disagg-profile-handler", `{"prefillDeciderPluginName":"x","encodeDeciderPluginName":"y","encodeProfile":"e"}`,
		[]plugin.Use{use("prefillDeciderPluginName", "x"), use("encodeDeciderPluginName", "y")}, 2, "runs 1")
	f("disagg-profile-handler", `{"profiles":{"decode":"other"}}`, nil, 0, `needs a scheduling profile named "other"`)
	f("disagg-profile-handler", `{"deciders":{"prefill":"x"},"deciderPluginName":"y"}`, nil, 0, "parameter deciderPluginName says something else than deciders.prefill")
	f("disagg-profile-handler", `{"threshold":-1}`, nil, 0, "parameter threshold must not be negative")
	f("pd-profile-handler", `{"primaryPort":-1}`, nil, 0, "parameter primaryPort must be a port number")
}

// TestDeciders: prefix-based-pd-decider splits from nonCachedTokens on, and
// never at 0.
func TestDeciders(t *testing.T) {
	w := &world{t: t, now: t0, d: &datadriven.TestData{Input: "holds held=900\nempty"}}
	w.fleet()
	at := func(typ, params string, tokens int) string {
		p, err := try(typ, params)
		if err != nil {
			t.Fatal(err)
		}
		c := cycle.New(cycle.Options{Pool: w.pool, Match: w.Match, Now: w.now}, &request.Request{Kind: request.KindChat, InputTokens: tokens})
		defer c.Free()
		return fmt.Sprint(p.Decider.Split(c, 0), p.Decider.Split(c, 1))
	}
	const prefix = "prefix-based-pd-decider"
	for _, tc := range []struct {
		typ, params string
		tokens      int
		want        string
	}{
		{prefix, `{"nonCachedTokens":100}`, 1000, "true true"},
		{prefix, `{"nonCachedTokens":101}`, 1000, "false true"},
		{prefix, `{"nonCachedTokens":100}`, 999, "false true"},
		{prefix, `{"nonCachedTokens":101}`, 100, "false false"},
		{prefix, `{"nonCachedTokens":1,"promptTokens":500}`, 499, "false false"},
		{prefix, `{"nonCachedTokens":1,"promptTokens":500}`, 500, "false true"},
		{prefix, `{"nonCachedTokens":0}`, 1000, "false false"},
		{prefix, "", 1000, "false false"},
		{"always-disagg-pd-decider", "", 1000, "true true"},
		{"always-disagg-multimodal-decider", "", 1000, "false false"},
	} {
		if got := at(tc.typ, tc.params, tc.tokens); got != tc.want {
			t.Errorf("%s %s of %d tokens: %s, want %s", tc.typ, tc.params, tc.tokens, got, tc.want)
		}
	}
}

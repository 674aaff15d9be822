package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/flow/gate"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/plugins"
	"github.com/grapevine-epp/grapevine/picker/programs"
)

// Policy is a named scheduling policy. Rules creates a new instance for every replica of every run.
type Policy struct {
	Name  string
	About string // one line
	Rules func() (*picker.Rules, error)
	Queue func() (*gate.Config, error) // how requests wait; nil, and a nil Config: they do not
	// Programs is how agent runs are admitted; nil, and a nil Config: they are not kept.
	Programs func() (*programs.Config, error)
	Notes    []string // settings of a file that work differently here
}

// part is a plugin of a policy: its type, weight and parameters in JSON.
type part struct {
	name   string
	weight float64
	params string
}

// of returns the policy that runs one profile of the parts. A part that is
// scorer and picker in one needs no other.
func of(name, about string, parts ...part) Policy {
	return Policy{Name: name, About: about, Rules: func() (*picker.Rules, error) {
		profile := &cycle.Profile{Name: name}
		for _, p := range parts {
			if err := p.addTo(profile); err != nil {
				return nil, fmt.Errorf("replay: policy %s: %s: %w", name, p.name, err)
			}
		}
		return &picker.Rules{Handler: plugins.Single(profile)}, nil
	}}
}

func (p part) addTo(profile *cycle.Profile) error {
	row, ok := plugins.Builtin().Find(p.name)
	if !ok {
		return fmt.Errorf("no such plugin")
	}
	built, err := row.New(&plugin.Params{Decode: func(into any) error {
		if p.params == "" {
			return nil
		}
		d := json.NewDecoder(bytes.NewReader([]byte(p.params)))
		d.DisallowUnknownFields()
		return d.Decode(into)
	}})
	if err != nil {
		return err
	}
	if built.Filter != nil {
		profile.Filters = append(profile.Filters, cycle.ProfileFilter{Name: p.name, Filter: built.Filter})
	}
	if built.Scorer != nil {
		profile.Scorers = append(profile.Scorers, cycle.ProfileScorer{Name: p.name, Weight: p.weight, Scorer: built.Scorer})
	}
	if built.Picker != nil {
		profile.Picker = built.Picker
	}
	return nil
}

// urgency returns the priority function that engine-priority-producer applies at every engine.
func urgency(weight float64) (func(*cycle.Cycle, []string, float64) (int64, bool), error) {
	row, _ := plugins.Builtin().Find("engine-priority-producer")
	built, err := row.New(&plugin.Params{Decode: func(into any) error {
		return json.Unmarshal(fmt.Appendf(nil, `{"everyEndpoint": true, "workWeight": %g}`, weight), into)
	}})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCase, err)
	}
	return built.Producer.Urgency, nil
}

// Default is the name of the policy that is used without a configuration.
const Default = "default"

// Fetching is the name of the default policy for engines that fetch blocks from each
// other.
const Fetching = "fetch"

// Warming is the name of the default policy that sends prompts to idle engines by itself.
const Warming = "warm"

// Policies returns the built-in ones.
func Policies() []Policy {
	best := part{name: "max-score-picker"}
	one := func(name, params string) part { return part{name, 1, params} }
	return []Policy{
		of(Default, "predicted time to first token and what it costs others", one("predicted-ttft-scorer", ""), best),
		of(Fetching, "default, with what other engines hold fetched where that costs less than computing it", one("predicted-ttft-scorer", `{"kvSource": "peers"}`), best),
		of(Warming, "default, with copies of prefixes at idle engines for which no request waits", one("predicted-ttft-scorer", `{"warmUp": true}`), best),
		of("unified", "stay while that pays, else lmetric", one("unified-policy", "")),
		of("lmetric", "(pending + new prefill) × requests", one("lmetric-policy", "")),
		of("sticky", "a session stays where it began", one("sticky-policy", "")),
		of("load_only", "fewest requests", one("load-only-policy", "")),
		of("epp", "prefix 3 + queue 2 + KV use 2, as other endpoint pickers did by default until 2026", part{"prefix-cache-scorer", 3, ""}, part{"queue-scorer", 2, ""},
			part{"kv-cache-utilization-scorer", 2, ""}, best),
		of("epp-precise", "precise prefix 3 + queue 2 + KV use 2", part{"precise-prefix-cache-scorer", 3, ""}, part{"queue-scorer", 2, ""},
			part{"kv-cache-utilization-scorer", 2, ""}, best),
		of("affinity", "prefix-cache affinity filter + token load, as other endpoint pickers do by default",
			part{name: "prefix-cache-affinity-filter", params: `{"ttftSource": "prefillThroughput"}`}, one("token-load-scorer", ""), best),
		of("dynamo", "Dynamo's cost, overlap weight 1", one("dynamo-cost-policy", "")),
		of("dynamo-8", "Dynamo's cost, overlap weight 8", one("dynamo-cost-policy", `{"overlapScoreWeight": 8}`)),
		of("cache-aware", "longest match while loads are balanced", one("cache-aware-policy", "")),
	}
}

// PolicyByName returns a built-in policy. A name may carry parameters of the
// policy's plugin: "default:ownWeight=1;stallWeight=0".
func PolicyByName(name string) (Policy, error) {
	base, list, tuned := strings.Cut(name, ":")
	if p, ok := apartByName(name); ok {
		return p, nil
	}
	var names []string
	for _, p := range slices.Concat(Policies(), apartPolicies()) {
		if p.Name == base && !tuned {
			return p, nil
		}
		names = append(names, p.Name)
	}
	plugin, ok := map[string]string{
		Default: "predicted-ttft-scorer", Fetching: "predicted-ttft-scorer", Warming: "predicted-ttft-scorer", "unified": "unified-policy", "dynamo": "dynamo-cost-policy", "cache-aware": "cache-aware-policy",
	}[base]
	list = map[string]string{Fetching: `kvSource="peers";`, Warming: "warmUp=true;"}[base] + list
	if tuned && ok {
		p := of(name, "", part{name: "max-score-picker"}, part{plugin, 1, object(list)}) // a policy's own picker replaces the first
		_, err := p.Rules()
		return p, err
	}
	return Policy{}, fmt.Errorf("replay: policy %q: there are %s", name, strings.Join(names, ", "))
}

// object writes a list "name=value;name=value" as a JSON object.
func object(list string) string {
	var fields []string
	for _, f := range strings.Split(list, ";") {
		name, value, _ := strings.Cut(f, "=")
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			value = strconv.FormatFloat(v, 'g', -1, 64) // JSON does not allow ".5"
		}
		fields = append(fields, strconv.Quote(name)+": "+value)
	}
	return "{" + strings.Join(fields, ", ") + "}"
}

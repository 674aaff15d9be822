package plugins

import "github.com/grapevine-epp/grapevine/picker/cycle"

// ready lists the profiles that are available by name, without a file.
var ready = []struct {
	name  string
	parts []readyPart
}{
	{"default", []readyPart{{"predicted-ttft-scorer", 1}, {"max-score-picker", 0}}},
	{"weighted", []readyPart{{"queue-scorer", 2}, {"kv-cache-utilization-scorer", 2}, {"prefix-cache-scorer", 3}, {"max-score-picker", 0}}},
	{"precise", []readyPart{{"precise-prefix-cache-scorer", 3}, {"queue-scorer", 2}, {"kv-cache-utilization-scorer", 2}, {"max-score-picker", 0}}},
	{"lmetric", []readyPart{{"lmetric-policy", 1}}},
	{"load_only", []readyPart{{"load-only-policy", 1}}},
	{"sticky", []readyPart{{"sticky-policy", 1}}},
	{"unified", []readyPart{{"unified-policy", 1}}},
	{"dynamo", []readyPart{{"dynamo-cost-policy", 1}}},
	{"cache_aware", []readyPart{{"cache-aware-policy", 1}}},
	{"random", []readyPart{{"random-picker", 0}}},
}

type readyPart struct {
	typ    string
	weight float64
}

// readyNames returns the names that readyProfile accepts; the first is the default.
func readyNames() []string {
	names := make([]string, len(ready))
	for i, r := range ready {
		names[i] = r.name
	}
	return names
}

// readyProfile builds a profile by its name. Each call creates new plugins.
func readyProfile(name string) (*cycle.Profile, bool) {
	for _, r := range ready {
		if r.name != name {
			continue
		}
		p := &cycle.Profile{Name: name}
		for _, part := range r.parts {
			typ, _ := Builtin().Find(part.typ)
			plugin, err := typ.New(nil)
			if err != nil {
				return nil, false
			}
			plugin.Join(p, part.typ, part.weight)
		}
		return p, true
	}
	return nil, false
}

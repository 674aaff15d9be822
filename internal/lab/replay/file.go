package replay

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/grapevine-epp/grapevine/internal/strict"
	"github.com/grapevine-epp/grapevine/pd"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/config"
	"github.com/grapevine-epp/grapevine/picker/flow/gate"
	"github.com/grapevine-epp/grapevine/picker/programs"
)

// Notes on configurations: features that traces or simulated engines lack.
const (
	noteSessions   = "sessions are those of the trace, not of a header or cookie"
	noteIndex      = "what is known of caches is simulated; sizes and block lengths of the index in this file do not count"
	noteEndpoints  = "engines are simulated; the endpoints of this file do not count"
	noteObjectives = "priorities are those of the trace's lines; the objectives of this file do not count"
)

// FilePolicy returns the policy of an EndpointPickerConfig file, built as the
// daemon builds it and named after the file. Its problems are strict.Problems.
func FilePolicy(path string) (Policy, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Policy{}, err
	}
	load := func() (*config.Config, error) {
		c, problems := config.Parse(path, data, config.Options{Table: pd.Table()})
		return c, strict.Problems(problems).Err()
	}
	c, err := load()
	if err != nil {
		return Policy{}, err
	}
	return Policy{
		Name: filepath.Base(path), About: "the configuration " + path, Notes: fileNotes(c),
		Rules: func() (*picker.Rules, error) { // plugins have state, so each replica has its own
			c, err := load()
			if err != nil {
				return nil, err
			}
			return c.Rules, nil
		},
		Queue: func() (*gate.Config, error) {
			c, err := load()
			if err != nil {
				return nil, err
			}
			return c.Flow.Gate(), nil
		},
		Programs: func() (*programs.Config, error) { return c.Producer.Programs, nil },
	}, nil
}

func fileNotes(c *config.Config) []string {
	var out []string
	for _, n := range c.Notes {
		out = append(out, n.String())
	}
	add := func(yes bool, note string) {
		if yes {
			out = append(out, fmt.Sprintf("%s: %s", c.File, note))
		}
	}
	p := &c.Producer
	add(len(p.Sessions) > 0, noteSessions)
	add(p.BlockTokens > 0 || p.MatchBlocks > 0 || p.BlocksPerEP > 0 || p.FixedCapacity, noteIndex)
	add(c.Discovery != nil, noteEndpoints)
	add(len(c.Rules.Names.Objectives) > 0, noteObjectives)
	return out
}

// IsFile reports whether the name of a policy is a path.
func IsFile(name string) bool {
	return strings.ContainsRune(name, filepath.Separator) || slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

package commands

import (
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
	"github.com/grapevine-epp/grapevine/picker/programs"
)

// Names chosen by clients are escaped.
func TestFlowNames(t *testing.T) {
	var out strings.Builder
	writeQueues(&out, []rules.Status{{Model: "m", Bands: []rules.BandStatus{{Flows: []rules.Tenant{
		{Flow: "café 7"}, {Flow: "\x1b[2J\tgold\n"}, {Flow: ""},
	}}}}})
	for _, want := range []string{"  café 7  ", `  \x1b[2J\tgold\n#`, "(one queue for all)"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// TestAgentRuns checks the line of status about agent runs.
func TestAgentRuns(t *testing.T) {
	for want, p := range map[string]programs.Status{
		"agent runs m: 3 tracked, which hold 700 tokens of 800; 2 requests wait for memory":                                                 {Model: "m", Programs: 3, Footprint: 700, Limit: 800, Kept: 2},
		"agent runs (unknown model): 1 tracked, which hold 9 tokens; nothing waits, since an engine does not report the size of its memory": {Programs: 1, Footprint: 9},
	} {
		if got := programsLine(&p); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

package commands

import (
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
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

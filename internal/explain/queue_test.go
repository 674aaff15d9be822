package explain

import (
	"bytes"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/picker/explanation"
)

// TestQueue: waiting and refused requests are distinguished from placed ones.
func TestQueue(t *testing.T) {
	text := func(e explanation.Explanation) string {
		var b bytes.Buffer
		if err := WriteText(&b, &Decision{Explanation: e}); err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(b.String()), " ")
	}
	waits := explanation.Queue{Outcome: "queued", Flow: "t", Waited: 1500, Expected: 4000, Reason: "another flow is next", Ahead: 2, FlowWaiting: 9, FlowInFlight: 3, FlowShare: 4, InFlight: 7, Permits: 8}
	got := text(explanation.Explanation{RequestID: "r", Queue: &waits})
	for _, want := range []string{"waits another flow is next", `flow "t" · waited 1500 ms of about 4000 · 2 of its flow ahead at this replica`, "holds 3.0 permits of its share of 4.0", "7 of 8 permits are held"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	if strings.Contains(got, "choice") {
		t.Errorf("a waiting request has a choice: %q", got)
	}
	got = text(explanation.Explanation{RequestID: "r", Refused: "as many wait as may", Queue: &explanation.Queue{Outcome: "refused_full", Flow: "t"}})
	for _, want := range []string{"refused as many wait as may", `flow "t" · waited 0 ms · refused_full`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
}

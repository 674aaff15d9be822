package explain

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/picker/explained"
)

// TestAvoided: endpoints that were no candidates are named with the reason, many of them by
// their number; of those that were not healthy the lines on health say it.
func TestAvoided(t *testing.T) {
	e := explained.Explanation{RequestID: "r", Choice: "c", Avoided: []explained.Avoided{
		{Endpoint: "a", Why: explained.AvoidedFull, More: 2.25}, {Endpoint: "b", Why: explained.AvoidedHealth}, {Endpoint: "d", Why: explained.AvoidedFull},
	}}
	for i := range 20 {
		e.Avoided = append(e.Avoided, explained.Avoided{Endpoint: fmt.Sprint("m", i), Why: explained.AvoidedModel})
	}
	var b bytes.Buffer
	if err := WriteText(&b, &Decision{Explanation: e}); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{
		"avoided a (for 2.2 s more), d: its engine refused a request for want of room",
		"avoided m0, m1, m2, m3, m4, m5, 14 more: it does not serve the model",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	if strings.Contains(got, " b") {
		t.Errorf("one that was not healthy is named without its evidence: %q", got)
	}
}

// TestAvoidedReasons: there are words for every reason.
func TestAvoidedReasons(t *testing.T) {
	for _, why := range []string{
		explained.AvoidedFull, explained.AvoidedModelFails, explained.AvoidedPlaces, explained.AvoidedPrompt, explained.AvoidedSubset,
		explained.AvoidedConversation, explained.AvoidedRole, explained.AvoidedModel,
	} {
		var b bytes.Buffer
		writeAvoided(&b, &Decision{Explanation: explained.Explanation{Avoided: []explained.Avoided{{Endpoint: "a", Why: why}}}})
		if b.Len() == 0 {
			t.Errorf("no words for %s", why)
		}
	}
}

package explain

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/picker/explanation"
)

// TestAvoided: excluded endpoints are listed with the reason, large numbers as a count. Unhealthy
// endpoints are covered by the health lines.
func TestAvoided(t *testing.T) {
	e := explanation.Explanation{RequestID: "r", Choice: "c", Avoided: []explanation.Avoided{
		{Endpoint: "a", Reason: explanation.AvoidedFull, More: 2.25}, {Endpoint: "b", Reason: explanation.AvoidedHealth}, {Endpoint: "d", Reason: explanation.AvoidedFull},
	}}
	for i := range 20 {
		e.Avoided = append(e.Avoided, explanation.Avoided{Endpoint: fmt.Sprint("m", i), Reason: explanation.AvoidedModel})
	}
	var b bytes.Buffer
	if err := WriteText(&b, &Decision{Explanation: e}); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{
		"avoided a (for 2.2 s more), d: its engine rejected a request for lack of capacity",
		"avoided m0, m1, m2, m3, m4, m5, 14 more: it does not serve the model",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	if strings.Contains(got, " b") {
		t.Errorf("unhealthy endpoint is listed without its evidence: %q", got)
	}
}

// TestAvoidedReasons: every reason has a text.
func TestAvoidedReasons(t *testing.T) {
	for _, why := range []string{
		explanation.AvoidedFull, explanation.AvoidedModelFails, explanation.AvoidedClientFails, explanation.AvoidedKindFails, explanation.AvoidedPlaces, explanation.AvoidedPrompt, explanation.AvoidedSubset,
		explanation.AvoidedConversation, explanation.AvoidedRole, explanation.AvoidedModel,
	} {
		var b bytes.Buffer
		writeAvoided(&b, &Decision{Explanation: explanation.Explanation{Avoided: []explanation.Avoided{{Endpoint: "a", Reason: why}}}})
		if b.Len() == 0 {
			t.Errorf("no text for %s", why)
		}
	}
}

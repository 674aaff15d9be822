package sim

import (
	"testing"

	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
)

// TestByPriority checks that the priority in bodies orders waiting requests.
func TestByPriority(t *testing.T) {
	core := smallCore()
	core.ByPriority = true
	e := open(t, Options{Core: core})
	p, prompts, err := e.parse([]byte(`{"model":"`+vocab.Name+`","prompt":"x","priority":-12}`), false)
	if err != nil {
		t.Fatal(err)
	}
	if j := e.job(&sequence{prompt: &prompts[0]}, p); j.Req.Priority != -12 {
		t.Errorf("priority %d", j.Req.Priority)
	}
	if _, _, err := e.parse([]byte(`{"model":"`+vocab.Name+`","prompt":"x","priority":"high"}`), false); err == nil {
		t.Error("a priority in words was taken")
	}
}

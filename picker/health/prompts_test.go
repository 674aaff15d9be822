package health

import (
	"slices"
	"testing"
	"time"
)

// TestPromptVerdictsReachOtherReplicas: a failure, and a death noticed later, reach another replica with
// prompt, endpoint and time. It then holds the prompt for equally suspect, and as long.
func TestPromptVerdictsReachOtherReplicas(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	var here, there Prompts
	var sent []Verdict
	here.OnVerdict(func(v Verdict) { sent = append(sent, v); there.Merge(v) })
	here.Failed(7, 3, at)
	here.Gone(3, at.Add(time.Second))
	want := []Verdict{{Prompt: 7, Endpoint: 3, At: at}, {Prompt: 7, Endpoint: 3, Died: true, At: at}}
	if !slices.Equal(sent, want) {
		t.Errorf("sent %+v, want %+v", sent, want)
	}
	for name, p := range map[string]*Prompts{"here": &here, "there": &there} {
		for after, suspected := range map[time.Duration]bool{0: true, promptLife: true, promptLife + 1: false} {
			if got := p.Suspected(7, at.Add(after)); got != suspected {
				t.Errorf("%s, after %v: suspected %v, want %v", name, after, got, suspected)
			}
		}
	}
}

// TestOldFailureIsReplaced: a failure after the life of the last one counts alone.
func TestOldFailureIsReplaced(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	var p Prompts
	p.Failed(7, 3, at)
	later := at.Add(promptLife + time.Second)
	p.Failed(7, 4, later)
	if p.Suspected(7, later) || !p.Failing(7, later) {
		t.Errorf("suspected %v, failing %v, want a first failure", p.Suspected(7, later), p.Failing(7, later))
	}
	p.Gone(3, later)
	if p.Suspected(7, later) {
		t.Error("the death of an engine counts for a prompt that failed there long ago")
	}
	p.Gone(4, later)
	if !p.Suspected(7, later) {
		t.Error("the death of the engine of the last failure does not count")
	}
}

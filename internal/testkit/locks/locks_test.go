package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPlantedFaults checks that calls under a mutex are found through helpers, closures and
// branches, and that calls after it or on other goroutines are not reported.
func TestPlantedFaults(t *testing.T) {
	found, err := analyze(".", []string{"./testdata/planted/..."})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range found {
		got = append(got, strings.ReplaceAll(found[i].key(), "internal/testkit/locks/testdata/", ""))
	}
	want := []string{
		"planted.T.mu: callback planted/other.Hooks.Changed in (*planted.T).CallUnder",
		"planted.T.mu: log in (*planted.T).LogByDefaultUnder",
		"planted.T.mu: log in (*planted.T).LogErrorUnder",
		"planted.T.mu: log in (*planted.T).logs",
		"planted.T.mu: os.ReadFile in planted.readFile",
		"planted.T.mu: os.WriteFile in planted.write",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

// TestAccepted: a line without a reason, and one that is there twice, are refused.
func TestAccepted(t *testing.T) {
	for _, text := range []string{"m: log in f\n", "m: log in f # a\nm: log in f # b\n"} {
		if _, err := parseAccepted(text); err == nil {
			t.Errorf("parseAccepted(%q) returned no error", text)
		}
	}
	if _, err := parseAccepted(acceptedText); err != nil {
		t.Error(err)
	}
}

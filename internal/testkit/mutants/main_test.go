package main

import (
	"os"
	"strings"
	"testing"
)

// Every change of the list is still possible: its text occurs once in its file.
func TestListFitsTheProgram(t *testing.T) {
	text, err := os.ReadFile("list.txt")
	if err != nil {
		t.Fatal(err)
	}
	all, err := parse(string(text))
	if err != nil || len(all) < 40 {
		t.Fatalf("%d changes, %v", len(all), err)
	}
	names := map[string]bool{}
	for _, m := range all {
		source, err := os.ReadFile("../../../" + m.file)
		if err != nil {
			t.Error(err)
			continue
		}
		if n := strings.Count(string(source), m.old); n != 1 {
			t.Errorf("%s: %s has %q %d times", m.name, m.file, m.old, n)
		}
		if m.old == m.new || names[m.name] || len(m.tests) == 0 {
			t.Errorf("%+v", m)
		}
		names[m.name] = true
	}
}

package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestMain makes this test program act as the command grapevine-lab when it is called by that name.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"grapevine-lab": main})
}

// TestScripts runs the sessions in testdata with the real command line.
func TestScripts(t *testing.T) { testkit.RunScripts(t, "grapevine") }

// TestHelp checks that every subcommand has a description and an example.
func TestHelp(t *testing.T) { testkit.CheckHelp(t, newRoot()) }

//go:build kube

package kube

import (
	"os"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestMain: gateways listen on port 80 and pods at addresses of their own, so the tests
// have a network of their own.
func TestMain(m *testing.M) { os.Exit(testkit.RunApart(m)) }

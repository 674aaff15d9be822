//go:build kube

package kube

import (
	"os"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit/podkit"
)

// TestMain runs the tests in a network namespace, because gateways listen on port 80 and pods have
// their own addresses.
func TestMain(m *testing.M) { os.Exit(podkit.Main(m)) }

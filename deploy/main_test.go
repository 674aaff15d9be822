//go:build kube

package deploy_test

import (
	"os"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit/podkit"
)

// TestMain: pods listen on the ports of the charts, at addresses of their own.
func TestMain(m *testing.M) { os.Exit(podkit.Main(m)) }

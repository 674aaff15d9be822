//go:build kube

package deploy_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit/podkit"
)

// TestMain: pods listen on the ports of the charts, at addresses of their own. By the name vllm this
// program is an engine.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "vllm" {
		os.Exit(runEngine(os.Args[1:]))
	}
	os.Exit(podkit.Main(m))
}

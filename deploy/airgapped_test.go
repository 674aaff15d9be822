//go:build kube

package deploy_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/modelfiles"
	"github.com/grapevine-epp/grapevine/internal/testkit/hub"
	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
	"github.com/grapevine-epp/grapevine/internal/testkit/podkit"
)

// huggingFaceHome returns a folder with the Hugging Face cache of one model, as engines leave it on a
// volume. Everybody may read it.
func huggingFaceHome(t *testing.T) string {
	t.Helper()
	home, err := os.MkdirTemp("", "hugging-face-home") // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	model := filepath.Join(home, "hub", "models--lab--tiny")
	snapshot := filepath.Join(model, "snapshots", hub.Commit)
	for _, dir := range []string{snapshot, filepath.Join(model, "refs")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := vocab.New().WriteModel(snapshot); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(model, "refs", "main"), []byte(hub.Commit), 0o644); err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(home, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.Chmod(path, 0o755)
		}
		return os.Chmod(path, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	return home
}

// testAirGapped installs the chart with each example for clusters without access to the Hub, unchanged,
// and runs its pods: they find the model's files in the volume, the image or the copy of the init
// container, and become exact.
func testAirGapped(t *testing.T, c *kubekit.Cluster, binary string) {
	home := huggingFaceHome(t)
	images := imagesOf(t, binary)
	// As the comments in the examples say: an image that has only the folder hub, and one with a shell too.
	images["REGISTRY/model-files:1"] = podkit.Image{Files: map[string]string{"/hub": filepath.Join(home, "hub")}}
	shell := podkit.Image{Files: map[string]string{"/hub": filepath.Join(home, "hub")}}
	for _, dir := range []string{"/bin", "/lib", "/lib64", "/usr"} {
		if _, err := os.Stat(dir); err == nil {
			shell.Files[dir] = dir
		}
	}
	images["REGISTRY/model-files-with-shell:1"] = shell
	for _, example := range []string{"air-gapped-pvc", "air-gapped-image", "air-gapped-init"} {
		t.Run(example, func(t *testing.T) {
			c.Namespace(example)
			engine := openEngine(t, c, example, "vllm-0", sim.Options{Root: repository}, annotated)
			helm(t, c, "install", "llama", chart, "-n", example, "--set", "pool.create=true,pool.matchLabels.app=vllm", "-f", "examples/models/"+example+".yaml")
			k := podkit.Open(t, c, images)
			k.Bind(example, "models", home)
			k.Expose(example)
			p := k.Deployment(example, "llama-epp")
			p.WaitReady()
			waitForExact(t, c, p)
			st, text := statusOf(p)
			if len(st.Endpoints) != 1 || st.Endpoints[0].Address != engine {
				t.Errorf("endpoints in the status, want %s:\n%s", engine, text)
			}
			if len(st.ModelFiles) != 1 || st.ModelFiles[0].Origin != modelfiles.OriginCache {
				t.Errorf("model files in the status, want one model from the cache:\n%s", text)
			}
		})
	}
}

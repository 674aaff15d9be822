package prefix

import (
	"maps"
	"testing"

	"github.com/grapevine-epp/grapevine/indexer/approx"
	"github.com/grapevine-epp/grapevine/indexer/block"
)

// TestFoundModelsHaveTheirNames: the aliases and adapters of models that are found are known under the model's
// name, and status shows a model without files with the reason.
func TestFoundModelsHaveTheirNames(t *testing.T) {
	h := block.NewHasher(block.Seed{1})
	m, err := OpenModels(nil, ModelsOptions{Hasher: h, Approx: approx.New(approx.Options{Hasher: h})})
	if err != nil {
		t.Fatal(err)
	}
	defer m.all.Close()
	m.SetFound([]ModelOptions{{Name: "m", Path: t.TempDir(), Aliases: []string{"org/m"}, Adapters: []string{"lora"}}})
	if err := m.all.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := m.all.Names(), map[string]string{"m": "m", "org/m": "m", "lora": "m"}; !maps.Equal(got, want) {
		t.Errorf("names %v, want %v", got, want)
	}
	st := m.Status()
	if len(st) != 1 || st[0].Name != "m" || st[0].State != "failed" || st[0].Error == "" {
		t.Errorf("Status() = %+v, want the model, failed for a reason", st)
	}
}

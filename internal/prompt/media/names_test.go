package media

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

type vectors struct {
	RGB     string `json:"png_rgb_4x3_base64"`
	RGBA    string `json:"png_rgba_2x2_base64"`
	ModelID string `json:"model_id"`
	Cases   []struct {
		Version   string         `json:"version"`
		Algorithm string         `json:"algorithm"`
		Model     string         `json:"model_id"`
		Item      string         `json:"item"`
		UUID      string         `json:"uuid"`
		ID        string         `json:"id"`
		Kwargs    map[string]any `json:"mm_processor_kwargs"`
		Older     map[string]any `json:"hf_processor_mm_kwargs"`
	}
}

func load(t testing.TB) (v vectors) {
	t.Helper()
	b, err := os.ReadFile("testdata/identifiers.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestEngineNames checks that images have vLLM's names, for every version, once an event has
// revealed the variant. A client's uuid is used at once.
func TestEngineNames(t *testing.T) {
	v, tried := load(t), 0
	for _, c := range v.Cases {
		if c.Kwargs != nil || c.Older != nil || c.Algorithm != "blake3" {
			continue
		}
		tried++
		n := New("another", v.ModelID)
		it := Item{Kind: "image", UUID: c.UUID, Data: map[string]string{"png_rgb": v.RGB, "png_rgba": v.RGBA}[c.Item]}
		n.Add([]byte(c.ID))
		name, ok, err := n.Name(context.Background(), []byte("at "), it)
		if !ok || err != nil || string(name) != "at "+c.ID {
			t.Errorf("vLLM %s, %s%s: %s (%v, %v), not %s", c.Version, c.Item, c.UUID, name, ok, err, c.ID)
		}
		// Other images then use the same variant, even if they were not announced.
		if c.UUID == "" && !strings.Contains(n.Status(), "seen in its events") {
			t.Errorf("vLLM %s: %s", c.Version, n.Status())
		}
	}
	if tried != 5 {
		t.Errorf("%d cases", tried)
	}
}

package sizing

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"
)

func writeStatus(t *testing.T, s string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "status.json")
	if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadProfile(t *testing.T) {
	p, err := ReadProfile(writeStatus(t, `{"endpoints": [
		{"address": "10.0.0.1:8000", "facts": {"block_size": 16, "kv_blocks": 1000, "slots": 256, "load": {"prefill_share": 0.5},
			"cost": {"base_s": 0.02, "per_token_s": 60e-6, "per_pair_s": 1e-9, "step_s": 0.02, "per_sequence_s": 40e-6, "per_context_token_s": 20e-9, "prefill_samples": 50, "decode_samples": 50}}},
		{"address": "10.0.0.2:8000", "facts": {"cost": {"per_token_s": 80e-6, "per_pair_s": 1e-9, "step_s": 0.03, "prefill_samples": 50, "decode_samples": 50}}},
		{"address": "10.0.0.3:8000", "facts": {"cost": {"per_token_s": 1, "prefill_samples": 3, "decode_samples": 50}}},
		{"address": "10.0.0.4:8000"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string][2]float64{
		"A": {p.Model.A, 20}, "B": {p.Model.B, 70}, "E": {p.Model.E, 1}, "C": {p.Model.C, 10}, "D": {p.Model.D, 5},
		"Tokens": {float64(p.Tokens), 16000}, "Slots": {float64(p.Slots), 256},
	} {
		if math.Abs(v[0]-v[1]) > 1e-6 {
			t.Errorf("%s = %g, want %g", name, v[0], v[1])
		}
	}
	for s, want := range map[string]error{`{"endpoints": [{"address": "10.0.0.4:8000"}]}`: ErrProfile, `{}`: ErrProfile} {
		if _, err := ReadProfile(writeStatus(t, s)); !errors.Is(err, want) {
			t.Errorf("ReadProfile(%s) = %v, want %v", s, err, want)
		}
	}
	if _, err := ReadProfile(writeStatus(t, `not JSON`)); err == nil {
		t.Error("ReadProfile accepted a text")
	}
	if _, err := ReadProfile("none.json"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ReadProfile() = %v, want a missing file", err)
	}
}

package replay

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/trace"
	"github.com/grapevine-epp/grapevine/internal/strict"
)

func TestFleets(t *testing.T) {
	f, err := ParseFleet("1+2x0.5+1x8b")
	if err != nil || f.Capacity() != 3 || !f.Mixed() || len(f.Kinds) != 4 {
		t.Fatalf("%+v, %v", f, err)
	}
	var c Case
	f.Apply(&c)
	if c.Endpoints != 4 || !slices.Equal(c.Slow, []float64{1, 2, 2, 1}) || c.Models[3].B != 16.6 || c.Capacity() != 3 {
		t.Errorf("%+v", c)
	}
	for _, s := range []string{"", "0", "x", "-1", "4x", "4x0", "4xNaN", "4+", "2x13b", "99999"} {
		if _, err := ParseFleet(s); !errors.Is(err, ErrCase) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// TestMixedFleet: an engine of a tenth of the speed takes ten times as long.
func TestMixedFleet(t *testing.T) {
	one := read(t, `{"timestamp":0,"input_length":5000,"output_length":1,"hash_ids":[1,2,3,4,5,6,7,8,9]}`, trace.ReadOptions{})
	first := func(fleet string) time.Duration {
		f, err := ParseFleet(fleet)
		if err != nil {
			t.Fatal(err)
		}
		c := Case{Trace: one, Policy: policy(t, "load_only")}
		f.Apply(&c)
		return run(t, c).Outcomes[0].First
	}
	usual, slow, small := first("1"), first("1x0.1"), first("1x8b")
	if d := slow - 10*usual; d > time.Microsecond || d < -time.Microsecond || small >= usual {
		t.Errorf("%v, %v, %v", usual, slow, small)
	}
}

func TestFilePolicy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "epp.yaml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte("apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("plugins:\n- {type: lmetric-policy}\n")
	p, err := FilePolicy(path)
	if err != nil || p.Name != "epp.yaml" {
		t.Fatal(p.Name, err)
	}
	c := Case{Trace: small(t, "chat", 5, 1), Policy: p, Endpoints: 4, Replicas: 2, Seed: 3}
	got := encoded(t, c)
	if c.Policy = policy(t, "lmetric"); encoded(t, c) != got {
		t.Error("a file with lmetric decides otherwise than lmetric")
	}
	write("plugins:\n- {type: lmetric}\n")
	var problems strict.Problems
	if _, err := FilePolicy(path); !errors.As(err, &problems) || problems[0].Line != 4 {
		t.Errorf("%v", err)
	}
	if IsFile("default") || !IsFile("epp.yml") || !IsFile("conf/epp") {
		t.Error("paths and names are mixed up")
	}
}
